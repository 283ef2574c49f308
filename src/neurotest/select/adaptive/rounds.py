"""Adaptive selection over days: a run holds what the scan gave, the proposals and the labels; nothing is scanned twice."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from neurotest import registry
from neurotest.arrays import read_npz
from neurotest.data.objects import AnyData
from neurotest.data.source import content_ids
from neurotest.errors import BadInput
from neurotest.jobs.stored import stored_data
from neurotest.runs.folder import own
from neurotest.runs.store import Run
from neurotest.select.adaptive.features import Facts
from neurotest.select.adaptive.learning import UNCLEAR, Loop
from neurotest.select.adaptive.remaining import Draw
from neurotest.select.adaptive.selector import Adaptive, AdaptiveState, faults_of, summary
from neurotest.select.exchange import classes_of, numbered, read_labels

Entry = dict[str, Any]  # as JSON holds it
FACTS = "adaptive.npz"
own(r"adaptive\.npz")
ROUNDS, SETTINGS = "adaptive rounds", "adaptive settings"  # entries of the run
LARGEST = 1 << 33


def keep_open(run: Run, states: Mapping[str, Any]) -> None:
    """After a selection from an unlabelled pool: let its adaptive methods go on when labels come."""
    for name, state in states.items():
        if isinstance(state, AdaptiveState) and state.pool.source.labels is None and ROUNDS not in run:
            _keep(run, name, state)


def _keep(run: Run, name: str, state: AdaptiveState) -> None:
    """What the next round needs: the facts as a file first, then the entries."""
    facts, loop = state.loop.facts, state.loop
    content = io.BytesIO()
    np.savez(content, features=facts.features, logits=facts.logits)
    run.file(FACTS).write(content.getvalue())
    picks = [row.position for row in run.ranking(name) if row.picked]
    with run.transaction(durable=True):
        run[SETTINGS] = {**dataclasses.asdict(state.method), "seed": state.pool.seed, "bounds": list(state.pool.target.bounds)}
        run[ROUNDS] = [_round(name, picks, loop)]


def _round(name: str, positions: list[int], loop: Loop) -> Entry:
    entry = {"ranking": name, "positions": positions, "said": [list(loop.evidence.get(p, ())) for p in positions]}
    if loop.audit and loop.draws:
        entry |= {"random": list(loop.draws[-1].positions), "labelled": sorted(loop.draws[-1].labelled)}
    return entry


def add_labels(path: str | Path, file: str | Path, by: str = "") -> Entry:
    """Put a file of labels into an adaptive run: all of them or, with one sentence, none."""
    labels = read_labels(file)
    with Run.open(path, write=True) as run:
        rounds = _rounds(run)
        inputs = run.inputs()
        contents: dict[str, list[int]] = {}
        for row in inputs:
            contents.setdefault(row.content, []).append(row.position)
        names = tuple(classes_of(run)) or None
        proposed = {p for one in rounds for p in one["positions"]}
        classes = _facts(run).logits.shape[1]
        stored = {row.position: row.label for row in run.labels()}
        fresh: dict[int, int] = {}
        for key, label in labels.items():
            number = numbered(label, classes, names)
            for position in _places(key, contents, proposed, len(inputs), Path(file), run):
                before = stored.get(position, fresh.get(position))
                if before is not None and before != number:
                    clash = f"input {position} is labelled {number}, but {run.path} has {before} for it"
                    raise BadInput(f"{file}: {clash}: keep one. Nothing was added.")
                if position not in stored:
                    fresh[position] = number
        with run.transaction(durable=True):
            for position, number in fresh.items():
                run.add_label(position, number, by)
        return {"run": str(run.path), "added": len(fresh), "known": len(labels) - len(fresh), "labels": len(run.labels())}


def _places(key: int | str, contents: Mapping[str, list[int]], proposed: set[int], n: int, file: Path, run: Run) -> list[int]:
    """Where an input stands. A bare position could be of any run, so it must be one that this run proposed."""
    if isinstance(key, str):
        if key not in contents:
            raise BadInput(f"{file}: no input of {run.path} has content {key}: the file is of another run. Nothing was added.")
        return contents[key]
    if key not in proposed:
        why = f"the pool has {n} inputs" if key >= n else "this run never proposed it"
        raise BadInput(f"{file}: position {key} is unknown, {why}: the file is of another run. Nothing was added.")
    return [key]


def resume(path: str | Path, budget: int | None = None, *, pool: AnyData | None = None, files: int | None = None) -> Entry:
    """Propose the next batch of an adaptive run, or say again what was proposed if nothing of it has a label yet.

    budget: size of the batch (default: that of the one before). pool: only for pictures of the proposals; zoo data and data of a
    run of this user are opened without it.
    """
    with Run.open(path, write=True) as run:
        rounds = _rounds(run)
        loop, method = _loop(run, rounds)
        last = rounds[-1]
        size = budget or len(last["positions"])
        if not any(p in loop.labels for p in last["positions"]) and (budget is None or budget == len(last["positions"])):
            return _proposed_before(run, loop, rounds, pool, files, method.stop)
        if method.stop is not None and loop.expected_rate(size) < method.stop:
            return _result(run, loop, [], len(rounds), again=False, stop=method.stop)
        batch = loop.propose(size)
        name = f"{rounds[0]['ranking']} round {len(rounds) + 1}"
        with run.transaction(durable=True):  # files, then the rows: whoever dies between has proposed nothing
            missing = _pictures(run, pool, batch if files is None else batch[:files])
            run.add_ranking(name, batch, loop.chances[batch], len(batch))
            run[ROUNDS] = [*rounds, _round(name, batch.tolist(), loop)]
            run.export()
        result = _result(run, loop, batch.tolist(), len(rounds) + 1, again=False, stop=method.stop)
        return {**result, "notes": [*result["notes"], *missing]}


def _proposed_before(run: Run, loop: Loop, rounds: list[Entry], pool: Any, files: int | None, stop: float | None) -> Entry:
    """The last proposal again; pictures that a later round still lacks are made up for."""
    positions, missing = rounds[-1]["positions"], []
    if len(rounds) > 1:
        with run.transaction():
            missing = _pictures(run, pool, np.array(positions[:files], dtype=np.int64))
            run.export()
    result = _result(run, loop, positions, len(rounds), again=True, stop=stop)
    return {**result, "notes": [*result["notes"], *missing]}


def _rounds(run: Run) -> list[dict[str, Any]]:
    if ROUNDS not in run:
        raise BadInput(
            f"{run.path} is no adaptive selection that can go on: start one with `neurotest select TARGET POOL --method adaptive "
            "--out RUN` on a pool without labels."
        )
    rounds = run[ROUNDS]
    if not (isinstance(rounds, list) and rounds and all(isinstance(r, dict) and {"positions", "said"} <= set(r) for r in rounds)):
        raise BadInput(f"{run.path}: its rounds cannot be read; the run is damaged.")
    return list(rounds)


def _loop(run: Run, rounds: list[dict[str, Any]]) -> tuple[Loop, Adaptive]:
    settings = dict(run[SETTINGS])
    seed = int(settings.pop("seed", 0))
    settings.pop("bounds", None)
    method = registry.find("selector", "adaptive").make(**settings)
    loop = Loop(_facts(run), ridge=method.ridge, seed=seed, audit=method.audit)
    labels = {row.position: UNCLEAR if row.label is None else row.label for row in run.labels()}
    evidence = {int(p): (float(s[0]), float(s[1])) for r in rounds for p, s in zip(r["positions"], r["said"], strict=True) if s}
    draws = [Draw(tuple(one["random"]), frozenset(one["labelled"])) for one in rounds if "random" in one]
    loop.restore(labels, evidence, draws)
    return loop, method


def _facts(run: Run) -> Facts:
    """The saved scan, read as data and nothing else."""
    file = run.file(FACTS)
    with file.open(LARGEST) as stream:
        arrays = read_npz(stream, str(file), largest=LARGEST, names=("features", "logits"))
    facts = Facts(arrays["features"], arrays["logits"])
    if not (facts.features.ndim == facts.logits.ndim == 2 and len(facts.features) == len(facts.logits) == len(run.inputs())):
        raise BadInput(f"{file} does not fit the inputs of the run: the run is damaged.")
    return facts


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


def _result(run: Run, loop: Loop, positions: list[int], number: int, *, again: bool, stop: float | None) -> dict[str, Any]:
    rest, size = loop.remaining(), max(1, len(positions))
    content = {row.position: row.content for row in run.inputs()}
    return {
        "method": "adaptive", "round": number, "again": again, "indices": positions, "contents": [content[p] for p in positions],
        "scores": [float(loop.chances[p]) for p in positions], "predicted": [int(loop.predictions[p]) for p in positions],
        "labels": len(loop.labels), "faults": faults_of(loop), "remaining": rest.value,
        "remaining_interval": [rest.low, rest.high],
        "remaining_by": f"{rest.random} random labels" if rest.random else "model",
        "expected_rate": loop.expected_rate(size), "trust": loop.belief.trust, "suspects": loop.suspects().tolist(),
        "stop": stop is not None and bool(loop.labels) and not positions, "notes": [summary(loop, size)], "run": str(run.path),
    }  # fmt: skip
