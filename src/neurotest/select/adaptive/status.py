"""Where an adaptive selection stands: what the labels showed, what random ones would have, and whether to go on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from neurotest.runs.store import Run
from neurotest.select.adaptive.learning import UNCLEAR, Loop
from neurotest.select.adaptive.remaining import Remaining
from neurotest.select.adaptive.rounds import held_by
from neurotest.select.adaptive.selector import faults_of
from neurotest.select.adaptive.stored import loop_of, rounds_of
from neurotest.select.exchange import class_word, classes_of, file_of
from neurotest.stats.bootstrap import Interval, random_fdr, wilson

Entry = dict[str, Any]  # as JSON holds it


class Advice(NamedTuple):
    go_on: bool
    reason: str


def status(path: str | Path) -> Entry:
    """The state of an adaptive run, as `select --status` and its report show it; nothing is changed."""
    with Run.open(path) as run:
        return status_of(run)


def status_of(run: Run) -> Entry:
    rounds = rounds_of(run)
    loop, method = loop_of(run, rounds)
    judged, faults = len(loop.labelled), faults_of(loop)
    rest, left = loop.remaining(), len(loop.left)
    pending = sum(p not in loop.labels for p in rounds[-1]["positions"])
    size = pending or min(len(rounds[-1]["positions"]), left)
    rate = loop.expected_rate(size) if size else 0.0
    chance = min(1.0, rest.value / left) if left else 0.0
    advice = _advice(run, loop, len(rounds), pending, size, rate, chance, method.stop)
    compared = loop.compared()
    found = wilson(faults, judged) if judged else None
    random = _random(len(loop.facts), judged, faults, rest) if judged else None
    return {
        "run": str(run.path), "method": rounds[0]["ranking"], "pool": len(loop.facts), "round": len(rounds),
        "labels": len(loop.labels), "unclear": sum(label == UNCLEAR for label in loop.labels.values()), "pending": pending,
        "faults": faults, "fdr": None if found is None else found.value,
        "fdr_interval": None if found is None else [found.low, found.high],
        "random": None if random is None else {
            "faults": random.value * judged, "faults_interval": [random.low * judged, random.high * judged], "fdr": random.value,
            "fdr_interval": [random.low, random.high],
        },
        "beats_random": None if random is None or found is None else found.value > random.high,
        "deepgini": {"faults": compared.deepgini, "labelled": compared.shared},
        "remaining": rest.value, "remaining_interval": [rest.low, rest.high],
        "remaining_by": f"{rest.random} random labels" if rest.random else "model",
        "next": {"size": size, "expected_faults": rate * size, "expected_rate": rate, "random_rate": chance},
        "go_on": advice.go_on, "advice": advice.reason, "trust": loop.belief.trust,
        "rounds": [{"round": number, **held_by(loop, one)} for number, one in enumerate(rounds, start=1)],
        "suspects": _suspects(run, loop),
    }  # fmt: skip


def _random(pool: int, labels: int, faults: int, rest: Remaining) -> Interval:
    """The share of faults among as many random labels: how many faults there are is found ones plus those still believed in.

    The interval is that of the draw and of the belief together: exact for the fewest and for the most faults there may be.
    """
    total, fewest, most = (min(pool, faults + one) for one in (round(rest.value), math.floor(rest.low), math.ceil(rest.high)))
    return Interval(total / pool, random_fdr(pool, fewest, labels).low, random_fdr(pool, most, labels).high)


def _advice(
    run: Run, loop: Loop, number: int, pending: int, size: int, rate: float, chance: float, stop: float | None
) -> Advice:  # fmt: skip
    """Label what is pending; go on while faults are believed to be left and the next batch promises more than random inputs."""
    if not size:
        return Advice(False, "every input of the pool has a label.")
    batch = f"the next {size} labels are expected to give {rate * size:.2g} faults ({100 * rate:.2g} %)"
    if pending:
        waits = f"round {number} waits for {pending} labels, expected to give {rate * size:.2g} faults"
        return Advice(True, f"{waits}: `neurotest export {run.path}`, then `neurotest labels {run.path} add FILE`.")
    if stop is not None and rate < stop:
        return Advice(False, f"stop: {batch}, fewer than stop={stop:g}.")
    if chance * len(loop.left) < 1:
        return Advice(False, f"stop: {batch}, and less than one fault is believed to be left.")
    if rate <= chance:
        return Advice(False, f"stop: {batch}, no more than random inputs ({100 * chance:.2g} %).")
    return Advice(True, f"go on: {batch}, random ones {100 * chance:.2g} %: `neurotest select --resume {run.path}`.")


def _suspects(run: Run, loop: Loop) -> list[Entry]:
    classes, rows = classes_of(run), {row.position: row for row in run.inputs()}
    return [
        {
            "position": p, "file": file_of(rows[p]), "label": class_word(loop.labels[p], classes),
            "predicted": class_word(int(loop.predictions[p]), classes),
        }
        for p in loop.suspects().tolist()
    ]  # fmt: skip
