"""Splits and leaks: nothing is judged by what was trained on."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from tests.unit.repair.subjects import SHAPE, bars, faults_of, target

from neurotest.repair.material import campaign_weights, refuse_leaks, split, withheld_operators
from neurotest.repair.operators import Operators
from neurotest.repair.plan import make_plan

EVERY = Operators.of_shape(SHAPE)
NETWORK = target()
FAULTS = faults_of(NETWORK, bars(160, 1))


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 999), share=st.floats(0, 0.6))
def test_no_root_and_no_withheld_operator_is_on_both_sides(seed: int, share: float) -> None:
    withheld = withheld_operators(EVERY, share, seed)
    parts = split(FAULTS, withheld, seed)
    learned = set(parts.learn.roots.tolist())
    for part in (parts.seen, parts.unseen, parts.withheld):
        assert not learned & set(part.roots.tolist())
    assert not any(names & set(withheld) for names in parts.learn.operators)
    families = set(parts.learn.families)
    assert all(family in families for family in parts.seen.families)
    assert not any(family in families for family in parts.unseen.families)
    assert all(names & set(withheld) for names in parts.withheld.operators)


def test_there_are_faults_to_speak_of() -> None:
    assert len(FAULTS) > 30


def test_an_input_on_both_sides_is_refused() -> None:
    with refused("conflict", "holdout"):
        make_plan(NETWORK, 3, FAULTS, bars(60, 3).take(np.arange(20)), bars(60, 3), unseen=0.3, seed=0)


def test_seeds_of_the_run_are_no_holdout() -> None:
    with refused("conflict", "holdout"):
        make_plan(NETWORK, 3, FAULTS, bars(60, 2), bars(160, 1), unseen=0.3, seed=0)


def test_only_different_data_are_accepted() -> None:
    refuse_leaks({"training data": bars(20, 0), "none": None}, {"holdout": bars(20, 1), "shift": None})
    with refused("conflict", "shift"):
        refuse_leaks({"training data": bars(20, 0), "none": None}, {"holdout": bars(20, 1), "shift": bars(20, 0)})


def test_roots_of_held_out_faults_are_not_trained_on() -> None:
    plan = make_plan(NETWORK, 3, FAULTS, bars(160, 1), bars(60, 3), unseen=0.3, seed=0)
    assert plan.train is not None
    used = {*plan.train.ids().tolist(), *plan.deciding.ids().tolist()}
    for part in (plan.parts.seen, plan.parts.unseen, plan.parts.withheld):
        assert not used & set(part.roots.tolist())
    assert any("left out" in note for note in plan.notes)


def test_data_without_labels_are_refused() -> None:
    with refused("no-labels", "holdout"):
        make_plan(NETWORK, 3, FAULTS, bars(60, 2), bars(60, 3).without_labels(), unseen=0.3, seed=0)


def test_weights_of_a_campaign_by_hand() -> None:
    """Two faults by blur of class 0, one by fog of class 2; shift was not tried and gets the mean of the others."""
    families = ((0, 1, "blur"), (0, 2, "blur"), (2, 1, "fog"))
    three = dataclasses.replace(FAULTS.take(np.arange(3)), families=families)
    weights = campaign_weights(three, EVERY.only(("shift", "blur", "fog")), 3)
    expected = np.array([[1.0, 0, 0.5], [2, 0, 0], [0, 0, 1]])
    assert np.allclose(weights, expected / expected.sum())
