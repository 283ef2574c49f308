"""After `neurotest init` every command needs the network and its inputs and nothing else, neither what describes the network nor
training data: a stranger's network, photographs of several sizes, and a ViT of timm; a run that moves, and one that is killed."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests import commands
from tests.e2e.servers import Server
from tests.e2e.stranger import PHOTOGRAPHS, batches, make_photographs
from tests.waiting import until

from neurotest.runs.store import Run

Cli = Callable[..., Any]
SRC = Path(__file__).parents[2] / "src"
TARGET, DATA, HOLDOUT = "py:models.py:cnn", "dir:photos#labels.csv[:24]", "dir:photos#labels.csv[24:]"
QUICK_REPAIR = ["--protocol", "default:epochs=1", "--control", "none", "--attack", "none", "--repeats", 1]
# Every command as it is typed in the folder, runs named so that follow-up commands find them.
WALK: dict[str, list[object]] = {
    "doctor": ["doctor", "{target}", "{data}"],
    "cover": ["cover", "{target}", "{data}", "--out", "cover"],
    "select": ["select", "{target}", "{data}", "--method", "deepgini", "--budget", 5, "--out", "select"],
    "score": ["score", "{target}", "{data}", "--out", "score"],
    "fuzz": ["fuzz", "{target}", "{data}", "--forwards", 300, "--out", "fuzz"],
    "swarm": ["swarm", "{target}", "{data}", "--limit", 4, "--evaluations", 60, "--out", "swarm"],
    "attack": ["attack", "{target}", "{data}", "--limit", 6, "--attack", "fgsm", "--out", "attack"],
    "describe": ["describe", "{target}", "{data}", "--limit", 24, "--out", "describe"],
    "diff": ["diff", "{target}", "--seeds", "{data}", "--method", "dlfuzz", "--limit", 6, "--out", "diff"],
    "illuminate": ["illuminate", "{target}", "{data}", "--forwards", 200, "--out", "illuminate"],
    "explain": ["explain", "fuzz"],
    "evaluate": ["evaluate", "fuzz", "attack"],
    "repair": ["repair", "{target}", "fuzz", *QUICK_REPAIR, "--out", "repair"],
    "report": ["report", "fuzz"],
    "check": ["check", "{target}", "{data}", "--time", 20, "--out", "check"],
}


def walk(cli: Cli, target: str, data: str, *left_out: str) -> None:
    for name, words in WALK.items():
        if name in left_out:
            continue
        result = cli(*(str(word).format(target=target, data=data) for word in words), "--json", "-q")
        assert result.code == 0, (name, result.err)
        assert json.loads(result.out), name


@pytest.fixture
def photographs(project: Path, cli: Cli) -> Path:
    """The stranger's folder, with a table of labels, and what `init` wrote there."""
    folder = Path.cwd()
    truth = make_photographs(project, folder, 40)
    with open(folder / "photos" / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows([("file", "label"), *truth.items()])
    shutil.move(folder / "photos" / "labels.csv", folder / "labels.csv")
    written = cli("init", TARGET, DATA, *PHOTOGRAPHS, "--train", DATA, "--holdout", HOLDOUT, "--json")
    assert written.code == 0, written.err
    return folder


def test_the_file_says_what_was_typed(photographs: Path) -> None:
    text = (photographs / "neurotest.toml").read_text()
    for line in ('weights = "cnn.safetensors"', "mean = [0.3]", "std = [0.4]", 'size = "1x28x28"', "resize = "):
        assert line in text, text
    assert tomllib.loads(text)["data"] == {"train": DATA, "holdout": HOLDOUT}


def test_damaged_files_stop_a_score_that_is_strict(photographs: Path, cli: Cli) -> None:
    (photographs / "photos" / "IMG_2003.jpg").write_bytes(b"no picture")
    lenient = cli("score", TARGET, "dir:photos", "--out", "lenient", "--json", "-q")
    assert lenient.code == 0, lenient.err
    assert json.loads(lenient.out)["inputs"] == 39
    strict = cli("score", TARGET, "dir:photos", "--strict", "--out", "strict", "-q")
    assert strict.code == 2
    assert "IMG_2003.jpg" in strict.err
    assert not Path("strict").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_command_after_init_on_a_strangers_network(
    photographs: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    walk(cli, TARGET, DATA)
    with Server("label", TARGET, "dir:photos", cwd=photographs) as server:
        assert server.ask("/").status == 200
        server.stop()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    moved = shutil.move(photographs / "fuzz", elsewhere / "moved")
    monkeypatch.chdir(elsewhere)
    for command in (["families", moved], ["report", moved], ["shrink", moved], ["fuzz", "--resume", moved, "--forwards", 340]):
        result = cli(*command, "-q")
        assert result.code == 0, (command, result.err)


@pytest.mark.slow
def test_a_campaign_that_is_killed_goes_on_after_init(photographs: Path, cli: Cli) -> None:
    words = ["fuzz", TARGET, DATA, "--forwards", "100000", "--batch", "16", "--out", "killed", "-q"]
    process = commands.start(*words, cwd=photographs)
    until(lambda: batches(photographs / "killed") > 2, "three batches in the run", process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Run.open(photographs / "killed") as run:
        forwards = run["progress"]["forwards"]
    result = cli("fuzz", "--resume", "killed", "--forwards", forwards + 50, "--json", "-q")
    assert result.code == 0, result.err
    assert json.loads(result.out)["forwards"] >= forwards + 50


@pytest.mark.slow
@pytest.mark.models("timm")
@pytest.mark.filterwarnings("ignore")
def test_every_command_after_init_on_a_vit_of_timm(cli: Cli) -> None:
    from neurotest.target.extras import guarded_torchvision

    guarded_torchvision()
    timm = pytest.importorskip("timm", reason="timm is not installed (make test-models)")
    torch.manual_seed(0)
    module = timm.create_model("test_vit", num_classes=3).eval()
    side = module.patch_embed.img_size[0]
    random = np.random.default_rng(0)
    colours = random.integers(20, 235, (36, 3))
    means, stds = (torch.tensor(module.default_cfg[key])[:, None, None] for key in ("mean", "std"))
    plain = torch.stack([torch.tensor(c)[:, None, None].expand(3, side, side) / 255 for c in colours]).float()
    with torch.no_grad():  # no class is the usual answer
        module.head.bias.sub_(module((plain - means) / stds).mean(dim=0))
        labels = module((plain - means) / stds).argmax(1).tolist()
    torch.save(module.state_dict(), "vit.pt")
    Path("photos").mkdir()
    for number, colour in enumerate(colours):
        size = (side + 7 * (number % 4), side + 5 * (number % 3))
        Image.new("RGB", size, tuple(map(int, colour))).save(f"photos/{number:02d}.png")
    with open("labels.csv", "w", newline="") as file:
        csv.writer(file).writerows([("file", "label"), *((f"{n:02d}.png", label) for n, label in enumerate(labels))])
    Path("names.txt").write_text("sky\nsea\nsand\n")
    described = ("--weights", "vit.pt", "--classes", "names.txt", "--train", DATA, "--holdout", HOLDOUT)
    written = cli("init", "timm:test_vit", DATA, *described, "--json")
    assert written.code == 0, written.err
    walk(cli, "timm:test_vit", DATA)
