"""Finished batches of a run, one file each, so that an interrupted generator goes on where it was."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import files, registry
from neurotest.errors import BadInput, near
from neurotest.runs.plain import plain
from neurotest.runs.store import Run
from neurotest.target import Target
from neurotest.target.load import load

FOLDER = "parts"
Arrays = dict[str, NDArray[Any]]


class Parts:
    """What each finished batch gave. The file comes first, then the count in the run that makes it part of it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.folder = run.path / FOLDER

    def __len__(self) -> int:
        return int(self.run[FOLDER]) if FOLDER in self.run else 0

    def add(self, arrays: Arrays) -> None:
        self.folder.mkdir(exist_ok=True)
        with files.whole(self._file(len(self))) as part, open(part, "wb") as out:
            np.savez_compressed(out, allow_pickle=False, **arrays)
        self.run[FOLDER] = len(self) + 1

    def __iter__(self) -> Iterator[Arrays]:
        for number in range(len(self)):
            try:
                with np.load(self._file(number), allow_pickle=False) as held:
                    yield dict(held)
            except (OSError, ValueError, EOFError, KeyError) as error:
                raise BadInput(
                    f"{self._file(number)} cannot be read ({type(error).__name__}): the run is damaged; start a new one."
                ) from error

    def clear(self) -> None:
        """The run is finished: everything is in its suite now."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, number: int) -> Any:
        return files.inside(self.run.path, f"{FOLDER}/{number:06d}.npz")


def unfinished(run: Run, command: str) -> dict[str, Any]:
    """The configuration of a run of this command that was interrupted; any other run is refused."""
    if run["command"] != command:
        raise BadInput(f"{run.path} is a run of {run['command']!r}, not of {command}.")
    if run["state"] == "done":
        raise BadInput(f"{run.path} is finished: there is nothing to resume.")
    config = run["config"]
    if not isinstance(config, dict):
        raise BadInput(f"{run.path} has no configuration: it is damaged.")
    return config


def stored_target(run: Run, spec: Any, fingerprint: Any, given: Target | str | None) -> Target:
    """A target a run names: a zoo: network is used, anything else only if this user made the run here, or says it again."""
    if given is None and not str(spec).startswith("zoo:") and not run.made_here:
        raise BadInput(
            f"{run.path} was made elsewhere and names the target {spec!r}, which could run code: name the target yourself."
        )
    target = load(str(spec) if given is None else given)
    if target.fingerprint != fingerprint:
        raise BadInput(
            f"the target is not the one {run.path} was made with (fingerprint {target.fingerprint[:12]}, the run's is "
            f"{str(fingerprint)[:12]}): start a new run for a changed network."
        )
    return target


def settings(kind: str, method: Any, options: dict[str, Any]) -> Any:
    """The method of a kind, with what was said beside its name."""
    made = registry.build(kind, method)
    if not dataclasses.is_dataclass(made) or isinstance(made, type) or not hasattr(made, "name"):
        raise BadInput(f"{kind}={made!r}: expected a name (`neurotest list {kind}`) or its settings as an object.")
    said = {name: value for name, value in options.items() if value is not None}
    known = [f.name for f in dataclasses.fields(made) if f.init]
    for name in said:
        if name not in known:
            raise BadInput(f"{made.name} has no option {name!r}. {near(name, known)}")
    return dataclasses.replace(made, **said)


def described(method: Any) -> dict[str, Any]:
    """A method as a run stores it: `rebuilt` makes it again."""
    values = {f.name: getattr(method, f.name) for f in dataclasses.fields(method) if f.init}
    return {"name": str(method.name), "options": plain(values)}


def rebuilt(kind: str, stored: Any) -> Any:
    """The method a run was made with."""
    try:
        return registry.find(kind, str(stored["name"])).make(**stored["options"])
    except (KeyError, TypeError):
        raise BadInput("the run's configuration does not name its method as this version knows it: start a new run.") from None
