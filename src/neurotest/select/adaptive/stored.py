"""What a run keeps of an adaptive selection: the scan, what was learned before the first label, and what was proposed."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from neurotest import registry
from neurotest.arrays import read_npz
from neurotest.errors import BadInput
from neurotest.runs.store import Run
from neurotest.select.adaptive.experts import EXPERTS, PriorLoop
from neurotest.select.adaptive.features import Facts
from neurotest.select.adaptive.learning import UNCLEAR, Loop
from neurotest.select.adaptive.prior import Prior
from neurotest.select.adaptive.remaining import Draw
from neurotest.select.adaptive.selector import Adaptive, AdaptiveState
from neurotest.select.exchange import FACTS, ROUNDS, Entry

SETTINGS, PRIOR, GIVEN = "adaptive settings", "adaptive prior", "adaptive given"  # entries of the run, beside ROUNDS
FACED = ("expected", "expected_faults")  # numbers of a round, where they are
LARGEST = 1 << 33


def keep(run: Run, name: str, state: AdaptiveState) -> None:
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
        run[ROUNDS] = [round_entry(name, picks, loop)]
        if prior is not None:
            run[PRIOR] = {f.name: getattr(prior, f.name) for f in dataclasses.fields(prior) if f.name != "head"}
        if loop.labels:  # those that came with --labels
            run[GIVEN] = [_batch(batch, loop) for batch in map(list, loop.batches) if batch != picks]
            run.add_labels(loop.labels, "--labels")


def _batch(positions: list[int], loop: Loop) -> Entry:
    """Inputs that were looked at together, and the log-odds of each expert before their labels."""
    return {"positions": positions, "said": [list(loop.evidence.get(p, ())) for p in positions]}


def round_entry(name: str, positions: list[int], loop: Loop) -> Entry:
    """What is kept of a proposal."""
    entry: Entry = {"ranking": name, **_batch(positions, loop)}
    entry["expected_faults"] = float(loop.chances[positions].sum())
    if loop.audit and loop.draws:
        last = loop.draws[-1]
        entry |= {"random": list(last.positions), "labelled": sorted(last.labelled), "expected": last.expected}
    return entry


def loop_of(run: Run, rounds: list[Entry]) -> tuple[Loop, Adaptive]:
    """The loop as it stands with the labels that count now, and the method's settings."""
    loop, method = new_loop(run)
    take_up(run, rounds, loop)
    return loop, method


def new_loop(run: Run) -> tuple[Loop, Adaptive]:
    """The loop before any label, and the method's settings."""
    settings = dict(run[SETTINGS])
    seed = int(settings.pop("seed", 0))
    settings.pop("bounds", None)
    settings.setdefault("prior", None)  # runs of the versions without one
    method = registry.find("selector", "adaptive").make(**settings)
    facts, head = facts_of(run)
    common: dict[str, Any] = {"ridge": method.ridge, "seed": seed, "audit": method.audit}
    return (Loop(facts, **common) if head is None else PriorLoop(facts, **common, prior=_prior(run, head))), method


def take_up(run: Run, rounds: list[Entry], loop: Loop) -> None:
    """Give the loop the proposals and the labels that count now."""
    labels = {row.position: UNCLEAR if row.label is None else row.label for row in run.labels()}
    given: list[Entry] = run[GIVEN] if GIVEN in run else []  # noqa: SIM401 - a run is no mapping
    batches = [*given, *rounds]
    experts = len(EXPERTS) if isinstance(loop, PriorLoop) else 2
    _check(run, batches, labels, len(loop.facts), loop.outputs.count, experts)
    evidence = {int(p): tuple(map(float, s)) for b in batches for p, s in zip(b["positions"], b["said"], strict=True) if s}
    draws = [Draw(tuple(r["random"]), frozenset(r["labelled"]), r.get("expected")) for r in rounds if "random" in r]
    loop.restore(labels, evidence, draws, [one["positions"] for one in batches])


def _usable(facts: Facts, head: np.ndarray | None) -> bool:
    """Whether the arrays hold numbers of the right kinds, all of them finite."""
    if facts.classes is not None and facts.embedding is not None:
        names = facts.classes
        if names.dtype.kind not in "iu" or facts.embedding.ndim != 2 or (facts.logits.shape[1] != names.shape[1] + 1):
            return False
        if names.size and not 0 <= int(names.min()) <= int(names.max()) < len(facts.embedding) - 1:
            return False
    numbers = (
        facts.features,
        facts.logits,
        *(() if facts.embedding is None else (facts.embedding,)),
        *(() if head is None else (head,)),
    )
    return facts.logits.shape[1] > 1 and all(a.dtype.kind == "f" and bool(np.isfinite(a).all()) for a in numbers)


def _check(run: Run, batches: list[Entry], labels: Mapping[int, int], inputs: int, classes: int, experts: int) -> None:
    """Refuse proposals and labels that no adaptive selection of these inputs holds."""
    fitting = all(UNCLEAR <= label < classes for label in labels.values())
    fitting = fitting and all(isinstance(b, dict) and {"positions", "said"} <= set(b) for b in batches)
    for batch in batches if fitting else ():
        fitting = fitting and all(_places(batch.get(name, []), inputs) for name in ("positions", "random", "labelled"))
        fitting = fitting and isinstance(batch["said"], list) and len(batch["said"]) == len(batch["positions"])
        fitting = fitting and all(_numbers(said) and len(said) in (0, experts) for said in batch["said"])
        fitting = fitting and _numbers([one for name in FACED if (one := batch.get(name)) is not None])
    if not fitting:
        raise BadInput("damaged", "rounds", f"{run.path}: its rounds or labels do not fit its inputs; the run is damaged.")


def _places(positions: Any, inputs: int) -> bool:
    """Whether these are positions in the pool, none of them twice."""
    if not isinstance(positions, list) or not all(type(p) is int and 0 <= p < inputs for p in positions):
        return False
    return len(set(positions)) == len(positions)


def _numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) in (int, float) and math.isfinite(v) and abs(v) < 1e6 for v in values)


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
        raise BadInput(
            "damaged", "prior", f"{run.path}: what was learned before the first label cannot be read; the run is damaged."
        ) from None


def facts_of(run: Run) -> tuple[Facts, np.ndarray | None]:
    """The saved scan and the prior's head, if there is one, read as data and nothing else."""
    file = run.file(FACTS)
    with file.open(LARGEST) as stream:
        arrays = read_npz(stream, str(file), largest=LARGEST)
    head = arrays.pop("head", None)
    try:
        facts = Facts(**arrays)
    except TypeError:
        raise BadInput("damaged", "scan", f"{file} does not hold a scan: the run is damaged.") from None
    rows = [facts.features, facts.logits, *([] if facts.classes is None else [facts.classes])]
    fitting = all(a.ndim == 2 and len(a) == len(run.inputs()) for a in rows)
    fitting = fitting and (facts.classes is None) == (facts.embedding is None) and _usable(facts, head)
    if not fitting or (head is not None and head.shape != (facts.features.shape[1] + 1, facts.outputs.rank)):
        raise BadInput("damaged", "scan", f"{file} does not fit the inputs of the run: the run is damaged.")
    return facts, head
