"""CSV and JSON: complete, and harmless in a spreadsheet."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from neurotest.runs import Run
from neurotest.runs.export import cell


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_by_hand(small: Path) -> None:
    with Run.open(small) as run:
        run.export()
    assert (small / "selection.csv").read_text().splitlines() == [
        "method,rank,position,content,score,picked,label,predicted,labelled,file",
        "deepgini,1,2,hash2,0.9,1,2,1,7,inputs/picked-000002.png",
        "deepgini,2,0,hash0,0.5,1,0,1,,inputs/picked-000000.png",
        "deepgini,3,1,hash1,-0.25,0,1,1,,",
    ]
    written = json.loads((small / "run.json").read_text())
    assert written["config"] == {"target": "zoo:tiny", "seed": 0}
    assert written["summary"] == {"fdr": 0.5}
    assert written["state"] == "done"
    assert written["methods"] == [{"name": "deepgini", "picked": 2, "ranked": 3}]
    assert written["files"][0] == {"position": 0, "role": "picked", "path": "inputs/picked-000000.png"}
    assert [(row["position"], row["label"]) for row in written["labels"]] == [(2, 7)]


def test_a_run_without_rankings_has_no_csv(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "fuzz", {}) as run:
        run.export()
    assert not (tmp_path / "run" / "selection.csv").exists()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["methods"] == []


def test_exporting_again_replaces_the_files_whole(small: Path) -> None:
    with Run.open(small, write=True) as run:
        run.export()
        run.add_label(0, 4)
        run.export()
    assert rows(small / "selection.csv")[1]["labelled"] == "4"
    assert not list(small.glob(".*.part"))


EVIL = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1"]


def test_cells_that_look_like_formulas_are_made_harmless(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "select", {}) as run:
        run.add_inputs(
            {"position": i, "content": text, "extra": {"=name": text, "plain": "x=1", "list": [1, "=2"]}}
            for i, text in enumerate(EVIL)
        )
        run.add_ranking("=nss", np.arange(len(EVIL)), np.full(len(EVIL), -0.5), 1)
        run.export()
    exported = rows(tmp_path / "run" / "selection.csv")
    assert [row["content"] for row in exported] == ["'" + text for text in EVIL]
    assert [row["'=name"] for row in exported] == ["'" + text for text in EVIL]
    assert {row["method"] for row in exported} == {"'=nss"}
    assert {row["plain"] for row in exported} == {"x=1"}
    assert {row["list"] for row in exported} == {'[1, "=2"]'}
    assert {row["score"] for row in exported} == {"-0.5"}  # a negative number is a number


@given(st.text() | st.integers() | st.floats() | st.none())
@settings(deadline=None)
def test_no_text_cell_ever_starts_like_a_formula(value: object) -> None:
    written = cell(value)
    if isinstance(value, str):
        assert not written.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
        assert written.removeprefix("'") == value.removeprefix("'")
    else:
        assert written is value


def test_names_that_are_no_unicode_do_not_stop_the_export(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "select", {"file": "caf\udce9.png"}) as run:
        run.add_inputs([{"position": 0, "content": "x", "extra": {"file": "caf\udce9.png"}}])
        run.add_ranking("nss", [0], [1.0], 1)
        run.export()
        assert run.inputs()[0].extra == {"file": "caf\udce9.png"}
    exported = rows(tmp_path / "run" / "selection.csv")[0]
    assert exported["file"] == ""
    assert exported["extra.file"] == "caf\\udce9.png"  # a name of our own is not taken away from us


def test_an_export_that_cannot_be_written_is_one_sentence(small: Path) -> None:
    (small / "run.json").mkdir()
    with Run.open(small) as run, refused("not-writable"):
        run.export()
