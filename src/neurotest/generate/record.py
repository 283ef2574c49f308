"""A suite as a run: every output a row, faults and their seeds as files people can open, the suite as one file of data."""

from __future__ import annotations

import numpy as np

from neurotest.data.source import content_ids
from neurotest.errors import BadInput
from neurotest.generate.suite import AttackResult
from neurotest.runs.folder import own
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run
from neurotest.target import Target

SUITE = "suite.npz"
own(r"suite\.npz")


def record(run: Run, target: Target, result: AttackResult, stored: int) -> None:
    """Fill a new run; of the faults the first `stored` become files."""
    with run.file(SUITE).writing() as out:
        np.savez_compressed(
            out, x=result.x, y=result.expected, seeds=result.seeds, random=result.control.x, positions=result.positions,
            fault=result.fault,
        )  # fmt: skip
    contents, numbers = content_ids(np.asarray(result.x)), result.numbers
    rows = (
        InputRow(
            position=int(number), content=str(contents[i]), label=int(result.expected[i]), predicted=int(result.predicted[i]),
            extra=result.about(i),
        )
        for i, number in enumerate(numbers)
    )  # fmt: skip
    shown = np.flatnonzero(result.fault)[:stored]
    with run.transaction():
        run["classes"] = list(result.classes or ())
        run.clear_inputs()  # a crash may have come between this and the end
        run.add_inputs(rows)
        run.save_inputs(numbers[shown], result.x[shown], "fault", target.bounds)
        run.save_inputs(numbers[shown], result.seeds[shown], "original", target.bounds)
    for i in shown:  # what is saved is what failed
        if not np.array_equal(run.load_input(int(numbers[i]), "fault"), result.x[i]):
            raise BadInput("not-writable", "", f"{run.path} does not read back as it was written: is the disk in order?")
