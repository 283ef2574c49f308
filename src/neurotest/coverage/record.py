"""A measurement of coverage as a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neurotest.coverage.criterion import Criterion
from neurotest.coverage.result import Coverage
from neurotest.data.source import Source
from neurotest.jobs import life
from neurotest.jobs.stored import target_config
from neurotest.runs.store import Run
from neurotest.target import Target


def begin(out: Any, target: Target, source: Source, criteria: Mapping[str, Criterion], settings: dict[str, Any]) -> Run:
    """Make the run before the work, so that a place that cannot be written to is refused at once."""
    config = {
        **target_config(target),
        "data": source.spec,
        "criteria": {name: repr(criterion) for name, criterion in criteria.items()},
        **settings,
    }
    return life.begin("cover", out, config)


def finish(run: Run, coverage: Coverage) -> None:
    with run.transaction():
        run["never covered"] = coverage.never()
    unfit = [f"{name} did not run: {reason}" for name, reason in coverage.errors.items()]
    run.finish({**coverage.to_dict(), "notes": [*coverage.notes, *unfit]})
    run.export()
    run.close()
