"""The study's bookkeeping on made-up cells, and one real cell of each kind."""

from __future__ import annotations

import numpy as np
import pytest

from neurotest import zoo
from neurotest.data.source import Source
from neurotest.generate.gradient.toolbox import installed
from neurotest.studies import illumination_cells as cells
from neurotest.studies import illumination_suites as suites
from neurotest.studies.illumination import IlluminationStudy, against_best, names


def made(pairs: float, ssim: float, kid: float, evenness: float) -> dict[str, float]:
    return {"cells": pairs, "ssim": ssim, "kid": kid, "evenness": evenness, "l2": 1.0, "outside": 0.1}


def test_against_the_best_guided_run() -> None:
    groups = {
        "illuminate": [made(90, 0.8, 0.0, 1.0), made(60, 0.8, 0.0, 0.9)],
        "random": [made(80, 0.1, 0.0, 1.0)] * 2,  # no coverage guide: not among the best
        "kmnc": [made(45, 0.3, 0.2, 0.7), made(40, 0.3, 0.2, 0.7)],
        "nc": [made(30, 0.9, 0.2, 0.7), made(50, 0.9, 0.2, 0.7)],
    }
    rows, checks = against_best("s", groups)
    assert rows[0]["best guided"] == "kmnc"
    assert checks["s: cells, ratio"] == pytest.approx((2 + 1.5) / 2)
    assert checks["s: cells, ratio to the best of each set"] == pytest.approx((2 + 1.2) / 2)
    assert checks["s: cells, ratio to the best of all generators in each set"] == pytest.approx((90 / 80 + 60 / 80) / 2)
    assert checks["s: ssim, better by"] == pytest.approx(0.5)
    assert checks["s: kid, better by"] == pytest.approx(0.2)  # less is more natural
    assert checks["s: evenness, better by"] == pytest.approx(0.25)
    assert against_best("s", {"kmnc": groups["kmnc"]}) == ([], {})


def test_tables_of_what_is_there() -> None:
    found = IlluminationStudy().tables("quick", {"fashion-lenet5/1000/0/kmnc": made(45, 0.3, 0.2, 0.7), "x": {"absent": "why"}})
    (row,) = found["tables"]["all generators, 1000 forwards"]
    assert (row["generator"], row["cells"], row["repetitions"]) == ("kmnc", 45, 1)
    assert {"what": "x", "why": "why"} in found["tables"]["not run"]
    assert "deepxplore light" in names("fashion-lenet5", "quick")
    assert "deepxplore light" not in names("cifar10-resnet20", "quick")
    assert set(names("mnist-lenet5", "full")) > set(suites.GUIDES)
    assert set(names("cifar10-resnet20", "quick")) > {"nsgen", "swarm, excitability", "swarm, sensitivity", *suites.TOOLBOX}


EVERY = ["illuminate", "random", "nsgen", "fgsm", "dlfuzz", "swarm, excitability", "swarm, sensitivity",
         pytest.param("autoattack", marks=pytest.mark.peer("art"))]  # fmt: skip


@pytest.mark.parametrize("generator", EVERY)
def test_a_cell_stays_within_its_budget(generator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not zoo.find("fashion-lenet1").embedded:
        pytest.skip("fashion-lenet1 is not embedded here")
    if generator in suites.TOOLBOX and not installed():
        pytest.skip("the adversarial-robustness-toolbox is not installed")
    monkeypatch.setattr(suites, "SEEDS", 40)
    monkeypatch.setattr(suites, "TRAIN", 120)
    monkeypatch.setattr(suites, "KNOWN", 120)
    monkeypatch.setitem(suites.OTHERS, "nsgen", "nsgen:tau=0.9,describe=attributes")
    found = cells.cell("fashion-lenet1", 0, generator, 150)
    if generator not in ("nsgen", "swarm, sensitivity"):  # these may find nothing with so little
        assert found["faults"] > 0
    assert found["cells"] <= found["faults"]
    assert 0 < found["spent"] <= 150 + 2 * suites.BATCH + (suites.SMALL * 22 if generator == "nsgen" else 0)
    assert found.get("evenness") is None or 0 <= found["evenness"] <= 1
    if generator == "illuminate":
        assert found["spent"] <= 150


def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "art.attacks.evasion", None)
    found = cells.cell("fashion-lenet1", 0, "jsma", 150)
    assert "pip install 'neurotest[attacks]'" in found["absent"]


def test_seeds_are_paid_for_until_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    on = suites.subject("fashion-lenet1", 0, 100)
    lefts = []

    def make(source: Source, left: int) -> suites.Faults:
        lefts.append(left)
        x = source.read(np.arange(1))
        return 255 - x, np.zeros(1, dtype=np.int64), 40

    found = suites.paid(on, make, 7)
    assert lefts == [100, 60, 20]
    assert (found.spent, found.found, found.roots.tolist()) == (120, 3, [0, 7, 14])
    assert (found.x == 255 - found.seeds).all()


def test_what_counts_as_outside() -> None:
    told = cells.control("fashion-lenet1")
    assert told["clean"] <= 0.1
    assert 0 <= told["noise"] <= 1
    assert "fashion-lenet1" in told["extractor"]
