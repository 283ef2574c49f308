"""`check` finds what is planted among its first five findings, as alarms, and raises none where nothing is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.quality import defects

import neurotest
from neurotest.check import CheckResult

QUICK: dict[str, Any] = {"time": 3600, "skip": ["campaign", "attacks", "coverage"], "limit": 3000}


def alarms(result: CheckResult) -> list[str]:
    """The alarms among the first five findings."""
    return [f"{f.check}: {f.sentence}" for f in result.findings[:5] if f.level == "alarm"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "data"),
    [
        ("fashion-lenet5", "fashion-mnist"), ("mnist-lenet5", "mnist"), ("mnist-lenet1", "mnist"), ("mnist-lenet4", "mnist"),
        ("fashion-lenet1", "fashion-mnist"), ("mnist-conv2d", "mnist"), ("cifar10-resnet20", "cifar10"),
    ],
)  # fmt: skip
def test_a_sound_network_gets_no_alarm(network: str, data: str) -> None:
    result = neurotest.check(f"zoo:{network}", f"zoo:{data}/test", time=40)
    assert alarms(result) == []
    assert result.verdict.startswith("no alarm")
    assert not [one.name for one in result.examined if one.skipped and not one.ran_out]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), [("mnist", 3), ("mnist", 8), ("fashion-mnist", 5), ("fashion-mnist", 1)])
def test_a_class_trained_on_few_images(name: str, number: int) -> None:
    result = neurotest.check(defects.few_images(name, number, 15), f"zoo:{name}/test", **QUICK)
    names = neurotest.data(f"zoo:{name}/test[:1]").classes
    assert names is not None
    assert any(text.startswith(f"slices: class {names[number]}:") for text in alarms(result)), result.table()


@pytest.mark.parametrize(("network", "data"), [("mnist-lenet5", "mnist"), ("fashion-lenet5", "fashion-mnist")])
def test_wrong_labels(network: str, data: str) -> None:
    source = defects.wrong_labels(f"zoo:{data}/test[:4000]", 0.03, seed=1)
    result = neurotest.check(f"zoo:{network}", source, time=300, only=["accuracy", "labels", "slices", "first"])
    assert any(text.startswith("labels: about ") for text in alarms(result)), result.table()


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 6])
def test_a_patch_that_was_learned(number: int) -> None:
    result = neurotest.check(defects.patched("mnist", number), "zoo:mnist/test", **QUICK)
    assert any(text.startswith("trigger: ") and f"a sign of {number}" in text for text in alarms(result)), result.table()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mean", "std", "words"), [(0.1307, 0.3081, "MNIST normalisation"), (0.5, 0.5, "0.5"), (0.0, 1 / 255, "in 0 .. 255")]
)
def test_a_forgotten_normalisation(mean: float, std: float, words: str) -> None:
    """On Fashion-MNIST, where reading the inputs otherwise costs accuracy; on MNIST a network may hardly mind."""
    module = defects.trained(*defects.images("zoo:fashion-mnist/train"), mean=mean, std=std)
    described = neurotest.check(defects.target(module, mean=[mean], std=[std]), "zoo:fashion-mnist/test", **QUICK)
    assert not [text for text in alarms(described) if text.startswith("health")], described.table()
    result = neurotest.check(defects.target(module), "zoo:fashion-mnist/test", **QUICK)
    found = [text for text in alarms(result) if text.startswith("health: accuracy")]
    assert found, result.table()
    assert result.examined[0].numbers["problems"] >= 1
    assert np.isfinite(result.seconds)
    assert any(words in text or "mean and std of these data" in text or "-1 .. 1" in text for text in found), found
