"""Forecasts of the guide goals: kindred rules, regressions, the temperature, and what features are made of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.generate.subjects import Net, seeds

from neurotest.generate.fuzz.goals.candidates import Arms, _kinship
from neurotest.generate.fuzz.goals.features import KINDS, Features, _Components
from neurotest.generate.fuzz.goals.forecast import Regressions, Temperature
from neurotest.mutate.base import Family, single
from neurotest.mutate.operators import Blur, Contrast
from neurotest.mutate.rules import DeepHunterMutations, Rules95, Rules98
from neurotest.target import Target

pytestmark = pytest.mark.by_hand


def test_kinship_by_hand() -> None:
    """Parameters 0, 1, 10 lie 0, 0.1, 1 apart in their range: exp(-(0.1/0.15)^2) = 0.6412, and never below 0.01."""
    near = _kinship(Family("contrast", Contrast(), single((0, 1, 10)), (0.0,)))
    assert near[0].tolist() == pytest.approx([1, np.exp(-((0.1 / 0.15) ** 2)), 0.01])
    assert near[0, 1] == pytest.approx(0.6412, abs=1e-4)
    assert _kinship(Family("blur", Blur(), single((1, 2)), (0.0,))).tolist() == [[1, 0.01], [0.01, 1]]  # kinds, not sizes


def test_arms_are_the_rules_that_change_something_and_whole_families_of_noise() -> None:
    arms = Arms.of(Rules95())
    assert len(arms) == 92  # of the 95, three change nothing
    assert not arms.repeatable.any()
    assert [len(kernel) for kernel in arms.kernels] == [6, 4, 59, 6, 7, 10]
    noisy = Arms.of(Rules98())
    assert len(noisy) == 93
    assert noisy.repeatable.tolist() == [False] * 92 + [True]
    assert Arms.of(DeepHunterMutations()).rule[-2:].tolist() == [-1, -1]


@pytest.mark.parametrize("mutations", [Rules95(), Rules98(), DeepHunterMutations()])
def test_the_draw_of_an_arm_is_its_rule(mutations: Rules95) -> None:
    arms = Arms.of(mutations)
    draws = arms.draws(np.arange(len(arms)), np.full((len(arms), 2), 0.5))
    rules = [(family.name, rule) for family in mutations.families for rule in family.rules]
    assert draws.rule is not None
    for i, number in enumerate(draws.rule.tolist()):
        family = mutations.find(draws.names[draws.kind[i]])
        row = tuple(draws.parameters[i, : len(family.neutral)].tolist())
        assert (family.name, row) == rules[number] if number >= 0 else row in family.rules


def regressions(width: int = 1, outputs: int = 1) -> Regressions:
    return Regressions(Arms.of(Rules95()), width, outputs)


def test_one_observation_by_hand() -> None:
    """x = 1, y = 2: (1 + 1)^-1 * 2 = 1. A blur shares a hundredth: (0.01 + 1)^-1 * 0.02. Other families learn nothing."""
    learned, arms = regressions(), Arms.of(Rules95())
    blur = arms.blocks[5].start
    learned.update(np.array([blur]), np.ones((1, 1)), np.full((1, 1), 2.0))
    assert learned.weights[blur, 0, 0] == pytest.approx(1.0)
    assert learned.weights[blur + 1, 0, 0] == pytest.approx(0.02 / 1.01)
    assert not learned.weights[: arms.blocks[5].start].any()


def test_regressions_are_weighted_least_squares() -> None:
    """Written out: every observation of the family counts with its kinship, and the ridge is one more row per feature."""
    random, learned, arms = np.random.default_rng(0), regressions(3, 2), Arms.of(Rules95())
    arm, x, y = random.integers(0, len(arms), 300), random.normal(size=(300, 3)), random.normal(size=(300, 2))
    for part in np.array_split(np.arange(300), 7):
        learned.update(arm[part], x[part], y[part])
    for number in (0, 5, 40, 91):
        family = arms.kind[number]
        block = arms.blocks[family]
        rows, goals = [*np.eye(3)], [*np.zeros((3, 2))]
        for a, features, change in zip(arm, x, y, strict=True):
            if arms.kind[a] == family:
                weight = np.sqrt(arms.kernels[family][number - block.start, a - block.start])
                rows.append(weight * features)
                goals.append(weight * change)
        expected = np.linalg.lstsq(np.array(rows), np.array(goals), rcond=None)[0]
        np.testing.assert_allclose(learned.weights[number], expected, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_neither_order_nor_portions_matter_and_saved_ones_go_on(seed: int, portions: int) -> None:
    random = np.random.default_rng(seed)
    arm, x, y = random.integers(0, 92, 60), random.normal(size=(60, 2)), random.normal(size=(60, 1))
    whole, other = regressions(2), regressions(2)
    whole.update(arm, x, y)
    for part in np.array_split(random.permutation(60), portions):
        other.update(arm[part], x[part], y[part])
        saved, other = other, regressions(2)
        other.restore(saved.arrays())
    np.testing.assert_allclose(other.weights, whole.weights, atol=1e-9)


def test_temperature_by_hand() -> None:
    """Forecasts that are always right want the sharpest, those that are no better than chance the flattest."""
    right = Temperature()
    right.add(np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32), np.array([0, 1]))
    assert right.value == pytest.approx(0.02)
    chance = Temperature()
    chance.add(np.array([[1.0, 0.0], [1.0, 0.0]], dtype=np.float32), np.array([0, 1]))
    assert chance.value == pytest.approx(2.0)
    assert Temperature.loss(np.array([[np.log(3.0), 0.0]]), np.array([0]), 1.0) == pytest.approx(np.log(4 / 3))


def test_temperature_forgets_after_twelve_batches_and_is_saved() -> None:
    one, zeros = Temperature(), np.zeros(1, dtype=np.int64)
    wrong, right = np.array([[0.0, 1.0]], dtype=np.float32), np.array([[1.0, 0.0]], dtype=np.float32)
    one.add(wrong, zeros)
    for _ in range(11):
        one.add(right, zeros)
    assert one.value > 0.02
    again = Temperature()
    again.restore(one.arrays())
    assert again.value == one.value
    for temperature in (one, again):
        temperature.add(right, zeros)
        assert temperature.value == pytest.approx(0.02)


def test_components_are_those_of_the_singular_values() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(40, 6)) * [5, 3, 1, 1, 1, 1]
    fitted = _Components.fit(rows, 2)
    _, values, axes = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    np.testing.assert_allclose(np.abs(fitted.axes.T @ axes[:2].T), np.eye(2), atol=1e-9)
    assert fitted(rows)[:, 0].std() == pytest.approx(1)  # the first has spread 1, the second keeps its share
    assert fitted(rows)[:, 1].std() == pytest.approx(values[1] / values[0])
    assert len(_Components.fit(np.ones((5, 4)))) == 0  # nothing varies


@pytest.mark.parametrize(("kind", "width"), [("logits", 7), ("neurons", 26), ("pixels", 26)])
def test_features_of_the_seeds(kind: str, width: int) -> None:
    """[1, three logits, three labels, components]: 20 seeds have 19."""
    chosen = seeds(20)
    features = Features(Target(Net().eval(), shape=(1, 8, 8)), chosen, KINDS[kind]())
    assert features.seeds.shape == (len(chosen), width if kind == "logits" else 6 + len(chosen))
    assert (features.seeds[:, 0] == 1).all()
    z = chosen.roots.logits.astype(float)
    z -= z.mean(1, keepdims=True)
    np.testing.assert_allclose(features.seeds[:, 1:4], z / z.std(), rtol=1e-5)
    assert features.seeds[:, 4:7].argmax(1).tolist() == chosen.expected.tolist()
