"""The command line as a user meets it: the contract's spellings, JSON, exit codes, and one sentence for bad input."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.unit.report.subjects import own_scripts

MODEL = """
import torch
from torch import nn

class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(4 * 8 * 8, 3)

    def forward(self, x):
        return self.fc(self.relu(self.conv(x)).flatten(1))

def build():
    return Tiny()

def softmaxed():
    return nn.Sequential(Tiny(), nn.Softmax(dim=1))

def boxes():
    class Boxes(Tiny):
        def forward(self, x):
            return {"boxes": x}
    return Boxes()

def broken():
    raise RuntimeError("no such disk")

number = 3
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "my_model.py"
    file.write_text(MODEL)
    return file


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    file = tmp_path / "pool.npz"
    np.savez(file, x=random.random((40, 1, 8, 8), dtype=np.float32), y=random.integers(0, 3, 40))
    return file


def test_help_is_quick_and_imports_no_torch() -> None:
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-X", "importtime", "-m", "neurotest", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "select" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not imported & {"torch", "numpy", "kornia", "rich"}
    # Generous: what counts is that nothing slow is imported; the figure itself is measured, not tested.
    assert ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime < 2


def test_the_options_of_a_command_are_there_wherever_it_is_named(cli) -> None:
    """Only the commands among the words have options; a command without them would do nothing and exit 0."""
    asked = {words: cli(*words).out for words in (("cover", "--help"), ("--", "cover", "--help"), ("bench", "probe", "--help"))}
    for words, said in asked.items():
        assert ("--repeats" if "bench" in words else "--criteria") in said
    for group in ("bench", "zoo", "data", "runs"):
        assert "Commands:" in cli(group, "--help").out


def test_help_names_every_command(cli) -> None:
    from typer.main import get_command

    from neurotest.cli.app import app

    said = cli("--help").out
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"  {name} " in said
        assert command.get_short_help_str(20).removesuffix("...").removesuffix(".") in said


def test_version(cli) -> None:
    from neurotest import __version__

    assert cli("--version") == (0, f"neurotest {__version__}\n", "")


def test_an_automatic_batch_is_the_default(cli, model: Path, pool: Path) -> None:
    words = ("select", f"py:{model}:build", f"npz:{pool}#x,y", "--json", "--method", "deepgini", "--batch")
    assert json.loads(cli(*words, "auto").out)["scores"] == json.loads(cli(*words, "250").out)["scores"]
    code, _, said = cli(*words, "many")
    assert code == 2
    assert "--batch 'many': expected an integer or auto" in said


def test_select_own_model_and_data_as_json(cli, model: Path, pool: Path) -> None:
    result = cli("select", f"py:{model}:build", f"npz:{pool}#x,y", "--method", "deepgini", "--budget", "10%", "--json")
    assert result.code == 0, result.err
    content = json.loads(result.out)
    assert content["method"] == "deepgini"
    assert len(content["indices"]) == len(content["scores"]) == 4
    assert content["scores"] == sorted(content["scores"], reverse=True)
    assert 0 <= content["fdr"] <= 1
    assert content["fdr_interval"][0] <= content["fdr"] <= content["fdr_interval"][1]
    assert set(content["random"]) >= {"fdr", "fdr_interval"}
    assert (Path(content["run"]) / "run.sqlite").is_file()


def test_unlabelled_pool_has_an_order_but_no_quality(cli, model: Path, pool: Path) -> None:
    content = json.loads(cli("select", f"py:{model}:build", f"npz:{pool}#x", "--json").out)
    assert len(content["indices"]) == 2
    assert "fdr" not in content


def test_several_methods_and_a_report(cli, model: Path, pool: Path) -> None:
    methods = ("--method", "margin", "--method", "random")
    command = ("select", f"py:{model}:build", f"npz:{pool}#x,y", *methods, "--out", "run", "--budget", 5)
    content = json.loads(cli(*command, "--json").out)
    assert list(content["methods"]) == ["margin", "random"]
    result = cli("report", "run")
    assert result.code == 0, result.err
    page = Path("run/report.html").read_text()
    assert own_scripts(page)
    assert "data:image/png" in page
    assert cli(*command).code == 2  # a run is never overwritten


def test_human_table_names_random_and_interval(cli, model: Path, pool: Path) -> None:
    result = cli("select", f"py:{model}:build", f"npz:{pool}#x,y", "--budget", 10, "--out", "run")
    assert result.code == 0, result.err
    assert "expected at random" in result.out
    assert "95 % interval" in result.out


def test_near_chance_is_said(cli, model: Path, pool: Path) -> None:
    result = cli("select", f"py:{model}:build", f"npz:{pool}#x", "--method", "nss", "--budget", 3, "--json")
    assert result.code == 0, result.err
    assert "near chance" in result.err


def test_originals_make_nss_paired(cli, model: Path, pool: Path) -> None:
    result = cli("select", f"py:{model}:build", f"npz:{pool}#x", "--method", "nss", "--originals", f"npz:{pool}#x", "--json")
    content = json.loads(result.out)
    assert "near chance" not in result.err
    assert content["scores"] == [0.0, 0.0]  # nothing changed, so nothing is sensitive
    assert content["indices"] == [0, 1]


def test_fail_if(cli, model: Path, pool: Path) -> None:
    command = ("select", f"py:{model}:build", f"npz:{pool}#x,y", "--json")
    assert cli(*command, "--fail-if", "fdr>=0").code == 1
    assert cli(*command, "--fail-if", "fdr>1.1").code == 0
    assert cli(*command, "--fail-if", "random.fdr>1").code == 0
    assert cli(*command, "--fail-if", "nothing>1").code == 2
    assert cli(*command, "--fail-if", "fdr").code == 2


def test_description_from_toml(cli, model: Path, pool: Path) -> None:
    Path("neurotest.toml").write_text('[target]\noutputs = "probs"\n')
    result = cli("select", f"py:{model}:softmaxed", f"npz:{pool}#x,y", "--json")
    assert result.code == 0, result.err
    assert "neurotest.toml" in result.err
    Path("neurotest.toml").write_text('[target]\nspec = "py:evil.py:build"\n')
    assert cli("select", f"py:{model}:build", f"npz:{pool}#x,y").code == 2


def bad(name: str, *args: str, says: str) -> object:
    return pytest.param(args, says, id=name)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        bad("no source", "lenet5", "npz:{pool}#x,y", says="has no source"),
        bad("no source, a zoo name", "fashion-lenet5", "npz:{pool}#x,y", says="zoo:fashion-lenet5"),
        bad("no data source", "py:{model}:build", "{pool}", says="npz:"),
        bad("unknown zoo network", "zoo:fashion-lenet6", "npz:{pool}#x,y", says="fashion-lenet5"),
        bad("no callable", "py:{model}", "npz:{pool}#x,y", says="build"),
        bad("unknown callable", "py:{model}:bild", "npz:{pool}#x,y", says="Did you mean build"),
        bad("callable fails", "py:{model}:broken", "npz:{pool}#x,y", says="no such disk"),
        bad("detection", "py:{model}:boxes", "npz:{pool}#x,y", says="not supported"),
        bad("softmax", "py:{model}:softmaxed", "npz:{pool}#x,y", says="--outputs probs"),
        bad("missing file", "py:{model}:build", "npz:nowhere.npz#x,y", says="nowhere.npz"),
        bad("missing array", "py:{model}:build", "npz:{pool}#z", says="z"),
        bad("unknown method", "py:{model}:build", "npz:{pool}#x,y", "--method", "deepgin", says="Did you mean deepgini"),
        bad("unknown option", "py:{model}:build", "npz:{pool}#x,y", "--method", "nss:q=1", says="has no option"),
        bad("budget 0", "py:{model}:build", "npz:{pool}#x,y", "--budget", "0", says="budget=0"),
        bad("budget too large", "py:{model}:build", "npz:{pool}#x,y", "--budget", "41", says="only 40"),
        bad("budget no number", "py:{model}:build", "npz:{pool}#x,y", "--budget", "many", says="budget"),
        bad(
            "unknown layer", "py:{model}:build", "npz:{pool}#x,y", "--method", "nss", "--layers", "conw", says="Did you mean conv"
        ),
        bad("layers without need", "py:{model}:build", "npz:{pool}#x,y", "--layers", "conv", says="outputs only"),
        bad("no originals", "py:{model}:build", "npz:{pool}#x,y", "--method", "nss:reference=original", says="--originals"),
        bad("outside the bounds", "py:{model}:build", "npz:{pool}#x,y", "--bounds", "0", "0.5", says="outside bounds"),
        bad("bounds reversed", "py:{model}:build", "npz:{pool}#x,y", "--bounds", "1", "0", says="bounds"),
        bad("wrong size", "py:{model}:build", "npz:{pool}#x,y", "--size", "3x8x8", says="3x8x8"),
        bad("no weights file", "py:{model}:build", "npz:{pool}#x,y", "--weights", "none.pt", says="none.pt"),
        bad("mean without std", "py:{model}:build", "npz:{pool}#x,y", "--mean", "0.5", says="std"),
        bad("mean no number", "py:{model}:build", "npz:{pool}#x,y", "--mean", "half", "--std", "1", says="--mean"),
        bad("limit 0", "py:{model}:build", "npz:{pool}#x,y", "--limit", "0", says="limit"),
        bad("batch 0", "py:{model}:build", "npz:{pool}#x,y", "--batch", "0", says="--batch 0"),
        bad("no such device", "py:{model}:build", "npz:{pool}#x,y", "--device", "warp", says="warp"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(cli, model: Path, pool: Path, args: tuple[str, ...], says: str) -> None:
    result = cli("select", *(a.format(model=model, pool=pool) for a in args))
    assert result.code == 2, (result.out, result.err)
    assert says in result.err
    assert "Traceback" not in result.err
    assert len([line for line in result.err.splitlines() if line.startswith("neurotest:")]) == 1
    assert not list(Path().glob("neurotest-runs/*")), "a run was left behind"


def test_bad_input_as_json_is_one_object(cli, model: Path) -> None:
    result = cli("select", f"py:{model}:build", "npz:nowhere.npz#x", "--json")
    assert result.code == 2
    assert "nowhere.npz" in json.loads(result.out)["error"]


def test_unwritable_out(cli, model: Path, pool: Path) -> None:
    Path("taken").write_text("a file")
    result = cli("select", f"py:{model}:build", f"npz:{pool}#x,y", "--out", "taken")
    assert result.code == 2
    assert "taken" in result.err
    if os.geteuid() != 0:  # root may write anywhere
        Path("closed").mkdir(mode=0o500)
        assert cli("select", f"py:{model}:build", f"npz:{pool}#x,y", "--out", "closed/run").code == 2


def test_nan_outputs_cannot_be_ranked(cli, tmp_path: Path, pool: Path) -> None:
    file = tmp_path / "nan_model.py"
    file.write_text(MODEL + "\ndef build_nan():\n    net = Tiny()\n    net.fc.bias.data[0] = float('nan')\n    return net\n")
    result = cli("select", f"py:{file}:build_nan", f"npz:{pool}#x,y")
    assert result.code == 2
    assert "NaN" in result.err


def test_list_names_every_registered_method(cli) -> None:
    from neurotest import registry

    listed = json.loads(cli("list", "selector", "--json").out)["selector"]
    assert set(listed) == set(registry.entries("selector"))
    assert all(entry["summary"] and entry["paper"] and entry["cost"] for entry in listed.values())
    assert "deepgini" in cli("list").out
    assert cli("list", "nonsense").code == 2


def test_runs_list_and_clean(cli, model: Path, pool: Path) -> None:
    for name in ("a", "b"):
        assert cli("select", f"py:{model}:build", f"npz:{pool}#x", "--out", f"neurotest-runs/{name}", "-q").code == 0
    assert len(json.loads(cli("runs", "list", "--json").out)["runs"]) == 2
    everywhere = json.loads(cli("runs", "list", "--json").out)
    assert json.loads(cli("runs", "list", "neurotest-runs", "--json").out) == everywhere
    assert json.loads(cli("runs", "list", "--root", "neurotest-runs", "--json").out) == everywhere
    elsewhere = cli("runs", "list", "nowhere")
    assert (elsewhere.code, "does not exist" in elsewhere.err) == (2, True)
    inside = cli("runs", "list", "neurotest-runs/a")
    assert (inside.code, "is a run itself" in inside.err) == (2, True)
    assert cli("runs", "clean", "--yes").code == 2  # says which runs it wants to know
    assert len(json.loads(cli("runs", "clean", "--keep", "1", "--yes", "--json").out)["removed"]) == 1
    assert len(list(Path("neurotest-runs").iterdir())) == 1
