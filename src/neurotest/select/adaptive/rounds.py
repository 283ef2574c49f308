"""Adaptive selection over days: a run holds what the scan gave, the proposals and the labels; nothing is scanned twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from neurotest.data.objects import AnyData
from neurotest.data.source import content_ids
from neurotest.errors import BadInput
from neurotest.jobs.stored import stored_data
from neurotest.runs.store import Run
from neurotest.select.adaptive.learning import UNCLEAR, Loop
from neurotest.select.adaptive.proposals import Entry, rounds_of
from neurotest.select.adaptive.selector import faults_of, summary
from neurotest.select.adaptive.stored import SETTINGS, loop_of, round_entry
from neurotest.select.exchange import class_word, classes_of


def resume(path: str | Path, budget: int | None = None, *, pool: AnyData | None = None, files: int | None = None) -> Entry:
    """Propose the next batch of an adaptive run, or say again what was proposed if nothing of it has a label yet.

    budget: size of the batch (default: that of the one before). pool: only for pictures of the proposals; zoo data and data of a
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
            missing = _pictures(run, pool, batch if files is None else batch[:files])
            run.add_ranking(name, batch, loop.chances[batch], len(batch))
            run.add_round(rounds[-1])
            run.export()
        result = _result(run, loop, batch.tolist(), rounds, again=False, stop=method.stop)
        return {**result, "notes": [*result["notes"], *_unlabelled(loop, last["positions"], len(rounds) - 1), *missing]}


def _unlabelled(loop: Loop, positions: list[int], number: int) -> list[str]:
    count = sum(p not in loop.labels for p in positions)
    return [f"{count} of {len(positions)} inputs of round {number} got no label: they may be proposed again."] if count else []


def _proposed_before(run: Run, loop: Loop, rounds: list[Entry], pool: Any, files: int | None, stop: float | None) -> Entry:
    """The last proposal again; pictures that a later round still lacks are made up for."""
    positions, missing = rounds[-1]["positions"], []
    if len(rounds) > 1:
        with run.transaction():
            missing = _pictures(run, pool, np.array(positions[:files], dtype=np.int64))
            run.export()
    result = _result(run, loop, positions, rounds, again=True, stop=stop)
    return {**result, "notes": [*result["notes"], *missing]}


def _pictures(run: Run, pool: AnyData | None, batch: np.ndarray) -> list[str]:
    """Store the proposals as pictures where the pool can be read; a run from elsewhere does not make us open files it names."""
    spec = run["config"].get("pool")
    if pool is None:
        if not (run.made_here or str(spec).startswith("zoo:")):
            return ["no pictures: the run was made elsewhere; give its pool as POOL."]
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
            return [f"no pictures: {spec} does not hold the inputs of this run any more."]
        run.save_inputs(new, x, "picked", (float(bounds[0]), float(bounds[1])))
    except (BadInput, IndexError) as error:
        return [f"no pictures: {error}"]
    return []


def _last_round(loop: Loop, rounds: list[Entry]) -> Entry | None:
    """What the newest batch with labels held, and what was expected of those inputs."""
    held = (held_by(loop, one) for one in reversed(rounds))
    return next(({key: one[key] for key in ("labels", "faults", "expected")} for one in held if one["labels"]), None)


def held_by(loop: Loop, one: Entry) -> Entry:
    """How many inputs of a round have labels, how many of those are faults, and how many faults were expected among them."""
    judged = [p for p in one["positions"] if loop.labels.get(p, UNCLEAR) != UNCLEAR]
    faults = sum(loop.labels[p] != int(loop.predictions[p]) for p in judged)
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
        "labels": len(loop.labels), "faults": faults_of(loop), "remaining": rest.value,
        "remaining_interval": [rest.low, rest.high],
        "remaining_by": f"{rest.random} random labels" if rest.random else "model",
        "last_round": _last_round(loop, rounds), "compared": loop.compared()._asdict(),
        "expected_rate": loop.expected_rate(size), "trust": loop.belief.trust,
        "suspects": suspects, "suspect_files": [rows[p].name for p in suspects],
        "stop": stop is not None and bool(loop.labels) and not positions, "notes": [summary(loop, size)], "run": str(run.path),
    }  # fmt: skip
