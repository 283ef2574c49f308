"""An attack as a run: every output a row, faults and their seeds as files people can open, the suite as one file of data."""

from __future__ import annotations

import numpy as np

from neurotest import files
from neurotest.data.source import content_ids
from neurotest.errors import BadInput
from neurotest.generate.gradient.result import AttackResult
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run
from neurotest.target import Target

SUITE = "suite.npz"


def record(run: Run, target: Target, found: AttackResult, stored: int) -> None:
    """Fill a run that was just made; of the faults the first `stored` become files."""
    path = run.path / SUITE
    with files.whole(path) as part, open(part, "wb") as out:
        np.savez_compressed(
            out,
            x=found.x,
            y=found.expected,
            seeds=found.seeds,
            random=found.control.x,
            positions=found.positions,
            fault=found.fault,
        )
    contents = content_ids(np.asarray(found.x))
    rows = (
        InputRow(
            position=int(position),
            content=str(contents[i]),
            label=int(found.expected[i]),
            predicted=int(found.predicted[i]),
            extra={
                "fault": bool(found.fault[i]),
                "operator": found.attack,
                **{name: float(value) for name, value in zip(("l0", "l2", "linf"), found.distance[i], strict=True)},
            },
        )
        for i, position in enumerate(found.positions)
    )
    shown = np.flatnonzero(found.fault)[:stored]
    with run.transaction():
        run["classes"] = list(found.classes or ())
        run.add_inputs(rows)
        run.save_inputs(found.positions[shown], found.x[shown], "fault", target.bounds)
        run.save_inputs(found.positions[shown], found.seeds[shown], "original", target.bounds)
    for i in shown:  # what is saved is what failed
        if not np.array_equal(run.load_input(int(found.positions[i]), "fault"), found.x[i]):
            raise BadInput(f"{run.path} does not read back as it was written: is the disk in order?")
    run.finish(found.to_dict())
    run.export()
