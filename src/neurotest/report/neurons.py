"""The section with the neurons that the faults of a run are caused by, which `neurotest neurons` puts there."""

from __future__ import annotations

from neurotest.report.section import Row, section
from neurotest.runs.store import Run


@section("neurons", title="Neurons the faults are caused by", order=40, holds=("neurons",))
def _neurons(run: Run) -> Row:
    return {"neurons": run["neurons"]}
