"""The life of a run: begun, withdrawn, interrupted, resumed, finished."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurotest.errors import BadInput, Interrupted
from neurotest.jobs.life import begin, resumed_settings, whole
from neurotest.jobs.parts import Parts
from neurotest.jobs.work import Job, carry_out, go_on
from neurotest.runs.store import Run
from neurotest.scan import Progress


@dataclass(frozen=True)
class Sum:
    total: int
    run: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"total": self.total}


class Adding(Job[Sum]):
    """Adds numbers up, one part each; `stop_at` raises what it is given instead of that number."""

    command = "adding"

    def __init__(self, numbers: list[int], stop_at: dict[int, BaseException] | None = None) -> None:
        self.numbers, self.stop_at, self.done = numbers, stop_at or {}, 0
        self.recorded = False

    def config(self) -> dict[str, Any]:
        return {"numbers": self.numbers}

    def kept(self, run: Run) -> str:
        return f"{len(Parts(run))} numbers" if len(Parts(run)) else ""

    def work(self, run: Run | None, progress: Progress | None) -> Sum:
        parts = Parts(run) if run is not None else None
        total = sum(int(part["n"]) for part in parts or ())
        for place in range(len(parts or ()), len(self.numbers)):
            if place in self.stop_at:
                raise self.stop_at[place]
            total += self.numbers[place]
            self.done += 1
            if parts is not None:
                parts.add({"n": np.array(self.numbers[place])})
        return Sum(total)

    def record(self, run: Run, result: Sum) -> None:
        run["recorded"] = result.total
        Parts(run).clear()


def resumed(path: Path, **options: Any) -> tuple[Sum, Adding]:
    jobs: list[Adding] = []

    def again(run: Run, config: dict[str, Any]) -> Adding:
        jobs.append(Adding(config["numbers"], **options))
        return jobs[0]

    return go_on(path, "adding", again), jobs[0]


def test_a_job_in_memory_and_in_a_run(tmp_path: Path) -> None:
    assert carry_out(Adding([1, 2, 3]), False) == Sum(6)
    result = carry_out(Adding([1, 2, 3]), tmp_path / "run")
    assert result == Sum(6, tmp_path / "run")
    with Run.open(tmp_path / "run") as run:
        assert (run["state"], run["summary"], run["recorded"]) == ("done", {"total": 6}, 6)
    assert not (tmp_path / "run" / "parts").exists()


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Interrupted("asked")])
def test_an_interrupt_says_how_to_go_on_and_nothing_is_done_twice(tmp_path: Path, stop: BaseException) -> None:
    with pytest.raises(Interrupted, match=r"after 2 numbers, everything is saved.*neurotest adding --resume .*run"):
        carry_out(Adding([1, 2, 3], {2: stop}), tmp_path / "run")
    result, job = resumed(tmp_path / "run")
    assert (result.total, job.done) == (6, 1)
    with pytest.raises(BadInput, match="finished"):
        resumed(tmp_path / "run")


def test_a_failure_before_anything_is_kept_leaves_no_run_and_a_later_one_does(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        carry_out(Adding([1], {0: ZeroDivisionError()}), tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(ZeroDivisionError):
        carry_out(Adding([1, 2], {1: ZeroDivisionError()}), tmp_path / "some")
    assert resumed(tmp_path / "some")[0].total == 3


def test_resuming_never_removes_a_run(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        carry_out(Adding([1], {0: KeyboardInterrupt()}), tmp_path / "run")
    (tmp_path / "run" / "my notes.txt").write_text("mine")
    with pytest.raises(ZeroDivisionError):
        resumed(tmp_path / "run", stop_at={0: ZeroDivisionError()})
    assert (tmp_path / "run" / "my notes.txt").read_text() == "mine"


def test_other_runs_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    begin("subtracting", tmp_path / "other", {}).close()
    with pytest.raises(BadInput, match="run of 'subtracting', not of adding"):
        resumed(tmp_path / "other")
    begin("adding", tmp_path / "damaged", {"something": 1}).close()
    with pytest.raises(BadInput, match="does not fit"):
        resumed(tmp_path / "damaged")
    # Neither holds on to the run.
    Run.open(tmp_path / "damaged", write=True).close()


def test_what_is_filled_in_at_the_beginning_is_whole(tmp_path: Path) -> None:
    def fill(run: Run) -> None:
        run["classes"] = ["a"]
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        begin("adding", tmp_path / "run", {}, fill)
    assert not (tmp_path / "run").exists()


def test_whole_runs_are_there_or_not(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), whole("once", tmp_path / "run", {}):
        raise KeyboardInterrupt
    assert not (tmp_path / "run").exists()
    with whole("once", tmp_path / "run", {"a": 1}) as run:
        assert run is not None
    with Run.open(tmp_path / "run", write=True) as run:  # it was let go
        assert run["config"] == {"a": 1}
    with whole("once", False, {}) as nothing:
        assert nothing is None


def test_settings_said_again(tmp_path: Path) -> None:
    with begin("adding", tmp_path / "run", {}) as run:
        resumed_settings(run, {"batch": 7, "limit": None, "sizes": (1, 2)}, {"batch": 7, "sizes": [1, 2], "limit": 5})
        with pytest.raises(BadInput, match=r"batch=8: .*run was started with 7"):
            resumed_settings(run, {"batch": 8}, {"batch": 7})
