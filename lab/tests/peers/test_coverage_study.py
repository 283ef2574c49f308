"""Our statistics on the published suites of the coverage study: its printed numbers come out again."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.golden import BESIDE, HERE

from neurotest.stats.comparison import pearson
from neurotest_lab.studies.coverage.correlate import within
from neurotest_lab.studies.coverage.correlations import from_csv

EXCERPT = HERE / "coverage-study" / "resnet56.csv"
PGD = HERE / "coverage-study" / "pgd.csv"
COMPLETE = BESIDE / "oracle" / "coverage-study" / "suites.csv"
complete = pytest.mark.skipif(
    not COMPLETE.is_file(), reason="the complete file of the study (2,095 suites) is not part of the project"
)


def columns(file: Path, model: str, attack: str) -> Callable[[str], np.ndarray]:
    with open(file, newline="") as text:
        rows = [row for row in csv.DictReader(text) if row["model"] == model and attack in row["attack"]]
    assert len(rows) > 20, (model, attack)
    return lambda name: np.array([float(row[name]) for row in rows])


# Correlation of NC at .2 with the success rate of PGD, plain and with lambda held fixed.
@pytest.mark.parametrize(
    ("file", "model", "plain", "fixed"),
    [(EXCERPT, "ResNet56", 0.51, 0.26), (PGD, "FCNet10", -0.16, 0.05), (PGD, "Conv1DNet", -0.33, -0.09),
     (PGD, "Conv2DNet", -0.03, 0.20), (PGD, "FCNet5", -0.51, -0.55)],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_lambda_confounds_coverage_and_success(file: Path, model: str, plain: float, fixed: float) -> None:
    column = columns(file, model, "pgd")
    nc, success = column("neuron_coverage_020"), column("attack_success_rate")
    assert pearson(nc, success) == pytest.approx(plain, abs=0.006)
    assert within(nc, success, column("regularization_weight")) == pytest.approx(fixed, abs=0.006)


def test_impartiality_there_is_entropy_over_its_largest_value() -> None:
    column = columns(EXCERPT, "ResNet56", "attack")
    assert column("output_diversity") / np.log(10) == pytest.approx(column("output_impartiality"), abs=1e-6)


def test_the_printed_cells_of_one_network_come_out_again() -> None:
    """Four measures, two attacks, four thresholds."""
    tables = from_csv(EXCERPT)["tables"]
    cells = [row for title, rows in tables.items() if title[0] in "456" for row in rows]
    assert len(cells) == 32
    for row in cells:
        assert row["r"] == pytest.approx(row["paper"], abs=0.01), row
    rows = {(r["attack"], r["t"]): r for r in tables["4: coverage and defects"]}
    assert rows["pgd", 0.2]["given lambda"] == pytest.approx(0.26, abs=0.01)


@complete
def test_the_printed_tables_come_out_again() -> None:
    result = from_csv(COMPLETE)
    assert result["checks"]["suites"] == 2095
    assert result["checks"]["cells"] == 192
    assert result["checks"]["cells_within_0.05"] >= 165
    misses = result["tables"]["cells that differ by more than .05"]
    assert len(misses) == 192 - result["checks"]["cells_within_0.05"]
    assert {(m["model"], m["attack"]) for m in misses} == {("Dave_orig", "pgd"), ("Dave_norminit", "pgd")}
    verdicts = {row["metric"]: row for row in result["tables"]["verdicts"]}
    assert verdicts["asr"]["support"] == 2  # the study's own count
    assert verdicts["oi"]["support"] == 3
    rows = {(r["model"], r["attack"], r["t"]): r for r in result["tables"]["4: coverage and defects"]}
    assert rows["FCNet10", "cw", 0.2]["r"] == pytest.approx(0.77, abs=0.01)
    assert rows["Conv2DNet", "pgd", 0.2]["given lambda"] == pytest.approx(0.20, abs=0.01)
