"""Our statistics on the published suites of the coverage study: what is known of them comes out again."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from neurotest.stats.comparison import pearson, within
from neurotest.studies.coverage.correlations import from_csv

FILE = Path(__file__).resolve().parents[3] / "shared" / "oracle" / "coverage-study" / "suites.csv"

pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="the suites of the coverage study are not beside this clone")


@pytest.fixture(scope="module")
def suites() -> list[dict[str, str]]:
    with open(FILE, newline="") as file:
        return list(csv.DictReader(file))


def columns(rows: list[dict[str, str]], model: str, attack: str) -> Callable[[str], np.ndarray]:
    mine = [row for row in rows if row["model"] == model and attack in row["attack"]]
    assert len(mine) > 20, (model, attack, sorted({(r["model"], r["attack"]) for r in rows}))
    return lambda name: np.array([float(row[name]) for row in mine])


# Correlation of NC at .2 with the success rate of PGD, plain and with lambda held fixed (spec/evaluation.md, section 4).
@pytest.mark.parametrize(
    ("model", "plain", "fixed"),
    [("FCNet10", -0.16, 0.05), ("Conv1DNet", -0.33, -0.09), ("Conv2DNet", -0.03, 0.20), ("ResNet56", 0.51, 0.26),
     ("FCNet5", -0.51, -0.55)],
)  # fmt: skip
def test_lambda_confounds_coverage_and_success(suites: list[dict[str, str]], model: str, plain: float, fixed: float) -> None:
    column = columns(suites, model, "pgd")
    nc, success = column("neuron_coverage_020"), column("attack_success_rate")
    assert pearson(nc, success) == pytest.approx(plain, abs=0.006)
    assert within(nc, success, column("regularization_weight")) == pytest.approx(fixed, abs=0.006)


def test_impartiality_there_is_entropy_over_its_largest_value(suites: list[dict[str, str]]) -> None:
    rows = [row for row in suites if row["output_diversity"] and row["output_impartiality"] and row["model"] == "FCNet5"]
    share = [float(row["output_diversity"]) / np.log(10) for row in rows]
    assert share == pytest.approx([float(row["output_impartiality"]) for row in rows], abs=1e-6)


def test_the_printed_tables_come_out_again() -> None:
    found = from_csv(FILE)
    assert found["checks"]["suites"] == 2095
    assert found["checks"]["cells"] == 192
    assert found["checks"]["cells_within_0.05"] >= 165
    misses = found["tables"]["cells that differ by more than .05"]
    assert len(misses) == 192 - found["checks"]["cells_within_0.05"]
    assert {(m["model"], m["attack"]) for m in misses} == {("Dave_orig", "pgd"), ("Dave_norminit", "pgd")}
    verdicts = {row["metric"]: row for row in found["tables"]["verdicts"]}
    assert verdicts["asr"]["support"] == 2  # the study's own count
    assert verdicts["oi"]["support"] == 3
    rows = {(r["model"], r["attack"], r["t"]): r for r in found["tables"]["4: coverage and defects"]}
    assert rows["FCNet10", "cw", 0.2]["r"] == pytest.approx(0.77, abs=0.01)
    assert rows["Conv2DNet", "pgd", 0.2]["given lambda"] == pytest.approx(0.20, abs=0.01)
