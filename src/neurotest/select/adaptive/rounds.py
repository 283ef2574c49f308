"""Adaptive selection over days: a run holds what the scan gave, the proposals and the labels; nothing is scanned twice."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neurotest.data.objects import AnyData
from neurotest.data.source import content_ids
from neurotest.errors import BadInput, command
from neurotest.jobs.stored import stored_data
from neurotest.runs.store import Run
from neurotest.select.adaptive.learning import UNCLEAR, Loop
from neurotest.select.adaptive.remaining import Remaining
from neurotest.select.adaptive.selector import summary
from neurotest.select.adaptive.stored import SETTINGS, loop_of, round_entry
from neurotest.select.exchange import Entry, class_word, classes_of, rounds_of
from neurotest.stats.bootstrap import Interval, random_fdr, wilson


def resume(path: str | Path, budget: int | None = None, *, pool: AnyData | None = None, files: int | None = None) -> Entry:
    """Propose the next batch of an adaptive run, or say again what was proposed if nothing of it has a label yet.

    budget: size of the batch (default: that of the one before). pool: only for images of the proposals; zoo data and data of a
    run of this user are opened without it.
    """
    with Run.open(path, write=True) as run:
        rounds = rounds_of(run)
        loop, method = loop_of(run, rounds)
        last = rounds[-1]
        size = budget or len(last["positions"])
        if not any(p in loop.labels for p in last["positions"]) and (budget is None or budget == len(last["positions"])):
            return _proposed_before(run, loop, rounds, pool, files, method.stop)
        if method.stop is not None and loop.expected_rate(size) < method.stop:
            return _result(run, loop, [], rounds, again=False, stop=method.stop)
        batch = loop.propose(size)
        name = f"{rounds[0]['ranking']} round {len(rounds) + 1}"
        rounds = [*rounds, round_entry(name, batch.tolist(), loop)]
        with run.transaction(durable=True):  # files, then the rows: whoever dies between has proposed nothing
            missing = _images(run, pool, batch if files is None else batch[:files])
            run.add_ranking(name, batch, loop.chances[batch], len(batch))
            run.add_round(rounds[-1])
            run.export()
        result = _result(run, loop, batch.tolist(), rounds, again=False, stop=method.stop)
        return {**result, "notes": [*result["notes"], *_unlabelled(loop, last["positions"], len(rounds) - 1), *missing]}


def _unlabelled(loop: Loop, positions: list[int], number: int) -> list[str]:
    count = sum(p not in loop.labels for p in positions)
    return [f"{count} of {len(positions)} inputs of round {number} got no label: they may be proposed again."] if count else []


def _proposed_before(run: Run, loop: Loop, rounds: list[Entry], pool: Any, files: int | None, stop: float | None) -> Entry:
    """The last proposal again; images that a later round still lacks are made up for."""
    positions, missing = rounds[-1]["positions"], []
    if len(rounds) > 1:
        with run.transaction():
            missing = _images(run, pool, np.array(positions[:files], dtype=np.int64))
            run.export()
    result = _result(run, loop, positions, rounds, again=True, stop=stop)
    return {**result, "notes": [*result["notes"], *missing]}


def _images(run: Run, pool: AnyData | None, batch: np.ndarray) -> list[str]:
    """Store the proposals as images where the pool can be read; a run from elsewhere does not make us open files it names."""
    spec = run["config"].get("pool")
    if pool is None:
        if not (run.made_here or str(spec).startswith("zoo:")):
            return ["no images: the run was made elsewhere; give its pool as POOL."]
        pool = str(spec)
    try:
        source = stored_data(run, pool)
        contents = {row.position: row.content for row in run.inputs()}
        bounds = run[SETTINGS].get("bounds", [0.0, 1.0])
        stored = {row.position for row in run.files("picked")}
        new = np.array([p for p in batch.tolist() if p not in stored], dtype=np.int64)
        if not len(new):
            return []
        x = source.read(new)
        if content_ids(x).tolist() != [contents[p] for p in new.tolist()]:
            return [f"no images: {spec} does not hold the inputs of this run any more."]
        run.save_inputs(new, x, "picked", (float(bounds[0]), float(bounds[1])))
    except (BadInput, IndexError) as error:
        return [f"no images: {error}"]
    return []


def _last_round(loop: Loop, rounds: list[Entry]) -> Entry | None:
    """What the newest batch with labels held, and what was expected of those inputs."""
    held = (_held_by(loop, one) for one in reversed(rounds))
    return next(({key: one[key] for key in ("labels", "faults", "expected")} for one in held if one["labels"]), None)


def _held_by(loop: Loop, one: Entry) -> Entry:
    """How many inputs of a round have labels, how many of those are faults, and how many faults were expected among them."""
    faulty = loop.faulty
    judged = [p for p in one["positions"] if p in faulty]
    faults = sum(faulty[p] for p in judged)
    expected = one.get("expected_faults")  # runs of older versions did not write it down
    size = len(one["positions"])
    return {
        "size": size,
        "labels": len(judged),
        "faults": faults,
        "expected": None if expected is None or not judged else expected * len(judged) / size,
        "pending": sum(p not in loop.labels for p in one["positions"]),
    }


def _result(
    run: Run, loop: Loop, positions: list[int], rounds: list[Entry], *, again: bool, stop: float | None
) -> dict[str, Any]:
    rest, size = loop.remaining(), max(1, len(positions))
    rows, classes = {row.position: row for row in run.inputs()}, classes_of(run)
    suspects = loop.suspects().tolist()
    return {
        "method": "adaptive", "round": len(rounds), "again": again, "indices": positions,
        "contents": [rows[p].content for p in positions], "files": [rows[p].name for p in positions],
        "scores": [float(loop.chances[p]) for p in positions], "predicted": [int(loop.predictions[p]) for p in positions],
        "predicted_names": [class_word(int(loop.predictions[p]), classes) for p in positions],
        "labels": len(loop.labels), "faults": loop.faults, "remaining": rest.value,
        "remaining_interval": [rest.low, rest.high],
        "remaining_by": f"{rest.random} random labels" if rest.random else "model",
        "last_round": _last_round(loop, rounds), "compared": loop.compared()._asdict(),
        "expected_rate": loop.expected_rate(size), "trust": loop.posterior.trust,
        "suspects": suspects, "suspect_files": [rows[p].name for p in suspects],
        "stop": stop is not None and bool(loop.labels) and not positions, "notes": [summary(loop, size)], "run": str(run.path),
    }  # fmt: skip


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
    judged, faults = len(loop.labelled), loop.faults
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
        "go_on": advice.go_on, "advice": advice.reason, "command": advice.command, "trust": loop.posterior.trust,
        "rounds": [{"round": number, **_held_by(loop, one)} for number, one in enumerate(rounds, start=1)],
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
