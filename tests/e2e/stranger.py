"""A stranger's project: a builder without weights, a weights file, class names, photographs in class folders."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from neurotest import data
from neurotest.errors import BadInput
from neurotest.runs.store import Run

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 5, padding=2)
        self.dense = nn.Linear(6 * 7 * 7, 10)

    def forward(self, x):
        return self.dense(F.max_pool2d(F.relu(self.conv(x)), 4).flatten(1))


def cnn():
    return Net()
"""


def train(folder: Path) -> list[str]:
    """Weights for MODEL, trained for a moment on normalised images; gives the class names in the network's order."""
    source = data("zoo:fashion-mnist/train[:2000]")
    assert source.labels is not None
    assert source.classes is not None
    x = (torch.from_numpy(source.read(np.arange(len(source)))).float() / 255 - 0.3) / 0.4
    y = torch.from_numpy(source.labels)
    scope: dict[str, Any] = {}
    exec(MODEL, scope)
    torch.manual_seed(0)
    net = scope["cnn"]()
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(6):
        for rows in torch.randperm(len(x)).split(50):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimiser.step()
    save_file(net.state_dict(), folder / "cnn.safetensors")
    return [name.replace("/", "-") for name in source.classes]


def make_project(folder: Path) -> Path:
    """A user's folder: models.py, weights, class names in the network's order, photographs in folders (sorted otherwise)."""
    (folder / "models.py").write_text(MODEL)
    classes = train(folder)
    (folder / "classes.txt").write_text("\n".join(classes))
    source = data("zoo:fashion-mnist/test[:80]")
    assert source.labels is not None
    for number, (x, label) in enumerate(zip(source.read(np.arange(80)), source.labels, strict=True)):
        place = folder / "photos" / classes[label] / f"{number:03d}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x[0]).save(place)
    return folder


OPTIONS = ["--weights", "cnn.safetensors", "--mean", "0.3", "--std", "0.4", "--classes", "classes.txt", "--size", "1x28x28"]
FUZZ = ["fuzz", "py:models.py:cnn", "dir:photos", *OPTIONS, "--guide", "kmnc:10", "--train", "dir:photos", "--batch", "32"]


def project_spec(project: Path) -> str:
    return f"py:{project / 'models.py'}:cnn"


def absolute(project: Path) -> list[str]:
    return [str(project / one) if (project / one).is_file() else one for one in OPTIONS]


def make_photographs(project: Path, folder: Path, count: int = 80) -> dict[str, str]:
    """The same network with unlabelled photographs as a camera leaves them: flat, PNG and JPEG, grey and in colour, of several
    sizes. Gives the class of each by the name of its file."""
    for name in ("models.py", "cnn.safetensors", "classes.txt"):
        (folder / name).write_bytes((project / name).read_bytes())
    classes = (folder / "classes.txt").read_text().splitlines()
    (folder / "photos").mkdir()
    truth = {}
    source = data(f"zoo:fashion-mnist/test[100:{100 + count}]")
    assert source.labels is not None
    for number, (x, label) in enumerate(zip(source.read(np.arange(count)), source.labels, strict=True)):
        picture = Image.fromarray(x[0])
        if number % 3 == 1:
            picture = picture.resize((40 + number % 5, 36), Image.Resampling.BILINEAR)
        elif number % 3 == 2:
            picture = picture.convert("RGB")
        name = f"IMG_{2000 + number}.{'jpg' if number % 2 else 'png'}"
        picture.save(folder / "photos" / name)
        truth[name] = classes[label]
    return truth


PHOTOGRAPHS = [*OPTIONS, "--resize", "28x28"]


def batches(run: Path) -> int:
    """How many a campaign has written so far, in another process perhaps."""
    with suppress(BadInput), Run.open(run) as opened:
        return int(opened["progress"]["batches"]) if "progress" in opened else 0
    return 0
