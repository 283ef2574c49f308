"""Selecting by one method or by several from one pass over the pool."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from neurotest import notebook, registry
from neurotest.data.objects import AnyData
from neurotest.data.source import Source, check_shape
from neurotest.errors import BadInput
from neurotest.jobs.life import atomic_run, finish
from neurotest.jobs.opening import AnyTarget, known_training, open_counted, open_data, open_target, stored_spec
from neurotest.jobs.stored import target_config
from neurotest.measure.several import Several
from neurotest.public import public
from neurotest.scan import Progress, check_labels, read, remarks
from neurotest.select.exchange import labels_of
from neurotest.select.scorer import Pool, Scorer, Scores
from neurotest.select.scoring import score
from neurotest.select.selection import Comparison, Estimate, Quality, Selection, record
from neurotest.settings.select import Selecting
from neurotest.stats.faults import budget as read_budget
from neurotest.target import Target


@public(Selecting)
def select(
    target: AnyTarget,
    pool: AnyData,
    method: str | Scorer | None = None,
    budget: str | float = "5%",
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> Selection:
    """Order the pool by one method and pick the budget: the inputs to label first, because the network is probably wrong there.

    target: a Target, an nn.Module, or text such as `py:model.py:build`. pool: inputs as `neurotest.data` takes them (text,
    arrays, tensors, a Dataset). method: a name of `neurotest list selector`, with options (`nss:k=0.1`), or its object;
    `deepgini` by default, `disagreement` for a network that predicts a quantity.
    budget: `5%` or a number of inputs. The other options are those of `neurotest.select.compare`.
    """
    target = open_target(target)
    methods = [default_method(target) if method is None else method]
    (selection,) = compare(target, pool, methods, budget, progress=progress, **settings).values()
    return selection


@public(Selecting)
def compare(
    target: AnyTarget,
    pool: AnyData,
    methods: Sequence[str | Scorer],
    budget: str | float = "5%",
    *,
    out: str | Path | bool | None = False,
    command: str = "select",
    progress: Progress | None = None,
    **settings: Any,
) -> Comparison:
    """Order the pool by several methods, from one pass over it.

    train: training data, for methods that learn from it (that of a network of the zoo is known); candidates that stand in it are
    pointed out. originals: what the
    candidates are variants of, one for one. labels: those given so far, by position or content, or a file of them. spread: pick a
    diverse batch from the top of the order. layers, neuron: override a method's own. out: a run is written there (None: a new one
    in ./neurotest-runs; False: none), with at most `files` picks as pictures (None: all of the first method's). Of several
    methods one that does not fit is left out, with its reason in the result's `errors`.
    """
    if not methods:
        raise BadInput("missing", "methods", "methods: none given, expected at least one (`neurotest list selector`).")
    options = Selecting.of(settings)
    target, train, batch = open_target(target), options.train, options.batch
    scorers = {m if isinstance(m, str) else repr(m): build(m) for m in methods}
    source, classes = open_counted(target, pool, strict=options.strict, limit=options.limit)
    source = _pair(target, source, options.originals, limit=options.limit)
    picked = read_budget(budget, len(source))
    several = Several(scorers)
    scorers, notes = adapted(scorers, source, several, {"layer": options.layers, "neuron": options.neuron})
    check_labels(source, classes)
    trained = known_training(target) if train is None else open_data(target, train)
    duplicates = () if trained is None else tuple(source.contained(trained).tolist())
    numbers = labels_of(options.labels, source, target, classes)
    candidates = Pool(target, source, options.seed, train=trained, picked=picked, labels=numbers, batch=batch, progress=progress)
    general = remarks(target, source)
    config = {
        **target_config(target), "pool": stored_spec(source), "train": stored_spec(train if train is not None else trained),
        "methods": {name: repr(scorer) for name, scorer in scorers.items()}, "budget": str(budget),
        "seed": options.seed, "batch": batch, "spread": options.spread,
    }  # fmt: skip
    with atomic_run(command, out, config) as run:
        scores = score(candidates, scorers, batch=batch, several=several, progress=progress)
        place = None if run is None else run.path
        selections = Comparison(several.errors)
        for name, scorer in several.left(scorers).items():
            about: dict[str, Any] = {"notes": (*general, *notes[name]), "in_training": duplicates, "run": place}
            with several.attempt(name):
                selections[name] = _selection(candidates, name, scorer, scores, spread=options.spread, **about)
        if run is not None:
            summary = record(run, target, source, selections, options.files)
            for name, state in several.left(dict(scores.states)).items():
                if (keep := getattr(state, "keep", None)) is not None:
                    keep(run, name)
            finish(run, summary)
    return selections


def default_method(target: Target) -> str:
    """What selects unless somebody says otherwise."""
    return "deepgini" if target.bins is None else "disagreement"


def build(method: str | Scorer) -> Any:
    """The selector, or estimator, that a text stands for."""
    if isinstance(method, str) and registry.parse(method)[0] in registry.names("estimator"):
        return registry.build("estimator", method)
    return registry.build("selector", method)


def _selection(
    pool: Pool, name: str, scorer: Any, result: Scores, *, spread: bool, notes: tuple[str, ...], in_training: Any, run: Any
) -> Selection:
    scores, state, labels = result.by_method[name], result.states[name], pool.source.labels
    order = rank(scores, name)
    weights = getattr(state, "weights", None)
    near = None
    if spread and weights is None:
        from neurotest.select.spread import spread as dispersed

        order, near = dispersed(pool, order)
    quality = estimate = None
    if weights is not None:
        estimate = _estimate(pool, order, result.predictions, weights())
    elif labels is not None:
        quality = Quality.of(order, labels, result.predictions, pool.picked, pool.seed)
    return Selection(
        name, repr(scorer), order, scores, result.predictions, pool.picked, quality,
        (*notes, *result.notes(name)), in_training, run, estimate, near, result.details(name), pool.source.names,
        _pictures(pool, order, result.predictions),
    )  # fmt: skip


def _pictures(pool: Pool, order: np.ndarray, predictions: np.ndarray) -> tuple[notebook.Picture, ...]:
    """The first picks with what they are taken for and, where that is known, are."""
    picks, source = order[: min(pool.picked, notebook.PICTURES)], pool.source
    if len(source.shape) != 3 or source.shape[0] not in (1, 3):
        return ()
    names = pool.target.classes or source.classes
    pictures = []
    for place, x in zip(picks.tolist(), source.read(picks), strict=True):
        words = f"{place if source.names is None else source.names[place]}: {_class(predictions[place], names)}"
        if source.labels is not None and source.labels[place] != predictions[place]:
            words += f", is {_class(source.labels[place], names)}"
        if (pixels := notebook.small(x, pool.target.bounds)) is not None:
            pictures.append(([pixels], words))
    return tuple(pictures)


def _class(number: int, names: Sequence[str] | None) -> str:
    return names[number] if names is not None and number < len(names) else str(number)


def _estimate(pool: Pool, order: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> Estimate | None:
    """From the picks that have labels: the pool's own, or those of the user."""
    picks, labels = order[: pool.picked], pool.source.labels
    if labels is not None:
        return Estimate.of(labels[picks] == predictions[picks], weights, float((labels == predictions).mean()))
    if pool.labels is None or not (labelled := pool.labels[picks] >= 0).any():
        return None
    return Estimate.of((pool.labels[picks] == predictions[picks])[labelled], weights[labelled])


def rank(scores: np.ndarray, method: str = "the method") -> np.ndarray:
    """Positions, highest score first; ties keep the pool's order."""
    if np.isnan(scores).any():
        missing = int(np.isnan(scores).sum())
        raise BadInput(
            "not-finite", "scores", f"{method} gives no score for {missing} inputs (NaN activations?): nothing can be ranked."
        )
    return np.argsort(-scores, kind="stable")


def adapted(
    scorers: dict[str, Any], source: Source, several: Several, overrides: Mapping[str, str | None] = MappingProxyType({})
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """Each method with the user's layers, as it fits the pool, and sentences about that."""
    fitting: dict[str, Any] = {}
    notes: dict[str, tuple[str, ...]] = {}
    for name, scorer in scorers.items():
        with several.attempt(name):
            scorer = _override(scorer, name, {setting: value for setting, value in overrides.items() if value is not None})
            adapt = getattr(scorer, "for_pool", None)
            fitting[name], notes[name] = (scorer, ()) if adapt is None else adapt(source)
    return several.left(fitting), notes


def _override(scorer: Any, name: str, overrides: dict[str, str]) -> Any:
    """Put the command line's --layers and --neuron into a method that has layers."""
    if not overrides:
        return scorer
    if not hasattr(scorer, "layer"):
        raise BadInput("conflict", "layers", f"{name} looks at the outputs only: leave out --layers and --neuron.")
    if "layer" not in overrides and scorer.layer is None:
        raise BadInput(
            "conflict",
            "neuron",
            f"neuron={overrides['neuron']!r}: {name}'s own layer is a vector; say which layer with --layers.",
        )
    return dataclasses.replace(scorer, **overrides)


def _pair(target: Target, source: Source, originals: AnyData | None, *, limit: int | None) -> Source:
    if originals is None:
        return source
    partner = read(target, originals, limit=limit)
    check_shape(partner, source.shape)
    return source.with_originals(partner)
