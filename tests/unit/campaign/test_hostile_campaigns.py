"""Campaigns that somebody sent, that died before they began, and whose data changed in between."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import neurotest
from neurotest.campaign import FuzzResult, fuzz
from neurotest.campaign.merge import merge
from neurotest.campaign.replay import replay
from neurotest.campaign.shrink import shrink
from neurotest.campaign.store import Store
from neurotest.jobs import life
from neurotest.runs.store import Run
from neurotest.target import Target

SMALL: dict[str, Any] = {"guide": "nlc", "iterations": 40, "batch": 64, "tries": 16}


class Death(BaseException):
    """The process is gone: nothing is cleaned up."""


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Whatever is begun dies when it is filled, and leaves everything as it is."""

    def die(run: Run, fill: Any) -> None:
        raise Death

    def leave(run: Run) -> None:
        run._db.close()
        assert run._lock is not None
        run._lock.release()

    with monkeypatch.context() as patch:
        patch.setattr(life, "filled", die)
        patch.setattr(life, "withdraw", leave)
        yield patch


def outcome(path: Path) -> tuple[list[Any], list[str]]:
    with Run.open(path) as run:
        return run.rows("SELECT * FROM mutant ORDER BY number"), sorted(run.folder.names())


@pytest.mark.parametrize("command", ["fuzz", "swarm"])
def test_a_campaign_that_died_just_after_its_database_appeared(
    target: Target, seeds: str, tmp_path: Path, death: pytest.MonkeyPatch, command: str
) -> None:
    start: Any = getattr(neurotest, command)
    options = SMALL if command == "fuzz" else {"evaluations": 40, "radius": 0.05, "batch": 40, "beside": (), "limit": 12}
    with pytest.raises(Death):
        start(target, seeds, out=tmp_path / "died", **options)
    assert sorted(file.name for file in (tmp_path / "died").iterdir() if "-" not in file.name) == [".lock", "run.sqlite"]
    death.undo()
    start(target, seeds, out=tmp_path / "whole", **options)
    start(target, resume=tmp_path / "died")
    assert outcome(tmp_path / "died") == outcome(tmp_path / "whole")


def test_faults_that_are_a_link_are_not_written(target: Target, seeds: str, campaign: FuzzResult, tmp_path: Path) -> None:
    assert campaign.run is not None
    outside = tmp_path / "outside"
    shutil.move(campaign.run / "faults", outside)
    before = sorted(file.name for file in outside.iterdir())
    (campaign.run / "faults").symlink_to(outside)
    with refused("untrusted", "folder"):
        fuzz(target, seeds, resume=campaign.run, iterations=400)
    with refused("untrusted", "folder"):
        shrink(campaign.run, target)
    assert sorted(file.name for file in outside.iterdir()) == before


@pytest.mark.parametrize("kind", ["link", "pipe", "huge", "cut"])
def test_seeds_that_are_something_else(target: Target, campaign: FuzzResult, tmp_path: Path, kind: str) -> None:
    assert campaign.run is not None
    file = campaign.run / "seeds.npy"
    if kind == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif kind == "huge":  # a sparse file of nine gigabytes
        os.truncate(file, 9 << 30)
    else:
        shutil.move(file, tmp_path / "my own.npy")
        file.symlink_to(tmp_path / "my own.npy") if kind == "link" else os.mkfifo(file)
    code = {"link": "untrusted", "pipe": "not-a-file", "huge": "too-large", "cut": "damaged"}[kind]
    with refused(code, None, match=r"seeds\.npy"):
        replay(f"{campaign.run}#0", target)
    with refused(code, None, match=r"seeds\.npy"):
        merge([campaign.run, campaign.run], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("damage", ["cut", "gone", "changed", "link"])
def test_a_resumed_campaign_writes_damaged_seeds_again(
    target: Target, campaign: FuzzResult, seeds: str, tmp_path: Path, damage: str
) -> None:
    assert campaign.run is not None
    file = campaign.run / "seeds.npy"
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[:-7])
    elif damage == "changed":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        shutil.move(file, tmp_path / "my own.npy")
        if damage == "link":
            file.symlink_to(tmp_path / "my own.npy")
    fuzz(target, seeds, resume=campaign.run, iterations=125)
    assert not file.is_symlink()
    assert file.read_bytes() == content
    assert replay(f"{campaign.run}#0", target)


def test_training_data_that_changed_are_refused(target: Target, seeds: str, tmp_path: Path) -> None:
    x = np.random.default_rng(1).integers(0, 200, (30, 1, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "train.npz", x=x)
    train = f"npz:{tmp_path / 'train.npz'}#x"
    fuzz(target, seeds, out=tmp_path / "run", train=train, **{**SMALL, "guide": "kmnc:10"})
    fuzz(target, resume=tmp_path / "run", iterations=50)
    x[7, 0, 3, 3] += 1
    np.savez(tmp_path / "train.npz", x=x)
    with refused("changed", "training data"):
        fuzz(target, resume=tmp_path / "run", iterations=60)
    np.savez(tmp_path / "train.npz", x=x[:29])
    with refused("changed", "training data"):
        fuzz(target, resume=tmp_path / "run", train=train, iterations=60)


def test_a_label_that_changed_is_refused(target: Target, seeds: str, tmp_path: Path) -> None:
    fuzz(target, seeds, out=tmp_path / "run", **SMALL)
    with np.load(tmp_path / "seeds.npz") as stored:
        x, y = stored["x"], stored["y"].copy()
    y[3] = (y[3] + 1) % 3
    np.savez(tmp_path / "seeds.npz", x=x, y=y)
    with refused("changed", "seeds"):
        fuzz(target, resume=tmp_path / "run", iterations=60)


def test_notes_in_a_campaign_stay(target: Target, seeds: str, campaign: FuzzResult) -> None:
    assert campaign.run is not None
    mine = [campaign.run / "notes.md", campaign.run / "faults" / "fault-of-mine.txt", campaign.run / "faults" / "fault-7.png"]
    for file in mine:
        file.write_text("mine")
    orphan = campaign.run / "faults" / "fault-777777.png"
    shutil.copy(next((campaign.run / "faults").glob("fault-0*.png")), orphan)
    fuzz(target, seeds, resume=campaign.run, iterations=130)
    assert [file.read_text() for file in mine] == ["mine"] * 3
    assert not orphan.exists()


def test_what_a_dead_side_job_left_goes_and_a_finished_one_is_taken_in(target: Target, seeds: str, campaign: FuzzResult) -> None:
    assert campaign.run is not None
    with Run.open(campaign.run, write=True):  # somebody is writing it
        shrink(campaign.run, target)
    (job,) = (campaign.run / "jobs").iterdir()
    assert (job / "shrunk.json").is_file()
    dead = campaign.run / "jobs" / "shrink-999999999"
    dead.mkdir()
    shutil.copy(next(job.glob("*.png")), dead / "shrunk-000001.png")
    fuzz(target, seeds, resume=campaign.run, iterations=130)
    assert (job / "adopted.json").is_file()
    assert not dead.exists()
    with Run.open(campaign.run) as run:
        assert len(Store(run).shrunk()) > 0
