"""Goals: their cells, what they are worth, and what reaches them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest import registry
from neurotest.errors import BadInput
from neurotest.generate.fuzz.goals.goal import CellGoalState, GoalState, GoalSubject, Outcomes, _numbered

pytestmark = pytest.mark.plain

SUBJECT = GoalSubject(seeds=5, classes=3, operators=("rotation", "blur"), neurons=4, class_names=("cat", "stop sign", "dog"))


def start(text: str) -> Any:
    return registry.build("goal", text).start(SUBJECT)


def outcomes(rows: list[tuple[int, int, int, int]], neurons: list[list[int]] | None = None) -> Outcomes:
    """(seed, true, predicted, operator) of mutants that were run."""
    root, true, predicted, operator = np.array(rows, dtype=np.int64).T
    top = np.array(neurons if neurons is not None else [[0, 1]] * len(rows), dtype=np.int64)
    return Outcomes(root, true, predicted[:, None], operator, top)


def observe(state: GoalState, rows: list[tuple[int, int, int, int]], fault: bool = True, size: float = 1.0) -> list[int]:
    n = len(rows)
    return state.observe(outcomes(rows), np.full(n, fault), np.full(n, size)).tolist()


def test_what_is_new_by_hand() -> None:
    """(0, 1) by rotation, by blur, by rotation of another seed, and (0, 2)."""
    rows = [(0, 0, 1, 0), (0, 0, 1, 1), (1, 0, 1, 0), (1, 0, 2, 0)]
    family, pair, seed = start("family"), start("pair"), start("seed")
    assert observe(family, rows) == [1, 1, 0, 1]
    assert observe(pair, rows) == [1, 0, 0, 1]
    assert observe(seed, rows) == [1, 0, 1, 0]
    assert observe(family, rows) == [0, 0, 0, 0]
    assert observe(start("family"), rows, fault=False) == [0, 0, 0, 0]
    assert (family.count, pair.count, seed.count) == (3, 2, 2)


def test_worth_by_hand() -> None:
    """Half a fault was spent on a family: 1 / (1 + 0.5 / 1); a seed has a patience of 4; a reached goal is worth nothing."""
    family, seed = start("family:3"), start("seed")
    one = outcomes([(0, 0, 1, 0)])
    for state, worth in ((family, 3 / 1.5), (seed, 1 / 1.125)):
        cells = state.cells(one)
        state.spend(cells, np.full((1, 1), 0.5))
        assert state.worth()[cells[0, 0]] == pytest.approx(worth)
        observe(state, [(0, 0, 1, 0)])
        assert state.worth()[cells[0, 0]] == 0
        assert state.worth()[-1] == 0  # no cell


def test_smaller_by_hand() -> None:
    state = start("smaller")
    assert state.by_change(np.array([0]), np.array([[1.0]])).tolist() == [[0.5]]  # any first change is worth as much as can be
    assert observe(state, [(0, 0, 1, 0)], size=4.0) == [0]  # the first is no smaller one
    assert observe(state, [(0, 0, 1, 0)], size=5.0) == [0]
    assert observe(state, [(0, 0, 1, 0)], size=3.0) == [1]
    assert state.by_change(np.array([0, 0]), np.array([[1.5], [6.0]])).tolist() == [[0.25], [0.0]]


def test_aims_are_by_name_number_and_star() -> None:
    rows = [(0, 1, 0, 0), (0, 1, 2, 0), (1, 1, 2, 1), (2, 0, 2, 0), (0, 1, 2, 1)]
    assert observe(start("aim('stop sign -> *')"), rows) == [1, 1, 1, 0, 0]
    assert observe(start("aim(at='* -> dog')"), rows) == [0, 1, 1, 1, 0]
    assert observe(start("aim(at='1 -> 2')"), rows) == [0, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("aim(at='stop sign')", "write 'TRUE -> PREDICTED'"),
        ("aim(at='-> dog')", "write 'TRUE -> PREDICTED'"),
        ("aim(at='lorry -> *')", "no class is called 'lorry'; there are cat, stop sign, dog"),
        ("again", "needs a campaign"),
        ("again(run='nowhere')", "nowhere"),
        ("neuron:0", "top=0"),
        ("family:-1", "weight=-1"),
    ],
)
def test_bad_goals(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says.replace("(", r"\(")):
        start(text)


def test_neurons_and_paths_that_stood_out() -> None:
    rows = [(0, 0, 1, 0)] * 3
    single, path = start("neuron"), start("neuron:2")
    seen = outcomes(rows, [[2, 1], [1, 2], [2, 0]])
    assert single.observe(seen, np.ones(3, dtype=bool), np.ones(3)).tolist() == [1, 1, 0]
    assert path.observe(seen, np.ones(3, dtype=bool), np.ones(3)).tolist() == [1, 0, 1]  # 1 and 2 in either order are one path


def test_numbers_of_cells_are_all_different() -> None:
    a, b, c = (part.ravel() for part in np.meshgrid(np.arange(3), np.arange(4), np.arange(5), indexing="ij"))
    assert sorted(_numbered((a, 3), (b, 4), (c, 5)).tolist()) == list(range(60))


def test_families_of_an_earlier_campaign(tmp_path: Path) -> None:
    from neurotest.jobs.life import atomic_run

    with atomic_run("fuzz", tmp_path / "run", {"target": "t"}) as run:
        assert run is not None
        run.add_inputs([{"position": 0, "content": "0", "label": 0, "predicted": 0}])
        columns = (
            "number, batch, iteration, root, content, expected, predicted, oracle, operator, accepted, gain, l0, l2, linf, chain"
        )
        values = "?, 0, 0, 0, ?, 0, ?, ?, 'blur', 1, 1, 0, 0, 0, '[]'"
        run.change(f"INSERT INTO mutant ({columns}) VALUES ({values})", [(0, "a", 1, "label"), (1, "b", 2, None)])
        run.finish({})
    state = start(f"again(run='{tmp_path / 'run'}')")
    assert observe(state, [(0, 0, 1, 1), (0, 0, 1, 0), (0, 0, 2, 1)]) == [1, 0, 0]  # only the fault, and only after a blur
    assert state.worth().values.max() == 2.0


GOALS = [name for name in registry.entries("goal") if name != "again"]


@pytest.mark.parametrize("name", GOALS)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)), min_size=2, max_size=12))
def test_goals_are_reached_once_and_saved_ones_go_on(name: str, rows: list[tuple[int, int, int, int]]) -> None:
    """In one go, in two halves, or saved between them: the same goals; what is worth anything never rises."""
    half = len(rows) // 2
    whole, parts = start(name), start(name)
    expected = observe(whole, rows)
    first = observe(parts, rows[:half])
    again = start(name)
    again.restore(parts.arrays())
    before = again.worth().values.copy()
    assert first + observe(again, rows[half:]) == expected
    assert again.count == whole.count == sum(expected)
    assert (again.worth().values <= before).all()
    fresh = start(name)
    fresh.restore(again.arrays())
    assert (again.worth().values == fresh.worth().values).all()  # what changed was computed again, and only that had to be
    if isinstance(whole, CellGoalState):
        assert whole.count == whole.reached.sum()


def test_what_two_islands_reached_and_spent_by_hand() -> None:
    """Both reach (0, 1) by rotation, one (0, 2) too: two families. Chances add up; the smaller change is the one that counts."""
    first, second, whole = start("family"), start("family"), start("family")
    for state in (first, second):
        state.begin_leg()
        state.spend(state.cells(outcomes([(0, 0, 1, 0)])), np.full((1, 1), 0.25))
        observe(state, [(0, 0, 1, 0)])
    observe(second, [(1, 0, 2, 0)])
    for state in (first, second):
        whole.learn(state.changes())
    assert whole.count == 2
    cell = whole.cells(outcomes([(0, 0, 1, 0)]))[0, 0]
    assert whole.spent[cell] == 0.5
    assert observe(whole, [(3, 0, 1, 0), (3, 0, 2, 0), (3, 0, 1, 1)]) == [0, 0, 1]
    first.begin_leg()
    assert not len(first.changes()["reached"])
    small, large = start("smaller"), start("smaller")
    observe(small, [(2, 0, 1, 0)], size=1.0)
    observe(large, [(2, 0, 1, 0)], size=3.0)
    large.begin_leg()
    large.learn(small.changes())
    assert large.smallest[2] == 1.0


def test_cells_of_an_earlier_version_come_to_stand_where_they_are_numbered_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cell 11 of 16 is cell 3 of 4: one number is a multiple of the other."""
    monkeypatch.setattr("neurotest.generate.fuzz.goals.goal.MOST_CELLS", 4)
    state = start("pair")
    state.restore({"count": np.array([1]), "cells": np.array([11]), "reached": np.array([True]), "spent": np.array([0.5])})
    assert isinstance(state, CellGoalState)
    assert np.flatnonzero(state.reached).tolist() == [3]
    assert state.worth().values.tolist() == [1, 1, 1, 0, 0]
