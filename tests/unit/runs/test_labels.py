"""Labels of a run: added together, replaced, taken back; rows stay."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from neurotest.errors import BadInput
from neurotest.runs import schema
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
        with refused("damaged", "row"):
            run.add_labels({0: 1, 99: 1})
        run.add_labels({0: 1, 1: 1})
        with refused("not-found", "label"):
            run.undo_labels([1, 7])
        run.undo_label(1)
        with refused("finished", "label"):
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


def test_what_is_no_valid_input_is_told_from_what_cannot_be_told(tmp_path: Path) -> None:
    with new(tmp_path / "run") as run:
        run.add_labels({0: None, 1: None, 2: 1}, "ann", invalid={1})
        assert [(row.position, row.label, row.valid) for row in run.labels()] == [(0, None, 1), (1, None, 0), (2, 1, 1)]
        with refused("conflict", "label"):
            run.add_labels({3: 2}, invalid={3})


def test_each_session_takes_back_its_own(tmp_path: Path) -> None:
    with new(tmp_path / "run") as run:
        run.add_labels({0: 1}, "ann", session="a")
        run.add_labels({1: 1, 2: 1}, "ann", session="b")
        assert [row.position for row in run.last_labels("a")] == [0]
        assert [row.position for row in run.last_labels("b")] == [1, 2]
        assert [row.position for row in run.last_labels()] == [1, 2]
        run.undo_labels([1], session="a")
        assert run.last_labels("a") == []
        assert now(run) == {1: 1, 2: 1}


def test_leases_end_by_themselves_and_are_there_when_the_run_is_opened_again(tmp_path: Path) -> None:
    with new(tmp_path / "run") as run:
        run.lease([0, 1], "a", 100.0)
        run.lease([1], "b", 200.0)
        assert [(row.position, row.holder) for row in run.leases(99.0)] == [(0, "a"), (1, "b")]
        assert [(row.position, row.holder) for row in run.leases(150.0)] == [(1, "b")]
    with Run.open(tmp_path / "run", write=True) as run:
        assert [row.until for row in run.leases(0.0)] == [100.0, 200.0]
        run.release([0])
        assert [row.position for row in run.leases(0.0)] == [1]
        with pytest.raises(BadInput):
            run.lease([77], "a", 100.0)  # no input of the run


def test_labels_of_a_run_from_before_leases_are_read_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = schema.MIGRATIONS
    before = next(number for number, statements in enumerate(every) if any("lease" in one for one in statements))
    monkeypatch.setattr(schema, "MIGRATIONS", every[:before])
    with Run.create(tmp_path / "run", "select", {}) as run:
        run.add_inputs(InputRow(position, f"{position:016x}") for position in range(4))
        with run.transaction():
            run.change(
                "INSERT INTO label (position, label, by, at, undoes) VALUES (?, ?, ?, ?, ?)", [(0, 2, "ann", "then", None)]
            )
    monkeypatch.setattr(schema, "MIGRATIONS", every)
    with Run.open(tmp_path / "run") as run:  # in memory: the file stays as it is
        assert [(row.label, row.valid, row.session) for row in run.labels()] == [(2, 1, "")]
        assert run.leases(0.0) == []
    with Run.open(tmp_path / "run", write=True) as run:
        run.add_labels({1: None}, invalid={1}, session="a")
        assert [(row.label, row.valid, row.session) for row in run.labels()] == [(2, 1, ""), (None, 0, "a")]
        with refused("damaged", "row"):
            run.change("UPDATE label SET valid = ? WHERE n = ?", [(0, 1)])
