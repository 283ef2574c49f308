"""Where an adaptive selection stands: what the labels showed, what random ones would have, and whether to go on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from neurotest.errors import command
from neurotest.runs.store import Run
from neurotest.select.adaptive.learning import UNCLEAR, Loop
from neurotest.select.adaptive.proposals import rounds_of
from neurotest.select.adaptive.remaining import Remaining
from neurotest.select.adaptive.rounds import held_by
from neurotest.select.adaptive.selector import faults_of
from neurotest.select.adaptive.stored import loop_of
from neurotest.select.exchange import class_word, classes_of
from neurotest.stats.bootstrap import Interval, random_fdr, wilson

Entry = dict[str, Any]  # as JSON holds it


class _Advice(NamedTuple):
    """Whether to go on, why, and what to type."""

    go_on: bool
    reason: str
    command: str | None


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
    chance = min(1.0, rest.value / max(left, 1))
    advice = advise(run.path, len(rounds), pending, size, rate, left, rest.value, method.stop)
    compared = loop.compared()
    found = wilson(faults, judged) if judged else None
    random = as_many_random(len(loop.facts), judged, faults, rest) if judged else None
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
        "go_on": advice.go_on, "advice": advice.reason, "command": advice.command, "trust": loop.belief.trust,
        "rounds": [{"round": number, **held_by(loop, one)} for number, one in enumerate(rounds, start=1)],
        "suspects": _suspects(run, loop),
    }  # fmt: skip


def as_many_random(pool: int, labels: int, faults: int, rest: Remaining) -> Interval:
    """The share of faults among as many random labels: how many faults there are is found ones plus those still believed in.

    The interval is that of the draw and of the belief together: exact for the fewest and for the most faults there may be.
    """
    total, fewest, most = (min(pool, faults + one) for one in (round(rest.value), math.floor(rest.low), math.ceil(rest.high)))
    return Interval(total / pool, random_fdr(pool, fewest, labels).low, random_fdr(pool, most, labels).high)


def advise(path: Path, number: int, pending: int, size: int, rate: float, left: int, rest: float, stop: float | None) -> _Advice:
    """Label what is pending; go on while faults are believed to be left and the next batch promises more than random inputs.

    number: of the newest round, in which `pending` inputs have no label. size, rate: of the next batch, and the share of faults
    expected in it. left, rest: inputs without a label, and how many of them are believed to be faults.
    """
    if not left:
        return _Advice(False, "Stop: every input of the pool has a label.", None)
    chance = min(1.0, rest / left)
    promise = f"expected to give {rate * size:.2g} faults ({100 * rate:.2g} %)"
    if pending:
        commands = f"{command('export', path, '--format', 'csv', '--out', 'FILE')}, then {command('labels', path, 'add', 'FILE')}"
        return _Advice(True, f"Round {number} waits for {pending} labels, {promise}.", commands)
    batch = f"the next {size} labels are {promise}"
    if stop is not None and rate < stop:
        return _Advice(False, f"Stop: {batch}, fewer than stop={stop:g}.", None)
    if rest < 1:
        return _Advice(False, f"Stop: {batch}, and less than one fault is believed to be left.", None)
    if rate <= chance:
        return _Advice(False, f"Stop: {batch}, no more than random inputs ({100 * chance:.2g} %).", None)
    return _Advice(True, f"Go on: {batch}, random ones {100 * chance:.2g} %.", command("select", "--resume", path))


def _suspects(run: Run, loop: Loop) -> list[Entry]:
    classes, rows = classes_of(run), {row.position: row for row in run.inputs()}
    return [
        {
            "position": p,
            "file": rows[p].name,
            "label": class_word(loop.labels[p], classes),
            "predicted": class_word(int(loop.predictions[p]), classes),
        }
        for p in loop.suspects().tolist()
    ]
