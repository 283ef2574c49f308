"""The study's bookkeeping on made-up cells, and one real cell of each kind."""

from __future__ import annotations

import pytest

from neurotest import zoo
from neurotest.studies import illumination_cells as cells
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
    assert set(names("mnist-lenet5", "full")) > set(cells.GUIDES)


@pytest.mark.parametrize("generator", ["illuminate", "random", "fgsm", "dlfuzz"])
def test_a_cell_stays_within_its_budget(generator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not zoo.find("fashion-lenet1").embedded:
        pytest.skip("fashion-lenet1 is not embedded here")
    monkeypatch.setattr(cells, "SEEDS", 40)
    monkeypatch.setattr(cells, "TRAIN", 120)
    found = cells.cell("fashion-lenet1", 0, generator, 150)
    assert 0 < found["cells"] <= found["faults"]
    assert found["spent"] <= 150 + 2 * cells.BATCH
    assert 0 <= found["evenness"] <= 1
    if generator == "illuminate":
        assert found["spent"] <= 150
