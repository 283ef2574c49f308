"""The life of a run: begun before the work, withdrawn if nothing came of it, resumable once something is kept, finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from neurotest import interrupts
from neurotest.errors import BadInput, Interrupted, command
from neurotest.jobs.parts import Parts
from neurotest.jobs.stored import named_code
from neurotest.runs.rows import plain
from neurotest.runs.store import Run
from neurotest.settings import CommandSettings
from neurotest.settings.declared import by_name

Out = str | Path | bool | None
NOTHING_KEPT = "interrupted: nothing was kept of the unfinished work. Start the command again."


class Finished(BadInput):
    """A run that is to be resumed is finished."""


class Result(Protocol):
    """What a run is finished with."""

    def to_dict(self) -> dict[str, Any]: ...


def begin(
    command: str,
    out: Out,
    config: dict[str, Any],
    fill: Callable[[Run], None] | None = None,
    *,
    resumable: bool = True,
    trusted: bool = True,
) -> Run:
    """A new run, made before the work, so that a place that cannot be written to is refused at once.

    out: where (None or True: a new place in ./neurotest-runs). fill: what the run holds from the beginning on. trusted: False if
    the configuration comes from runs that were made elsewhere.
    """
    if code := named_code(config):
        config = {**config, "code": code}
    with interrupts.deferred():
        run = Run.create(None if out in (None, True) else Path(str(out)), command, config, resumable=resumable, trusted=trusted)
        try:
            filled(run, fill)
        except BaseException:
            withdraw(run)
            raise
    return run


def filled(run: Run, fill: Callable[[Run], None] | None) -> None:
    """Put into a run what it holds from the beginning on; a run that died before that is filled when it is resumed."""
    with run.transaction():
        if fill is not None:
            fill(run)
        run.mark_filled()


def withdraw(run: Run) -> None:
    """Take away a run in which nothing is; what a person put into its folder stays."""
    run.withdraw()


@contextmanager
def atomic_run(command: str, out: Out, config: dict[str, Any], *, trusted: bool = True) -> Iterator[Run | None]:
    """A run that is whole or not there: for work that cannot be resumed. None where `out` is False: nothing is written."""
    if out is False:
        yield None
        return
    run = begin(command, out, config, resumable=False, trusted=trusted)
    try:
        with interrupts.deferred():
            yield run
    except BaseException as error:
        withdraw(run)
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(NOTHING_KEPT) from None
        raise
    run.close()


@contextmanager
def stoppable(kept: str) -> Iterator[None]:
    """Around work that is no run: an interrupt says what is kept, and how to go on."""
    try:
        with interrupts.deferred():
            yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {kept}") from None


@contextmanager
def safe_point(run: Run, kept: Callable[[], str], *, new: bool) -> Iterator[None]:
    """Around work that keeps what it has finished in `run`: an interrupt says how to go on, a failure leaves no empty new run.

    kept: how far the work has come, in words; empty when nothing is kept yet. Runs that are resumed are never withdrawn.
    """
    with run:
        try:
            with interrupts.deferred():
                yield
        except (KeyboardInterrupt, Interrupted):
            state = f"after {kept()}, everything is saved" if kept() else "before anything was finished"
            raise Interrupted(f"interrupted {state}. Go on with: {resume_with(run)}") from None
        except BaseException:
            if new and not kept():
                withdraw(run)
            raise


def resume_with(run: Run) -> str:
    """The command that goes on with a run."""
    study = run["config"]["study"] if run["command"] == "study" else None
    return command(run["command"], study, "--resume", run.path)


def finish(run: Run | None, result: Result | dict[str, Any]) -> None:
    """The work is done: the exports people open first, then, with the rows they are made of, the state."""
    if run is not None:
        with run.transaction(durable=True):
            run.finish(result if isinstance(result, dict) else result.to_dict())
            run.export()


def in_place(out: Out) -> None:
    """Refuse another place for a run that is resumed."""
    if out is not None:
        raise BadInput("conflict", "out", "a resumed run goes on where it is: leave out --out.")


def unfinished(run: Run, *commands: str, again: bool = False) -> dict[str, Any]:
    """The configuration of a run of these commands; other runs are refused, and finished ones unless they may go on `again`."""
    if run["command"] not in commands:
        raise BadInput("wrong-run", "", f"{run.path} is a run of {run['command']!r}, not of {' or '.join(commands)}.")
    if run["state"] == "done" and not again:
        Parts(run).clear()  # whoever died after the last word has left them
        raise Finished("finished", "", f"{run.path} is finished: there is nothing to resume.")
    config = run["config"]
    if not isinstance(config, dict):
        raise BadInput("damaged", "config", f"{run.path} has no configuration: it is damaged.")
    return config


def resumed_settings(run: Run, settings: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
    """Refuse a setting that is repeated on resume and differs from what the run was started with; None: not repeated."""
    for name, value in settings.items():
        if value is not None and plain(value) != stored.get(name):
            raise other_setting(run, name, plain(value), stored.get(name))


Chosen = TypeVar("Chosen", bound=CommandSettings)


def resumed(settings: type[Chosen], run: Run, config: Mapping[str, Any], given: Mapping[str, Any]) -> Chosen:
    """The settings a run was started with. What is given again must be the same, unless it may change.

    Settings that the run does not hold are of a later version, and have their defaults.
    """
    known = by_name(settings)
    values = {name: config[name] for name in known if name in config}
    for name, value in settings.normal(given).items():
        if name not in known:  # nothing that a run stores by name
            values[name] = value
            continue
        if plain(value) == plain(values.get(name, known[name].usual)):
            continue
        if not known[name].changes:
            raise other_setting(run, name, plain(value), values.get(name))
        values[name] = value
    return settings(**values)


def same_sources(run: Run, stored: Mapping[str, Any], again: Mapping[str, Any]) -> None:
    """Refuse data whose content is not what the run was started with; runs of the first versions do not say what it was."""
    before, now = (config.get("digests") for config in (stored, again))
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            data = {"train": "training data"}.get(name, name)
            raise BadInput(
                "changed",
                data,
                f"the {data} are not those {run.path} was started with, and its result depends on them: resume it with the same "
                "data, or start a new run.",
            )


def other_setting(run: Run, name: str, value: Any, stored: Any) -> BadInput:
    """What to raise when a setting is said again and differs."""
    return BadInput(
        "changed",
        name,
        f"{name}={value!r}: {run.path} was started with {stored!r} and goes on with it. Leave it out, or start a new run.",
    )
