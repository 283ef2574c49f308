"""Pages of attacks and the like: matrix, strips, radii and conclusions by hand."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.unit.report.test_pages import cells

from neurotest import Run
from neurotest.report import pictures, write_report
from neurotest.report.generated import _radius, _strips, stored_faults
from neurotest.report.map import MATRIX_SIDE, _matrix

SUMMARY = {
    "attack": "pgd", "outputs": 4, "faults": 3, "families": 2, "roots": 3, "forwards": 10, "seconds": 1.0, "set_aside": 1,
    "unstable": 2, "distance": {"linf": 0.5}, "success_interval": [0.5, 0.9], "success": 0.75,
    "random": {"faults": 1, "success": 0.25, "success_interval": [0.1, 0.4]}, "notes": [],
}  # fmt: skip
# position, label, predicted, fault, L2
OUTPUTS = [(0, 0, 1, True, 3.0), (1, 0, 1, True, 1.0), (2, 2, 0, True, 2.0), (3, 1, 1, False, 0.5)]


@pytest.fixture
def attacked(tmp_path: Path) -> Path:
    config = {"target": "t", "fingerprint": "0123456789abcdef", "seeds": "s", "description": {"bounds": [0.0, 1.0]}}
    with Run.create(tmp_path / "attack", "attack", config) as run:
        run["classes"] = ["cat", "dog", "eel"]
        rows = [
            {"position": p, "content": str(p), "label": y, "predicted": z, "extra": {"fault": f, "l2": d, "linf": d / 10}}
            for p, y, z, f, d in OUTPUTS
        ]
        run.add_inputs(rows)
        for position in (0, 1, 2):
            run.save_input(position, np.full((1, 4, 4), 10 + position, np.uint8), "fault")
            run.save_input(position, np.full((1, 4, 4), 10, np.uint8), "original")
        run.finish(SUMMARY)
    return tmp_path / "attack"


def values(picture: str | None) -> np.ndarray[Any, Any]:
    assert picture is not None
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2]))))


def test_the_page_by_hand(attacked: Path) -> None:
    text = cells(write_report(attacked).read_text())
    assert text[text.index("What an attack breaks") + 1 :][:2] == [
        "t",
        "3 of 4 seeds fail under pgd, their pixels changed by at most 50 % of the range; noise of the same size breaks 1 of 4.",
    ]  # fmt: skip
    assert "neurotest evaluate attack" in text
    start = text.index("pgd")
    assert text[start : start + 4] == ["pgd", "3", "75.0 %", "50.0 .. 90.0"]
    assert text[start + 4 : start + 8] == ["random noise", "1", "25.0 %", "10.0 .. 40.0"]


def test_chance_is_named(attacked: Path) -> None:
    with Run.open(attacked, write=True) as run:
        run.finish({**SUMMARY, "success_interval": [0.3, 0.9]})
    text = cells(write_report(attacked).read_text())
    assert any(line.endswith("breaks 1 of 4. The difference from noise is within chance.") for line in text)


def test_a_cell_has_the_smallest_fault_and_the_count(attacked: Path) -> None:
    with Run.open(attacked) as run:
        content = _matrix(run)
    assert content is not None
    assert content["rows"] == [(0, "cat"), (2, "eel")]
    assert content["columns"] == [(0, "cat"), (1, "dog")]
    assert {pair: cell["faults"] for pair, cell in content["cells"].items()} == {(0, 1): 2, (2, 0): 1}
    assert (values(content["cells"][0, 1]["picture"]) == 11).all()  # of input 1, which is nearer to its seed than input 0
    assert (content["pairs"], content["left_out"]) == (2, 0)


def test_many_classes_leave_the_rarest_out(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "attack", {"target": "t", "fingerprint": "f", "seeds": "s"}) as run:
        rows = [
            {"position": 9 * label + i, "content": f"{label}/{i}", "label": label, "predicted": 50, "extra": {"fault": True}}
            for label in range(MATRIX_SIDE + 3)
            for i in range(1 if label < 3 else 2)
        ]  # fmt: skip
        run.add_inputs(rows)
        run.finish(SUMMARY)
        content = _matrix(run)
    assert content is not None
    assert len(content["rows"]) == MATRIX_SIDE
    assert content["left_out"] == 3
    assert content["rows"][0] == (3, "3")  # a network without class names


def test_strips_go_from_small_to_large_changes(attacked: Path) -> None:
    with Run.open(attacked) as run:
        content = _strips(run)
        assert [row.position for row in stored_faults(run)] == [1, 2, 0]
    assert content is not None
    shown = content["strips"]
    assert [strip["position"] for strip in shown] == ["1", "2", "0"]
    assert (shown[0]["true"], shown[0]["predicted"]) == ("cat", "dog")
    assert [int(values(strip["difference"])[0, 0]) for strip in shown] == [10, 20, 0]  # 1, 2 and 0 of 255, ten times


def test_accuracy_falls_with_the_radius(attacked: Path) -> None:
    with Run.open(attacked) as run:
        content = _radius(run)
    assert content is not None
    (chart,) = content["charts"]
    assert "upper bound" in chart.shows
    points = [(row["size"], row["accuracy"]) for row in chart.spec["data"]["values"] if row["norm"] == "L2"]
    assert (points[0], points[-1]) == ((0.0, 1.0), (3.0, 0.25))  # faults at 1, 2 and 3, of four seeds


def test_floats_have_pictures_between_their_bounds() -> None:
    x = np.array([[[-1.0, 0.0], [1.0, np.nan]]], np.float32)
    assert values(pictures.of_input(x, (-1.0, 1.0))).tolist() == [[0, 128], [255, 0]]
    assert pictures.of_difference(x, x.astype(np.float64)) is None
    assert pictures.of_difference(x[:, :1], x[:, :1] + np.float32(0.04), (-1.0, 1.0)) is not None
    assert values(pictures.of_difference(x[:, :1], x[:, :1] + np.float32(0.04), (-1.0, 1.0))).tolist() == [[51, 51]]
    assert pictures.of_input(np.zeros(5, np.float32)) is None


def test_photographs_are_made_smaller(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 500, 400)).astype(np.uint8)
    with Run.create(tmp_path / "run", "attack", {}) as run:
        run.add_inputs([{"position": 0, "content": "0"}])
        run.save_input(0, noise, "fault")
        (file,) = run.files("fault")
        picture = pictures.of_file(file.file)
        assert picture is not None
        assert values(picture).shape == (160, 128, 3)
        assert len(picture) < 40_000
        file.path.write_bytes(file.path.read_bytes()[:-3000])
        assert pictures.of_file(file.file) is None  # a damaged one takes away itself and not the page
