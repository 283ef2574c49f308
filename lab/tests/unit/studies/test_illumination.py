"""The study's bookkeeping on invented cells, and one real cell of each kind."""

from __future__ import annotations

import numpy as np
import pytest
from tests.refusals import refused

from neurotest import zoo
from neurotest.data.source import Source
from neurotest.generate.gradient.toolbox import installed
from neurotest_lab.studies.fuzzing import cells as fuzzing_cells
from neurotest_lab.studies.illumination import cells, suites
from neurotest_lab.studies.illumination.study import IlluminationStudy, generators
from neurotest_lab.studies.illumination.tables import against_best

TOOLBOX = {"deepfool", "jsma", "autoattack"}


def suite(pairs: float, ssim: float, kid: float, evenness: float) -> dict[str, float]:
    return {"cells": pairs, "ssim": ssim, "kid": kid, "evenness": evenness, "l2": 1.0, "outside": 0.1}


def test_against_the_best_guided_run() -> None:
    groups = {
        "illuminate": [suite(90, 0.8, 0.0, 1.0), suite(60, 0.8, 0.0, 0.9)],
        "random": [suite(80, 0.1, 0.0, 1.0)] * 2,  # no coverage guide: not among the best
        "kmnc": [suite(45, 0.3, 0.2, 0.7), suite(40, 0.3, 0.2, 0.7)],
        "nc": [suite(30, 0.9, 0.2, 0.7), suite(50, 0.9, 0.2, 0.7)],
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
    result = IlluminationStudy().tables("quick", {"fashion-lenet5/1000/0/kmnc": suite(45, 0.3, 0.2, 0.7), "x": {"absent": "why"}})
    (row,) = result["tables"]["all generators, 1000 forwards"]
    assert (row["generator"], row["cells"], row["repetitions"]) == ("kmnc", 45, 1)
    assert {"what": "x", "why": "why"} in result["tables"]["not run"]
    assert "deepxplore light" in generators("fashion-lenet5", "quick")
    assert "deepxplore light" not in generators("cifar10-resnet20", "quick")
    assert set(generators("mnist-lenet5", "full")) > set(suites.GUIDES)
    assert set(generators("cifar10-resnet20", "quick")) > {"nsgen", "swarm, excitability", "swarm, sensitivity", *TOOLBOX}


EVERY = ["illuminate", "random", "nsgen", "fgsm", "dlfuzz", "swarm, excitability", "swarm, sensitivity",
         pytest.param("autoattack", marks=pytest.mark.peer("art"))]  # fmt: skip


@pytest.mark.parametrize("generator", EVERY)
def test_a_cell_stays_within_its_budget(generator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not zoo.find("fashion-lenet1").embedded:
        pytest.skip("fashion-lenet1 is not embedded here")
    if generator in TOOLBOX and not installed():
        pytest.skip("the adversarial-robustness-toolbox is not installed")
    monkeypatch.setattr(suites, "SEEDS", 40)
    monkeypatch.setattr(suites, "TRAIN", 120)
    monkeypatch.setattr(suites, "REFERENCE", 120)
    monkeypatch.setitem(suites.OTHERS, "nsgen", "nsgen:tau=0.9,describe=attributes")
    result = cells.judged("fashion-lenet1", 0, generator, 150)
    if generator not in ("nsgen", "swarm, sensitivity"):  # these may find nothing with so little
        assert result["faults"] > 0
    assert result["cells"] <= result["faults"]
    assert 0 < result["spent"] <= 150 + 2 * fuzzing_cells.BATCH + (suites.SMALL * 22 if generator == "nsgen" else 0)
    assert result.get("evenness") is None or 0 <= result["evenness"] <= 1
    if generator == "illuminate":
        assert result["spent"] <= 150


def test_what_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "art.attacks.evasion", None)
    with refused("not-installed", "jsma"):
        cells.judged("fashion-lenet1", 0, "jsma", 150)


def test_seeds_are_paid_for_until_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    on = suites.subject("fashion-lenet1", 0, 100)
    lefts = []

    def run(source: Source, left: int) -> suites.Faults:
        lefts.append(left)
        x = source.read(np.arange(1))
        return 255 - x, np.zeros(1, dtype=np.int64), 40

    result = suites._while_paid(on, run, 7)
    assert lefts == [100, 60, 20]
    assert (result.spent, result.faults, result.roots.tolist()) == (120, 3, [0, 7, 14])
    assert (result.x == 255 - result.seeds).all()


def test_what_counts_as_outside() -> None:
    shares = cells.control("fashion-lenet1")
    assert shares["clean"] <= 0.1
    assert 0 <= shares["noise"] <= 1
    assert "fashion-lenet1" in shares["extractor"]
