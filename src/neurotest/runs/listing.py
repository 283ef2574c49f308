"""Which runs there are, and removing those that are no longer wanted."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from neurotest import interrupts
from neurotest.errors import BadInput
from neurotest.runs import lock, schema, seal
from neurotest.runs.places import ROOT
from neurotest.runs.store import Run

DAY = 86_400


@dataclass(frozen=True)
class RunInfo:
    """One line of `neurotest runs list`.

    state: "running" (somebody writes it now), "done", "unfinished" (can be resumed), "unreadable" (`problem` says why).
    """

    path: Path
    state: str
    id: str = ""
    command: str = ""
    created: datetime | None = None
    size: int = 0
    problem: str = ""


def list_runs(root: Path = ROOT) -> list[RunInfo]:
    """The runs directly inside `root`, newest first, those that cannot be read last. A missing root has none."""
    root = Path(root)
    if root.exists() and not root.is_dir():
        raise BadInput("not-a-folder", "root", f"{root} is a file: give the directory that holds the runs.")
    if _looks_like_a_run(root):
        raise BadInput("wrong-run", "root", f"{root} is a run itself: name the folder that holds it, {root.resolve().parent}.")
    try:
        folders = [entry for entry in sorted(root.iterdir()) if _looks_like_a_run(entry)] if root.exists() else []
    except OSError as error:
        raise BadInput("unreadable", "root", f"cannot look into {root}: {error.strerror}.") from error
    infos = (_info(folder) for folder in folders)
    return sorted(infos, key=lambda info: info.created.timestamp() if info.created else float("-inf"), reverse=True)


def _looks_like_a_run(path: Path) -> bool:
    return not path.is_symlink() and os.path.isfile(path / schema.FILE)


def _info(path: Path) -> RunInfo:
    size = _size(path)
    try:
        with Run.open(path) as run:
            created = datetime.fromisoformat(str(run["created"])).astimezone(UTC)
            done, run_id, command = run["state"] == "done", str(run["id"]), str(run["command"])
    except BadInput as error:
        return RunInfo(path, "unreadable", size=size, problem=str(error))
    except (KeyError, ValueError, OverflowError):
        return RunInfo(path, "unreadable", size=size, problem=f"{path} does not say when it was made: it is damaged.")
    state = "running" if lock.is_locked(path) else "done" if done else "unfinished"
    return RunInfo(path, state, run_id, command, created, size)


def _size(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # a live run's log comes and goes
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def clean(
    root: Path = ROOT, keep: int | None = None, older_than_days: float | None = None, unfinished: bool = False
) -> list[Path]:
    """Remove runs inside `root` and return their paths.

    Every condition that is given must hold: not among the `keep` newest, older than so many days, not done.
    What is being written, what cannot be read and what is no run stays.
    """
    if keep is None and older_than_days is None and not unfinished:
        raise BadInput(
            "missing", "keep", "say which runs to remove: --keep N, --older-than DAYS, --unfinished, or several of them."
        )
    if keep is not None and keep < 0:
        raise BadInput("out-of-range", "keep", f"keep={keep}: expected an integer >= 0.")
    if older_than_days is not None and not older_than_days >= 0:
        raise BadInput("out-of-range", "older_than_days", f"older_than_days={older_than_days}: expected a number >= 0.")
    wanted = [info for info in list_runs(root) if info.state in ("done", "unfinished")]
    wanted = [info for info in wanted if not unfinished or info.state == "unfinished"][keep or 0 :]
    limit = None if older_than_days is None else time.time() - older_than_days * DAY
    old = [info for info in wanted if limit is None or (info.created is not None and info.created.timestamp() < limit)]
    return [info.path for info in old if _remove(info)]


def _remove(info: RunInfo) -> bool:
    interrupts.check()
    guard = lock.Lock.attempt(info.path)
    if guard is None:  # somebody began to write it a moment ago
        return False
    try:
        # The database goes last: a removal that is cut short leaves something that is still listed and can be removed.
        last = {schema.FILE, lock.NAME}
        for entry in [entry for entry in info.path.iterdir() if entry.name not in last]:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        guard.before_removal()
        shutil.rmtree(info.path)
    except OSError as error:
        raise BadInput("not-writable", "", f"cannot remove {info.path}: {error.strerror or error}.") from error
    finally:
        guard.release()
    seal.forget(info.id)
    return True
