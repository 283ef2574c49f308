"""The coverage study: tables by hand, the file of suites, and a small run of it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

from neurotest import zoo
from neurotest.errors import Interrupted
from neurotest.report import write_report
from neurotest.scan import predictions
from neurotest_lab.studies.coverage import cells, correlations, published, study, xplore
from neurotest_lab.studies.coverage.correlations import Suite
from neurotest_lab.studies.pictures import unit_picture
from neurotest_lab.studies.run import run_study

weights = pytest.mark.skipif(zoo.find("mnist-fcnet5").weights is None, reason="the weights of mnist-fcnet5 were removed")
HEAD = ["model", "attack", "layer", "regularization_weight", "epsilon", "confidence", *correlations.COVERAGE,
        *correlations.COLUMNS.values()]  # fmt: skip


def suite(nc: float, asr: float, weight: float = 0.0, layer: str = "a") -> Suite:
    return Suite(model="FCNet5", attack="pgd", layer=layer, weight=weight, strength=0.1, nc=(nc,) * 4, metrics={"asr": asr})


def written(path: Path, rows: list[list[Any]]) -> Path:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([HEAD, *rows])
    return path


def test_lambda_is_held_fixed() -> None:
    # Each lambda lifts coverage and lowers success; within a lambda both rise together.
    suites = [
        suite(nc=0.2 + 0.1 * step + 0.01 * i, asr=0.9 - 0.2 * step + 0.02 * i, weight=10.0**step, layer=f"l{i}")
        for step in range(3)
        for i in range(4)
    ]
    rows = correlations.correlations(suites, ["asr"], (0.0, 0.2, 0.5, 0.75), {"asr": 1})
    assert len(rows) == 4
    assert rows[0]["r"] < -0.9
    assert rows[0]["given lambda"] == pytest.approx(1)
    assert not rows[0]["supports"]
    inside = correlations.within_lambda(suites, ["asr"], 1)
    assert [row["r"] for row in inside] == pytest.approx([1, 1, 1])
    (confounds,) = correlations.lambda_confounds(suites)
    assert confounds["lambda with coverage"] > 0.9
    assert confounds["lambda with success"] < -0.9
    (verdict,) = correlations.verdicts(rows)
    assert (verdict["negative"], verdict["given lambda above 0"]) == (4, 4)


def test_printed_cells() -> None:
    assert len(list(correlations.cells())) == 192
    rows = [
        {"metric": m, "model": model, "attack": a, "t": published.THRESHOLDS[c],
         "r": published.published(m, model, a, c)}
        for m, model, a, c in correlations.cells()
    ]  # fmt: skip
    assert correlations.missed(correlations.against_paper(rows), 0.0) == []
    rows[0]["r"] += 0.06
    del rows[5]  # undefined here, a number there
    assert len(correlations.missed(correlations.against_paper(rows), 0.05)) == 2


def test_a_file_of_suites(tmp_path: Path) -> None:
    rows = [["FCNet5", "pgd_attack", "a", 1, 0.1, "", 0.1 * i, 0.1 * i, 0.1, 0.1, 0.5 + 0.05 * i, 1, 1, 0.9] for i in range(6)]
    result = run_study("coverage", options={"from_csv": str(written(tmp_path / "s.csv", rows))}, out=tmp_path / "run")
    assert result["checks"]["suites"] == 6
    assert result["checks"]["cells"] == 192
    (row,) = [r for r in result["tables"]["4: coverage and defects"] if r["t"] == 0.2]
    assert row["r"] == pytest.approx(1)
    assert row["paper"] == -0.52
    json.dumps(result, allow_nan=False)
    assert "cells_within_0.05" in write_report(tmp_path / "run").read_text()


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("absent", "unreadable"),
        ("empty", "too-few"),
        ("columns", "unknown-option"),
        ("number", "wrong-type"),
        ("binary", "syntax"),
    ],
)
def test_a_file_that_is_something_else(tmp_path: Path, what: str, code: str) -> None:
    path = tmp_path / "s.csv"
    if what == "columns":
        path.write_text("a,b\n1,2\n")
    elif what == "number":
        written(path, [["FCNet5", "pgd", "a", "much", 0.1, "", *[0.1] * 8]] * 5)
    elif what == "binary":
        path.write_bytes(bytes(range(256)))
    elif what == "empty":
        written(path, [])
    with refused(code, "columns" if what == "columns" else "from_csv"):
        run_study("coverage", options={"from_csv": str(path)}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_study_without_that_option(tmp_path: Path) -> None:
    with refused("unknown-option", "from_csv"):
        run_study("nss", options={"from_csv": "x"}, out=tmp_path / "run")


def test_layers_from_first_to_last() -> None:
    if zoo.find("mnist-fcnet10").weights is None:
        pytest.skip("the weights of mnist-fcnet10 were removed")
    assert study.layers_of("mnist-fcnet10", 3) == ("fc1", "fc5", "fc10")
    assert len(study.layers_of("mnist-fcnet10", 6)) == 10  # the study takes every layer of the MNIST networks


def test_pictures_of_units() -> None:
    from base64 import b64decode
    from io import BytesIO

    from PIL import Image

    drawn = np.asarray(Image.open(BytesIO(b64decode(unit_picture(np.array([0, 1, 0.5]), (3,))))))
    assert drawn.shape == (200, 200)
    assert [drawn[0, 0], drawn[0, -1], drawn[-1, 0], drawn[-1, -1]] == [0, 255, 127, 0]


@weights
def test_a_small_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(study.PARTS, "quick", (study.Part("mnist-fcnet5", ("pgd",), 20, (0,)),))
    monkeypatch.setitem(study.WEIGHTS, "quick", (0.0, 1e2))
    monkeypatch.setattr(study, "STEPS", 2)
    monkeypatch.setattr(cells, "BASELINE", 10)
    monkeypatch.setattr(cells, "IMPARTIAL", 2)
    monkeypatch.setattr(xplore, "WEIGHTS", (0.0,))
    monkeypatch.setitem(xplore.DRAWS, "quick", 1)
    monkeypatch.setitem(xplore.IMAGES, "quick", 20)
    suites: list[str] = []
    plain = cells.suite

    def counted(plan: cells.Plan) -> dict[str, Any]:
        if len(suites) == 4:
            suites.append("stopped")
            raise KeyboardInterrupt
        suites.append(plan.key)
        return plain(plan)

    monkeypatch.setattr(cells, "suite", counted)
    with pytest.raises(Interrupted, match="--resume"):
        run_study("coverage", out=tmp_path / "run")
    result = run_study("coverage", resume=tmp_path / "run")
    assert len(set(suites)) == len(suites) == 3 * (1 + 3) + 1  # no suite was made twice
    assert result["missing"] == []
    tables = result["tables"]
    assert {row["t"] for row in tables["4: coverage and defects"]} == {0.0, 0.2, 0.5, 0.75}
    row = next(r for r in tables["2: coverage gained"] if r["t"] == 0.2)
    assert row["greatest gain %"] >= row["mean gain %"]
    assert row["paper mean gain %"] == 22.59
    assert [r["which"] for r in tables["figures 5, 6: suites of low and high coverage"]] == [
        "clean", "lowest coverage", "highest coverage",
    ]  # fmt: skip
    assert {r["lambda"] for r in tables["figure 8: classes favoured"]} == {0.0, 1e2}
    assert len(tables["7: classes by the coverage of their inputs"]) == 10
    assert {r["model"] for r in tables["5.1: DeepXplore"]} <= set(xplore.TARGETS)
    assert any("Dave2" in r["what"] for r in tables["not rerun"])
    json.dumps(result, allow_nan=False)
    page = write_report(tmp_path / "run").read_text()
    assert page.count("<svg") >= 4
    assert "data:image/png;base64," in page


@weights
def test_a_suite_by_hand() -> None:
    plan = cells.Plan(
        subject="mnist-fcnet5", attack="pgd", layer="fc1", weight=1e4, strength=0.1, draw=0, images=20, scale="quick"
    )
    result = cells.suite(plan)
    clean, subject = cells.clean("mnist-fcnet5", 0, 20), cells.subject_of("mnist-fcnet5")
    assert sorted(clean.images.labels.tolist()) == [c for c in range(10) for _ in range(2)]
    assert (predictions(subject.target, clean.images) == clean.images.labels).all()
    assert 0 <= result["asr"] <= 1
    assert result["nc"] == sorted(result["nc"], reverse=True)
    assert result["l2"] <= 0.1 * 28
    assert result == cells.suite(plan)


def test_driving_networks_are_left_out_with_the_way_to_bring_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from neurotest_lab.studies.coverage import cells
    from neurotest_lab.studies.coverage.study import DRIVING, CoverageStudy, here

    monkeypatch.setattr(cells, "here", lambda name: name not in DRIVING)
    reasons = dict(CoverageStudy().left_out("quick", {}))
    assert "neurotest data get driving --from DIR" in reasons["Dave2"]
    assert "neurotest zoo train driving-dave2n" in reasons["Dave2-N"]
    assert not {part.subject for part in here("quick")} & set(DRIVING)
    monkeypatch.setattr(cells, "here", lambda name: True)
    assert "--only suite/driving-dave2" in dict(CoverageStudy().left_out("quick", {}))["Dave2"]
    assert set(DRIVING) <= {part.subject for part in here("quick")}
