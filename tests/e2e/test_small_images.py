"""Digits of 8 x 8 pixels: faults are digits, and the campaign says how many of them it believes in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from neurotest.errors import BadInput

MODEL = """
from torch import nn


def build():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(192, 48), nn.ReLU(), nn.Linear(48, 10)
    )
"""


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of a stranger, its weights and 150 digits it was not trained on."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("digits")
    (folder / "model.py").write_text(MODEL)
    scope: dict[str, Any] = {}
    exec(MODEL, scope)
    torch.manual_seed(0)
    network: nn.Module = scope["build"]()
    images, labels = load_digits(return_X_y=True)
    x, y = (images / 16 * 255).round().astype(np.uint8).reshape(-1, 1, 8, 8), labels.astype(np.int64)
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    inputs, classes = torch.from_numpy(x[:1300]).float() / 255, torch.from_numpy(y[:1300])
    for _ in range(12):
        for rows in torch.randperm(len(inputs)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(inputs[rows]), classes[rows]).backward()
            optimiser.step()
    save_file(network.state_dict(), folder / "weights.safetensors")
    np.savez(folder / "seeds.npz", x=x[1300:1450], y=y[1300:1450])
    return folder


def fuzz(cli: Any, digits: Path, out: str, *options: object) -> dict[str, Any]:
    outcome = cli(
        "fuzz", f"py:{digits / 'model.py'}:build", f"npz:{digits / 'seeds.npz'}#x,y", "--weights", digits / "weights.safetensors",
        "--size", "1x8x8", "--guide", "random", "--forwards", 1500, "--out", out, "--json", "-q", *options,
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    content: dict[str, Any] = json.loads(outcome.out)
    return content


def ruined(run: Path, digits: Path) -> float:
    """The share of stored faults that have lost more than half of the ink of the faintest digit."""
    faintest = np.load(digits / "seeds.npz")["x"].std((1, 2, 3)).min()
    spreads = [np.asarray(Image.open(file).convert("L")).std() for file in (run / "faults").glob("*.png")]
    assert len(spreads) > 40
    return float(np.mean(np.array(spreads) < faintest / 2))


def test_faults_are_no_longer_black_pictures(cli: Any, digits: Path, tmp_path: Path) -> None:
    ours = fuzz(cli, digits, "ours")
    published = fuzz(cli, digits, "published", "--mutations", "rules95")
    assert ours["faults"] > 40
    assert ruined(tmp_path / "ours", digits) < 0.02
    assert ruined(tmp_path / "published", digits) > 0.05  # shifts of five pixels of eight
    shares = [one["believed_valid"] for one in (ours, published)]
    assert shares[0]["share"] > 0.9
    assert shares[0]["interval"][0] > shares[1]["interval"][1]
    assert shares[0]["judged"] == ours["faults"]
    again = json.loads(cli("status", "ours", "--json").out)["runs"][0]
    assert again["believed_valid"] == shares[0]
    assert "believed valid" in cli("status", "ours").out


def test_other_units_on_resume_are_refused(cli: Any, digits: Path, tmp_path: Path) -> None:
    fuzz(cli, digits, "run")
    refused = cli("fuzz", "--resume", "run", "--mutations", "rules95", "--forwards", 1600)
    assert refused.code == BadInput.exit_code
    assert "units=image" in refused.err
    assert cli("fuzz", "--resume", "run", "--mutations", "rules95:units=image", "--forwards", 1600, "-q").code == 0
