"""The fuzzing study: protocols by hand, published rows, and a small run of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from neurotest import zoo
from neurotest.studies import fuzzing, fuzzing_published
from neurotest.studies.fuzzing import FuzzingStudy, a12, reached, within

pytestmark = pytest.mark.skipif(zoo.find("mnist-lenet1").weights is None, reason="the weights of mnist-lenet1 were removed")


def mutant(iteration: int) -> Any:
    return SimpleNamespace(iteration=iteration)


def test_a12_by_hand() -> None:
    assert a12([3, 4], [1, 2]) == 1
    assert a12([1, 2], [3, 4]) == 0
    assert a12([1, 2], [1, 2]) == 0.5


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
    rows = fuzzing_published.rows()
    assert len(rows) == 3 * 13
    assert next(r for r in rows if r["guide"] == "kmnc")["rft"] == 0.5215
    assert set(fuzzing.GUIDES) - {"random"} <= set(fuzzing_published.CRITERIA)


def test_a_small_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "QUICK", ("mnist-lenet1",))
    monkeypatch.setattr(fuzzing, "GUIDES", {"nlc": "nlc", "random": "random"})
    monkeypatch.setitem(fuzzing.LIMITS, "quick", {"iterations": 20, "outputs": 15, "forwards": 150})
    monkeypatch.setitem(fuzzing.MOST, "quick", 2000)
    monkeypatch.setitem(fuzzing.STARTS, "quick", 40)
    study = FuzzingStudy()
    cells = [cell for cell in study.cells("quick") if "/0/" in cell.key]
    done = {cell.key: cell.make() for cell in cells}
    again = cells[0].make()
    assert {**again["outputs"], "fre": 0} == {**done[cells[0].key]["outputs"], "fre": 0}
    tables = study.tables("quick", done)["tables"]
    assert {row["outputs"] for row in tables["12: equal outputs"]} == {15}
    assert {row["guide"] for row in tables["3: equal iterations"]} == {"nlc", "random"}
    assert any(row["what"] == "NSGen itself" for row in tables["not rerun"])
    assert tables["gallery"][0]["png"]
    checks = study.tables("quick", done)["checks"]
    assert 0 <= checks["a12 of nlc over random, equal forwards"] <= 1


def test_coverage_that_is_full_is_emptied_for_equal_outputs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """TKNC with 10 of a layer's neurons is full at once on this network: without resets nothing comes out."""
    monkeypatch.setitem(fuzzing.LIMITS, "quick", {"iterations": 3, "outputs": 8, "forwards": 200})
    monkeypatch.setitem(fuzzing.MOST, "quick", 4000)
    monkeypatch.setitem(fuzzing.STARTS, "quick", 40)
    found = fuzzing.campaign("mnist-lenet1", 0, "tknc", "quick")
    assert found["forwards"]["resets"] == found["iterations"]["resets"] == 0
    assert found["forwards"]["outputs"] < 3
    assert found["outputs"]["resets"] > 0
    assert found["outputs"]["outputs"] == 8


def test_no_effect_is_claimed_where_a_campaign_ended_early() -> None:
    def cell(faults: int, done: bool) -> Any:
        return {"forwards": {"faults": faults, "reached": done}}

    assert fuzzing._effect([cell(3, True)], [cell(1, True)], "forwards") == 1
    assert fuzzing._effect([cell(3, False)], [cell(1, True)], "forwards") is None
