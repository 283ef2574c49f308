"""A process that dies at the worst moment, a folder with a user's own notes in it, data that changed in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurotest.data.source import ArraySource
from neurotest.errors import BadInput, Interrupted
from neurotest.jobs.life import atomic_run, begin, finish, safe_point, same_sources, withdraw
from neurotest.jobs.opening import digests
from neurotest.jobs.parts import Parts
from neurotest.jobs.work import Job, resume_job, run_job
from neurotest.runs import codec, schema
from neurotest.runs.store import Run
from neurotest.scan import Progress


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "runs"


def names(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))


# what a person put there stays


@pytest.mark.parametrize("out", ["new", "empty"])
def test_a_run_that_comes_to_nothing_is_taken_away_and_notes_stay(tmp_path: Path, own_cache: Path, out: str) -> None:
    (tmp_path / "empty").mkdir()
    run = begin("test", tmp_path / out, {})
    run.add_inputs([{"position": 0, "content": "x"}])
    run.save_input(0, np.zeros((2, 3, 3), np.float32))
    Parts(run).add({"n": np.array(1)})
    run.export()
    assert len(list(own_cache.iterdir())) == 1
    (tmp_path / out / "notes.md").write_text("mine")
    (tmp_path / out / "inputs" / "my own.png").write_text("mine")
    withdraw(run)
    assert names(tmp_path / out) == ["inputs", "inputs/my own.png", "notes.md"]
    assert list(own_cache.iterdir()) == []


def test_without_notes_only_a_folder_that_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for out in ("new", "empty"):
        run = begin("test", tmp_path / out, {})
        Parts(run).add({"n": np.array(1)})
        withdraw(run)
    assert not (tmp_path / "new").exists()
    assert names(tmp_path / "empty") == []


def test_a_failure_before_the_first_piece_leaves_the_notes(tmp_path: Path) -> None:
    run = begin("test", tmp_path / "run", {})

    def fail() -> None:
        with safe_point(run, lambda: "", new=True):
            (tmp_path / "run" / "notes.md").write_text("mine")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert names(tmp_path / "run") == ["notes.md"]
    with pytest.raises(BadInput, match=r"not empty \(it holds notes.md\)"):
        begin("test", tmp_path / "run", {})


def test_files_that_only_look_like_ours_are_not_swept(tmp_path: Path) -> None:
    begin("test", tmp_path / "run", {}).close()
    mine = ["faults/fault-notes.txt", "faults/shrunk-by-hand.png", "inputs/picked-1.png", "parts/notes.npz", ".notes.part"]
    for name in mine:
        (tmp_path / "run" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "run" / name).touch()
    Run.open(tmp_path / "run", write=True).close()
    assert set(mine) <= set(names(tmp_path / "run"))


# death


def test_orphans_of_every_folder_go_when_the_run_is_opened_to_write(tmp_path: Path) -> None:
    begin("test", tmp_path / "run", {}).close()
    x = np.zeros((1, 3, 3), np.uint8)
    for stem in ("faults/fault-000001", "faults/shrunk-000001", "inputs/picked-000001"):
        (tmp_path / "run" / stem).parent.mkdir(exist_ok=True)
        codec.encode(x, tmp_path / "run" / stem)
    for part in (".run.json.1.part", "faults/.fault-000002.png.1.part", ".report.html.999999999.beside.part"):
        (tmp_path / "run" / part).touch()
    Run.open(tmp_path / "run").close()
    assert len(names(tmp_path / "run")) == 10
    Run.open(tmp_path / "run", write=True).close()
    assert names(tmp_path / "run") == [".lock", "faults", "inputs", "run.sqlite"]


def test_whoever_writes_beside_the_owner_is_left_alone(tmp_path: Path) -> None:
    begin("test", tmp_path / "run", {}).close()
    import os

    (tmp_path / "run" / f".report.html.{os.getppid()}.beside.part").touch()
    Run.open(tmp_path / "run", write=True).close()
    assert len(list((tmp_path / "run").glob(".report*"))) == 1


def test_a_report_takes_away_what_an_earlier_one_left_that_died(tmp_path: Path) -> None:
    begin("test", tmp_path / "run", {}).close()
    for name in (".run.json.999999999.beside.part", ".other.json.999999999.beside.part"):
        (tmp_path / "run" / name).touch()
    with Run.open(tmp_path / "run") as run:
        run.export()
    assert names(tmp_path / "run") == [".lock", ".other.json.999999999.beside.part", "run.json", "run.sqlite"]


class Death(BaseException):
    """The process is gone: nothing is cleaned up."""


def die(run: Run) -> None:
    """Leave everything as it is, as a killed process does."""
    run._db.close()
    assert run._lock is not None
    run._lock.release()


def test_what_a_killed_command_that_cannot_go_on_left_is_replaced(tmp_path: Path, own_cache: Path) -> None:
    run = begin("cover", tmp_path / "run", {"a": 1}, resumable=False)
    run.file("run.json").write("{}")
    (tmp_path / "run" / "inputs").mkdir()
    codec.encode(np.zeros((1, 3, 3), np.uint8), tmp_path / "run" / "inputs" / "picked-000007")
    (tmp_path / "run" / "notes.md").write_text("mine")
    die(run)
    with pytest.raises(BadInput, match="holds a run already"):
        begin("fuzz", tmp_path / "run", {})
    with pytest.raises(BadInput, match=r"holds notes\.md"), atomic_run("cover", tmp_path / "run", {"a": 2}):
        pass
    assert names(tmp_path / "run") == [".lock", "notes.md"]
    (tmp_path / "run" / "notes.md").unlink()
    with atomic_run("cover", tmp_path / "run", {"a": 2}) as again:
        assert again is not None
        finish(again, {})
    with Run.open(tmp_path / "run") as opened:
        assert (opened["config"], opened["state"]) == ({"a": 2}, "done")
    assert len(list(own_cache.iterdir())) == 1


@pytest.mark.parametrize("state", ["done", "another command", "resumable", "made elsewhere", "alive"])
def test_any_other_run_is_not_replaced(tmp_path: Path, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = "select" if state == "another command" else "cover"
    run = begin(command, tmp_path / "run", {"a": 1}, resumable=state == "resumable")
    if state == "done":
        finish(run, {})
    if state != "alive":
        die(run)
    if state == "made elsewhere":
        monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "other"))
    with pytest.raises(BadInput, match=r"holds a run already|another process"), atomic_run("cover", tmp_path / "run", {"a": 2}):
        pass
    if state == "alive":
        die(run)
    with Run.open(tmp_path / "run") as opened:
        assert opened["config"] == {"a": 1}


class Counting(Job[Any]):
    """Holds something from the beginning on, and counts how often it was put there."""

    command = "counting"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def config(self) -> dict[str, Any]:
        return {"n": 1}

    def fill(self, run: Run) -> None:
        self.calls.append("fill")
        run["base"] = 10

    def restore(self, run: Run) -> None:
        self.calls.append("restore")
        assert run["base"] == 10

    def kept(self, run: Run) -> str:
        return ""

    def work(self, run: Run | None, progress: Progress | None) -> Any:
        raise Interrupted("stop")


def test_a_run_that_died_before_it_was_filled_is_filled_on_resume(tmp_path: Path) -> None:
    die(Run.create(tmp_path / "run", "counting", {"n": 1}))
    job = Counting()
    for expected in (["fill"], ["fill", "restore"]):
        with pytest.raises(Interrupted):
            resume_job(tmp_path / "run", "counting", lambda run, config: job)
        assert job.calls == expected
    with pytest.raises(Interrupted):
        run_job(Counting(), tmp_path / "other")
    with Run.open(tmp_path / "other") as run:
        assert run.is_filled


def test_a_finished_run_whose_parts_were_left_gets_rid_of_them(tmp_path: Path) -> None:
    with begin("counting", tmp_path / "run", {}) as run:
        finish(run, {})
        Parts(run).add({"n": np.array(1)})
    with pytest.raises(BadInput, match="is finished"):
        resume_job(tmp_path / "run", "counting", lambda run, config: Counting())
    assert not (tmp_path / "run" / "parts").exists()


def test_the_state_is_the_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever dies while exporting has not finished."""
    run = begin("counting", tmp_path / "run", {})

    def death(self: Run) -> None:
        raise Death

    monkeypatch.setattr(Run, "export", death)
    with pytest.raises(Death):
        finish(run, {"a": 1})
    die(run)
    with Run.open(tmp_path / "run") as opened:
        assert (opened["state"], opened["summary"]) == ("running", None)
    assert (tmp_path / "run" / schema.FILE).exists()


# data


def test_data_that_changed_are_refused(tmp_path: Path) -> None:
    x = np.zeros((4, 1, 2, 2), np.uint8)
    other = x.copy()
    other[3, 0, 1, 1] = 1
    seeds, train = ArraySource(x, [0, 1, 2, 0]), ArraySource(x)
    stored = {"digests": digests(seeds=seeds, train=train)}
    with begin("test", tmp_path / "run", stored) as run:
        same_sources(run, stored, {"digests": digests(seeds=ArraySource(x.copy(), [0, 1, 2, 0]), train=train)})
        same_sources(run, {}, {"digests": {"seeds": "a"}})  # runs of the first versions
        for again, what in (
            ({"seeds": ArraySource(x, [0, 1, 2, 1]), "train": train}, "seeds"),  # only a label
            ({"seeds": ArraySource(other, [0, 1, 2, 0]), "train": train}, "seeds"),
            ({"seeds": seeds, "train": ArraySource(other)}, "training data"),
            ({"seeds": seeds, "train": None}, "training data"),
        ):
            with pytest.raises(BadInput, match=f"the {what} are not those .*run was started with"):
                same_sources(run, stored, {"digests": digests(**again)})
        without = {"digests": digests(seeds=seeds)}
        with pytest.raises(BadInput, match="the training data are not those"):
            same_sources(run, without, stored)
