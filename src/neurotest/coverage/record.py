"""A measurement of coverage as a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neurotest.coverage.criterion import Criterion
from neurotest.coverage.result import Coverage
from neurotest.data.source import Source
from neurotest.jobs.life import finish
from neurotest.jobs.opening import stored_spec
from neurotest.jobs.stored import target_config
from neurotest.runs.store import Run
from neurotest.target import Target


def config(target: Target, source: Source, criteria: Mapping[str, Criterion], settings: dict[str, Any]) -> dict[str, Any]:
    """What a run stores of how it was made."""
    return {
        **target_config(target),
        "data": stored_spec(source),
        "criteria": {name: repr(criterion) for name, criterion in criteria.items()},
        **settings,
    }


def record(run: Run, coverage: Coverage) -> None:
    with run.transaction():
        run["never covered"] = coverage.never()
    unfit = [f"{name} did not run: {reason}" for name, reason in coverage.errors.items()]
    finish(run, {**coverage.to_dict(), "notes": [*coverage.notes, *unfit]})
