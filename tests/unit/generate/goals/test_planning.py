"""Plans of the guide goals: chances, and a greedy choice that equals evaluating everything after each choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest import registry
from neurotest.generate.fuzz.goals.candidates import Arms, ParentRows, Parents
from neurotest.generate.fuzz.goals.goal import GoalState, GoalSubject, Outcomes
from neurotest.generate.fuzz.goals.planning import Chooser, Forecasts, chances
from neurotest.mutate.base import Family, Mutations, single
from neurotest.mutate.operators import Add, Contrast, Rotation

pytestmark = pytest.mark.by_hand


@dataclass(frozen=True, kw_only=True)
class Few(Mutations):
    def _families(self) -> list[Family]:
        return [
            Family("rotation", Rotation(), single((-10, 10)), (0.0,), once=True),
            Family("contrast", Contrast(), single((0.5, 2)), (1.0,)),
            Family("brightness", Add(), single((10, 20, 30)), (0.0,)),
        ]


ARMS = Arms.of(Few())
CLASSES = 4


def parents(root: list[int], number: list[int] | None = None, used: bool = False) -> ParentRows:
    n = len(root)
    return ParentRows(
        np.array(number or range(n)), np.array(root), np.full(n, used), np.zeros(n, dtype=np.int64), np.zeros(n),
        np.zeros((n, 2), dtype=np.float32), np.tile(np.arange(CLASSES), (n, 1)), np.zeros((n, CLASSES), dtype=np.float32),
        np.zeros((n, 1), dtype=np.int64), np.ones(n),
    )  # fmt: skip


def test_chances_by_hand() -> None:
    """Logits ln 1, ln 2, ln 1 at temperature 1: 1/4, 1/2, 1/4; at 1/2: 1/6, 4/6, 1/6. The expected class is no fault."""
    logits, true = np.log(np.array([[[1, 2, 1]]], dtype=np.float32)), np.array([[True, False, False]])
    assert chances(logits, true, 1.0, (1.0, 0.0))[0, 0].tolist() == pytest.approx([0, 0.5, 0.25])
    assert chances(logits, true, 0.5, (1.0, 0.0))[0, 0].tolist() == pytest.approx([0, 4 / 6, 1 / 6])
    assert chances(logits, true, 1.0, (0.5, 0.1))[0, 0].tolist() == pytest.approx([0.025, 0.25, 0.125])  # another oracle


def choose(seed: int, goals: list[str], n: int = 6, roots: int = 3) -> tuple[Chooser, Forecasts, list[Any]]:
    random = np.random.default_rng(seed)
    rows = parents(random.integers(0, roots, n).tolist())
    true = rows.root % CLASSES
    logits = random.normal(size=(n, len(ARMS), CLASSES)).astype(np.float32) * 2
    chance = chances(logits, rows.classes == true[:, None], 1.0, (1.0, 0.0))
    forecasts = Forecasts(rows, true, logits, chance, random.random((n, len(ARMS))) * 3)
    subject = GoalSubject(roots, CLASSES, Few().names, 3)
    states = [registry.build("goal", goal).start(subject) for goal in goals]
    reached = Outcomes(rows.root[:2], true[:2], np.array([[1], [2]]), np.array([0, 1]), np.zeros((2, 1), dtype=np.int64))
    for state in states:  # some are reached already
        state.observe(reached, reached.classes[:, 0] != reached.true, np.full(2, 2.0))
    return Chooser(forecasts, states, ARMS, random.random((n, len(ARMS))) < 0.9), forecasts, states


def slowly(forecasts: Forecasts, goals: list[GoalState], allowed: np.ndarray, places: int) -> list[tuple[int, int]]:
    """One mutant after the other, class by class and goal by goal, from the definition."""
    tables, taken = [goal.worth().values.copy() for goal in goals], []
    untouched = dict.fromkeys(forecasts.parents.root.tolist(), 1.0)
    for _ in range(places):
        best: tuple[float, int, int] | None = None
        for row in range(len(forecasts.parents)):
            for arm in range(len(ARMS)):
                if not allowed[row, arm] or (row, arm) in taken:
                    continue
                value, fault = 0.0, float(forecasts.chance[row, arm].sum())
                for goal, table in zip(goals, tables, strict=True):
                    for p in range(CLASSES):
                        value += float(forecasts.chance[row, arm, p]) * table[_cell(forecasts, goal, row, arm, p)]
                    share = goal.by_change(forecasts.parents.root[[row]], forecasts.size[[row], arm : arm + 1])
                    value += 0.0 if share is None else fault * float(share[0, 0]) * untouched[int(forecasts.parents.root[row])]
                if best is None or value / (1 + fault) > best[0] + 1e-9:
                    best = (value / (1 + fault), row, arm)
        assert best is not None
        _, row, arm = best
        taken.append((row, arm))
        untouched[int(forecasts.parents.root[row])] *= 1 - float(forecasts.chance[row, arm].sum())
        for goal, table in zip(goals, tables, strict=True):
            if (cells := goal.cells(_one(forecasts, row, arm))) is None:
                continue
            if cells.shape[1] == 1:
                table[cells[0, 0]] *= 1 - float(forecasts.chance[row, arm].sum())
            else:
                for p in range(CLASSES):
                    table[cells[0, p]] *= 1 - float(forecasts.chance[row, arm, p])
    return taken


def _one(forecasts: Forecasts, row: int, arm: int) -> Outcomes:
    rows = forecasts.parents[[row]]
    return Outcomes(rows.root, forecasts.true[[row]], rows.classes, ARMS.kind[[arm]], rows.neurons)


def _cell(forecasts: Forecasts, goal: GoalState, row: int, arm: int, p: int) -> int:
    cells = goal.cells(_one(forecasts, row, arm))
    return -1 if cells is None else int(cells[0, p if cells.shape[1] > 1 else 0])


@pytest.mark.parametrize(
    "goals", [["family"], ["seed", "pair"], ["family", "pair", "seed", "smaller", "neuron", "aim(at='1 -> *')"]]
)
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_choice_is_that_of_looking_at_everything_each_time(goals: list[str], seed: int) -> None:
    chooser, forecasts, states = choose(seed, goals)
    allowed = chooser.allowed.copy()
    rows, arms = chooser.take(12)
    assert list(zip(rows.tolist(), arms.tolist(), strict=True)) == slowly(forecasts, states, allowed, 12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_nothing_is_chosen_twice_or_against_the_rules(seed: int, places: int) -> None:
    chooser, _, _ = choose(seed, ["family", "seed", "smaller"])
    allowed = chooser.allowed.copy()
    rows, arms = chooser.take(places)
    pairs = set(zip(rows.tolist(), arms.tolist(), strict=True))
    assert len(pairs) == len(rows) == min(places, allowed.sum())
    assert all(allowed[row, arm] for row, arm in pairs)
    assert all(0 <= n <= len(rows) * CLASSES for n in chooser.expected)


def test_what_is_run_anyway_lowers_what_the_rest_is_worth() -> None:
    chooser, _, _ = choose(1, ["family", "seed"])
    before = chooser.worths()
    chooser.spend(np.array([0]), np.array([3]))
    after = chooser.worths()
    assert after[0, 3] == -1  # it is not run again
    assert (after <= before + 1e-6).all()
    assert (after < before - 1e-6).sum() > 1


def test_elites_take_cells_from_each_other_by_hand() -> None:
    table = Parents(parents([0, 1]), len(ARMS))
    assert table.add(parents([0], [7]), [((0, 1, False), 0.5), ((0, 2, False), 0.9)]) == set()
    assert table.add(parents([0], [8]), [((0, 1, False), 0.4)]) == set()  # 7 still has a cell
    assert table.rows.tolist() == [0, 1, 2, 3]
    table.tried[3, 2] = True
    again = Parents(parents([0, 1]), len(ARMS))
    again.restore(table.arrays())
    for one in (table, again):
        assert one.add(parents([0], [9]), [((0, 2, False), 0.1)]) == {7}
        assert one[one.rows].number.tolist() == [0, 1, 8, 9]
        assert one.elites == {(0, 1, False): (0.4, 8), (0, 2, False): (0.1, 9)}
        assert one.tried[3, 2]
        assert one.tried.sum() == 1
        one.keep_only({1, 8})  # what the corpus has dropped
        assert one[one.rows].number.tolist() == [1, 8]
        assert one.elites == {(0, 1, False): (0.4, 8)}
