"""Mistakes that people make: each answered by exit 2 and one sentence that names it and the way out; nothing is left behind.

They stand in `mistakes.txt`, which is the list to add to. All of them run in this process, in one folder.
"""

from __future__ import annotations

import importlib.util
import json
import pickle
import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from neurotest import zoo

from .conftest import Cli, Outcome

LIST = Path(__file__).with_name("mistakes.txt")
MODEL = """
import torch
from torch import nn
from torch.nn import functional as F

class Tiny(nn.Module):
    def __init__(self, channels=1, side=8, classes=3):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(channels, 4, 3, padding=1)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(4 * side * side, classes)

    def forward(self, x):
        return self.fc(self.relu(self.conv(x)).flatten(1))

class Then(nn.Module):
    def __init__(self, function, **sizes):
        super().__init__()
        self.net, self.function = Tiny(**sizes), function

    def forward(self, x):
        return self.function(self.net(x))

def build(): return Tiny()
def colour(): return Tiny(3, 16, 4)
def quantity(): return Tiny(classes=1)
def softmaxed(): return Then(lambda out: out.softmax(1))
def sigmoids(): return Then(torch.sigmoid)
def argmaxed(): return Then(lambda out: out.argmax(1))
def boxes(): return Then(lambda out: {"boxes": out})
def segmenter(): return Then(lambda out: out[:, :, None, None].expand(-1, -1, 8, 8))
def dropping(): return Then(lambda out: F.dropout(out, 0.5, training=True))
def nan(): return Then(lambda out: out / 0 * 0)
def wide(width): return Tiny()
def path(): return "good.pt"
def state(): return Tiny().state_dict()
def broken(): raise RuntimeError("no such disk")
def tokens():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Embedding(100, 8), nn.Flatten(), nn.Linear(512, 3))
number = 3
"""


class Mistake(NamedTuple):
    arguments: list[str]
    words: list[str]


def mistakes() -> list[Mistake]:
    lines = [line for line in LIST.read_text().splitlines() if line.strip() and not line.startswith("#")]
    parts = [[part.strip() for part in line.split(" | ")] for line in lines]
    return [Mistake(shlex.split(command), words) for command, *words in parts]


def make_folder(folder: Path) -> None:
    """A user's folder, with everything in it that the list names, but for the runs."""
    random = np.random.default_rng(0)
    (folder / "model.py").write_text(MODEL)
    (folder / "syntax.py").write_text("def build(:\n    pass\n")
    (folder / "imports.py").write_text("import no_such_package\n")
    scope: dict[str, type[nn.Module]] = {}
    exec(MODEL, scope)
    net = scope["Tiny"]()
    torch.save(net.state_dict(), folder / "good.pt")
    torch.save({**net.state_dict(), "conv.weight": torch.zeros(5, 1, 3, 3)}, folder / "other.pt")
    torch.save(nn.Linear(3, 4).state_dict(), folder / "stranger.pt")
    torch.save(nn.Sequential(nn.Linear(3, 4)), folder / "whole.pth")
    torch.save({"state_dict": net.state_dict(), "args": Path("run")}, folder / "objects.pt")
    torch.save([1, 2], folder / "list.pt")
    (folder / "cut.pt").write_bytes((folder / "good.pt").read_bytes()[:900])
    (folder / "empty.pt").touch()
    (folder / "keras.h5").write_bytes(b"\x89HDF\r\n\x1a\n\0\0")
    (folder / "net.onnx").write_bytes(b"\x08\x07\x12\x07pytorch")
    (folder / "lfs.pt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    (folder / "notes.txt").write_text("accuracy 0.93 after 12 epochs\n")
    (folder / "table.csv").write_text("file,label\na.png,cat\n")
    (folder / "taken").write_text("a file")
    (folder / "two.txt").write_text("cat\ndog\n")
    (folder / "digits.txt").write_text("zero\none\ntwo\n")
    x, y = random.random((40, 1, 8, 8), dtype=np.float32), random.integers(0, 3, 40)
    arrays: dict[str, dict[str, np.ndarray]] = {
        "pool": {"x": x, "y": y}, "renamed": {"images": x, "labels": y}, "none": {"x": x[:0], "y": y[:0]},
        "nan": {"x": np.where(x > 0.9, np.nan, x), "y": y}, "scale": {"x": 255.0 * x.astype(np.float64), "y": y},
        "int": {"x": (255 * x).astype(np.int64), "y": y}, "tokens": {"x": random.integers(0, 100, (40, 12)), "y": y},
        "names": {"x": x, "y": np.array(["cat", "dog", "cow"])[y]}, "onehot": {"x": x, "y": np.eye(3, dtype=int)[y]},
        "quantity": {"x": x, "y": random.random(40)}, "float": {"x": x, "y": y.astype(np.float64)},
        "few": {"x": x, "y": y[:39]}, "negative": {"x": x, "y": y - 1}, "labels9": {"x": x, "y": np.full(40, 9)},
        "last": {"x": random.integers(0, 256, (20, 16, 16, 3), dtype=np.uint8)}, "flat": {"x": x.reshape(40, 64), "y": y},
    }  # fmt: skip
    for name, content in arrays.items():
        np.savez(folder / f"{name}.npz", **content)
    (folder / "cut.npz").write_bytes((folder / "pool.npz").read_bytes()[:4000])
    np.savez(folder / "object.npz", x=np.array([{"a": 1}], dtype=object), y=y, allow_pickle=True)
    np.save(folder / "single.npy", x)
    for name in ("empty", "texts", "broken", "mixed/inner", "photos", "classes/cat", "classes/dog"):
        (folder / name).mkdir(parents=True)
    (folder / "texts" / "read.me").write_text("images follow")
    (folder / "broken" / "a.png").write_bytes(pickle.dumps("no picture"))
    grey = (255 * x[:, 0]).astype(np.uint8)
    for number, place in enumerate(("mixed", "mixed/inner", "classes/cat", "classes/dog")):
        Image.fromarray(grey[number]).save(folder / place / "a.png")
    for number in range(6):
        pixels = random.integers(0, 256, (20 + number, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{number}.jpg")


def files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if "__pycache__" not in file.parts}


def wrong(outcome: Outcome, words: list[str]) -> str:
    """What is wrong with an answer; nothing for a good one."""
    sentences = [line for line in outcome.err.splitlines() if line.startswith("neurotest:")]
    missing = [word for word in words if word not in outcome.err]
    if outcome.code != 2:
        return f"exit {outcome.code}"
    if len(sentences) != 1 or outcome.err.count("\n") > 1:
        return f"{len(sentences)} sentences"
    return f"lacks {missing}" if missing else ""


@pytest.mark.skipif(not zoo.find("mnist-lenet1").embedded, reason="the embedded networks were removed")
def test_a_hundred_mistakes(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path.parent / "cache"))
    make_folder(tmp_path)
    for made in (
        ("select", "py:model.py:build", "npz:pool.npz", "--out", "picks", "-q"),
        ("attack", "py:model.py:build", "npz:pool.npz", "--steps", 2, "--out", "attacked", "-q"),
    ):
        assert (outcome := cli(*made)).code == 0, outcome.err
    every = mistakes()
    assert len(every) >= 100
    before, answers = files(tmp_path), []
    for mistake in every:
        outcome = cli(*mistake.arguments)
        problem = wrong(outcome, mistake.words)
        if (left := files(tmp_path) - before) and not problem:
            problem = f"left behind: {sorted(left)[:3]}"
        if problem:
            answers.append(f"{shlex.join(mistake.arguments)}\n    {problem}: {outcome.err.strip() or outcome.out[:200]}")
    assert not answers, f"{len(answers)} of {len(every)}:\n" + "\n".join(answers)


@pytest.mark.skipif(importlib.util.find_spec("art") is not None, reason="the adversarial-robustness-toolbox is installed")
def test_a_package_that_is_missing(cli: Cli, tmp_path: Path) -> None:
    make_folder(tmp_path)
    before = files(tmp_path)
    outcome = cli("attack", "py:model.py:build", "npz:pool.npz", "--attack", "deepfool")
    assert not wrong(outcome, ["adversarial-robustness-toolbox", "pip install 'neurotest[attacks]'"])
    assert files(tmp_path) == before


def test_mistakes_as_json(cli: Cli, tmp_path: Path) -> None:
    """Also of the command line itself: one object, whoever reads it."""
    make_folder(tmp_path)
    for mistake in ("select --budgt 5 --json", "select py:model.py:build npz:nowhere.npz --json", "selct --json"):
        outcome = cli(*shlex.split(mistake))
        content = json.loads(outcome.out)
        assert content["exit"] == outcome.code == 2
        assert content["error"] in outcome.err
