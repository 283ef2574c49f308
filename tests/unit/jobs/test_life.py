"""The life of a run: begun, withdrawn, interrupted, resumed, finished."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurotest.errors import BadInput, Interrupted
from neurotest.jobs.life import atomic_run, begin, finish, resume_with, resumed_settings, unfinished, withdraw
from neurotest.jobs.parts import Parts
from neurotest.jobs.work import Job, resume_job, run_job
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

    return resume_job(path, "adding", again), jobs[0]


def test_a_job_in_memory_and_in_a_run(tmp_path: Path) -> None:
    assert run_job(Adding([1, 2, 3]), False) == Sum(6)
    result = run_job(Adding([1, 2, 3]), tmp_path / "run")
    assert result == Sum(6, tmp_path / "run")
    with Run.open(tmp_path / "run") as run:
        assert (run["state"], run["summary"], run["recorded"]) == ("done", {"total": 6}, 6)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["summary"] == {"total": 6}
    assert not (tmp_path / "run" / "parts").exists()


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Interrupted("asked")])
def test_an_interrupt_says_how_to_go_on_and_nothing_is_done_twice(tmp_path: Path, stop: BaseException) -> None:
    with pytest.raises(Interrupted, match=r"after 2 numbers, everything is saved.*neurotest adding --resume .*run"):
        run_job(Adding([1, 2, 3], {2: stop}), tmp_path / "run")
    result, job = resumed(tmp_path / "run")
    assert (result.total, job.done) == (6, 1)
    with pytest.raises(BadInput, match="finished"):
        resumed(tmp_path / "run")


def test_a_failure_before_anything_is_kept_leaves_no_run_and_a_later_one_does(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run_job(Adding([1], {0: ZeroDivisionError()}), tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(ZeroDivisionError):
        run_job(Adding([1, 2], {1: ZeroDivisionError()}), tmp_path / "some")
    assert resumed(tmp_path / "some")[0].total == 3


def test_resuming_never_removes_a_run(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run_job(Adding([1], {0: KeyboardInterrupt()}), tmp_path / "run")
    (tmp_path / "run" / "my notes.txt").write_text("mine")
    with pytest.raises(ZeroDivisionError):
        resumed(tmp_path / "run", stop_at={0: ZeroDivisionError()})
    assert (tmp_path / "run" / "my notes.txt").read_text() == "mine"


def test_other_runs_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    begin("subtracting", tmp_path / "other", {}).close()
    with pytest.raises(BadInput, match="run of 'subtracting', not of adding"):
        resumed(tmp_path / "other")
    begin("adding", tmp_path / "damaged", {"something": 1}).close()
    with pytest.raises(BadInput, match="does not fit") as refused:
        resumed(tmp_path / "damaged")
    # Neither holds on to the run, even while the error with its frames is still there.
    Run.open(tmp_path / "damaged", write=True).close()
    assert refused.traceback


def test_what_is_filled_in_at_the_beginning_is_whole(tmp_path: Path) -> None:
    def fill(run: Run) -> None:
        run["classes"] = ["a"]
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        begin("adding", tmp_path / "run", {}, fill)
    assert not (tmp_path / "run").exists()


def test_whole_runs_are_there_or_not(tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match="nothing was kept"), atomic_run("once", tmp_path / "run", {}):
        raise KeyboardInterrupt
    assert not (tmp_path / "run").exists()
    with atomic_run("once", tmp_path / "run", {"a": 1}) as run:
        assert run is not None
    with Run.open(tmp_path / "run", write=True) as run:  # it was let go
        assert run["config"] == {"a": 1}
    with atomic_run("once", False, {}) as nothing:
        assert nothing is None


def test_settings_said_again(tmp_path: Path) -> None:
    with begin("adding", tmp_path / "run", {}) as run:
        resumed_settings(run, {"batch": 7, "limit": None, "sizes": (1, 2)}, {"batch": 7, "sizes": [1, 2], "limit": 5})
        with pytest.raises(BadInput, match=r"batch=8: .*run was started with 7"):
            resumed_settings(run, {"batch": 8}, {"batch": 7})


def test_settings_that_a_run_does_not_hold_are_refused(tmp_path: Path) -> None:
    with begin("adding", tmp_path / "run", {}) as run:
        resumed_settings(run, {"new": None}, {})
        with pytest.raises(BadInput, match=r"new=0: .*was started with None .*Leave it out"):
            resumed_settings(run, {"new": 0}, {})


@pytest.mark.parametrize("out", [None, True])
def test_where_runs_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: bool | None) -> None:
    monkeypatch.chdir(tmp_path)
    with begin("adding", out, {}) as run:
        assert run.path.parent == Path("neurotest-runs")
        assert run.path.name.startswith("adding-")
    with begin("adding", "here", {}) as run:
        assert run.path == Path("here")


def test_what_is_filled_in_is_there_before_the_work(tmp_path: Path) -> None:
    class Filled(Adding):
        def fill(self, run: Run) -> None:
            run["classes"] = ["a"]

        def work(self, run: Run | None, progress: Progress | None) -> Sum:
            assert run is not None
            assert run["classes"] == ["a"]
            return super().work(run, progress)

    assert run_job(Filled([1]), tmp_path / "run").total == 1


def test_withdrawing_a_run_that_somebody_removed(tmp_path: Path) -> None:
    run = begin("adding", tmp_path / "run", {})
    (tmp_path / "run").rename(tmp_path / "away")
    withdraw(run)
    assert not (tmp_path / "run").exists()
    Run.open(tmp_path / "away", write=True).close()  # it was let go


def test_finishing_with_a_table_and_without_a_run(tmp_path: Path) -> None:
    finish(None, {"a": 1})
    with begin("adding", tmp_path / "run", {}) as run:
        finish(run, {"a": 1})
        assert (run["state"], run["summary"]) == ("done", {"a": 1})
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "done"


def test_the_command_that_goes_on(tmp_path: Path) -> None:
    with begin("study", tmp_path / "one", {"study": "nss"}) as run:
        assert resume_with(run) == f"neurotest study nss --resume {tmp_path / 'one'}"
    with begin("fuzz", tmp_path / "two", {"study": "nss"}) as run:
        assert resume_with(run) == f"neurotest fuzz --resume {tmp_path / 'two'}"


def test_an_interrupt_before_anything_is_kept(tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match=r"interrupted before anything was finished\. Go on with: neurotest adding --resume"):
        run_job(Adding([1], {0: KeyboardInterrupt()}), tmp_path / "run")
    assert resumed(tmp_path / "run")[0].total == 1


def test_which_runs_may_go_on(tmp_path: Path) -> None:
    with begin("adding", tmp_path / "run", {"a": 1}) as run:
        assert unfinished(run, "other", "adding") == {"a": 1}
        run.finish({})
        with pytest.raises(BadInput, match="is finished: there is nothing to resume"):
            unfinished(run, "adding")
        assert unfinished(run, "adding", again=True) == {"a": 1}
        with pytest.raises(BadInput, match="a run of 'adding', not of other or another"):
            unfinished(run, "other", "another", again=True)
    with begin("adding", tmp_path / "list", [1]) as run, pytest.raises(BadInput, match="has no configuration: it is damaged"):  # type: ignore[arg-type]
        unfinished(run, "adding")


def test_a_finished_run_may_be_extended(tmp_path: Path) -> None:
    run_job(Adding([1, 2]), tmp_path / "run")
    states: list[Any] = []

    class Longer(Adding):
        def work(self, run: Run | None, progress: Progress | None) -> Sum:
            assert run is not None
            states.append((run["state"], run["summary"]))
            return Sum(7)

    result = resume_job(tmp_path / "run", "adding", lambda run, config: Longer([*config["numbers"], 4]), extends=True)
    assert result == Sum(7, tmp_path / "run")
    assert states == [("running", None)]  # while it goes on it is not finished
    with Run.open(tmp_path / "run") as run:
        assert (run["state"], run["summary"]) == ("done", {"total": 7})


def test_a_job_goes_back_to_where_its_run_stands_and_may_refuse_it(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run_job(Adding([1, 2], {1: KeyboardInterrupt()}), tmp_path / "run")

    class Refusing(Adding):
        def restore(self, run: Run) -> None:
            raise BadInput(f"{len(Parts(run))} numbers are not these data's")

    with pytest.raises(BadInput, match="1 numbers are not these data's"):
        resume_job(tmp_path / "run", "adding", lambda run, config: Refusing(config["numbers"]))
    assert resumed(tmp_path / "run")[0].total == 3


def test_progress_reaches_the_work(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Showing(Adding):
        def work(self, run: Run | None, progress: Progress | None) -> Sum:
            assert progress is not None
            seen.append(progress)
            return super().work(run, progress)

    def progress(*_: Any) -> None: ...

    run_job(Showing([1]), False, progress)
    run_job(Showing([1]), tmp_path / "run", progress)
    with pytest.raises(Interrupted):
        run_job(Adding([1], {0: KeyboardInterrupt()}), tmp_path / "other")
    resume_job(tmp_path / "other", "adding", lambda run, config: Showing(config["numbers"]), progress)
    assert seen == [progress] * 3
