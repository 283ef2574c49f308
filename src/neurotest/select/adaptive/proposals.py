"""The proposals of an adaptive selection, as its run keeps them."""

from __future__ import annotations

from typing import Any

from neurotest.errors import BadInput
from neurotest.runs.folder import own
from neurotest.runs.store import Run

Entry = dict[str, Any]  # as JSON holds it
FACTS = "adaptive.npz"  # the scan
own(r"adaptive\.npz")
# The first round, in runs of earlier versions all there were; later ones are rows (`run.add_round`).
ROUNDS = "adaptive rounds"


def rounds_of(run: Run) -> list[Entry]:
    """The proposals there were, the newest last."""
    if ROUNDS not in run:
        raise BadInput(
            "wrong-run",
            "",
            f"{run.path} is no adaptive selection that can go on: start one with `neurotest select TARGET POOL --method adaptive "
            "--out RUN` on a pool without labels.",
        )
    first, later = run[ROUNDS], run.rounds()
    rounds = [*first, *later] if isinstance(first, list) else None
    needed = {"ranking", "positions", "said"}
    if not (rounds and all(isinstance(r, dict) and needed <= set(r) for r in rounds)):
        raise BadInput("damaged", "rounds", f"{run.path}: its rounds cannot be read; the run is damaged.")
    return rounds
