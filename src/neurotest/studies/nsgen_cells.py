"""The pieces of the study of NSGen: campaigns, similarity against faults, conductance, tau. Each gives plain data."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng, zoo
from neurotest.attribute.conductance import Conductance
from neurotest.coverage.context import Context
from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.generate.fuzz import Budget, Fuzzer, Mutant, Settings, build_guide, choose_seeds
from neurotest.mutate.rules import UNIFORMS, Rules95
from neurotest.mutate.space import from_unit, to_unit
from neurotest.mutate.validity import Validity
from neurotest.oracles import court
from neurotest.semantics.critical import path_layers
from neurotest.semantics.exemplars import globs
from neurotest.semantics.guidance import Guidance, Semantics
from neurotest.semantics.paths import Paths
from neurotest.semantics.threshold import tau
from neurotest.stats.comparison import ranks
from neurotest.studies.fuzzing import BATCH, PROTOCOLS, measures, picture, reached, within
from neurotest.target import Probe, Target, Want
from neurotest.target.load import load

Row = dict[str, Any]
LIMITS: dict[str, dict[str, int]] = {
    "quick": {"iterations": 50, "outputs": 50, "forwards": 5000},
    "full": {"iterations": 10_000, "outputs": 1000, "forwards": 700_000},
}
MOST = {"quick": {"forwards": 12_000, "seconds": 900.0}, "full": {"forwards": 20_000_000, "seconds": 6 * 3600.0}}
STARTS = {"quick": 200, "full": 500}
PER_CLASS = {"quick": 5, "full": 10}
GALLERY = 4
MAPPED = 40  # faults of a campaign that are put on the map
PAIRS = {"quick": (100, 6), "full": (500, 10)}  # images, mutants each
AGREEMENT = {"quick": 256, "full": 256}
STEPS = 64
GAP = 0.02
MODES: dict[str, Row] = {
    "no-label, lsa": {},
    "no-label, tokens": {"encoder": "tokens"},
    "no-label, desc-jaccard": {"distance": "desc-jaccard"},
    "no-label, jaccard (w/o NLDG)": {"distance": "jaccard"},
    "no-label, wordnet": {"encoder": "wordnet"},
    "no-label, minilm": {"encoder": "minilm"},
    "random-words, lsa": {"mode": "random-words"},
    "with-label, lsa": {"mode": "with-label"},
    "label-only": {"mode": "label-only"},
}


def subject_of(name: str) -> tuple[Target, Source, Source]:
    """A network, the odd test images, which nothing here was designed on, and the training images."""
    target, dataset = load(f"zoo:{name}"), zoo.find(name).dataset
    test = data(f"zoo:{dataset}/test")
    return target, test.take(np.arange(1, len(test), 2)), data(f"zoo:{dataset}/train")


def campaign(subject: str, seed: int, guide: str, scale: str) -> Row:
    """One campaign, read off at each protocol's limit."""
    target, test, train = subject_of(subject)
    chosen = np.sort(rng.stream("study.nsgen", seed).permutation(len(test))[: STARTS[scale]])
    judges, source, limits = court(target, "label"), test.take(chosen), LIMITS[scale]
    try:
        seeds = choose_seeds(target, source, judges)
        state = build_guide(guide).start(Context(target=target, train=train, seed=seed, cache=True), source)
    except BadInput as error:
        return {"absent": str(error)}
    settings = Settings(mutations=Rules95(bilateral=False), every_fault=False, seed=seed, batch=BATCH)
    found: Row = {}
    outputs: list[Mutant] = []
    began, spent, kept = time.monotonic(), 0.0, 0
    with Fuzzer(target, seeds, state, judges, settings, Budget(forwards=int(MOST[scale]["forwards"]))) as fuzzer:
        while fuzzer.spent() is None and len(found) < len(PROTOCOLS) and time.monotonic() - began < MOST[scale]["seconds"]:
            clock = time.process_time()
            for mutant in fuzzer.step():
                wanted = len(outputs) < GALLERY or (mutant.fault and kept < MAPPED)
                kept += mutant.fault and wanted
                outputs.append(mutant if wanted else dataclasses.replace(mutant, x=mutant.x[:0]))
            spent += time.process_time() - clock
            for name in PROTOCOLS:
                if name not in found and reached(name, fuzzer, outputs, limits[name]):
                    found[name] = measures(within(name, outputs, limits[name]), fuzzer, spent, True)
        for name in PROTOCOLS:
            found.setdefault(name, measures(outputs, fuzzer, spent, False))
    first = outputs[: limits["outputs"]]
    return {
        **found,
        "gallery": [picture(mutant) for mutant in outputs[:GALLERY]],
        "pairs": [[m.root, int(m.fault)] for m in first],
        "kinds": sorted({(m.expected, m.predicted) for m in first if m.fault}),
        "map": mapped(target, [m for m in first if m.fault and m.x.size]),
        "below": state.value() if guide.startswith("nsgen") else None,
    }


def mapped(target: Target, faults: list[Mutant]) -> list[Row]:
    """What the last hidden layer makes of faults."""
    if not faults:
        return []
    want = Want(layers="last_hidden", neuron="unit", inputs=True)
    with Probe(target, want) as probe:
        values = next(iter(probe(target.prepare(np.stack([m.x for m in faults])))[want].values())).flatten(1).numpy()
    return [
        {"true": m.expected, "predicted": m.predicted, "values": [round(float(v), 3) for v in row]}
        for m, row in zip(faults, values, strict=True)
    ]


def similarity(subject: str, scale: str) -> Row:
    """Section 7.4: is a mutant whose path differs more likely a fault? Paths are read once, and compared in every way."""
    target, test, train = subject_of(subject)
    images, each = PAIRS[scale]
    seeds = choose_seeds(target, test.take(np.arange(min(2 * images, len(test)))), court(target, "label"))
    x, roots, wrong = _mutants(target, seeds.x[:images], seeds.roots.labels[:images], each)
    found: Row = {}
    per_class = PER_CLASS[scale]
    for attributed in ("reference", "own"):
        base = Guidance(target=attributed, per_class=per_class, tau=1.0)
        ready = base.start(target, train)
        references = _references(ready, target, seeds.x[:images])
        paths = Paths.joined(
            [ready.reader.mutants(x[i : i + 256], references[roots[i : i + 256]]) for i in range(0, len(x), 256)]
        )
        for name, said in MODES.items():
            if attributed == "own" and name != "no-label, lsa":
                continue
            try:
                comparer = dataclasses.replace(base, **said).comparison().start(ready.layers, ready.bank, target.classes)
            except BadInput as error:
                found[name] = {"absent": str(error)}
                continue
            values = comparer.similarity(references[roots], paths)
            found[name if attributed == "reference" else f"{name}, target=own"] = against(values, wrong, roots)
    return {"mutants": len(x), "faults": int(wrong.sum()), "modes": found}


def _references(ready: Semantics, target: Target, images: NDArray[Any]) -> Paths:
    return Paths.joined([ready.reader.references(target.prepare(images[i : i + 64])) for i in range(0, len(images), 64)])


def _mutants(
    target: Target, images: NDArray[Any], labels: NDArray[np.int64], each: int
) -> tuple[torch.Tensor, NDArray[np.int64], NDArray[np.bool_]]:
    """So many valid mutants of every image: inputs, rows of their images, and which are faults."""
    space, validity = Rules95(bilateral=False), Validity()
    x = to_unit(target.prepare(np.ascontiguousarray(images)), target.bounds).repeat_interleave(4 * each, 0)
    draws = space.draw(rng.stream("study.nsgen.pairs", 0).random((len(x), UNIFORMS)))
    once = torch.from_numpy(space.once[draws.kind])
    with torch.inference_mode():
        made = space.apply(x, draws)
        valid = ((made != x).flatten(1).any(1) & (once | validity.check(made, x))).numpy()
        roots = np.repeat(np.arange(len(images)), 4 * each)
        place = np.array([np.cumsum(valid[i : i + 4 * each]) for i in range(0, len(valid), 4 * each)]).reshape(-1)
        rows = np.flatnonzero(valid & (place <= each))
        kept = from_unit(made[torch.from_numpy(rows)], target.bounds)
        predicted = torch.cat([target.logits(part).argmax(1) for part in kept.split(256)]).numpy()
    return kept, roots[rows], predicted != labels[roots[rows]]


def against(values: NDArray[np.float64], wrong: NDArray[np.bool_], roots: NDArray[np.int64], draws: int = 500) -> Row:
    """Point-biserial correlation and AUC of dissimilarity for faults, with an interval over images, and the lowest quarter."""
    from scipy.stats import pointbiserialr

    r, p = pointbiserialr(wrong, values) if wrong.any() and not wrong.all() and np.ptp(values) > 0 else (None, None)
    random = rng.stream("study.nsgen.auc", 0)
    groups = [np.flatnonzero(roots == root) for root in np.unique(roots)]
    drawn = []
    for _ in range(draws):
        rows = np.concatenate([groups[i] for i in random.integers(0, len(groups), len(groups))])
        if (area := auc(values[rows], wrong[rows])) is not None:
            drawn.append(area)
    try:
        low = values < tau(values[None]).value
    except BadInput:
        low = np.zeros(len(values), dtype=bool)
    return {
        "r": None if r is None else float(r), "p": None if p is None else float(p), "auc": auc(values, wrong),
        "auc low": float(np.quantile(drawn, 0.025)) if drawn else None,
        "auc high": float(np.quantile(drawn, 0.975)) if drawn else None,
        "base rate": float(wrong.mean()), "below": float(low.mean()),
        "rate below": float(wrong[low].mean()) if low.any() else None,
    }  # fmt: skip


def auc(values: NDArray[np.float64], wrong: NDArray[np.bool_]) -> float | None:
    """How likely a fault is less similar to its image than a mutant that is none; ties count half.

    >>> auc(np.array([0.1, 0.5, 0.5, 0.9]), np.array([True, True, False, False]))
    0.875
    """
    n, m = int(wrong.sum()), int((~wrong).sum())
    if not n or not m:
        return None
    placed = np.asarray(ranks(-values))
    return float((placed[wrong].sum() - n * (n + 1) / 2) / (n * m))


def thresholds(subject: str, scale: str) -> Row:
    """Table 9: tau from samples of growing size."""
    target, _, train = subject_of(subject)
    per_class = PER_CLASS[scale]
    base = Guidance(per_class=per_class)
    ready = base.start(target, train)
    assert ready.sample is not None
    classes = ready.sample.images // per_class
    found: Row = {}
    for mode in ("no-label", "with-label"):
        comparer = dataclasses.replace(base, mode=mode).comparison().start(ready.layers, ready.bank, target.classes)
        values = ready.sample.similarities(comparer)
        found[mode] = [{"per class": k, **tau(values[: k * classes]).to_dict()} for k in range(1, per_class + 1)]
    return found


def conductance(subject: str, scale: str) -> Row:
    """How often the first neuron of a layer is the same as with many steps, and under one grey level of noise."""
    target, test, train = subject_of(subject)
    n = min(AGREEMENT[scale], len(test))
    x = target.prepare(test.read(np.arange(n)))
    layers = path_layers(target)
    ours = Conductance(layers=globs(layers)).plan(target, data=train)
    many = Conductance(layers=globs(layers), steps=STEPS, grid="uniform").plan(target, data=train)
    with torch.inference_mode():
        classes = torch.cat([target.logits(part).argmax(1) for part in x.split(256)])
    few, fine = ours(x, classes), many(x, classes)
    noise = torch.from_numpy(rng.stream("study.nsgen.noise", 0).choice([-1.0, 1.0], size=tuple(x.shape)).astype(np.float32) / 255)
    shaken = ours((x + noise * (target.bounds[1] - target.bounds[0])).clamp(*target.bounds), classes)
    rows = []
    for layer in layers:
        best = fine.scores[layer.name].topk(2, dim=1).values
        clear = ((best[:, 0] - best[:, 1]) > GAP * best[:, 0].abs()).numpy()
        same = (few.scores[layer.name].argmax(1) == fine.scores[layer.name].argmax(1)).numpy()
        steady = (few.scores[layer.name].argmax(1) == shaken.scores[layer.name].argmax(1)).numpy()
        complete = few.completeness()[layer.name]
        rows.append({
            "layer": layer.name, "clear": int(clear.sum()), "same": float(same[clear].mean()) if clear.any() else None,
            "near ties": int((~clear).sum()), "same of near ties": float(same[~clear].mean()) if (~clear).any() else None,
            "same under noise": float(steady.mean()), "completeness": float(complete.nanmedian()),
        })  # fmt: skip
    return {"images": n, "steps": ours.settings.steps, "layers": rows}
