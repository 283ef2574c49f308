"""Out to people and back: CSV, folders, Label Studio; and labels that cannot be right."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from neurotest.data.labels import Inputs, placed, read_labels
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.runs.store import Run
from neurotest.select import compare
from neurotest.select.exchange import _picks, export
from neurotest.target import Target

pytestmark = pytest.mark.plain

NAMES = ("=cat", "dog/wolf", "cow & calf")


@pytest.fixture
def pool() -> ArraySource:
    return ArraySource(np.random.default_rng(0).integers(0, 256, (20, 1, 6, 6), dtype=np.uint8))


@pytest.fixture
def run(tmp_path: Path, pool: ArraySource) -> Path:
    torch.manual_seed(0)
    target = Target(nn.Sequential(nn.Flatten(), nn.Linear(36, 3)).eval(), shape=(1, 6, 6), classes=NAMES)
    compare(target, pool, ["deepgini", "margin"], 6, out=tmp_path / "run")
    return tmp_path / "run"


def chosen(run: Path) -> list[int]:
    with Run.open(run) as opened:
        return [pick.position for pick in _picks(opened)]


def test_csv_there_and_back(run: Path, tmp_path: Path, pool: ArraySource) -> None:
    result = export(run, "csv", tmp_path / "out.csv")
    assert result["exported"] == 6
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["position"]) for row in rows] == chosen(run)
    assert all(row["predicted"] in ("'=cat", *NAMES[1:]) for row in rows)  # no spreadsheet takes it for a formula
    assert all(row["label"] == "" for row in rows)
    with pytest.raises(BadInput, match="holds no label"):
        read_labels(tmp_path / "out.csv")
    for row, name in zip(rows, ["'=cat", "dog/wolf", "2", "", "cow & calf", "0"], strict=True):
        row["label"] = name
    with open(tmp_path / "filled.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    labels = read_labels(tmp_path / "filled.csv")
    assert list(labels.values()) == ["=cat", "dog/wolf", 2, "cow & calf", 0]
    numbers = placed(labels, Inputs(pool.ids()), 3, NAMES)
    assert [int(numbers[int(row["position"])]) for row in rows] == [0, 1, 2, -1, 2, 0]
    assert (numbers >= 0).sum() == 5


def test_a_folder_there_and_back(run: Path, tmp_path: Path, pool: ArraySource) -> None:
    result = export(run, "folder", tmp_path / "out")
    files = sorted((tmp_path / "out").glob("*/*.png"))
    assert result["exported"] == len(files) == 6
    assert {file.parent.name for file in files} <= {"_cat", "dog_wolf", "cow _ calf"}
    first = files[0]
    position = int(first.stem.split("-")[1])
    assert np.array_equal(np.asarray(Image.open(first)), pool.read(np.array([position]))[0, 0])
    (tmp_path / "out" / "1").mkdir()
    first.rename(tmp_path / "out" / "1" / first.name)
    labels = read_labels(tmp_path / "out")
    assert labels[str(pool.ids()[position])] == 1
    assert len(labels) == 6


def test_classes_without_names_are_offered_by_number(tmp_path: Path, pool: ArraySource) -> None:
    torch.manual_seed(0)
    target = Target(nn.Sequential(nn.Flatten(), nn.Linear(36, 3)).eval(), shape=(1, 6, 6))
    compare(target, pool, ["margin"], 1, out=tmp_path / "run")
    export(tmp_path / "run", "label-studio", tmp_path / "tasks.json")
    page = ElementTree.parse(tmp_path / "tasks.xml")  # all three, also those that the one pick is not taken for
    assert [choice.get("value") for choice in page.iter("Choice")] == ["0", "1", "2"]


def test_label_studio_there_and_back(run: Path, tmp_path: Path, pool: ArraySource) -> None:
    export(run, "label-studio", tmp_path / "tasks.json", method="margin")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    with Run.open(run) as opened:
        expected = _picks(opened, "margin")
    assert [task["data"]["position"] for task in tasks] == [pick.position for pick in expected]
    for task, pick in zip(tasks, expected, strict=True):
        (prediction,) = task["predictions"]
        assert prediction["score"] == pick.score
        assert prediction["result"][0]["value"] == {"choices": [pick.predicted]}
        assert task["data"]["image"].startswith("data:image/png;base64,")
    page = ElementTree.parse(tmp_path / "tasks.xml")
    assert [choice.get("value") for choice in page.iter("Choice")] == list(NAMES)
    for task, name in zip(tasks, [*NAMES, None, "cow & calf", None], strict=True):
        result = [{"type": "choices", "value": {"choices": [name]}}]
        task["annotations"] = [{"result": result if name else []}, {"was_cancelled": True, "result": result}]
    (tmp_path / "done.json").write_text(json.dumps(tasks))
    labels = read_labels(tmp_path / "done.json")
    assert list(labels.values()) == [*NAMES, "cow & calf"]
    assert (placed(labels, Inputs(pool.ids()), 3, NAMES) >= 0).sum() == 4


def test_labels_that_people_gave_are_exported(run: Path, tmp_path: Path) -> None:
    with Run.open(run, write=True) as opened:
        opened.add_label(chosen(run)[0], 1)
    export(run, "csv", tmp_path / "out.csv")
    assert list(read_labels(tmp_path / "out.csv").values()) == ["dog/wolf"]


def test_picks_without_pictures(tmp_path: Path) -> None:
    target = Target(nn.Sequential(nn.Linear(4, 3)).eval(), shape=(4,))
    compare(target, ArraySource(np.random.default_rng(0).random((9, 4), dtype=np.float32)), ["deepgini"], 3, out=tmp_path / "run")
    assert export(tmp_path / "run", "csv", tmp_path / "a.csv")["exported"] == 3
    assert export(tmp_path / "run", "label-studio", tmp_path / "a.json")["without_picture"] == 3


@pytest.mark.parametrize("form", ["csv", "label-studio"])
def test_nothing_is_overwritten(run: Path, tmp_path: Path, form: str) -> None:
    (tmp_path / "there").write_text("mine")
    with pytest.raises(BadInput, match="is there already"):
        export(run, form, tmp_path / "there")
    assert (tmp_path / "there").read_text() == "mine"


def test_bad_exports(run: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected csv, folder or label-studio"):
        export(run, "xml", tmp_path / "out")
    with pytest.raises(BadInput, match="Did you mean deepgini"):
        export(run, "csv", tmp_path / "out", method="deepgin")
    with pytest.raises(BadInput, match="no run"):
        export(tmp_path, "csv", tmp_path / "out")
