"""Layout and precision: the same answers up to rounding, and what is said about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import neurotest
from neurotest.errors import BadInput
from neurotest.scan import _rounding, remarks
from neurotest.target import Probe, Target, Want, speed
from neurotest.target.spec import TargetSpec


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(32, 5),
    ).eval()  # fmt: skip


def pictures(count: int = 20) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, 3, 12, 12), dtype=np.uint8)


def target(**options: Any) -> Target:
    return neurotest.load(network(), size=(3, 12, 12), mean=[0.4] * 3, std=[0.2] * 3, **options)


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the processor had bfloat16: it runs anywhere, only slower."""
    monkeypatch.setattr(speed, "_has_bfloat16", lambda device: True)


def test_channels_last_answers_alike() -> None:
    usual, ours = target(), target(layout="channels_last")
    x = usual.prepare(pictures())
    assert ours.module[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(ours.logits(x), usual.logits(x), atol=1e-5)
    for want in (Want(), Want(neuron="unit"), Want(layers="post_activation")):
        with Probe(usual, want) as one, Probe(ours, want) as other:
            for name, values in one(x).values.items():
                assert torch.allclose(other(x).values[name], values, atol=1e-5), name


def test_channels_last_in_commands() -> None:
    x = pictures(40)
    ours = target(layout="channels_last")
    y = ours.logits(ours.prepare(x)).argmax(1).numpy()
    one, other = (neurotest.cover(t, (x, y), "kmnc:10", train=(x, y), cache=False) for t in (target(), ours))
    assert one["kmnc:10"].value.covered == pytest.approx(other["kmnc:10"].value.covered, abs=3)  # values at an edge
    assert neurotest.attack(ours, (x, y), "fgsm", eps=0.2, out=False).to_dict()["outputs"] >= 0


def test_bfloat16_is_recorded_in_float32(processor: None) -> None:
    ours = target(precision="bfloat16")
    x = ours.prepare(pictures())
    with Probe(ours, Want(), Want(neuron="unit")) as probe:
        trace = probe(x)
    assert trace.logits.dtype == torch.float32
    assert all(values.dtype == torch.float32 for layer in trace.recorded.values() for values in layer.values())
    assert not torch.equal(trace.logits, target().logits(x))
    assert torch.allclose(trace.logits, target().logits(x), atol=0.05)


def test_the_share_of_changed_predictions_is_said(processor: None) -> None:
    x = pictures()
    ours, source = target(precision="bfloat16"), neurotest.data(x)
    changed = int((ours.logits(ours.prepare(x)).argmax(1) != target().logits(ours.prepare(x)).argmax(1)).sum())
    (sentence,) = _rounding(ours, source)
    assert sentence == f"precision bfloat16 changes {changed} of 20 predictions ({changed / 20:.1%})."
    assert sentence in remarks(ours, source)
    assert _rounding(target(), source) == []


def test_both_are_stored_with_a_run(processor: None) -> None:
    stored = TargetSpec.of(target(precision="bfloat16", layout="channels_last")).plain()
    assert stored["precision"] == "bfloat16"
    assert stored["layout"] == "channels_last"
    assert target(precision="bfloat16").fingerprint != target().fingerprint
    assert target(layout="channels_last").fingerprint == target().fingerprint


def test_a_processor_without_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_has_bfloat16", lambda device: False)
    with pytest.raises(BadInput, match=r"this processor \(cpu\) has no instructions for it"):
        target(precision="bfloat16")


@pytest.mark.parametrize(("options", "sentence"), [({"layout": "nhwc"}, "channels_last"), ({"precision": "int8"}, "bfloat16")])
def test_other_words_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=f"expected {sentence}"):
        target(**options)
