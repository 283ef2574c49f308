"""Adaptive selection over days: a run holds what the scan gave, the proposals and the labels; nothing is scanned twice."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neurotest import registry
from neurotest.arrays import read_npz
from neurotest.data.objects import AnyData
from neurotest.data.source import content_ids
from neurotest.errors import BadInput
from neurotest.jobs.stored import stored_data
from neurotest.runs.folder import own
from neurotest.runs.store import Run
from neurotest.select.adaptive.experts import PriorLoop
from neurotest.select.adaptive.features import Facts
from neurotest.select.adaptive.learning import UNCLEAR, Loop
from neurotest.select.adaptive.prior import Prior
from neurotest.select.adaptive.remaining import Draw
from neurotest.select.adaptive.selector import Adaptive, AdaptiveState, faults_of, summary
from neurotest.select.exchange import classes_of, numbered, read_labels

Entry = dict[str, Any]  # as JSON holds it
FACTS = "adaptive.npz"
own(r"adaptive\.npz")
ROUNDS, SETTINGS, PRIOR = "adaptive rounds", "adaptive settings", "adaptive prior"  # entries of the run
LARGEST = 1 << 33


def keep_open(run: Run, states: Mapping[str, Any]) -> None:
    """After a selection from an unlabelled pool: let its adaptive methods go on when labels come."""
    for name, state in states.items():
        if isinstance(state, AdaptiveState) and state.pool.source.labels is None and ROUNDS not in run:
            _keep(run, name, state)


def _keep(run: Run, name: str, state: AdaptiveState) -> None:
    """What the next round needs: the facts as a file first, then the entries."""
    facts, loop = state.loop.facts, state.loop
    prior = loop.prior if isinstance(loop, PriorLoop) else None
    content = io.BytesIO()
    arrays = facts.arrays() | ({} if prior is None else {"head": prior.head.numpy()})
    np.savez(content, allow_pickle=False, **arrays)
    run.file(FACTS).write(content.getvalue())
    picks = [row.position for row in run.ranking(name) if row.picked]
    with run.transaction(durable=True):
        run[SETTINGS] = {**dataclasses.asdict(state.method), "seed": state.pool.seed, "bounds": list(state.pool.target.bounds)}
        run[ROUNDS] = [_round(name, picks, loop)]
        if prior is not None:
            run[PRIOR] = {f.name: getattr(prior, f.name) for f in dataclasses.fields(prior) if f.name != "head"}


def _round(name: str, positions: list[int], loop: Loop) -> Entry:
    entry: Entry = {"ranking": name, "positions": positions, "said": [list(loop.evidence.get(p, ())) for p in positions]}
    entry["expected_faults"] = float(loop.chances[positions].sum())
    if loop.audit and loop.draws:
        last = loop.draws[-1]
        entry |= {"random": list(last.positions), "labelled": sorted(last.labelled), "expected": last.expected}
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
        classes = _facts(run)[0].outputs.count
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
            return _result(run, loop, [], rounds, again=False, stop=method.stop)
        batch = loop.propose(size)
        name = f"{rounds[0]['ranking']} round {len(rounds) + 1}"
        rounds = [*rounds, _round(name, batch.tolist(), loop)]
        with run.transaction(durable=True):  # files, then the rows: whoever dies between has proposed nothing
            missing = _pictures(run, pool, batch if files is None else batch[:files])
            run.add_ranking(name, batch, loop.chances[batch], len(batch))
            run[ROUNDS] = rounds
            run.export()
        result = _result(run, loop, batch.tolist(), rounds, again=False, stop=method.stop)
        return {**result, "notes": [*result["notes"], *missing]}


def _proposed_before(run: Run, loop: Loop, rounds: list[Entry], pool: Any, files: int | None, stop: float | None) -> Entry:
    """The last proposal again; pictures that a later round still lacks are made up for."""
    positions, missing = rounds[-1]["positions"], []
    if len(rounds) > 1:
        with run.transaction():
            missing = _pictures(run, pool, np.array(positions[:files], dtype=np.int64))
            run.export()
    result = _result(run, loop, positions, rounds, again=True, stop=stop)
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
    settings.setdefault("prior", None)  # runs of the versions without one
    method = registry.find("selector", "adaptive").make(**settings)
    facts, head = _facts(run)
    common: dict[str, Any] = {"ridge": method.ridge, "seed": seed, "audit": method.audit}
    loop = Loop(facts, **common) if head is None else PriorLoop(facts, **common, prior=_prior(run, head))
    labels = {row.position: UNCLEAR if row.label is None else row.label for row in run.labels()}
    evidence = {int(p): tuple(map(float, s)) for r in rounds for p, s in zip(r["positions"], r["said"], strict=True) if s}
    draws = [Draw(tuple(r["random"]), frozenset(r["labelled"]), r.get("expected")) for r in rounds if "random" in r]
    loop.restore(labels, evidence, draws, [one["positions"] for one in rounds])
    return loop, method


def _prior(run: Run, head: np.ndarray) -> Prior:
    """What was learned before the first label."""
    try:
        entry = dict(run[PRIOR])
        constant, plain, slope = map(float, entry["stack"])
        shares = {str(name): float(share) for name, share in entry["shares"].items()}
        return Prior(
            torch.from_numpy(head).double(), (constant, plain, slope), shares, float(entry["promise"]), bool(entry["guarded"]),
            bool(entry["trained"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadInput(f"{run.path}: what was learned before the first label cannot be read; the run is damaged.") from None


def _facts(run: Run) -> tuple[Facts, np.ndarray | None]:
    """The saved scan and the prior's head, if there is one, read as data and nothing else."""
    file = run.file(FACTS)
    with file.open(LARGEST) as stream:
        arrays = read_npz(stream, str(file), largest=LARGEST)
    head = arrays.pop("head", None)
    try:
        facts = Facts(**arrays)
    except TypeError:
        raise BadInput(f"{file} does not hold a scan: the run is damaged.") from None
    rows = [facts.features, facts.logits, *([] if facts.classes is None else [facts.classes])]
    fitting = all(a.ndim == 2 and len(a) == len(run.inputs()) for a in rows)
    fitting = fitting and (facts.classes is None) == (facts.embedding is None)
    if not fitting or (head is not None and head.shape != (facts.features.shape[1] + 1, facts.outputs.rank)):
        raise BadInput(f"{file} does not fit the inputs of the run: the run is damaged.")
    return facts, head


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
    for one in reversed(rounds):
        judged = [p for p in one["positions"] if loop.labels.get(p, UNCLEAR) != UNCLEAR]
        if judged:
            faults = sum(loop.labels[p] != int(loop.predictions[p]) for p in judged)
            expected = one.get("expected_faults")  # runs of older versions did not write it down
            share = len(judged) / len(one["positions"])
            return {"labels": len(judged), "faults": faults, "expected": None if expected is None else expected * share}
    return None


def _result(
    run: Run, loop: Loop, positions: list[int], rounds: list[Entry], *, again: bool, stop: float | None
) -> dict[str, Any]:
    rest, size = loop.remaining(), max(1, len(positions))
    content = {row.position: row.content for row in run.inputs()}
    return {
        "method": "adaptive", "round": len(rounds), "again": again, "indices": positions,
        "contents": [content[p] for p in positions],
        "scores": [float(loop.chances[p]) for p in positions], "predicted": [int(loop.predictions[p]) for p in positions],
        "labels": len(loop.labels), "faults": faults_of(loop), "remaining": rest.value,
        "remaining_interval": [rest.low, rest.high],
        "remaining_by": f"{rest.random} random labels" if rest.random else "model",
        "last_round": _last_round(loop, rounds), "compared": loop.compared()._asdict(),
        "expected_rate": loop.expected_rate(size), "trust": loop.belief.trust,
        "suspects": loop.suspects().tolist(),
        "stop": stop is not None and bool(loop.labels) and not positions, "notes": [summary(loop, size)], "run": str(run.path),
    }  # fmt: skip
