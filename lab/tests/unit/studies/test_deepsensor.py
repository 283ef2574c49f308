"""The DeepSensor study: its cells are small functions, its tables bear any part of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from neurotest import registry, zoo
from neurotest_lab.studies import suites
from neurotest_lab.studies.deepsensor import cells, examples, figures
from neurotest_lab.studies.deepsensor.cells import FAULTY_METHODS, METHODS
from neurotest_lab.studies.deepsensor.generators import WAYS
from neurotest_lab.studies.deepsensor.study import DeepSensorStudy

SUBJECT = "mnist-lenet1"
needed = pytest.mark.skipif(not zoo.find(SUBJECT).embedded, reason="the embedded networks were removed")


def test_it_is_registered_and_its_cells_have_names_of_their_own() -> None:
    study = registry.build("study", "deepsensor")
    for scale in ("quick", "full"):
        names = [cell.key for cell in study.cells(scale)]
        assert len(set(names)) == len(names)
        kinds = {"reach", "ball", "polluted", "faulty", "excited", "overlap", "start", "sweep", "among"}
        assert {name.partition("/")[0] for name in names} >= kinds


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
        f"overlap/{SUBJECT}": figures.overlap(SUBJECT, "quick", 0, 8),
    }
    result = json.loads(json.dumps(DeepSensorStudy().tables("quick", done)))
    rows = {row["method"]: row for row in result["tables"]["what fails in Linf 0.1"]}
    assert set(rows) == {"excitability", "noise", "pgd"}
    assert result["checks"]["over noise"] == rows["excitability"]["median"] - rows["noise"]["median"]
    assert all(0 <= row["errors"] <= row["of"] for row in result["tables"]["II, 3: adversarial inputs"])
    shared = result["tables"]["figure 7: overlap of the ten most excitable"]
    assert all(0 <= row["low"] <= row["shared of 10"] <= row["high"] <= 10 for row in shared)
    assert all(np.isclose(row["by chance"], 100 / 16, atol=0.01) for row in shared)
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


@needed
@pytest.mark.parametrize("method", suites.GENERATORS)
def test_every_generator_gives_one_input_per_seed(method: str) -> None:
    """In the ball those that are bound to it; errors, categories and chances fit each other; a repetition gives the same."""
    on = cells.subject(SUBJECT, "quick", 0, 3)  # type: ignore[attr-defined]
    suite = WAYS.generate(on, method, 0, 4)
    assert suite.x.shape == on.x.shape
    assert torch.equal(suite.x.mul(255).round(), suite.x.mul(255).round().clamp(0, 255))
    assert suite.categories <= suite.errors or method in (*suites.PAPERS, "swarm")  # swarms count other particles, too
    assert 0 <= suite.errors <= suite.chances
    if method not in suites.BASELINES:
        assert float((suite.x - on.x).flatten(1).norm(dim=1).max()) <= 1.0 + 1e-5
    again = WAYS.generate(on, method, 0, 4)
    assert torch.equal(suite.x, again.x)
    assert (suite.errors, suite.categories) == (again.errors, again.categories)
    with torch.inference_mode():
        assert torch.equal(suite.predicted, on.target.logits(suite.x).argmax(1))


@needed
def test_tables_of_networks_trained_wrongly_count_what_the_papers_count() -> None:
    """III, 4: inputs taken for the polluted class; IV, 5: errors of any kind; the paper's share where it prints one."""
    cell = {"seeds": 20, "errors": 12, "towards": 5, "l2": 0.9}
    done = {f"faulty/mnist-lenet5{fault}/dlfuzz": cell for fault in ("", "+polluted10", "+overfit", "+underfit")}
    result = DeepSensorStudy().tables("quick", done)["tables"]
    polluted = {row["network"]: row for row in result["III, 4: polluted"]}
    assert set(polluted) == {"mnist-lenet5", "mnist-lenet5+polluted10"}
    assert (polluted["mnist-lenet5+polluted10"]["errors"], polluted["mnist-lenet5+polluted10"]["rate"]) == (5, 0.25)
    assert polluted["mnist-lenet5+polluted10"]["paper, share"] == 0.204
    assert polluted["mnist-lenet5"]["paper, share"] is None
    trained = {row["network"]: row for row in result["IV, 5: incompletely trained"]}
    assert {name.partition("+")[2]: row["paper, share"] for name, row in trained.items()} == {
        "": 0.845, "overfit": 0.826, "underfit": 0.814,
    }  # fmt: skip
    assert all(row["errors"] == 12 and row["low"] < 0.6 < row["high"] for row in trained.values())


@needed
def test_figures_of_both_fitnesses_have_intervals() -> None:
    done = {}
    for preset in suites.PAPERS:
        done[f"sweep/{SUBJECT}/{preset}"] = figures.sweep(SUBJECT, "quick", 0, 2, preset, 2)
        done[f"start/{SUBJECT}/{preset}/0"] = figures.start(SUBJECT, "quick", 0, 2, preset, 2)
    done[f"course/{SUBJECT}"] = figures.course(SUBJECT, "quick", 0, 2)
    result = json.loads(json.dumps(DeepSensorStudy().tables("quick", done)))["tables"]
    for title in ("figures 5, 10: lambda and epsilon", "figures 6, 11: start", "figure 3: fitness per iteration"):
        rows = result[title]
        assert {row["swarm"] for row in rows} == set(suites.PAPERS)
        assert all(row["low"] <= row.get("fitness", row.get("failed", 0) / row.get("seeds", 1)) <= row["high"] for row in rows)
    assert len(done[f"course/{SUBJECT}"]["sensitivity-paper"]["fitness"]) == 10  # one per iteration of the papers


@needed
def test_the_map_leaves_a_seed_out_of_its_own_neighbours() -> None:
    benign = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]])
    values = np.array([[0.1, 0.0], [0.9, 0.0]])
    assert examples._nearest(values, benign, np.array([0, 0])).tolist() == [1, 1]
    cell = json.loads(json.dumps(examples.among(SUBJECT, "quick", 0, 6, 4)))
    assert {point["kind"] for point in cell["points"]} >= {"class 9", f"class {cell['second']}"}
    assert all(one["among the first"] <= one["inputs"] <= one["seeds"] for one in cell["counts"].values())
    assert all({"seed png", "change png", "result png"} <= set(strip) for strip in cell["strips"])


def test_charts_are_drawn_from_tables() -> None:
    from neurotest_lab.report.study import drawn as charts_of

    rates = {"rate": 0.5, "low": 0.4, "high": 0.6}
    tables = {
        "what fails in Linf 0.1": [{"method": m, **rates} for m in METHODS],
        "what fails on ResNet-20 in Linf 2/255": [{"method": m, **rates} for m in METHODS],
        "balls": [{"ball": "linf 0.1", "method": m, "failed": 1, "seeds": 2} for m in ("excitability", "noise")],
        "figure 1: excitable neurons": [{"kind": "corner", "measure": "above 0.5", "mean": 1.0, "low": 0.5, "high": 1.5}],
        "figure 3: fitness per iteration": [
            {"swarm": "sensitivity-paper", "iteration": i, "fitness": 0.1 * i, "low": 0.0, "high": 1.0} for i in (1, 2)
        ],
        "figure 3: coverage gained, points": [
            {"subject": "x", "suite": "random", "nc:0.2": 1.0, "nc:0.2 low": 0.5, "nc:0.2 high": 1.5}
        ],
        "III, 4: polluted": [{"network": "x", "method": m, **rates} for m in FAULTY_METHODS],
        "IV, 5: incompletely trained": [{"network": "x", "method": m, **rates} for m in FAULTY_METHODS],
        "figures 5, 10: lambda and epsilon": [
            {"network": "x", "swarm": "s", "parameter": p, "value": "0.5", "seeds": 4, "failed": 1, "low": 0.0, "high": 0.6}
            for p in ("lambda", "epsilon")
        ],
        "figures 7, 8: t-SNE": [{"network": "x", "kind": kind, "x": 0.5, "y": 1.0} for kind in ("class 9", "class 4", "swarm")],
    }
    drawn = charts_of("deepsensor", tables)
    assert set(drawn) == set(tables)
    assert all(svg.startswith("<svg") for svg in drawn.values())
    from neurotest_lab.report.deepsensor import COLOURS

    assert set(METHODS) == set(COLOURS["domain"])
    assert len(set(COLOURS["range"])) == len(METHODS)  # no two methods look alike
