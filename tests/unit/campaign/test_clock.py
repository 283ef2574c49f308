"""Seconds of a campaign are those of the wall clock, and the summary says what took them."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from neurotest.campaign import fuzz
from neurotest.campaign.clock import NAMES, Clock, counting_from
from neurotest.errors import Interrupted
from neurotest.generate.fuzz.mutants import Tally
from neurotest.runs.store import Run
from neurotest.target import Target


def test_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with counting_from(90.0):
        clock = Clock()
    clock.started(2.0)  # of ten seconds, two were repeated batches
    with clock.spending("saving"):
        now = 103.0
    now = 110.0
    shares = clock.shares(Tally(seconds=5.0), Tally(seconds=3.0))
    assert shares == {"start": 8.0, "guide": 5.0, "random": 3.0, "validity": 0.0, "saving": 3.0, "rest": 1.0}
    assert sum(shares.values()) == clock.total() == 20.0
    later = Clock()
    later.restore(clock.plain())
    later.started(0.0)
    now = 112.0
    assert later.total() == 22.0
    assert later.plain()["saving"] == 3.0


def test_seconds_are_wall_clock_with_everything_included(
    target: Target, seeds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on a little with every look at it, so that no machine is too slow for this test."""
    looks = itertools.count()
    for clock in ("monotonic", "perf_counter"):
        monkeypatch.setattr(time, clock, lambda: next(looks) * 0.01)
    began = time.monotonic()
    result = fuzz(target, seeds, "nlc", seconds=3.0, batch=64, out=tmp_path / "run")
    took = time.monotonic() - began
    content = result.to_dict()
    assert result.stopped == "seconds"
    assert tuple(content["seconds_by"]) == NAMES
    assert content["seconds"] == pytest.approx(sum(content["seconds_by"].values()))
    assert content["seconds_by"]["random"] > 0
    assert content["seconds"] < took
    assert 2.0 < content["seconds"] < 5.0


def test_resumed_seconds_go_on_from_those_before(target: Target, seeds: str, tmp_path: Path) -> None:
    stops = iter([False] * 5 + [True])
    with pytest.raises(Interrupted):
        fuzz(target, seeds, "nlc", seconds=3600.0, batch=64, out=tmp_path / "run", stop=lambda: next(stops))
    with Run.open(tmp_path / "run") as run:
        before = run["clock"]["total"]
    stops = iter([False] * 5 + [True])
    with pytest.raises(Interrupted):
        fuzz(resume=tmp_path / "run", target=target, stop=lambda: next(stops))
    with Run.open(tmp_path / "run") as run:
        assert run["clock"]["total"] > before
        assert run["clock"]["start"] > 0
