"""Selecting by one method or by several from one pass over the pool."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neurotest import registry, zoo
from neurotest.data.source import Source, check_shape, content_ids
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.runs.store import Run
from neurotest.scan import BATCH, Progress, aligned, fit, remarks
from neurotest.select.adaptive.rounds import keep_open
from neurotest.select.estimation import Estimate
from neurotest.select.exchange import given_labels
from neurotest.select.record import record
from neurotest.select.scorer import Pool, Scorer, Scores, score
from neurotest.select.selection import Quality, Selection
from neurotest.select.spread import spread as dispersed
from neurotest.stats.faults import budget as read_budget
from neurotest.target import Target
from neurotest.target.load import load

MANY = 10_000  # content ids held at once: those of a whole pool would outweigh everything else that is kept per input
NEAR_CHANCE = (
    "nss compares each candidate with a fresh mutation of itself, because the pool knows no originals; "
    "measured, that is near chance (see the docs page of nss): prefer deepgini, or give --originals."
)


def select(
    target: Target | str,
    pool: Source | str,
    method: str | Scorer = "deepgini",
    budget: str | float = "5%",
    **options: Any,
) -> Selection:
    """Order the pool by one method and pick the budget; see `compare` for the options."""
    (selection,) = compare(target, pool, [method], budget, **options).values()
    return selection


def compare(
    target: Target | str,
    pool: Source | str,
    methods: Sequence[str | Scorer],
    budget: str | float = "5%",
    *,
    train: Source | str | None = None,
    originals: Source | str | None = None,
    labels: Mapping[int | str, int | str] | str | Path | None = None,
    spread: bool = False,
    layers: str | None = None,
    neuron: str | None = None,
    seed: int = 0,
    limit: int | None = None,
    batch: int = BATCH,
    strict: bool = False,
    files: int | None = None,
    out: str | Path | bool | None = False,
    command: str = "select",
    progress: Progress | None = None,
) -> dict[str, Selection]:
    """Order the pool by several methods, from one pass over it.

    train: training data, for methods that compare with it; candidates that stand in it are pointed out. originals: what the
    candidates are variants of, one for one. labels: those given so far, by position or content, or a file of them. spread: pick a
    diverse batch from the top of the order. layers, neuron: override a method's own. out: a run is written there (None: a new one
    in ./neurotest-runs; False: none), with at most `files` picks as pictures (None: all of the first method's).
    """
    if not methods:
        raise BadInput("methods: none given, expected at least one (`neurotest list selector`).")
    target = load(target)
    scorers = {_name(m): _override(build(m), _name(m), layers, neuron) for m in methods}
    source = aligned(target, data(pool, shape=target.shape, strict=strict, limit=limit))
    source = _pair(source, originals, limit=limit)
    picked = read_budget(budget, len(source))
    classes = fit(target, source)
    notes: dict[str, tuple[str, ...]] = {}
    for name in scorers:
        scorers[name], settled = _settle(scorers[name], source)
        notes[name] = (*remarks(target, source), *settled)
    _check_labels(source, classes)
    trained = None if train is None else aligned(target, data(train, shape=target.shape))
    known = _in_training(source, trained, target)
    candidates = Pool(
        target, source, seed, train=trained, picked=picked, labels=given_labels(labels, source, target, classes), batch=batch
    )
    settings = {"budget": str(budget), "seed": seed, "batch": batch, "spread": spread}
    run = None if out is False else _begin(command, out, target, source, scorers, settings)
    try:
        result = score(candidates, scorers, batch=batch, progress=progress)
        place = None if run is None else run.path
        found = {
            name: _selection(candidates, name, scorer, result, spread=spread, notes=notes[name], known=known, run=place)
            for name, scorer in scorers.items()
        }
        if run is not None:
            record(run, target, source, found, files)
            keep_open(run, result.states)
            run.close()
        return found
    except BaseException:
        if run is not None:
            _abandon(run)
        raise


def build(method: str | Scorer) -> Any:
    """The selector, or estimator, that a text stands for."""
    if isinstance(method, str) and registry.parse(method)[0] in registry.entries("estimator"):
        return registry.build("estimator", method)
    return registry.build("selector", method)


def _selection(
    pool: Pool, name: str, scorer: Any, result: Scores, *, spread: bool, notes: tuple[str, ...], known: tuple[int, ...], run: Any
) -> Selection:
    scores, state, labels = result.by_method[name], result.states[name], pool.source.labels
    order = rank(scores, name)
    weights = getattr(state, "weights", None)
    near = None
    if spread and weights is None:
        order, near = dispersed(pool, order)
    quality = estimate = None
    if weights is not None:
        estimate = _estimate(pool, order, result.predictions, weights())
    elif labels is not None:
        quality = Quality.of(order, labels, result.predictions, pool.picked, pool.seed)
    return Selection(
        name, repr(scorer), order, scores, result.predictions, pool.picked, quality,
        (*notes, *result.notes(name)), known, run, estimate, near,
    )  # fmt: skip


def _estimate(pool: Pool, order: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> Estimate | None:
    """From the picks whose labels are known: the pool's own, or those given."""
    picks, labels = order[: pool.picked], pool.source.labels
    if labels is not None:
        return Estimate.of(labels[picks] == predictions[picks], weights, float((labels == predictions).mean()))
    if pool.labels is None or not (said := pool.labels[picks] >= 0).any():
        return None
    return Estimate.of((pool.labels[picks] == predictions[picks])[said], weights[said])


def _begin(command: str, out: Any, target: Target, source: Source, scorers: dict[str, Any], settings: dict[str, Any]) -> Run:
    """Make the run before the work, so that a place that cannot be written to is told at once."""
    config = {
        "target": target.spec,
        "fingerprint": target.fingerprint,
        "pool": source.spec,
        "methods": {name: repr(scorer) for name, scorer in scorers.items()},
        **settings,
    }
    return Run.create(None if out in (None, True) else Path(out), command, config)


def _abandon(run: Run) -> None:
    """A selection is whole or not there: take away a run that holds nothing yet."""
    started = bool(run.methods())
    run.close()
    if not started:
        shutil.rmtree(run.path, ignore_errors=True)


def rank(scores: np.ndarray, method: str = "the method") -> np.ndarray:
    """Positions, highest score first; ties keep the pool's order."""
    if np.isnan(scores).any():
        raise BadInput(
            f"{method} gives no score for {int(np.isnan(scores).sum())} inputs (NaN activations?): nothing can be ranked."
        )
    return np.argsort(-scores, kind="stable")


def _name(method: str | Scorer) -> str:
    return method if isinstance(method, str) else repr(method)


def _override(scorer: Any, name: str, layers: str | None, neuron: str | None) -> Any:
    """Put the command line's --layers and --neuron into a method that has layers."""
    said = {key: value for key, value in (("layer", layers), ("neuron", neuron)) if value is not None}
    if not said:
        return scorer
    if not hasattr(scorer, "layer"):
        raise BadInput(f"{name} looks at the outputs only: leave out --layers and --neuron.")
    if "layer" not in said and scorer.layer is None:
        raise BadInput(f"neuron={neuron!r}: {name}'s own layer is a vector; say which layer with --layers.")
    return dataclasses.replace(scorer, **said)


def _pair(source: Source, originals: Source | str | None, *, limit: int | None) -> Source:
    if originals is None:
        return source
    partner = data(originals, shape=source.shape, limit=limit)
    check_shape(partner, source.shape)
    return source.with_originals(partner)


def _settle(scorer: Any, source: Source) -> tuple[Any, tuple[str, ...]]:
    """Decide what a paired method compares with, and say so where it matters."""
    if getattr(scorer, "reference", None) is None:
        return scorer, ()
    if scorer.reference == "original" and source.originals is None:
        raise BadInput("reference='original' needs each candidate's original: give --originals DATA, or use reference=remutate.")
    if scorer.reference != "auto":
        return scorer, (NEAR_CHANCE,) if scorer.reference == "remutate" else ()
    if source.originals is not None:
        return dataclasses.replace(scorer, reference="original"), ()
    return dataclasses.replace(scorer, reference="remutate"), (NEAR_CHANCE,)


def _check_labels(source: Source, classes: int) -> None:
    if source.labels is not None and int(source.labels.max()) >= classes:
        raise BadInput(
            f"{source.what} has label {int(source.labels.max())}, but the target has {classes} classes: "
            f"labels are the numbers 0 to {classes - 1}, 0 for the first class."
        )


def _in_training(source: Source, train: Source | str | None, target: Target) -> tuple[int, ...]:
    """Positions of candidates that equal a training image byte for byte; for a zoo target the embedded training images."""
    ours = train is None and target.spec.startswith("zoo:")
    if ours:
        train = f"zoo:{zoo.find(target.spec[4:]).dataset}/train"
    if train is None:
        return ()
    try:
        seen = np.unique(data(train, shape=target.shape).ids())
    except BadInput:
        if ours:  # nobody asked for it, and embedded sets may be removed
            return ()
        raise
    parts = (np.arange(at, min(at + MANY, len(source))) for at in range(0, len(source), MANY))
    return tuple(int(i) for part in parts for i in part[np.isin(content_ids(source.read(part)), seen)])
