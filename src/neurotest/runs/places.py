"""Where a new run goes: a folder that is empty, or that holds nothing but what neurotest itself left there."""

from __future__ import annotations

import os
import re
import time
from itertools import count
from pathlib import Path

from neurotest.errors import BadInput, shell
from neurotest.runs import schema
from neurotest.runs.folder import Folder
from neurotest.runs.lock import NAME as LOCK

PAGE = "report.html"  # of a run
ROOT = Path("neurotest-runs")
HALF = re.compile(rf"\.{re.escape(schema.FILE)}\.[0-9]+\.part(-journal|-wal|-shm)?")


def new_folder(out: Path | None, command: str) -> Folder:
    """The folder of a new run, by default `./neurotest-runs/COMMAND-TIME`."""
    return _default_place(command) if out is None else _place(out)


def _default_place(command: str) -> Folder:
    """A new directory named by command and time; a second one in the same second gets -2."""
    stem = f"{command}-{time.strftime('%Y%m%d-%H%M%S')}"  # datetime refuses some values of TZ
    around = _missing(ROOT)
    for n in count(1):
        path = ROOT / (stem if n == 1 else f"{stem}-{n}")
        try:
            path.mkdir(parents=True)
            return Folder(path, owner=True, created=(path, *around))
        except FileExistsError:
            if not ROOT.is_dir():
                raise BadInput("not-a-folder", "out", f"{ROOT} is a file: choose another place with --out.") from None
        except OSError as error:
            raise BadInput(
                "not-writable", "out", f"cannot make {path}: {error.strerror}. Choose another place with --out."
            ) from error
    raise AssertionError("unreachable")


def _place(path: Path) -> Folder:
    around = _missing(path.parent)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()
        return Folder(path, owner=True, created=(path, *around))
    except FileExistsError:
        if not path.is_dir():
            raise BadInput("exists", "out", f"--out {path} is a file: give a directory that does not exist yet.") from None
        return Folder(path, owner=True)
    except OSError as error:
        raise BadInput("not-writable", "out", f"cannot make --out {path}: {error.strerror}. Choose another place.") from error


def _missing(folder: Path) -> tuple[Path, ...]:
    """The folders that have to be made for this one, itself first."""
    return tuple(path for path in (folder, *folder.parents) if not os.path.lexists(path))


def refuse_no_run(path: Path) -> None:
    try:
        if (path / schema.FILE).is_file():
            return
        what = "holds no run.sqlite" if path.is_dir() else "is no directory" if path.exists() else "does not exist"
    except (OSError, ValueError) as error:
        raise BadInput("unreadable", "run", f"cannot open {path}: {getattr(error, 'strerror', None) or error}.") from error
    raise BadInput("wrong-run", "run", f"{path} is no run: it {what}. `neurotest runs list` shows the runs here.")


def refuse_occupied(path: Path) -> None:
    """A folder that holds a run or somebody's files."""
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise BadInput("unreadable", "out", f"cannot look into --out {path}: {error.strerror}. Choose another place.") from error
    if schema.FILE in names:
        raise BadInput(
            "exists", "run", f"{path} holds a run already: continue it with {shell('--resume', path)}, or choose another --out."
        )
    # What a run that died while being made leaves behind is ours to overwrite; anything else is somebody's.
    if others := [name for name in names if name != LOCK and not HALF.fullmatch(name)]:
        raise BadInput(
            "exists", "out", f"--out {path} is not empty (it holds {others[0]}): give a directory that does not exist yet."
        )
