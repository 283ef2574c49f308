"""DeepFool, JSMA and AutoAttack through the toolbox, and the sentence where it is not installed."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn

from neurotest import registry
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.generate.gradient import attack
from neurotest.generate.gradient.toolbox import JSMA, AutoAttack, DeepFool, installed
from neurotest.target import Target

needs = pytest.mark.skipif(not installed(), reason="the adversarial-robustness-toolbox is not installed")
ALL = ["deepfool:overshoot=0.3", "jsma:gamma=0.5", "autoattack:eps=0.3,steps=5,queries=20"]


def target(bounds: tuple[float, float] = (0.0, 1.0)) -> Target:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))
    return Target(module.eval(), shape=(1, 6, 6), bounds=bounds)


def seeds() -> ArraySource:
    return ArraySource(np.random.default_rng(0).integers(0, 256, (8, 1, 6, 6), dtype=np.uint8), spec="toy")


@needs
@pytest.mark.peer("art")
@pytest.mark.slow  # the toolbox takes seconds to import
@pytest.mark.parametrize("method", ALL)
def test_faults_fail_again_from_what_is_saved(method: str) -> None:
    before = np.random.get_state()[1].copy()  # type: ignore[union-attr]
    network = target((-1.0, 1.0))
    result = attack(network, seeds(), method, out=False)
    assert result.faults > 0
    again = network.logits(network.prepare(result.x)).argmax(1).numpy()
    assert np.array_equal(again != result.expected, result.fault)
    summary = result.to_dict()
    assert summary["forwards"] > 8 * 4
    assert summary["backwards"] > 8
    assert np.array_equal(np.random.get_state()[1], before)  # type: ignore[index]
    assert np.array_equal(attack(network, seeds(), method, out=False).x, result.x)
    if method.startswith("auto"):
        assert np.abs(result.x.astype(int) - result.seeds.astype(int)).max() <= int(0.3 * 255)


def test_without_the_toolbox_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("art", "art.attacks", "art.attacks.evasion", "art.estimators", "art.estimators.classification"):
        monkeypatch.setitem(sys.modules, name, None)
    for method in ("deepfool", "jsma", "autoattack"):
        with refused("not-installed", method):
            attack(target(), seeds(), method, out=False)


def test_settings() -> None:
    assert registry.build("attack", "deepfool:0.1") == DeepFool(overshoot=0.1)
    assert registry.build("attack", "autoattack:8/255") == AutoAttack(eps=8 / 255)
    assert registry.build("attack", "jsma:theta=0.5") == JSMA(theta=0.5)
    for text in ("deepfool:steps=0", "deepfool:overshoot=-1", "jsma:theta=0", "jsma:gamma=2", "autoattack:eps=2",
                 "autoattack:step=0", "autoattack:queries=0"):  # fmt: skip
        with pytest.raises(BadInput):
            registry.build("attack", text)
    with refused("unsuitable", "diversity"):
        attack(target(), seeds(), "deepfool", 1.0, out=False)
