"""The fuzzing study: protocols by hand, published rows, and a small run of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from neurotest import zoo
from neurotest_lab.studies.frame import Subjects
from neurotest_lab.studies.fuzzing import cells as campaigns
from neurotest_lab.studies.fuzzing import inside, published, study
from neurotest_lab.studies.fuzzing.cells import reached, within
from neurotest_lab.studies.fuzzing.study import FuzzingStudy
from neurotest_lab.studies.fuzzing.tables import effect

pytestmark = pytest.mark.skipif(zoo.find("mnist-lenet1").weights is None, reason="the weights of mnist-lenet1 were removed")


def mutant(iteration: int) -> Any:
    return SimpleNamespace(iteration=iteration)


def test_protocols_cut_where_they_say() -> None:
    outputs = [mutant(i) for i in (0, 2, 1, 5)]
    assert within("outputs", outputs, 2) == outputs[:2]
    assert within("iterations", outputs, 3) == outputs[:3]
    assert within("forwards", outputs, 3) == outputs
    open_: Any = SimpleNamespace(opened=8, turns=[mutant(2)], tally=SimpleNamespace(forwards=9))
    assert not reached("iterations", open_, outputs, 3)
    assert reached("iterations", open_, outputs, 2)
    assert reached("outputs", open_, outputs, 4)
    assert not reached("forwards", open_, outputs, 10)


def test_published_tables_are_complete() -> None:
    rows = published.rows()
    assert len(rows) == 3 * 13
    assert next(r for r in rows if r["guide"] == "kmnc")["rft"] == 0.5215
    assert set(campaigns.GUIDES) - {"random"} <= set(published.CRITERIA)


def test_printed_counts_stand_beside_ours() -> None:
    assert published.counts("iterations", "kmnc", 0) == {"paper faults": 5157, "paper outputs": 9889}
    assert published.counts("outputs", "kmnc", 0) == {"paper faults": 334, "paper outputs": 1000}
    assert published.counts("outputs", "tknp", 1) == {"paper faults": 1, "paper outputs": 1}  # it has one output at all
    nothing = {"paper faults": None, "paper outputs": None}
    assert published.counts("outputs", "mdsc", 1) == published.counts("forwards", "kmnc", 0) == nothing
    assert published.counts("iterations", "random", 0) == published.counts("iterations", "kmnc", None) == nothing
    assert published.classes("nc", 2) == {"paper classes": 10, "paper oi": 0.9762}


def test_a_small_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FuzzingStudy, "subjects", Subjects(("mnist-lenet1",), ()))
    monkeypatch.setattr(study, "GUIDES", {"nlc": "nlc", "random": "random"})
    monkeypatch.setattr(inside, "VARIANTS", {name: inside.VARIANTS[name] for name in ("random", inside.LOGITS, inside.CONTROL)})
    monkeypatch.setitem(campaigns.LIMITS, "quick", {"iterations": 20, "outputs": 15, "forwards": 150})
    monkeypatch.setitem(campaigns.MOST, "quick", 2000)
    monkeypatch.setitem(campaigns.STARTS, "quick", 40)
    small = FuzzingStudy()
    cells = [cell for cell in small.cells("quick") if "/0/" in cell.key and not cell.optional]
    done = {cell.key: cell.make() for cell in cells}
    again = cells[0].make()
    assert {**again["outputs"], "fre": 0} == {**done[cells[0].key]["outputs"], "fre": 0}
    tables = small.tables("quick", done)["tables"]
    assert {row["outputs"] for row in tables["12: equal outputs"]} == {15}
    assert {row["guide"] for row in tables["3: equal iterations"]} == {"nlc", "random"}
    assert any(row["what"] == "NSGen itself" for row in tables["not rerun"])
    assert tables["gallery"][0]["png"]
    checks = small.tables("quick", done)["checks"]
    assert 0 <= checks["a12 of nlc over random, equal forwards"] <= 1
    looks = {row["guide"]: row for row in tables["goals: what looking inside adds"]}
    ours, control, random = (looks[name] for name in (inside.LOGITS, inside.CONTROL, "random"))
    assert ours["families over random"] == pytest.approx(ours["families"] / random["families"], abs=1e-3)
    assert ours["families over pixels"] == pytest.approx(ours["families"] / control["families"], abs=1e-3)
    assert random["families over random"] is None
    assert checks[f"a12 of families, {inside.LOGITS} over random"] in (0, 0.5, 1)


def test_coverage_that_is_full_is_emptied_for_equal_outputs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """TKNC with 10 of a layer's neurons is full at once on this network: without resets nothing comes out."""
    monkeypatch.setitem(campaigns.LIMITS, "quick", {"iterations": 3, "outputs": 8, "forwards": 200})
    monkeypatch.setitem(campaigns.MOST, "quick", 4000)
    monkeypatch.setitem(campaigns.STARTS, "quick", 40)
    row = campaigns.campaign("mnist-lenet1", 0, "tknc", "quick")
    assert row["forwards"]["resets"] == row["iterations"]["resets"] == 0
    assert row["forwards"]["outputs"] < 3
    assert row["outputs"]["resets"] > 0
    assert row["outputs"]["outputs"] == 8


def test_no_effect_is_claimed_where_a_campaign_ended_early() -> None:
    def cell(faults: int, done: bool) -> Any:
        return {"forwards": {"faults": faults, "reached": done}}

    assert effect([cell(3, True)], [cell(1, True)], "forwards") == 1
    assert effect([cell(3, False)], [cell(1, True)], "forwards") is None
