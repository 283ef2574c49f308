"""The study of NSGen: its numbers by hand, that nothing is silently absent, and one small campaign."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest import zoo
from neurotest_lab.studies.nsgen import cells, pool, tables
from neurotest_lab.studies.nsgen import study as nsgen


def cell(faults: int, outputs: int = 20, roots: int = 10, **more: Any) -> dict[str, Any]:
    numbers = {
        "faults": faults, "outputs": outputs, "rft": faults / outputs, "fre": 0.1, "true classes": 2, "predicted classes": 2,
        "oi": 0.5, "families": 3, "faults per 1,000 forwards": 1.0, "coverage": None, "reached": True,
    }  # fmt: skip
    pairs = [[i % roots, int(i < faults)] for i in range(outputs)]
    values = [{"true": 1, "predicted": 2, "values": [float(i), float(faults)]} for i in range(faults)]
    rest = {"pairs": pairs, "kinds": [[1, 2]], "map": values, "gallery": [], "below": None}
    return {**dict.fromkeys(("iterations", "outputs", "forwards"), numbers), **rest, **more}


def test_the_lift_over_random_and_its_interval() -> None:
    result = tables.lift([cell(12), cell(12)], [cell(6), cell(6)])
    assert result is not None
    ratio, low, high = result
    assert ratio == pytest.approx(2.0)
    assert low < 2 < high
    assert tables.lift([cell(12)], []) is None
    assert tables.lift([cell(12)], [cell(0)]) is None
    (same, low, high) = tables.lift([cell(6)], [cell(6)]) or (0, 0, 0)
    assert low < 1 < high
    assert same == 1


def test_outputs_of_one_seed_count_as_one_piece() -> None:
    """Ten seeds that always or never fail tell less than a hundred independent outputs."""
    alone = cell(50, 100, 100)
    together = {**alone, "pairs": [[i % 10, int(i % 10 < 5)] for i in range(100)]}
    other = cell(50, 100, 100)
    wide, narrow = (tables.lift([one], [other]) for one in (together, alone))
    assert wide is not None
    assert narrow is not None
    assert wide[2] - wide[1] > narrow[2] - narrow[1]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=2, max_size=30))
def test_auc_counts_pairs(rows: list[tuple[float, bool]]) -> None:
    values, wrong = np.array([v for v, _ in rows]), np.array([w for _, w in rows])
    pairs = [(a < b) + 0.5 * (a == b) for a in values[wrong] for b in values[~wrong]]
    result = pool.auc(values, wrong)
    assert result == (pytest.approx(float(np.mean(pairs))) if pairs else None)


def test_similarity_against_faults_by_hand() -> None:
    values = np.array([0.1, 0.2, 0.8, 0.9] * 5)
    wrong = np.array([True, True, False, False] * 5)
    result = pool.against(values, wrong, np.repeat(np.arange(5), 4), draws=20)
    assert result["auc"] == 1.0
    assert result["r"] < -0.9
    assert result["base rate"] == 0.5
    assert result["rate below"] == 1.0
    same = pool.against(np.ones(20), wrong, np.repeat(np.arange(5), 4), draws=5)
    assert (same["r"], same["auc"], same["rate below"]) == (None, 0.5, None)


def test_every_table_is_there_and_what_is_not_rerun_is_listed() -> None:
    study = nsgen.NSGenStudy()
    keys = [c.key for c in study.cells("quick")]
    assert len(keys) == len(set(keys))
    done: dict[str, Any] = {
        "fuzz/fashion-lenet5/0/random": cell(10),
        "fuzz/fashion-lenet5/0/nsgen": cell(16, kinds=[[1, 2], [3, 4]]),
        "fuzz/fashion-lenet5/0/nsgen with-label": cell(18),
        "fuzz/fashion-lenet5/0/nlc": cell(9),
        "fuzz/fashion-lenet5/0/w/o CNS": {"absent": "tau has no spread"},
    }
    result = study.tables("quick", done)
    json.dumps(result, allow_nan=False)
    for title in (
        "12: equal outputs",
        "3: equal iterations",
        "4: diversity",
        "5: encoders",
        "8: labels in the path",
        "11: ablation",
    ):
        assert result["tables"][title], title
    listed = {row["what"] for row in result["tables"]["not rerun"]}
    assert "w/o CNS on fashion-lenet5" in listed
    assert {"table 13", "ResNet50", "cifar10-mobilenetv2", "cifar10-vgg16bn"} <= listed | {
        "cifar10-mobilenetv2",
        "cifar10-vgg16bn",
    }
    (row,) = [r for r in result["tables"]["figure 8: kinds of faults"] if r["guide"] == "nsgen"]
    assert row["only here"] == 1
    assert result["checks"]["nsgen on fashion-lenet5, fault rate over random's"] == pytest.approx(1.6)
    assert len(result["tables"]["figure 8: map"]) == 35
    assert result["tables"]["published"]


def test_variants_are_guides_that_exist() -> None:
    from neurotest.generate.fuzz import build_guide
    from neurotest.generate.fuzz.semantic import NSGen

    for scale in ("quick", "full"):
        for name, text in nsgen.guides("fashion-lenet5", scale).items():
            assert isinstance(build_guide(text), NSGen) == (name not in (*nsgen.BASELINES[scale], *nsgen.SOFT)), name


@pytest.mark.skipif(not zoo.find("fashion-lenet5").embedded, reason="the embedded networks were removed")
def test_a_small_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cells.LIMITS, "quick", {"iterations": 10, "outputs": 8, "forwards": 60})
    monkeypatch.setitem(cells.STARTS, "quick", 40)
    result = cells.campaign("fashion-lenet5", 0, "random", "quick")
    assert result["outputs"]["outputs"] == 8
    assert result["outputs"]["reached"]
    assert len(result["pairs"]) == 8
    assert len(result["gallery"]) == min(cells.GALLERY, result["outputs"]["faults"])
    assert all(one["label"] != one["predicted"] and one["seed png"] != one["png"] for one in result["gallery"])
    assert len(result["map"]) == result["outputs"]["faults"]
    json.dumps(result, allow_nan=False)
    assert set(cells.campaign("fashion-lenet5", 0, "random", "quick", ("outputs",))) & {"iterations", "forwards"} == set()


@pytest.mark.skipif(not zoo.find("fashion-lenet5").embedded, reason="the embedded networks were removed")
@pytest.mark.slow
def test_paths_are_read_once_and_give_every_variants_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared paths through all layers hold those of a guide through some: its own reading gives the same threshold."""
    from neurotest.generate.fuzz import build_guide
    from neurotest.generate.fuzz.semantic import NSGen, NSGenState
    from neurotest.measure.context import Context

    monkeypatch.setitem(cells.PER_CLASS, "quick", 1)
    monkeypatch.setitem(pool.PAIRS, "quick", (12, 2))
    target, test, train = cells.subject_of("fashion-lenet5")
    text = "nsgen:per_class=1,depth=2"
    shared = cells.with_tau("fashion-lenet5", text)
    alone = build_guide(text).start(Context(target=target, train=train), test)
    assert isinstance(shared, NSGen)
    assert isinstance(alone, NSGenState)
    assert shared.tau == pytest.approx(alone.tau, abs=1e-6)
    assert getattr(cells.with_tau("fashion-lenet5", "nsgen:target=own,per_class=1"), "tau", 0) is None
    result = pool.pool("fashion-lenet5", "quick")
    json.dumps(result, allow_nan=False)
    assert result["mutants"] == 24
    assert {*pool.WAYS, pool.OWN, *pool.SOFT} == set(result["ways"])
    assert result["ways"]["label-only"]["auc"] > 0.9  # the prediction itself
    assert "has only 4 layers" in result["ways"]["6 layers"]["absent"]
    steps = pool.thresholds("fashion-lenet5", "quick")
    assert [row["per class"] for row in steps["no-label"]] == [1]


def test_lifts_of_the_lowest_quarter() -> None:
    values, wrong = np.repeat([0.1, 0.5, 0.6, 0.9], 5), np.repeat([True, False, False, True], 5)
    result = pool.against(values, wrong, np.arange(20), draws=30)
    assert (result["below"], result["rate below"], result["x all"]) == (0.25, 1.0, 2.0)
    assert result["x all low"] <= 2 <= result["x all high"]
    better = pool.against(np.where(wrong, 0.0, 1.0), wrong, np.arange(20), values, draws=30)
    assert (better["auc"], better["auc over nsgen's"]) == (1.0, pytest.approx(0.5))
    assert result["over low"] == result["over high"] == 0


def test_validations_beside_chance() -> None:
    about = {"units": 10, "known": 10, "accuracy": [0.9, 0.6, 0.98], "chance": 0.1, "margin": [0.4, 0.3, 0.5]}
    done = {"words/s": {"describers": {"milan": about, "x": {**about, "margin": None}}}}
    first, second = tables.validated(done, "describers", "describer")
    assert (first["right"], first["low above chance"], first["cosine low"]) == (0.9, 0.5, 0.3)
    assert second["cosine above others"] is None


def test_the_gallery_is_escaped() -> None:
    from neurotest_lab.report.nsgen import cards

    row = {"subject": "<i>s", "guide": "nsgen", "label": "<b>", "predicted": "bag", "change": "x", "png": "AA", "seed png": "BB"}
    drawn = cards([row])
    assert "<i>" not in drawn
    assert "&lt;b&gt;" in drawn
    assert drawn.count("<img") == 2


def test_charts_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vl_convert", reason="charts need vl-convert-python")

    from neurotest_lab.report.study import drawn

    rows = [{"subject": "s", "guide": "nsgen", "x random": 2.0, "low": 1.5, "high": 2.5}]
    areas = [{"subject": "s", "path": "no-label", "auc": 0.7, "auc low": 0.6, "auc high": 0.8}]
    points = [{"subject": "s", "guide": g, "x": 1.0, "y": 2.0, "only": g == "nsgen"} for g in ("nsgen", "random")]
    by_title = {
        "12: equal outputs": rows,
        "figure 6: layers": rows,
        "section 7.4: similarity and faults": areas,
        "figure 8: map": points,
    }
    result = drawn("nsgen", by_title)
    assert set(result) == set(by_title)
    assert all("<svg" in chart for chart in result.values())


def test_the_report_keeps_the_studys_order() -> None:
    """A run stores keys by the alphabet; what the order says is believed only where it fits."""
    from neurotest_lab.report.study import _ordered, _table

    tables = {"a": [{"x": 1, "low": 2}], "b": [{"y": 1}]}
    shown, order = _ordered({"tables": tables, "order": [["b", ["y"]], ["a", ["x", "low"]], ["gone", ["z"]], "?"]})
    assert list(shown) == ["b", "a"]
    assert _table("a", shown["a"], order["a"])["columns"] == ["x", "low"]
    assert list(_ordered({"tables": tables})[0]) == ["a", "b"]
    assert _table("a", tables["a"])["columns"] == ["low", "x"]
