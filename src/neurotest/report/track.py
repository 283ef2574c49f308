"""Runs in an experiment tracker: the numbers of a finished run, what it was made with, and the files people open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neurotest.errors import BadInput, near
from neurotest.runs.export import SELECTION, SUMMARY
from neurotest.runs.places import PAGE
from neurotest.runs.store import Run
from neurotest.target.extras import need

MAX_NUMBERS = 500  # numbers of one run: rows of inputs are in its files
MAX_PARAMETER = 500  # characters of a parameter, which is what MLflow takes


@dataclass(frozen=True)
class _RunRecord:
    """What a tracker is told of a run. Names are those of `--json` and `--fail-if`, with dots."""

    name: str
    command: str
    version: str
    settings: dict[str, str]
    numbers: dict[str, float]
    files: tuple[Path, ...]


def _record_of(path: str | Path) -> _RunRecord:
    """The record of a finished run."""
    with Run.open(path) as run:
        if run["state"] != "done":
            raise BadInput("unfinished", "", f"{path} is not finished: a tracker takes finished runs.")
        command, version, config, summary = (run[key] for key in ("command", "version", "config", "summary"))
        place = run.path
        files = tuple(file.path for file in map(run.file, (SUMMARY, SELECTION, PAGE)) if file.exists())  # never through a link
    settings = {name: str(value)[:MAX_PARAMETER] for name, value in _leaves(config) if value is not None}
    numbers = {name: float(value) for name, value in _leaves(summary) if _is_number(value)}
    few = dict(sorted(numbers.items(), key=lambda item: item[0].count("."))[:MAX_NUMBERS])
    return _RunRecord(place.name, str(command), str(version), settings, few, files)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Single values and the ends of intervals under dotted names; longer lists are rows and stay in the files."""
    if isinstance(value, (list, tuple)) and len(value) == 2:
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif not isinstance(value, (list, tuple)):
        yield name, value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def track(run: str | Path, tracker: str) -> str:
    """Hand a finished run to `mlflow` or `wandb`, and say where it is.

    tracker: its name, with an experiment (MLflow) or a project (W&B) after a colon: `mlflow:nightly`. Servers and keys are those
    that the tracker's own settings name (MLFLOW_TRACKING_URI, WANDB_MODE, ...).
    """
    send, place = _tracker(tracker)
    return send(_record_of(run), place)


def check_tracker(tracker: str) -> None:
    """Refuse a tracker that is unknown or not installed: before the work, not after it."""
    _tracker(tracker)
    package = tracker.partition(":")[0]
    need(package, "track", f"--track {tracker}")


def _tracker(spec: str) -> tuple[Callable[[_RunRecord, str], str], str]:
    name, _, place = spec.partition(":")
    if name not in TRACKERS:
        raise BadInput("unknown-name", "track", f"--track {spec!r}: there is no tracker {name!r}. {near(name, TRACKERS)}")
    return TRACKERS[name], place or "neurotest"


def _mlflow(record: _RunRecord, experiment: str) -> str:
    mlflow = need("mlflow", "track", "--track mlflow")
    mlflow.set_experiment(experiment)
    with mlflow.start_run(run_name=record.name) as active:
        mlflow.set_tags({"neurotest.command": record.command, "neurotest.version": record.version})
        mlflow.log_params({_safe(name): value for name, value in record.settings.items()})
        mlflow.log_metrics({_safe(name): value for name, value in record.numbers.items()})
        for file in record.files:
            mlflow.log_artifact(str(file))
        return f"mlflow run {active.info.run_id} of {experiment!r} ({mlflow.get_tracking_uri()})"


def _safe(name: str) -> str:
    """A name as MLflow takes it: letters, digits and a few signs."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-./ ") else "_" for c in name)


def _wandb(record: _RunRecord, project: str) -> str:
    wandb = need("wandb", "track", "--track wandb")
    with wandb.init(
        project=project, name=record.name, job_type=record.command, config={**record.settings, "neurotest": record.version}
    ) as active:
        active.summary.update(record.numbers)
        if record.files:
            artifact = wandb.Artifact(record.name, type="neurotest-run")
            for file in record.files:
                artifact.add_file(str(file))
            active.log_artifact(artifact)
        return f"wandb run {active.id} of {project!r} ({active.dir if active.offline else active.url})"


TRACKERS: dict[str, Callable[[_RunRecord, str], str]] = {"mlflow": _mlflow, "wandb": _wandb}
