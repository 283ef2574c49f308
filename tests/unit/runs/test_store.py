"""The store: what goes in comes out, all of a step or none of it."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from neurotest.errors import BadInput
from neurotest.runs import Run, schema
from neurotest.runs.rows import Absent, InputRow, MethodRow, RankedRow, dumps, plain


def new(tmp_path: Path, inputs: int = 4) -> Run:
    run = Run.create(tmp_path / "run", "select", {"target": "zoo:tiny"})
    run.add_inputs({"position": i, "content": f"hash{i}"} for i in range(inputs))
    return run


# what goes in comes out


def test_a_new_run_says_what_it_is(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "select", {"target": "zoo:tiny", "budget": 5}) as run:
        assert run["command"] == "select"
        assert run["config"] == {"target": "zoo:tiny", "budget": 5}
        assert run["state"] == "running"
        assert run["summary"] is None
        assert re.fullmatch(r"[0-9a-f]{32}", run["id"])
        run.finish({"fdr": 0.5, "apfd": math.nan})
    with Run.open(tmp_path / "run") as run:
        assert run["state"] == "done"
        assert run["summary"] == {"fdr": 0.5, "apfd": None}
        assert run["finished"] >= run["created"]


def test_the_default_place_is_named_by_command_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [Run.create(None, "select", {}) for _ in range(3)]
    for run in runs:
        assert run.path.parent == Path("neurotest-runs")
        assert re.fullmatch(r"select-\d{8}-\d{6}(-[23])?", run.path.name)
        run.close()
    assert len({run.path for run in runs}) == 3


def test_an_empty_directory_becomes_a_run(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    Run.create(tmp_path / "run", "select", {}).close()
    assert Run.open(tmp_path / "run")["command"] == "select"


def test_meta(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run["profile"] = {"layers": ("a", "b"), "count": np.int64(3), "mean": np.array([0.5, np.inf])}
        assert run["profile"] == {"layers": ["a", "b"], "count": 3, "mean": [0.5, None]}
        run["profile"] = 1
        assert run["profile"] == 1
        assert "profile" in run
        assert "nothing" not in run
        with refused("damaged", "nothing", kind=Absent):
            run["nothing"]
        for own in ("state", "config", "id"):
            with refused("conflict", own):
                run[own] = "mine"


def test_inputs_by_hand(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "select", {}) as run:
        run.add_inputs(
            [
                {
                    "position": np.int64(1),
                    "content": "b",
                    "label": np.int32(3),
                    "predicted": 4,
                    "extra": {"kind": "shift", "size": 0.1},
                },
                InputRow(0, "a"),
            ]
        )
        assert run.inputs() == [InputRow(0, "a", None, None, {}), InputRow(1, "b", 3, 4, {"kind": "shift", "size": 0.1})]
        assert all(type(value) in (int, str, dict, type(None)) for row in run.inputs() for value in row)


def test_inputs_are_written_anew_after_a_crash(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "attack", {}) as run:
        run.add_inputs([InputRow(0, "a"), InputRow(1, "b")])
        run.save_input(1, np.zeros((1, 2, 2), dtype=np.uint8))
        path = run.path
        run.clear_inputs()
        run.add_inputs([InputRow(1, "c")])
        assert run.inputs() == [InputRow(1, "c")]
        assert run.files() == []
    with Run.open(path, write=True):
        assert not list((path / "inputs").iterdir())  # nothing names the picture any more


def test_a_ranking_by_hand(small: Path) -> None:
    with Run.open(small) as run:
        assert run.methods() == [MethodRow("deepgini", 2, 3)]
        assert run.ranking("deepgini") == [RankedRow(1, 2, 0.9, True), RankedRow(2, 0, 0.5, True), RankedRow(3, 1, -0.25, False)]


def test_a_ranking_without_scores_or_with_scores_that_are_no_numbers(tmp_path: Path) -> None:
    with new(tmp_path, 2) as run:
        run.add_ranking("random", [1, 0], None, 1)
        run.add_ranking("odd", [1, 0], [math.inf, math.nan], 0)
        assert run.ranking("random") == [RankedRow(1, 1, None, True), RankedRow(2, 0, None, False)]
        assert run.ranking("odd") == [RankedRow(1, 1, math.inf, False), RankedRow(2, 0, None, False)]
        assert [row.name for row in run.methods()] == ["random", "odd"]


@pytest.mark.parametrize("positions", [[[0, 1]], [0.0, 1.0], 1])
def test_a_ranking_is_one_row_of_integers(tmp_path: Path, positions: Any) -> None:
    with new(tmp_path, 2) as run, refused("wrong-shape", "order"):
        run.add_ranking("nss", positions, None, 0)


def test_stored_inputs_come_back_exactly(tmp_path: Path) -> None:
    floats = np.random.default_rng(0).normal(size=(3, 4, 4)).astype(np.float32)
    pixels = np.arange(16, dtype=np.uint8).reshape(1, 4, 4)
    with new(tmp_path) as run:
        assert run.save_input(2, pixels) == run.path / "inputs" / "picked-000002.png"
        assert run.save_input(np.int64(2), floats, "original") == run.path / "inputs" / "original-000002.npy"
        assert run.load_input(2).tobytes() == pixels.tobytes()
        assert run.load_input(2, "original").tobytes() == floats.tobytes()
        assert [(row.position, row.role) for row in run.files()] == [(2, "original"), (2, "picked")]
        assert [row.path.name for row in run.files("picked")] == ["picked-000002.png"]
        run.save_input(2, 255 - pixels)
        assert run.load_input(2).tobytes() == (255 - pixels).tobytes()
        assert len(run.files()) == 2


@given(st.permutations(range(12)), st.lists(st.floats(allow_nan=False), min_size=12, max_size=12), st.integers(0, 12))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_ranking_comes_back_as_it_was(tmp_path: Path, order: list[int], scores: list[float], picked: int) -> None:
    path = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
    with Run.create(path, "select", {}) as run:
        run.add_inputs({"position": i, "content": ""} for i in range(12))
        run.add_ranking("any", np.array(order), np.array(scores), picked)
    with Run.open(path) as run:
        rows = run.ranking("any")
    assert [row.position for row in rows] == order
    assert [row.score for row in rows] == scores
    assert [row.rank for row in rows if row.picked] == list(range(1, picked + 1))


# labels


def test_labels_are_rows_and_undo_is_one_more(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        first = run.add_label(0, 3, by="ann")
        second = run.add_label(0, np.int64(5), by="bob")
        run.add_label(1, None)
        assert [(row.position, row.label, row.by) for row in run.labels()] == [(0, 5, "bob"), (1, None, "")]
        run.undo_label(second, by="ann")
        assert [(row.position, row.label) for row in run.labels()] == [(0, 3), (1, None)]
        run.undo_label(first)
        assert [(row.position, row.label) for row in run.labels()] == [(1, None)]
        run.add_label(0, 9)
        assert [(row.position, row.label) for row in run.labels()] == [(1, None), (0, 9)]
        assert [row.undoes for row in run.label_history()] == [None, None, None, second, first, None]


def test_labels_cannot_be_deleted_or_changed_by_anybody(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run.add_label(0, 3)
    with sqlite3.connect(run.path / schema.FILE) as other:
        for statement in ("DELETE FROM label", "UPDATE label SET label = 4"):
            with pytest.raises(sqlite3.IntegrityError, match="never"):
                other.execute(statement)


def test_an_undo_that_means_nothing_is_refused(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        label = run.add_label(0, 3)
        undo = run.undo_label(label)
        for n in (undo, 99):
            with refused("not-found", "label"):
                run.undo_label(n)
        with refused("finished", "label"):
            run.undo_label(label)
        with refused("damaged", "row"):
            run.add_label(99, 3)


def test_labels_are_written_through_to_the_disk(tmp_path: Path) -> None:
    with new(tmp_path) as run, run.transaction(durable=True):
        assert run._db.execute("PRAGMA synchronous").fetchone() == (2,)


# all or none


def test_rows_of_one_call_are_kept_together(tmp_path: Path) -> None:
    with new(tmp_path, 2) as run:
        with refused("damaged", "row"):
            run.add_inputs([{"position": 7, "content": "x"}, {"position": 0, "content": "twice"}])
        with refused("damaged", "row"):
            run.add_ranking("gone", np.array([0, 99]), None, 1)
        assert len(run.inputs()) == 2
        assert run.methods() == []


def test_a_step_of_several_calls_is_kept_together(tmp_path: Path) -> None:
    def breaks(run: Run) -> None:
        with run.transaction():
            run["iteration"] = 1
            run.add_inputs([{"position": 10, "content": "x"}])
            raise RuntimeError("stopped here")

    with new(tmp_path, 1) as run:
        with pytest.raises(RuntimeError, match="stopped here"):
            breaks(run)
        assert "iteration" not in run
        assert len(run.inputs()) == 1


def test_a_part_that_fails_leaves_the_rest_of_the_step(tmp_path: Path) -> None:
    with new(tmp_path, 1) as run:
        with run.transaction():
            run["iteration"] = 1
            with refused("damaged", "row"):
                run.add_inputs([{"position": 10, "content": "x"}, {"position": 0, "content": "twice"}])
        assert run["iteration"] == 1
        assert len(run.inputs()) == 1


def test_a_reader_sees_what_is_committed_while_the_writer_goes_on(tmp_path: Path) -> None:
    with new(tmp_path, 2) as run, Run.open(run.path) as reader:
        run["iteration"] = 1
        with run.transaction():
            run["iteration"] = 2
            assert reader["iteration"] == 1
        assert reader["iteration"] == 2


def test_a_closed_run_is_one_file_and_its_inputs(small: Path) -> None:
    assert sorted(entry.name for entry in small.iterdir()) == [".lock", "inputs", "run.sqlite"]
    Run.open(small).close()
    assert sorted(entry.name for entry in small.iterdir()) == [".lock", "inputs", "run.sqlite"]


def test_a_run_can_be_continued(small: Path) -> None:
    with Run.open(small, write=True) as run:
        run.add_ranking("maxp", [0, 1, 2], None, 1)
    with Run.open(small) as run:
        assert [row.name for row in run.methods()] == ["deepgini", "maxp"]


def test_continuing_removes_files_that_no_row_names_and_nothing_else(small: Path) -> None:
    inputs = small / "inputs"
    for name in (
        "picked-000009.png",
        "original-000009.npy",
        "original-000009.view.png",
        ".picked-000009.png.77.part",
        "mine.txt",
    ):
        (inputs / name).write_bytes(b"")
    with Run.open(small, write=True) as run:
        run.save_input(1, np.zeros((2, 1, 1), np.uint8))
    Run.open(small).close()
    Run.open(small, write=True).close()
    assert sorted(p.name for p in inputs.iterdir()) == [
        "mine.txt",
        "picked-000000.png",
        "picked-000001.npy",
        "picked-000001.view.png",
        "picked-000002.png",
    ]


# schema


def test_a_run_of_the_first_schema_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = schema.MIGRATIONS
    monkeypatch.setattr(schema, "MIGRATIONS", every[:1])
    with Run.create(tmp_path / "first", "select", {}) as run:
        run.add_inputs([{"position": 0, "content": "a"}])
    monkeypatch.setattr(schema, "MIGRATIONS", every)
    with Run.open(tmp_path / "first") as run:
        assert [row.position for row in run.inputs()] == [0]


def test_an_older_run_is_read_as_it_is_and_brought_up_to_date_by_a_writer(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = [*schema.MIGRATIONS, ("CREATE TABLE seed (n INTEGER PRIMARY KEY)", "ALTER TABLE input ADD COLUMN parent INTEGER")]
    monkeypatch.setattr(schema, "MIGRATIONS", newer)
    before = (small / schema.FILE).read_bytes()
    with Run.open(small) as run:
        assert len(run.inputs()) == 3
        assert run.rows("SELECT count(parent) FROM input") == [(0,)]
    assert (small / schema.FILE).read_bytes() == before
    with Run.open(small, write=True) as run:
        assert run.rows("PRAGMA user_version") == [(len(newer),)]
    with Run.open(small) as run:
        assert run.rows("SELECT count(*) FROM seed") == [(0,)]
        assert len(run.inputs()) == 3


def test_a_newer_run_is_refused(small: Path) -> None:
    with sqlite3.connect(small / schema.FILE) as db:
        db.execute("PRAGMA user_version=99")
    with refused("unsupported", "schema"):
        Run.open(small)


# bad input


def test_impossible_rankings_are_refused(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run.add_ranking("nss", [0, 1], [1.0, 0.5], 1)
        wrong: list[tuple[str, Any, Any, int]] = [
            ("nss", [0, 1], None, 1),
            ("a", [0, 1], [1.0], 1),
            ("b", [0, 1], None, 3),
            ("c", [0, 1], None, -1),
            ("d", [0, 0], None, 1),
            ("e", [0.5, 1.5], None, 1),
            ("f", [[0], [1]], None, 1),
        ]
        for method, positions, scores, picked in wrong:
            with pytest.raises(BadInput):
                run.add_ranking(method, positions, scores, picked)
        assert [row.name for row in run.methods()] == ["nss"]
        with refused("unknown-name", "ranking"):
            run.ranking("ns")


def test_impossible_inputs_are_refused(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        with refused("not-found", "position"):
            run.save_input(99, np.zeros((1, 1, 1), np.uint8))
        for role in ("", "Picked", "../up", "a b", "a/b", "-a"):
            with refused("syntax", "role"):
                run.save_input(0, np.zeros((1, 1, 1), np.uint8), role)
        with refused("not-found", "input"):
            run.load_input(0)
        with refused("damaged", "row"):
            run.add_inputs([{"position": -1, "content": "x"}])
        assert not (run.path / "inputs").exists()


def test_a_run_opened_for_reading_refuses_to_write(small: Path) -> None:
    with Run.open(small) as run:
        for write in (lambda: run.add_label(0, 1), lambda: run.finish({}), lambda: run.__setitem__("a", 1)):
            with refused("unsupported", "write"):
                write()


def test_plain_by_hand(tmp_path: Path) -> None:
    value = {"a": np.float32(0.5), 1: (True, None, {3, 1}), "p": Path("x/y"), "n": [math.nan, -math.inf, np.array([[1, 2]])]}
    assert plain(value) == {"a": 0.5, "1": [True, None, [1, 3]], "p": "x/y", "n": [None, None, [[1, 2]]]}
    json.dumps(plain(value), allow_nan=False)
    assert dumps({"b": 1, "a": {"d": 2, "c": 3}}) == dumps({"a": {"c": 3, "d": 2}, "b": 1}) == '{"a": {"c": 3, "d": 2}, "b": 1}'
    with pytest.raises(TypeError, match="object has no place"):
        plain({"a": object()})


def test_whose_mistake_an_entry_that_does_not_fit_is(tmp_path: Path) -> None:
    """Nobody but us has written into it: ours, and it stays what it is. Somebody has: a sentence."""
    with pytest.raises(KeyError, match="ours"), new(tmp_path) as run:
        raise KeyError("ours")
    place = run.path
    for write in (False, True):
        with pytest.raises(KeyError, match="ours"), Run.open(place, write=write):
            raise KeyError("ours")
    database = sqlite3.connect(place / schema.FILE)
    database.execute("INSERT INTO meta VALUES ('parts', '\"?\"')")
    database.commit()
    database.close()
    for write in (False, True, False):
        with refused("damaged"), Run.open(place, write=write):
            raise KeyError("theirs")
