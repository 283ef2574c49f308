"""Labelling with numbers, without a browser: a stranger's network that predicts a quantity, and a pool nobody has labelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused
from tests.unit.serve.subjects import HOLDER, OTHER

import neurotest
from neurotest.cli.options import Call
from neurotest.cli.serve import begin
from neurotest.errors import BadInput
from neurotest.runs.store import Run
from neurotest.select.exchange import export, labels_of
from neurotest.select.quantities import Quantity, kept
from neurotest.serve.models import Taken
from neurotest.serve.quantities import Quantities, open_labelling
from neurotest.target import speed
from neurotest.target.outputs import Bins

MODEL = """
import torch
from torch import nn

class Bright(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.fc = nn.Linear(2, 1)
        with torch.no_grad():
            self.conv.weight.fill_(1 / 9), self.conv.bias.zero_(), self.fc.weight.fill_(1.0), self.fc.bias.fill_(-1.0)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))

def build():
    return Bright().eval()
"""
POOL, SIZE = 40, 6
ABOUT: dict[str, Any] = {"size": "1x8x8", "outputs": "regression", "span": (-1.0, 1.0), "tolerance": 0.2}


def write_quantity_project(folder: Path) -> None:
    """The network answers with 2 mean - 1; pictures are of one grey each, and the truth of training data is that of dark ones."""
    (folder / "model.py").write_text(MODEL)
    grey = np.linspace(0, 255, POOL).astype(np.uint8)
    x = np.broadcast_to(grey[:, None, None, None], (POOL, 1, 8, 8)).copy()
    np.savez(folder / "pool.npz", x=x)
    np.savez(folder / "train.npz", x=x[::2] // 2, y=np.full(POOL // 2, -0.5))


def begin_run(folder: Path, *, quiet: bool = True, **more: Any) -> Path:
    write_quantity_project(folder)
    settings: dict[str, Any] = {"seed": 0, "batch": 16, "train": f"npz:{folder / 'train.npz'}#x,y", "out": folder / "run"}
    call = Call("label", settings, frozenset(settings), ABOUT | more, None, quiet)
    return begin(f"py:{folder / 'model.py'}:build", f"npz:{folder / 'pool.npz'}#x", SIZE, call)


@pytest.fixture
def desk(tmp_path: Path) -> Any:
    labelling = open_labelling(begin_run(tmp_path), size=SIZE)
    assert isinstance(labelling, Quantities)
    labelling.start(lambda request: None, lambda work: work())
    yield labelling
    labelling.run.close()


def test_what_lower_precision_changes_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(speed, "_has_bfloat16", lambda device: True)  # it runs anywhere, only slower
    begin_run(tmp_path, quiet=False, precision="bfloat16")
    assert f"of {POOL} predictions" in capsys.readouterr().err


def shown(desk: Quantities, holder: str = HOLDER) -> int:
    answer = desk.next(holder)
    assert answer["state"] == "show"
    return int(answer["input"]["position"])


def answer_of(position: int) -> float:
    return 2 * int(np.linspace(0, 255, POOL)[position]) / 255 - 1


def test_a_number_is_a_fault_beyond_the_tolerance(desk: Quantities) -> None:
    first = shown(desk)
    assert not desk.number(HOLDER, first, answer_of(first) + 0.19)["fault"]
    second = shown(desk)
    assert second != first
    assert desk.number(HOLDER, second, answer_of(second) - 0.21)["fault"]
    rows = {row.position: row for row in desk.run.labels()}
    assert rows[second].value == answer_of(second) - 0.21
    assert rows[first].label == desk.predicted[first]
    assert desk.progress()["faults"] == 1
    assert desk.progress()["standing"] is None


def test_the_order_of_the_selection_goes_on_through_the_pool(desk: Quantities) -> None:
    order = [row.position for row in desk.run.ranking("disagreement")]
    seen = []
    for _ in range(POOL):
        seen.append(shown(desk))
        desk.number(HOLDER, seen[-1], 0.0)
    assert seen == order
    assert desk.next(HOLDER)["state"] == "done"


def test_marks_need_no_number(desk: Quantities) -> None:
    positions = [shown(desk)]
    assert desk.guess(positions[0])["answer"] == pytest.approx(answer_of(positions[0]), abs=1e-5)
    assert not desk.number(HOLDER, positions[0], None, mark="right")["fault"]
    positions.append(shown(desk))
    assert desk.number(HOLDER, positions[1], None, mark="off")["fault"]
    positions.append(shown(desk))
    assert desk.number(HOLDER, positions[2], None)["fault"] is None  # cannot tell
    positions.append(shown(desk))
    assert desk.number(HOLDER, positions[3], None, valid=False)["fault"] is None
    assert desk.progress()["invalid"] == desk.progress()["unclear"] == 1


def test_what_is_refused(desk: Quantities) -> None:
    position = shown(desk)
    for wrong in ({"value": float("nan")}, {"value": 0.1, "mark": "off"}, {"value": 0.1, "valid": False}):
        with pytest.raises(BadInput):
            desk.number(HOLDER, position, wrong.pop("value", None), **wrong)  # type: ignore[arg-type]
    with pytest.raises(Taken):
        desk.number(OTHER, position, 0.1)
    with refused("unsuitable", "grid"):
        desk.grid(HOLDER)
    with refused("unsuitable", "label"):
        desk.label(HOLDER, position, 3)


def test_undo_and_a_second_start(desk: Quantities, tmp_path: Path) -> None:
    first = shown(desk)
    desk.number(HOLDER, first, 0.3)
    assert desk.undo(HOLDER)["undone"] == [first]
    assert shown(desk) == first
    desk.number(HOLDER, first, 0.4)
    desk.run.close()
    again = open_labelling(tmp_path / "run", size=SIZE)
    try:
        again.start(lambda request: None, lambda work: work())
        assert again.labels[first].value == 0.4
        assert int(again.next(OTHER)["input"]["position"]) != first
    finally:
        again.run.close()


def test_labels_come_back_as_a_file(desk: Quantities, tmp_path: Path) -> None:
    values = {}
    for number in range(SIZE + 2):  # beyond what the selection picked
        position = shown(desk)
        values[position] = round(-0.9 + 0.2 * number, 2)
        desk.number(HOLDER, position, values[position])
    off = shown(desk)
    desk.number(HOLDER, off, None, mark="off")
    desk.run.close()
    export(tmp_path / "run", "csv", tmp_path / "labels.csv", every=True)
    text = (tmp_path / "labels.csv").read_text()
    assert all(f",{value!r}," in text for value in values.values())
    assert ",off," in text
    target = neurotest.load(f"py:{tmp_path / 'model.py'}:build", **ABOUT)
    source = neurotest.data(f"npz:{tmp_path / 'pool.npz'}#x")
    numbers = labels_of(tmp_path / "labels.csv", source, target, 25)
    assert numbers is not None
    assert target.bins is not None
    for position, value in values.items():
        assert numbers[position] == target.bins.of(np.array([value]))[0]
    assert (numbers >= 0).sum() == len(values)


def test_counting_by_hand() -> None:
    quantity = Quantity(Bins(0.0, 1.0, 10, 0.05), (0.0, 1.0), np.array([0.48, 0.99]))
    assert quantity.counted(0, 0.52) == 4  # another part of the range, but near enough
    assert quantity.counted(0, 0.42) == 3  # the same part, but too far: the one on that side
    assert quantity.counted(0, 0.95) == 9
    assert quantity.counted(1, 0.93) == 8
    assert quantity.aside(9) == 8


def test_a_run_without_its_answers_is_damaged(desk: Quantities) -> None:
    with desk.run.transaction():
        desk.run["quantity answers"] = [0.0]
    with refused("damaged", "quantity"):
        kept(desk.run)
    with Run.open(desk.run.path) as run, refused("damaged", "quantity"):
        kept(run)
