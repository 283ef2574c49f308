"""Labels of a run: added together, replaced, taken back; rows stay."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest.errors import BadInput
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run


def new(place: Path, inputs: int = 4) -> Run:
    run = Run.create(place, "select", {})
    run.add_inputs(InputRow(position, f"{position:016x}") for position in range(inputs))
    return run


def now(run: Run) -> dict[int, int | None]:
    return {row.position: row.label for row in run.labels()}


def test_what_was_added_together_is_taken_back_together(tmp_path: Path) -> None:
    with new(tmp_path / "run") as run:
        assert run.last_labels() == []
        assert run.add_labels({0: 1, 1: None}, "ann") == [1, 2]
        assert run.add_labels({1: 2, 2: 0}, "ann") == [3, 4]
        assert len({row.at for row in run.label_history()}) == 2  # also within one second
        assert now(run) == {0: 1, 1: 2, 2: 0}
        assert [row.n for row in run.last_labels()] == [3, 4]
        run.undo_labels([3, 4], "bob")
        assert now(run) == {0: 1, 1: None}
        assert [row.n for row in run.last_labels()] == [1, 2]
        run.undo_labels([1, 2])
        assert now(run) == {}
        assert run.last_labels() == []
        assert [row.undoes for row in run.label_history()] == [None] * 4 + [3, 4, 1, 2]


def test_all_or_none(tmp_path: Path) -> None:
    with new(tmp_path / "run") as run:
        with pytest.raises(BadInput, match="does not fit what the run holds"):
            run.add_labels({0: 1, 99: 1})
        run.add_labels({0: 1, 1: 1})
        with pytest.raises(BadInput, match="label 7 does not exist"):
            run.undo_labels([1, 7])
        run.undo_label(1)
        with pytest.raises(BadInput, match="undone already"):
            run.undo_labels([2, 1])
        assert now(run) == {1: 1}
        assert len(run.label_history()) == 3


STEP = st.one_of(st.dictionaries(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 2)), min_size=1), st.just("undo"))


@settings(max_examples=25, deadline=None)
@given(st.lists(STEP, max_size=8))
def test_undo_is_the_additions_without_the_last(steps: list[dict[int, int | None] | str]) -> None:
    """Against a plain list of additions, from which `undo` takes the last."""
    kept: list[dict[int, int | None]] = []
    with tempfile.TemporaryDirectory() as place, new(Path(place) / "run") as run:
        for step in steps:
            if isinstance(step, dict):
                run.add_labels(step)
                kept.append(step)
            elif kept:
                run.undo_labels([row.n for row in run.last_labels()])
                kept.pop()
        expected: dict[int, int | None] = {}
        for step in kept:
            expected |= step
        assert now(run) == expected
