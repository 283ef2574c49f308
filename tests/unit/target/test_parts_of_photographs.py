"""Large inputs in parts: equal results, and no more in memory than is allowed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import neurotest
from neurotest import scan
from neurotest.campaign.believed import Believed
from neurotest.generate.fuzz.seeds import choose_seeds
from neurotest.generate.gradient.engine import Engine
from neurotest.generate.swarm import engine
from neurotest.mutate import recognition
from neurotest.mutate.recognition import at_once
from neurotest.scan import Batch, each_batch, recorded_at_once
from neurotest.semantics.exemplars import LEAST_SAMPLES, SAMPLE_BYTES, SAMPLES, _bounded
from neurotest.target import Probe, Target, Trace, Want, chunks

pytestmark = pytest.mark.by_hand


def target() -> Target:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                           nn.Linear(16, 5))  # fmt: skip
    return neurotest.load(module.eval(), size=(3, 10, 10))


def pictures(count: int = 30) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 3, 10, 10), dtype=np.uint8)


def test_parts_of_a_graph_by_hand() -> None:
    layers = target().survey().everything
    values = sum(math.prod(layer.shape) for layer in layers)
    assert chunks.graph(layers) == chunks.GRAPH_BYTES // (8 * values)


def test_gradients_in_parts_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = target()
    u, y = torch.rand(20, 3, 10, 10, dtype=torch.float64).float(), torch.arange(20) % 5
    with Engine(ours) as whole:
        expected = whole.gradient(u, y)
    monkeypatch.setattr(chunks, "LARGE_BATCH", 0)
    values = sum(math.prod(layer.shape) for layer in ours.survey().everything)
    monkeypatch.setattr(chunks, "GRAPH_BYTES", 8 * values * 3)
    assert ours.graph(u) == 3
    with Engine(ours) as parts:
        assert torch.allclose(parts.gradient(u, y, first=True), expected, atol=1e-6)
        assert (parts.forwards, parts.backwards, parts.starts) == (20, 20, 20)


def test_a_batch_of_maps_comes_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, source, want = target(), neurotest.data(pictures()), Want(keep="map", inputs=True)
    with Probe(ours, want) as probe:
        values = sum(math.prod(layer.input_shape) for layer in probe.layers(want))
        monkeypatch.setattr(scan, "RECORDED_BYTES", 4 * values * 7)
        assert recorded_at_once(probe) == 7
    sizes: list[int] = []
    rows: list[torch.Tensor] = []

    def step(part: Batch, trace: Trace, probe: Probe) -> None:
        sizes.append(len(part.index))
        rows.append(trace.logits.clone())

    each_batch(ours, source, step, wants=[want], batch=20)
    assert sizes == [7, 7, 6, 7, 3]  # ends of batches stay ends of steps
    assert torch.allclose(torch.cat(rows), ours.logits(ours.prepare(pictures())), atol=1e-6)


def test_coverage_is_the_same_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = neurotest.cover(target(), pictures(), "nc:0.1", neuron="unit", batch=15, cache=False)
    monkeypatch.setattr(scan, "RECORDED_BYTES", 1)
    parts = neurotest.cover(target(), pictures(), "nc:0.1", neuron="unit", batch=15, cache=False)
    assert whole["nc:0.1"].value == parts["nc:0.1"].value
    assert whole["nc:0.1"].growth == parts["nc:0.1"].growth


def test_samples_of_exemplars_stay_within_their_bound() -> None:
    for neurons in (1, 100, 4096, 5000, 11_000, 100_000):
        assert 4 * neurons * _bounded(SAMPLES, neurons) <= max(SAMPLE_BYTES, 4 * neurons * LEAST_SAMPLES)
    assert _bounded(SAMPLES, 4096) == SAMPLES
    assert _bounded(20, 10) == 20


def test_fewer_photographs_are_handled_at_once() -> None:
    assert at_once(torch.empty(5, 1, 28, 28)) == 500
    assert at_once(torch.empty(5, 3, 224, 224)) == recognition.VALUES_AT_ONCE // (3 * 224 * 224) == 111


def test_one_seed_per_class_teaches_no_learner() -> None:
    ours = target()
    x = pictures(40)
    y = ours.logits(ours.prepare(x)).argmax(1).numpy()
    seeds = choose_seeds(ours, neurotest.data((x, y)))
    believed = Believed(seeds, None, None)  # type: ignore[arg-type]
    assert believed.learnable
    lone = np.unique(y, return_index=True)[1]
    assert not Believed(choose_seeds(ours, neurotest.data((x[lone], y[lone]))), None, None).learnable  # type: ignore[arg-type]


def test_few_positions_of_a_photograph_are_judged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, seeds = target(), torch.rand(2, 3, 10, 10)
    assert engine._positions_at_once(ours, seeds) > 1 << 60  # no photograph
    monkeypatch.setattr(engine, "PHOTOGRAPH", 10)
    values = sum(math.prod(layer.shape) for layer in ours.survey().layers)
    monkeypatch.setattr(engine, "MEMORY", 8 * values * 5)
    assert engine._positions_at_once(ours, seeds) == 5
