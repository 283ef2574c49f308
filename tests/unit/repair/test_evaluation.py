"""Accuracies, intervals, flips and McNemar's test, by hand and by plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused
from tests.unit.repair.subjects import bars, faults_of, network, plan

from neurotest.repair.evaluation import Judge, _shares, flips, read_attacks, rows
from neurotest.repair.lessons import predictions
from neurotest.repair.plan import make_plan
from neurotest.repair.protocol import attacked
from neurotest.stats.comparison import mcnemar
from neurotest.train import train
from neurotest.zoo.recipes import Recipe


@given(fixed=st.integers(0, 40), broken=st.integers(0, 40))
def test_mcnemar_is_the_binomial_test(fixed: int, broken: int) -> None:
    n = fixed + broken
    tail = sum(math.comb(n, k) for k in range(min(fixed, broken) + 1)) / 2**n
    assert mcnemar(fixed, broken) == pytest.approx(min(1.0, 2 * tail) if n else 1.0)


def test_flips_by_hand() -> None:
    old, new, truth = np.array([0, 1, 2, 0]), np.array([0, 2, 1, 1]), np.array([0, 2, 2, 2])
    assert flips(old, new, truth) == ([1], [2])


def test_shares_of_one_seed_resemble_the_binomial_interval() -> None:
    right = np.zeros((1, 400), dtype=bool)
    right[:, :100] = True
    value, low, high = _shares(right)
    width = 1.96 * math.sqrt(0.25 * 0.75 / 400)
    assert value == 0.25
    assert low == pytest.approx(0.25 - width, abs=0.01)
    assert high == pytest.approx(0.25 + width, abs=0.01)


def test_seeds_that_differ_widen_the_interval() -> None:
    same = np.zeros((4, 400), dtype=bool)
    same[:, :200] = True
    apart = same.copy()
    apart[0], apart[1] = True, False
    (_, low, high), (_, wide_low, wide_high) = _shares(same), _shares(apart)
    assert wide_high - wide_low > 3 * (high - low)


def test_a_difference_is_paired() -> None:
    """The same inputs right in both: the interval of the difference is empty, whatever the accuracy."""
    right = np.random.default_rng(0).random((2, 50)) < 0.5
    assert _shares(right, right) == (0.0, 0.0, 0.0)


def test_rows_by_hand() -> None:
    labels = {"clean": np.array([0, 1, 1, 0])}
    old = {"clean": np.array([0, 1, 0, 1])}
    arms = {
        "repair": [{"clean": np.array([0, 1, 1, 1])}, {"clean": np.array([0, 0, 1, 0])}],
        "mutated": [{"clean": np.array([0, 0, 0, 1])}, {"clean": np.array([0, 1, 1, 1])}],
        "random": [],
    }
    numbers = rows(arms, old, labels)
    clean = numbers["sets"]["clean"]
    assert (clean["before"], clean["after"], clean["fixed"], clean["broken"]) == (0.5, 0.75, 1, 0)
    assert numbers["controls"]["mutated"]["clean"]["after"] == 0.5
    assert numbers["controls"]["mutated"]["clean"]["gain"] == 0.25
    assert "random" not in numbers["controls"]


def test_attacks_by_default_and_none() -> None:
    assert read_attacks(None, (3, 8, 8))["pgd"].radius == pytest.approx(8 / 255)
    assert read_attacks(None, (1, 8, 8))["pgd"].radius == pytest.approx(0.1)
    assert read_attacks(["none"], (1, 8, 8)) == {}
    with refused("duplicate", "attack"):
        read_attacks(["pgd", "pgd:eps=0.2"], (1, 8, 8))


def test_attacks_are_made_on_each_network_and_carried_over_from_the_old_one() -> None:
    """On the old network both are the same; another network meets the old one's inputs, and inputs made on itself."""
    ready = plan()
    judge = Judge(ready, read_attacks(["fgsm:eps=0.2"], (1, 9, 9)), victims=40)
    same, old = judge.predict(ready.target), judge.old()
    for name in ("fgsm-adaptive", "fgsm-transferred"):
        assert same[name].tolist() == old[name].tolist()
    other = ready.target.holding(train(network(), bars(90, 7), Recipe(epochs=6, batch=16, rate=0.01, seed=5)))
    answers = judge.predict(other)
    before, after = (attacked(one, judge.victims, judge.attacks["fgsm"], ready.seed) for one in (ready.target, other))
    assert answers["fgsm-transferred"].tolist() == predictions(other, before).tolist()
    assert answers["fgsm-adaptive"].tolist() == predictions(other, after).tolist()
    assert (before.read(np.arange(40)) != after.read(np.arange(40))).any()


def test_data_of_another_origin_are_a_set_of_their_own() -> None:
    ready = plan()
    faults = faults_of(ready.target, bars(160, 1))
    shifted = make_plan(ready.target, 3, faults, bars(60, 2), bars(60, 3), bars(50, 8), unseen=0.3, seed=0)
    assert list(shifted.sets)[-1] == "shift"
    assert shifted.sets["shift"].ids().tolist() == bars(50, 8).ids().tolist()
    with refused("conflict", "shift"):
        make_plan(ready.target, 3, faults, bars(60, 2), bars(60, 3), bars(60, 2), unseen=0.3, seed=0)
