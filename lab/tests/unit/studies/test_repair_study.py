"""The repair study: its cells on a few images, its tables by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neurotest import data
from neurotest.data.source import Source
from neurotest.target.load import load
from neurotest_lab.studies.repair import cells, tables
from neurotest_lab.studies.repair.study import DEEP, RepairStudy


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    def splits(subject: str, train: int | None, parity: str) -> tuple[Source, Source]:
        return data("zoo:mnist/train", limit=min(train or 1, 60)), data("zoo:mnist/test[:240]")

    monkeypatch.setattr(cells, "splits", splits)


def test_a_campaign_holds_faults_of_seeds_the_network_gets_right() -> None:
    target, seeds = load("zoo:mnist-lenet1"), data("zoo:mnist/test[:100]")
    faults = cells.campaign(target, seeds, 0, 50)
    assert 0 < len(faults) <= 50
    assert (faults.predicted != faults.inputs.labels).all()
    assert faults.benign is not None
    assert set(faults.roots.tolist()) <= set(faults.benign.ids().tolist())


def test_a_cell_has_every_arm_and_every_set() -> None:
    row = cells.repaired("mnist-lenet1", 0, "default:epochs=1", train=60, controls=("schedule", "mutated"))
    assert set(row["controls"]) == {"schedule", "mutated"}
    for name in ("clean", "mutated", "unseen-operators", "faults-seen"):
        assert row["ours"][name] - row["controls"]["mutated"][name] == pytest.approx(row["gains"]["mutated"][name][0])
        assert row["ours"][name] - row["old"][name] == pytest.approx(row["gain"][name][0])
    assert row["old"]["faults-seen"] == 0


def test_cells_without_training_data_and_with_picks() -> None:
    alone = cells.repaired("mnist-lenet1", 0, "head", train=0, controls=(), unseen=0.0, benign=False)
    assert alone["learned"] > 0
    assert 0 <= alone["weight"] <= 1
    picks = cells.repaired("mnist-lenet1", 0, "nss:epochs=1", train=60, controls=("random",), selector="deepgini", unseen=0.0)
    assert "random" in picks["controls"]


def test_estimated_distances_are_of_the_same_inputs() -> None:
    row = cells.repaired("mnist-lenet1", 0, "deepsensor:epochs=1", train=60, controls=("schedule",), distances=2)
    assert set(row["clever"]) == {"old", "ours", "schedule"}
    assert all(len(values) == 2 for values in row["clever"].values())
    assert min(row["clever"]["old"]) > 0  # all of them are right before


def test_fewer_seeds_leave_the_holdout_as_it_is() -> None:
    few, many = (cells.planned("mnist-lenet1", 0, train=60, holdout=80, seeds=seeds) for seeds in (50, 100))
    assert few.sets["clean"].ids().tolist() == many.sets["clean"].ids().tolist()
    assert len(few.sets["clean"]) == 80
    assert few.benign is not None
    assert len(few.benign) <= 50 < len(many.benign or ())


def test_distances_by_hand() -> None:
    """Changes 0.5 and 0.1 and 0.3 over two seeds: 0.3 on average; the control's 0.1 and -0.1: 0."""
    one = {"clever": {"old": [1.0, 1.0], "ours": [1.5, 1.1], "mutated": [1.1, 1.1]}}
    other = {"clever": {"old": [2.0], "ours": [2.3], "mutated": [1.9]}}
    (row,) = tables.distances({("mnist-lenet1", "nsgen"): [one, other]})
    assert (row["inputs"], row["before"], row["after"], row["change"]) == (3, 1.333, 1.633, 0.3)
    assert row["mutated"] == pytest.approx(0.0)


def test_an_interval_by_hand() -> None:
    """Without errors, two seeds of 1 and 3: the mean is 2, and resamples are 1, 2 or 3."""
    assert tables.interval([[1.0, 0.0], [3.0, 0.0]]) == (2.0, 1.0, 3.0)
    value, low, high = tables.interval([[5.0, 1.0]] * 4)
    assert value == 5
    assert low == pytest.approx(5 - 1.96 / 2, abs=0.08)
    assert high == pytest.approx(5 + 1.96 / 2, abs=0.08)


def cell(after: float) -> dict[str, Any]:
    gain = {"clean": [after - 90, 0.0], "mutated": [after - 70, 0.0], "faults-seen": [50.0, 0.0], "pgd-adaptive": [1.0, 0.0]}
    return {
        "old": {"clean": 90.0, "mutated": 70.0, "faults-seen": 0.0, "pgd-adaptive": 10.0},
        "ours": {"clean": after, "mutated": after, "faults-seen": 50.0, "pgd-adaptive": 11.0},
        "gain": gain, "controls": {"mutated": {"clean": 89.0, "mutated": 78.0, "faults-seen": 40.0, "pgd-adaptive": 9.0}},
        "gains": {"mutated": {name: [value, 0.0] for name, value in zip(gain, (1.0, 2.0, 10.0, 2.0), strict=True)}},
        "unfit": {}, "weight": 0.5, "learned": 300,
    }  # fmt: skip


def test_tables_by_hand() -> None:
    done = {
        **{f"default/mnist-lenet1/{seed}": cell(80.0 + seed) for seed in (10, 12)},
        "alone/mnist-lenet1/head/10": cell(89.0), "select/mnist-lenet1/nss/10": cell(80.0),
        "attacks/mnist-lenet1/nsgen/10": cell(90.0),
    }  # fmt: skip
    results, checks = RepairStudy().results("quick", done)
    row = next(row for row in results["default beside its controls"] if row["set"] == "holdout, mutated as in training")
    assert (row["before"], row["after"], row["mutated"], row["gain over mutated"]) == (70.0, 91.0, 78.0, 2.0)
    (alone,) = results["without training data"]
    assert (alone["held-out faults fixed"], alone["clean"]) == (50.0, -1.0)
    assert (alone["mutated: fixed"], alone["mutated: clean"]) == (40.0, -1.0)
    (nss,) = results["NSS VIII: a tenth of a mutated pool"]
    assert (nss["mutated pool"], nss["mutated"], nss["paper"]) == (10.0, 8.0, 9.04)
    attacked = [row for row in results["NSGen 13, DeepSensor 4 and 5: under attack"] if row["attack"] == "pgd-adaptive"]
    assert (attacked[0]["change"], attacked[0]["mutated"]) == (1.0, -1.0)
    assert np.isclose(checks["mnist-lenet1: gain over mutated, holdout, mutated as in training"], 2.0)
    every = RepairStudy().cells("quick")
    assert len([one for one in every if not one.optional]) == 30
    assert {one.key.split("/")[1] for one in every if one.optional and one.key.endswith("/10")} == set(DEEP)
    assert RepairStudy().tables("quick", done)["tables"]["default beside its controls"]  # no cell is taken for an absent one


def test_tables_of_nothing() -> None:
    whole = RepairStudy().tables("quick", {})
    assert whole["tables"]["not rerun"]
