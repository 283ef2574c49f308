"""tau: which quantile, what happens with ties and without spread, samples by class, and that it is kept by content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import nn

from neurotest.data.source import ArraySource
from neurotest.mutate.rules import Rules95
from neurotest.semantics import threshold
from neurotest.semantics.descriptions import Descriptions, NeuronDescription
from neurotest.semantics.guidance import Guidance
from neurotest.semantics.threshold import _every_rule, _stratified, tau
from neurotest.target import Target

pytestmark = pytest.mark.by_hand


def test_the_lower_quartile_by_hand() -> None:
    values = np.arange(100, dtype=float).reshape(10, 10) / 100
    threshold = tau(values)
    assert threshold.value == 0.25
    assert threshold.below == 0.25
    assert (threshold.images, threshold.pairs) == (10, 100)
    assert threshold.low <= threshold.value <= threshold.high
    assert threshold.quantiles[10] == pytest.approx(0.495)


def test_where_many_are_lowest_below_tau_means_the_lowest() -> None:
    threshold = tau(np.array([[0.0] * 6, [0.0, 0.0, 0.5, 1.0, 1.0, 1.0]]))
    assert threshold.value == 0.5
    assert threshold.below == pytest.approx(8 / 12)


def test_no_spread_is_told() -> None:
    with refused("empty", "tau"):
        tau(np.ones((3, 95)))
    with refused("out-of-range", "quantile"):
        tau(np.eye(3), quantile=0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1 / 7, 1 / 3, 3 / 5, 1.0]), min_size=8, max_size=40), st.floats(0.05, 0.9))
def test_something_is_always_below_and_never_everything(values: list[float], quantile: float) -> None:
    similarities = np.array(values).reshape(-1, 1)
    if len(set(values)) == 1:
        return
    threshold = tau(similarities, quantile)
    assert 0 < np.mean(similarities < threshold.value) < 1
    assert threshold.below == pytest.approx(np.mean(similarities < threshold.value))


def test_a_stratified_sample_has_as_many_of_each_class() -> None:
    labels = np.array([0] * 50 + [1] * 5 + [2] * 20)
    source = ArraySource(np.zeros((75, 1, 4, 4), dtype=np.uint8), labels)
    chosen = _stratified(source, labels, 6, seed=0)
    assert np.bincount(labels[chosen]).tolist() == [6, 5, 6]
    assert len(set(chosen.tolist())) == len(chosen)
    assert labels[chosen[:3]].tolist() == [0, 1, 2]  # so that a beginning of it is stratified, too
    assert _stratified(source, labels, 6, seed=0).tolist() == chosen.tolist()
    with refused("out-of-range", "per_class"):
        _stratified(source, labels, 0, seed=0)


def test_there_are_95_rules_and_each_is_drawn_once() -> None:
    draws = _every_rule(Rules95())
    assert len(draws) == 95
    assert len({(int(k), *p) for k, p in zip(draws.kind, draws.parameters.tolist(), strict=True)}) == 95


def subject(seed: int = 0) -> tuple[Target, ArraySource, Descriptions]:
    torch.manual_seed(seed)
    layers = (nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 6), nn.ReLU(), nn.Linear(6, 3))
    target = Target(nn.Sequential(*layers).eval(), shape=(1, 12, 12), classes=["cat", "dog", "cow"])
    random = np.random.default_rng(1)
    data = ArraySource(random.integers(0, 256, (12, 1, 12, 12)).astype(np.uint8), np.arange(12) % 3)
    words = ["red", "blue", "green", "stripes", "dots", "lines"]
    rows = [NeuronDescription(name, i, words[i], 1.0, "x") for name, n in (("1", 4), ("4", 6)) for i in range(n)]
    return target, data, Descriptions.of(target, {"1": 4, "4": 6}, rows, "x")


def guidance(bank: Descriptions, **settings: Any) -> Guidance:
    return Guidance(**{"describe": bank, "critical": "conductance:2", "per_class": 2, "distance": "jaccard", **settings})


def test_paths_of_the_sample_are_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path))
    target, data, bank = subject()
    first = guidance(bank).start(target, data)
    assert first.sample is not None
    assert (first.sample.images, first.sample.rules) == (6, 95)
    assert len(list((tmp_path / "paths").iterdir())) == 1
    monkeypatch.setattr(threshold.MutatedImages, "_read", None)  # nothing is read again
    again = guidance(bank).start(target, data)
    assert again.tau == first.tau
    assert guidance(bank, distance="text", encoder="tokens").start(target, data).threshold is not None  # of the same paths
    with pytest.raises(TypeError):
        guidance(bank, top=2).start(target, data)  # another path, so it would have to be read
    other, _, _ = subject(1)
    with refused("changed", "target"):
        guidance(bank).start(other, data)
    mine = Descriptions.of(other, bank.layers, bank.rows.values(), "x")
    with pytest.raises(TypeError):
        guidance(mine).start(other, data)  # never another target's


def test_descriptions_must_have_the_layers_of_the_path() -> None:
    target, data, _ = subject()
    part = Descriptions.of(target, {"1": 4}, [], "x")
    with refused("missing", "descriptions"):
        guidance(part, tau=0.5).start(target, data)


def test_a_threshold_of_ones_own_reads_no_sample() -> None:
    target, data, bank = subject()
    semantics = guidance(bank, tau=0.4).start(target, data)
    assert (semantics.tau, semantics.sample) == (0.4, None)
    references = semantics.reader.references(target.prepare(data.read(np.arange(3))))
    assert semantics.differs(references, references).tolist() == [False] * 3
    with refused("out-of-range", "tau"):
        guidance(bank, tau=2.0)


def test_without_labels_the_sample_is_stratified_by_predictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path))
    target, data, bank = subject()
    semantics = guidance(bank, per_class=1).start(target, data.without_labels())
    assert semantics.sample is not None
    assert 1 <= semantics.sample.images <= 3
