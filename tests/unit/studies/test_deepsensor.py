"""The DeepSensor study: its cells are small functions, its tables bear any part of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from neurotest import registry, zoo
from neurotest.studies.deepsensor import cells, figures
from neurotest.studies.deepsensor.cells import METHODS
from neurotest.studies.deepsensor.study import DeepSensorStudy

SUBJECT = "mnist-lenet1"
needed = pytest.mark.skipif(not zoo.find(SUBJECT).embedded, reason="the embedded networks were removed")


def test_it_is_registered_and_its_cells_have_names_of_their_own() -> None:
    study = registry.build("study", "deepsensor")
    for scale in ("quick", "full"):
        names = [cell.key for cell in study.cells(scale)]
        assert len(set(names)) == len(names)
        assert {name.partition("/")[0] for name in names} >= {"reach", "ball", "polluted", "incomplete", "excited", "overlap"}


def test_tables_of_nothing_are_empty_and_say_what_is_absent() -> None:
    result = DeepSensorStudy().tables("quick", {"polluted/x/0": {"absent": "no data"}})
    assert result["checks"] == {}
    assert {"what": "polluted/x/0", "why": "no data"} in result["tables"]["not rerun"]
    assert result["tables"]["published"]


@needed
def test_seeds_have_odd_numbers_and_are_right() -> None:
    on = cells.subject(SUBJECT, "quick", 0, 10)  # type: ignore[attr-defined]
    assert (on.positions % 2 == 1).all()
    assert len(on.x) == 10
    other = cells.subject(SUBJECT, "quick", 1, 10)  # type: ignore[attr-defined]
    assert set(on.positions) != set(other.positions)


@needed
def test_small_cells_make_tables() -> None:
    done = {
        "reach/0": cells.reach(SUBJECT, "quick", 0, 4, "linf", 0.1, METHODS[:1] + METHODS[4:]),
        f"errors/{SUBJECT}/0/random": cells.errors(SUBJECT, "quick", 0, 4, "random"),
        f"errors/{SUBJECT}/0/pgd": cells.errors(SUBJECT, "quick", 0, 4, "pgd"),
        f"polluted/{SUBJECT}/0": cells.polluted(SUBJECT, "quick", 0, 4),
        f"overlap/{SUBJECT}": figures.overlap(SUBJECT, "quick", 0, 6),
        f"coverage/{SUBJECT}": figures.coverage(SUBJECT, "quick", 0, 3),
    }
    result = json.loads(json.dumps(DeepSensorStudy().tables("quick", done)))
    rows = {row["method"]: row for row in result["tables"]["what fails in Linf 0.1"]}
    assert set(rows) == {"excitability", "noise", "pgd"}
    assert result["checks"]["over noise"] == rows["excitability"]["median"] - rows["noise"]["median"]
    assert all(0 <= row["errors"] <= row["of"] for row in result["tables"]["II, 3: adversarial inputs"])
    shared = result["tables"]["figure 7: overlap of the ten most excitable"]
    assert all(0 <= row["shared of 10"] <= 10 and np.isclose(row["by chance"], 100 / 16, atol=0.01) for row in shared)
    assert {row["values"] for row in shared} == {"shapley", "mask gradient"}


@needed
def test_figure_1_has_shapley_values_and_the_cheaper_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampled values sum to the loss change of their pair, as definition 2 makes them; gradients stand beside."""
    monkeypatch.setattr(figures, "SAMPLED", {"quick": 3})
    cell = json.loads(json.dumps(figures.excited(SUBJECT, "quick", 0, 30, pairs=5)))
    for kind in ("corner", "benign"):
        assert len(cell[kind]["shapley"]["loss change"]) == min(3, cell["pairs"])
        assert len(cell[kind]["mask gradient"]["loss change"]) == cell["pairs"]
        pairs = zip(cell[kind]["shapley"]["loss change"], cell[kind]["mask gradient"]["loss change"], strict=False)
        for sampled, gradient in pairs:
            assert sampled == pytest.approx(gradient, abs=0.02 * max(1.0, abs(gradient)))
        assert 0 <= cell[kind]["shared of 10"] <= 10
    rows = DeepSensorStudy().tables("quick", {f"excited/{SUBJECT}": cell})["tables"]["figure 1: excitable neurons"]
    assert {(row["values"], row["kind"]) for row in rows} == {
        (v, k) for v in ("shapley", "mask gradient") for k in ("corner", "benign")
    }
    assert {"above twice the mean", "above 0.5", "above 0.02"} < {row["measure"] for row in rows}
    assert all(row["low"] <= row["mean"] <= row["high"] for row in rows)


def test_charts_are_drawn_from_tables() -> None:
    from neurotest.report.study import drawn as charts_of

    rates = {"rate": 0.5, "low": 0.4, "high": 0.6}
    tables = {
        "what fails in Linf 0.1": [{"method": m, **rates} for m in METHODS],
        "what fails on ResNet-20 in Linf 2/255": [{"method": m, **rates} for m in METHODS],
        "balls": [{"ball": "linf 0.1", "method": m, "failed": 1, "seeds": 2} for m in ("excitability", "noise")],
        "figure 1: excitable neurons": [{"kind": "corner", "measure": "above 0.5", "mean": 1.0, "low": 0.5, "high": 1.5}],
        "figure 3: fitness per iteration": [{"swarm": "sensitivity-paper", "iteration": i, "fitness": 0.1 * i} for i in (1, 2)],
        "figures 3, 6: coverage gained, points": [{"network": "x", "suite": "random", "nc:0.2": 1.0}],
    }
    drawn = charts_of("deepsensor", tables)
    assert set(drawn) == set(tables)
    assert all(svg.startswith("<svg") for svg in drawn.values())
    from neurotest.report.deepsensor import COLOURS

    assert set(METHODS) == set(COLOURS["domain"])
    assert len(set(COLOURS["range"])) == len(METHODS)  # no two methods look alike
