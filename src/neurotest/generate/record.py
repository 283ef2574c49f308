"""A suite as a run: every output a row, faults and their seeds as files people can open, the suite as one file of data."""

from __future__ import annotations

import numpy as np

from neurotest import files
from neurotest.data.source import content_ids
from neurotest.errors import BadInput
from neurotest.generate.suite import AttackResult
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
            extra=found.about(i),
        )
        for i, position in enumerate(found.numbers)
    )
    shown = np.flatnonzero(found.fault)[:stored]
    numbers = found.numbers
    with run.transaction():
        run["classes"] = list(found.classes or ())
        run.clear_inputs()  # a crash may have come between this and the end
        run.add_inputs(rows)
        run.save_inputs(numbers[shown], found.x[shown], "fault", target.bounds)
        run.save_inputs(numbers[shown], found.seeds[shown], "original", target.bounds)
    for i in shown:  # what is saved is what failed
        if not np.array_equal(run.load_input(int(numbers[i]), "fault"), found.x[i]):
            raise BadInput(f"{run.path} does not read back as it was written: is the disk in order?")
    run.finish(found.to_dict())
    run.export()
