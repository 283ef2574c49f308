"""The map of a page: what it proves by hand, where there is none, and how far validity is believed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.unit.report.subjects import HOSTILE, network
from tests.unit.report.test_pages import changed

from neurotest import Run
from neurotest.report.campaign import _validity
from neurotest.report.map import _evidence, _feature_map, _MapInputs, _shown_inputs
from neurotest.report.section import write_report


def shown() -> _MapInputs:
    """Two classes in two heaps, eleven seeds each; two faults of class 0 lie in the heap of class 1."""
    label = np.repeat([0, 1], 11)
    fault = np.array([False] * 22 + [True] * 2)
    return _MapInputs(
        np.zeros((24, 1, 2, 2), np.uint8), fault, np.concatenate([label, [0, 0]]), np.concatenate([label, [1, 1]]),
        np.arange(24),
    )  # fmt: skip


def test_neighbours_prove_where_faults_lie() -> None:
    points = np.concatenate([np.linspace(0, 1, 11), np.linspace(100, 101, 11), [100.2, 100.4]])[:, None] * np.ones(2)
    seeds, true, predicted, stay = _evidence(shown(), points, points)
    assert seeds["layer"].value == seeds["plane"].value == 1.0
    assert true["layer"].value == 0.0
    assert predicted["layer"].value == 1.0
    assert abs(predicted["chance"].value - 0.5) < 0.1
    assert stay["plane"].value == 1.0
    assert stay["chance"][0] == pytest.approx(10 / 23)


def test_without_a_layout_the_page_says_how_to_get_it(runs: dict[str, Path]) -> None:
    with Run.open(runs["fuzz-nlc"]) as run:
        content = _feature_map(run)
    assert content is not None
    assert content["charts"] == []
    assert content["command"] == "neurotest report fuzz-nlc"


def test_a_target_out_of_reach_costs_the_map_only(tmp_path: Path, runs: dict[str, Path]) -> None:
    copy = shutil.copytree(runs["attack"], tmp_path / "attack")
    page = write_report(copy, layout="tsne").read_text()
    assert "There is no map: " in page
    assert "Seed, fault, difference" in page


@pytest.mark.parametrize("name", ["fuzz-nlc", "swarm", "attack", "merge"])
def test_seeds_and_faults_of_every_kind_of_run(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("neurotest.report.map.stored_target", lambda run: network())
    with Run.open(runs[name]) as run:
        inputs, content = _shown_inputs(run), _feature_map(run, "tsne")
    assert inputs.x.shape[1:] == (1, 8, 8)
    assert (inputs.label[inputs.fault] != inputs.predicted[inputs.fault]).all()
    assert content is not None
    (chart,) = content["charts"]
    rows = chart.spec["data"]["values"]
    assert len(rows) == len(inputs.x)
    assert {row["kind"] for row in rows} == {"seed", "fault"}
    assert {row["true"] for row in rows} <= set(HOSTILE)
    assert all(row["picture"].startswith("data:image/png;base64,") for row in rows)
    assert "picture" not in chart.rows[0]  # the data are numbers and names


def test_how_far_faults_are_believed_valid(tmp_path: Path, runs: dict[str, Path]) -> None:
    about = {
        "by": "learner",
        "share": 0.9,
        "interval": [0.8, 1.0],
        "recognised": 0.7,
        "others_recognised": None,
        "seeds_recognised": 0.8,
    }
    path = changed(runs["fuzz-nlc"], tmp_path / "judged", believed_valid=about)
    with Run.open(path) as run:
        content = _validity(run)
    assert content is not None
    assert "90 % of the faults (80 .. 100)" in content["text"]
    assert content["charts"][0].spec["data"]["values"] == [
        {"images": "seeds", "recognised": 0.8}, {"images": "faults", "recognised": 0.7},
    ]  # fmt: skip
