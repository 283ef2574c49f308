"""Where an adaptive selection stands: numbers by hand, against a count of the labels, and advice that follows from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.runs.store import Run
from neurotest.select import select
from neurotest.select.adaptive import rounds
from neurotest.select.adaptive.remaining import Remaining
from neurotest.select.adaptive.rounds import advise, as_many_random, status
from neurotest.target import Target

pytestmark = pytest.mark.plain

RUN = Path("run")


def test_as_many_random_labels_by_hand() -> None:
    """Ten inputs, two labels, one fault found, one believed to be left (none to three): the pool has two, at least one, at most
    four. Of one fault in ten, two draws hold none with chance 0.8; of four, both are faults with chance 6/45."""
    assert as_many_random(10, 2, 1, Remaining(1.0, 0.0, 3.0)) == (0.2, 0.0, 1.0)
    assert as_many_random(10, 10, 1, Remaining(0.0, 0.0, 0.0)) == (0.1, 0.1, 0.1)  # all were drawn


@given(st.integers(1, 60), st.data())
def test_as_many_random_labels_lie_in_their_interval(pool: int, drawn: st.DataObject) -> None:
    labels = drawn.draw(st.integers(1, pool))
    faults = drawn.draw(st.integers(0, labels))
    low, value, high = sorted(drawn.draw(st.lists(st.floats(0, pool - labels), min_size=3, max_size=3)))
    random = as_many_random(pool, labels, faults, Remaining(value, low, high))
    assert 0 <= random.low <= random.high <= 1
    assert random.low <= random.value + 0.5 / labels + 1e-9
    assert random.value <= random.high + 0.5 / labels + 1e-9


@pytest.mark.parametrize(
    ("pending", "rate", "left", "rest", "stop", "go_on", "word"),
    [
        (4, 0.5, 50, 10.0, None, True, "Round 3 waits for 4 labels, expected to give 5 faults (50 %)"),
        (4, 0.5, 50, 10.0, 0.9, True, "Round 3 waits"),  # what was handed out is worth its labels
        (0, 0.5, 50, 10.0, None, True, "Go on: the next 10 labels are expected to give 5 faults (50 %), random ones 20 %"),
        (0, 0.5, 50, 10.0, 0.6, False, "fewer than stop=0.6"),
        (0, 0.2, 50, 10.0, None, False, "no more than random inputs (20 %)"),
        (0, 0.5, 50, 0.9, None, False, "less than one fault is believed to be left"),
        (0, 0.5, 0, 0.0, None, False, "every input of the pool has a label"),
    ],
)
def test_advice(pending: int, rate: float, left: int, rest: float, stop: float | None, go_on: bool, word: str) -> None:
    advice = advise(RUN, 3, pending, 10, rate, left, rest, stop)
    assert advice.go_on is go_on
    assert word in advice.reason
    assert (advice.command is not None) is go_on


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    target = Target(nn.Sequential(nn.Flatten(), nn.Linear(36, 3)).eval(), shape=(1, 6, 6), classes=("a", "b", "c"))
    x = np.random.default_rng(0).integers(0, 256, (30, 1, 6, 6), dtype=np.uint8)
    pool = ArraySource(x, names=[f"{number}.png" for number in range(30)])
    select(target, pool, "adaptive:audit=0.3", 10, out=tmp_path / "run", files=0)
    return tmp_path / "run"


def test_it_counts_what_the_labels_say(begun: Path) -> None:
    """Until the pool is empty; what is found and left agrees with a plain count at the end."""
    truth = np.random.default_rng(1).integers(0, 3, 30)
    told: dict[int, int | None] = {}
    for number in range(1, 4):
        batch = rounds.resume(begun, files=0)["indices"]
        with Run.open(begun, write=True) as run:
            predicted = {row.position: row.predicted for row in run.inputs()}
            new = {p: None if p == 7 else int(truth[p]) for p in batch}
            run.add_labels(new)
        told |= new
        wrong = sum(label is not None and label != predicted[p] for p, label in told.items())
        s = status(begun)
        assert (s["labels"], s["faults"], s["unclear"]) == (len(told), wrong, int(7 in told))
        assert s["fdr"] == pytest.approx(wrong / (len(told) - (7 in told)))
        assert s["rounds"][-1]["labels"] == sum(label is not None for label in new.values())
        assert [one["round"] for one in s["rounds"]] == list(range(1, number + 1))
    assert (s["remaining"], s["go_on"], s["next"]["size"]) == (0.0, False, 0)
    assert s["random"]["fdr"] == pytest.approx(wrong / 30)
    with pytest.raises(BadInput, match="nothing left to propose"):
        rounds.resume(begun, files=0)


def test_looking_changes_nothing(begun: Path) -> None:
    before = {file.name: file.read_bytes() for file in begun.iterdir() if file.is_file()}
    status(begun)
    assert {file.name: file.read_bytes() for file in begun.iterdir() if file.is_file()} == before


def test_a_half_labelled_round_is_pending(begun: Path) -> None:
    batch = rounds.resume(begun, files=0)["indices"]
    with Run.open(begun, write=True) as run:
        run.add_labels(dict.fromkeys(batch[:4], 0))
    s = status(begun)
    assert (s["pending"], s["next"]["size"]) == (6, 6)
    proposal = rounds.resume(begun, files=0)
    assert any("6 of 10 inputs of round 1 got no label" in note for note in proposal["notes"])
