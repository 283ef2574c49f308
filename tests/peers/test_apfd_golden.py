"""APFD and FDR against the numbers that dnn-tip and uncertainty-wizard gave on a fixed subject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.golden import arrays, numbers

from neurotest.stats.faults import apfd, budget, fdr

pytestmark = pytest.mark.by_hand


def read(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    return numbers(name), arrays(name)


def is_fault() -> np.ndarray:
    return arrays("outputs")["is_fault"]


def stable(scores: np.ndarray) -> np.ndarray:
    return np.argsort(-scores, kind="stable")


def test_apfd_of_the_coverage_orders_of_dnn_tip() -> None:
    values, results = read("dnn_tip")
    faults = is_fault()
    compared = 0
    for name, value in values.items():
        for kind in ("ctm", "cam"):
            order = results.get(f"{name}|{kind}".replace("/", "|"))
            if order is not None and isinstance(value, dict):
                assert apfd(faults[order]) == pytest.approx(value[f"apfd_{kind}"], abs=1e-12), (name, kind)
                compared += 1
    assert compared >= 60


def test_apfd_of_the_surprise_scores_of_dnn_tip() -> None:
    values, results = read("dnn_tip")
    faults = is_fault()
    scored = {name: value for name, value in values.items() if isinstance(value, dict) and "apfd_desc_stable" in value}
    assert len(scored) >= 15
    for name, value in scored.items():
        assert apfd(faults[stable(results[name.replace("/", "|")])]) == pytest.approx(value["apfd_desc_stable"], abs=1e-12), name


def test_apfd_and_fdr_of_the_uncertainties_of_uncertainty_wizard() -> None:
    values, results = read("selection")
    faults = is_fault()
    scored = {name: value for name, value in values.items() if name.startswith("uwiz/")}
    assert len(scored) == 8
    for name, value in scored.items():
        scores = results[name.replace("/", "|")].astype(np.float64)
        order = stable(scores if value["higher_is_more_uncertain"] else -scores)
        assert apfd(faults[order]) == pytest.approx(value["apfd_stable"], abs=1e-12), name
        assert fdr(faults[order], budget("10%", len(order))) == pytest.approx(value["fdr@10%"]), name
