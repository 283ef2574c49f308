"""Ways to bring a network that is not in the zoo, and data that do not fit at once: every command copes, and says so."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tests.e2e.stranger import MODEL, OPTIONS, absolute, project_spec

from neurotest.runs.store import Run

Cli = Callable[..., Any]


def test_a_selection_and_a_measurement_remember_their_network(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Path.cwd()
    monkeypatch.chdir(project)
    options = [*OPTIONS, "--limit", 40, "-q", "--json"]
    chosen = cli("select", "py:models.py:cnn", "dir:photos", *options, "--budget", 10, "--out", elsewhere / "select")
    assert chosen.code == 0, chosen.err
    assert cli("cover", "py:models.py:cnn", "dir:photos", *options, "--criteria", "nc", "--out", elsewhere / "cover").code == 0
    monkeypatch.chdir(elsewhere)
    judged = cli("evaluate", "select", "--json", "-q")
    assert judged.code == 0, judged.err
    assert next(iter(json.loads(judged.out)["suites"].values()))["outputs"] == 10
    for name in ("select", "cover"):
        with Run.open(name) as run:
            assert run["config"]["description"]["weights"] == str((project / "cnn.safetensors").resolve())


def test_the_doctor_numbers_class_folders_as_the_network_does(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are sorted by name, which is not the network's order: accuracy is that of select, not that of chance."""
    monkeypatch.chdir(project)
    content = json.loads(cli("doctor", "py:models.py:cnn", "dir:photos", *OPTIONS, "-q", "--json").out)
    assert content["accuracy"] > 0.6
    Path("others.txt").write_text(Path("classes.txt").read_text().replace("bag", "bags"))
    others = cli("doctor", "py:models.py:cnn", "dir:photos", *OPTIONS, "--classes", "others.txt", "-q")
    assert "'bag' is not a class of the target. Did you mean bags?" in others.out


@pytest.mark.parametrize(
    "command",
    [
        ["doctor"],
        ["select"],
        ["cover", "--criteria", "nc"],
        ["fuzz", "--guide", "random", "--iterations", "1"],
        ["attack", "--attack", "fgsm"],
    ],
    ids=lambda command: command[0],
)
def test_images_that_cannot_be_used_are_mentioned(
    command: list[str], project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(project / "photos", "photos")
    (Path("photos") / "bag" / "broken.png").write_bytes(b"no picture")
    Image.new("L", (31, 31)).save("photos/bag/larger.png")
    options = [] if command == ["doctor"] else ["--out", tmp_path / "run"]
    result = cli(command[0], project_spec(project), "dir:photos", *absolute(project), *command[1:], *options)
    assert result.code == 0, result.err
    text = result.out + result.err
    assert len(re.findall(r"1 file skipped \(first: bag/broken.png", text)) == 1, result.err
    assert len(re.findall(r"1 of 81 files are not 1x28x28 \(first: bag/larger.png", text)) == 1, result.err


# -- other ways to bring a network


def test_a_state_dict_and_a_module_path(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path("own_package")
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "nets.py").write_text(MODEL)
    torch.save(load_file(project / "cnn.safetensors"), "cnn.pt")
    options = ["cnn.pt" if one.endswith(".safetensors") else one for one in absolute(project)]
    fuzz = ["fuzz", "py:own_package.nets:cnn", f"dir:{project / 'photos'}", *options, "--guide", "random", "--batch", 32]
    first = cli(*fuzz, "--iterations", 10, "--out", "run", "--json", "-q")
    assert first.code == 0, first.err
    for name in ("own_package", "own_package.nets"):  # as in a new process
        monkeypatch.delitem(sys.modules, name)
    run = Path("run").resolve()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert cli("shrink", run, "-q").code == 0
    assert cli("fuzz", "--resume", run, "--iterations", 12, "-q").code == 0


def test_an_exported_network(project: Path, cli: Cli) -> None:
    scope: dict[str, Any] = {}
    exec(MODEL, scope)
    net = scope["cnn"]()
    net.load_state_dict(load_file(project / "cnn.safetensors"))
    exported = torch.export.export(
        net.eval(), (torch.rand(2, 1, 28, 28),), dynamic_shapes=({0: torch.export.Dim("n")},), strict=True
    )
    torch.export.save(exported, "cnn.pt2")
    options = absolute(project)[2:]
    fuzz = ["fuzz", "pt2:cnn.pt2", f"dir:{project / 'photos'}", *options, "--guide", "random", "--batch", 32]
    first = cli(*fuzz, "--iterations", 10, "--out", "run", "--json", "-q")
    assert first.code == 0, first.err
    for command in (["shrink", "run"], ["fuzz", "--resume", "run", "--iterations", 12], ["evaluate", "run"]):
        result = cli(*command, "-q")
        assert result.code == 0, (command, result.err)


def test_a_description_in_a_file_is_stored_in_the_run(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Path.cwd()
    shutil.copytree(project, "copy", ignore=shutil.ignore_patterns("run"))
    monkeypatch.chdir("copy")
    Path("neurotest.toml").write_text(
        '[target]\nweights = "cnn.safetensors"\nmean = [0.3]\nstd = [0.4]\nclasses = "classes.txt"\nsize = "1x28x28"\n'
    )
    fuzz = ["fuzz", "py:models.py:cnn", "dir:photos", "--guide", "random", "--batch", 32, "--iterations", 10]
    first = cli(*fuzz, "--out", elsewhere / "run", "--json", "-q")
    assert first.code == 0, first.err
    assert "from ./neurotest.toml" in first.err
    monkeypatch.chdir(elsewhere)
    assert cli("shrink", "run", "-q").code == 0


def test_versions_of_a_network_are_driven_apart(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Path.cwd()
    state = load_file(project / "cnn.safetensors")
    save_file({name: value + 0.02 * torch.randn_like(value) for name, value in state.items()}, "new.safetensors")
    monkeypatch.chdir(project)
    options = ["--seeds", "dir:photos", *OPTIONS, "--limit", 20, "--steps", 3, "-q", "--json"]
    versions = ["py:models.py:cnn", "py:models.py:cnn", "zoo:fashion-lenet1"]
    diff = ["diff", *versions, *options, "--weights", elsewhere / "new.safetensors"]
    first = cli(*diff, "--out", elsewhere / "run")
    assert first.code == 0, first.err
    monkeypatch.chdir(elsewhere)
    with Run.open("run") as run:
        weights = [one.get("weights") for one in run["config"]["descriptions"]]
    assert weights == [str((project / "cnn.safetensors").resolve()), str((elsewhere / "new.safetensors").resolve()), None]
    assert cli("evaluate", "run", "-q").code == 0
    monkeypatch.chdir(project)
    many = cli(*diff, "--weights", "cnn.safetensors", "--out", elsewhere / "many")
    assert many.code == 2
    assert "--weights 3 times, but 2 of the targets take it" in many.err
