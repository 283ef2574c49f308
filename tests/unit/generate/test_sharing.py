"""What guides of islands tell each other: learning the changes of a leg is as good as having seen its inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from neurotest import registry
from neurotest.coverage.criterion import Criterion
from neurotest.data.source import ArraySource
from neurotest.generate.fuzz.goals.candidates import Arms
from neurotest.generate.fuzz.goals.forecast import Expectations, Regressions, Temperature
from neurotest.generate.fuzz.guides import CoverageGuide, GuideState, KeepAll
from neurotest.generate.fuzz.tensorfuzz import TensorFuzz
from neurotest.measure.context import Context
from neurotest.mutate.rules import Rules95
from neurotest.target import Probe, Target, Trace

CRITERIA = ["nc", "kmnc:10", "nbc", "snac", "tknc", "nlc", "lsc", "dsc", "npc"]


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3)).eval()


@pytest.fixture(scope="module")
def subject() -> tuple[Target, ArraySource]:
    x = np.random.default_rng(0).integers(0, 256, (60, 1, 4, 4), dtype=np.uint8)
    target = Target(network(), spec="py:net.py:network", shape=(1, 4, 4), bounds=(0.0, 1.0))
    return target, ArraySource(x, np.arange(60) % 3)


def started(guide: Any, subject: tuple[Target, ArraySource]) -> GuideState:
    target, source = subject
    state: GuideState = guide.start(Context(target=target, train=source.take(np.arange(30)), seed=0), source.take(np.arange(30)))
    return state


def trace(state: GuideState, subject: tuple[Target, ArraySource], rows: range) -> Trace:
    target, source = subject
    with Probe(target, *state.wants) as probe:
        return probe(target.prepare(source.read(np.array(rows))))


@pytest.mark.parametrize("name", CRITERIA)
def test_coverage_of_two_legs_is_that_of_all_their_inputs(name: str, subject: tuple[Target, ArraySource]) -> None:
    criterion: Criterion = registry.build("criterion", name)
    guide = CoverageGuide(criterion=criterion, name=name)
    first, second, whole, straight = (started(guide, subject) for _ in range(4))
    assert first.shares
    for state, rows in ((first, range(30, 40)), (second, range(40, 52))):
        state.begin_leg()
        state.keep(trace(state, subject, rows))
        straight.keep(trace(straight, subject, rows))
        assert state.island_arrays() == {}
    for state in (first, second):
        whole.learn(state.changes())
    assert whole.value() == pytest.approx(straight.value(), rel=1e-6)  # type: ignore[arg-type]
    for key, value in straight.arrays().items():
        assert np.allclose(whole.arrays()[key], value, rtol=1e-6, atol=1e-9, equal_nan=True), key


def test_an_order_dependent_criterion_keeps_its_own(subject: tuple[Target, ArraySource]) -> None:
    state = started(CoverageGuide(criterion=registry.build("criterion", "cc"), name="cc"), subject)
    assert not state.shares
    assert not state.moves
    assert state.island_arrays().keys() == state.arrays().keys()
    assert state.changes() == {}


def test_kept_logits_of_two_legs(subject: tuple[Target, ArraySource]) -> None:
    first, second, whole = (started(TensorFuzz(), subject) for _ in range(3))
    for state, rows in ((first, range(30, 33)), (second, range(40, 42))):
        state.begin_leg()
        state.keep(trace(state, subject, rows))
        whole.learn(state.changes())
    assert whole.value() == 30 + 3 + 2
    assert KeepAll().island_arrays() == {}


def test_every_guide_says_what_its_islands_do() -> None:
    """A guide of another package says nothing of it: its islands learn each by itself."""
    assert GuideState.shares is False
    assert set(registry.entries("guide")) >= {"goals", "random", "tensorfuzz", "nsgen", "path", "activation"}


def test_regressions_temperature_and_expectations() -> None:
    """Sums of whole numbers are exact, so learning is as good as having seen."""
    arms, random = Arms.of(Rules95()), np.random.default_rng(1)
    first, second, whole, straight = (Regressions(arms, 3, 2) for _ in range(4))
    for state in (first, second):
        arm, x, y = random.integers(0, len(arms), 40), *(random.integers(-4, 5, (40, n)).astype(float) for n in (3, 2))
        state.begin_leg()
        state.update(arm, x, y)
        straight.update(arm, x, y)
    for state in (first, second):
        whole.learn(state.changes())
    assert np.array_equal(whole.squares, straight.squares)
    assert np.array_equal(whole.weights, straight.weights)

    one, other = Temperature(), Temperature()
    one.begin_leg()
    for _ in range(3):
        one.add(random.normal(size=(8, 3)).astype(np.float32), random.integers(0, 3, 8))
    other.learn(one.changes())
    assert other.value == one.value
    other.begin_leg()
    other.learn(other.changes())  # nothing was added
    assert other.value == one.value

    island, all_of_them = Expectations(), Expectations()
    island.begin_leg()
    island.add(600, 12.0, 9)
    island.add(500, 6.0, 4)
    all_of_them.add(100, 5.0, 5)
    all_of_them.learn(island.changes())
    assert all_of_them.passes == 1200
    assert island.passes == 1100
