"""The pieces of the study of NSGen: campaigns, what they share, and conductance. Each gives plain data."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng, zoo
from neurotest.attribute.conductance import Conductance
from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.generate.fuzz import Budget, Fuzzer, Mutant, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.guides import Guide
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.fuzz.semantic import NSGen, NSGenState
from neurotest.measure.context import Context
from neurotest.mutate.rules import Rules95
from neurotest.oracles import build_oracles
from neurotest.semantics.critical import path_layers
from neurotest.semantics.exemplars import globs
from neurotest.semantics.guidance import Guidance, Semantics
from neurotest.semantics.threshold import Sample, tau
from neurotest.studies.fuzzing import BATCH, PROTOCOLS, measures, picture, reached, within
from neurotest.target import Layer, Probe, Target, Want
from neurotest.target.load import load

Row = dict[str, Any]
LIMITS: dict[str, dict[str, int]] = {
    "quick": {"iterations": 20, "outputs": 30, "forwards": 3000},
    "full": {"iterations": 10_000, "outputs": 1000, "forwards": 700_000},
}
# A protocol that is not reached after so many forward passes is read off where the campaign stands, and `reached` says so.
MOST = {"quick": 9000, "full": 20_000_000}
LESS = 2 / 3  # of them for guides that read no paths: what they have not output by then they do not output
STARTS = {"quick": 200, "full": 500}
PER_CLASS = {"quick": 3, "full": 10}
GALLERY = 4
MAPPED = 40  # faults of a campaign that are put on the map
AGREEMENT = {"quick": 64, "full": 256}
STEPS = 64
GAP = 0.02
EVERY = 1000  # layers: all that a path could pass


def subject_of(name: str) -> tuple[Target, Source, Source]:
    """A network, the odd test images, which nothing here was designed on, and the training images."""
    target, dataset = load(f"zoo:{name}"), zoo.find(name).dataset
    test = data(f"zoo:{dataset}/test")
    return target, test.take(np.arange(1, len(test), 2)), data(f"zoo:{dataset}/train")


@dataclass(frozen=True, eq=False)
class Shared:
    """What all variants of a subject need: words of every layer a path could pass, and the paths through them of training images
    under all rules. One backward pass reads all layers, so a variant with fewer of them is a part of this."""

    ready: Semantics
    sample: Sample

    def columns(self, layers: Sequence[Layer]) -> list[int]:
        names = [layer.name for layer in self.ready.layers]
        return [names.index(layer.name) for layer in layers]

    def similarities(self, guidance: Guidance) -> NDArray[np.float64]:
        """(images, rules) of the training sample, compared in some way."""
        target = self.ready.target
        layers = path_layers(target, guidance.depth)
        comparer = guidance.comparison().start(layers, self.ready.bank, target.classes)
        return self.sample.through(self.columns(layers)).similarities(comparer)


@functools.lru_cache(maxsize=2)
def shared(subject: str, per_class: int) -> Shared:
    target, _, train = subject_of(subject)
    named = globs(path_layers(target, EVERY))
    ready = Guidance(layers=named, distance="jaccard", per_class=per_class).start(target, train)
    assert ready.sample is not None
    return Shared(ready, ready.sample)


@functools.lru_cache(maxsize=64)
def with_tau(subject: str, guide: str) -> Guide:
    """A guide; NSGen's with the threshold that the shared paths give where they are its own, so that nobody reads them again."""
    made = build_guide(guide)
    if not isinstance(made, NSGen) or made.target != "reference" or made.critical not in ("conductance", "all"):
        return made
    known = shared(subject, made.per_class)
    value = tau(known.similarities(made), made.quantile, made.seed).value
    return dataclasses.replace(made, tau=value, describe=known.ready.bank)


def campaign(subject: str, seed: int, guide: str, scale: str, protocols: Sequence[str] = PROTOCOLS) -> Row:
    """One campaign, read off at each protocol's limit."""
    target, test, train = subject_of(subject)
    chosen = np.sort(rng.stream("study.nsgen", seed).permutation(len(test))[: STARTS[scale]])
    judges, source, limits = build_oracles(target, "label"), test.take(chosen), LIMITS[scale]
    try:
        seeds = choose_seeds(target, source, judges)
        state = with_tau(subject, guide).start(Context(target=target, train=train, seed=seed, cache=True), source)
    except BadInput as error:
        return {"absent": str(error)}
    settings = Settings(mutations=Rules95(bilateral=False), every_fault=False, seed=seed, batch=BATCH)
    found: Row = {}
    outputs: list[Mutant] = []
    spent, kept = 0.0, 0
    # The turns of table 3 are finished before others begin: some take all their tries, and would be waited for while many run.
    whole = Budget(forwards=int(MOST[scale] * (1 if isinstance(state, NSGenState) else LESS)))
    with Fuzzer(target, seeds, state, judges, settings, dataclasses.replace(whole, iterations=limits["iterations"])) as fuzzer:
        while fuzzer.spent() is None and len(found) < len(protocols):
            clock = time.process_time()
            for mutant in fuzzer.step():
                wanted = mutant.fault and kept < MAPPED
                kept += wanted
                outputs.append(mutant if wanted else dataclasses.replace(mutant, x=mutant.x[:0]))
            spent += time.process_time() - clock
            if reached("iterations", fuzzer, outputs, limits["iterations"]):
                fuzzer.budget = whole
            for name in protocols:
                if name not in found and reached(name, fuzzer, outputs, limits[name]):
                    found[name] = measures(within(name, outputs, limits[name]), fuzzer, spent, True)
        for name in protocols:
            found.setdefault(name, measures(outputs, fuzzer, spent, False))
    first = outputs[: limits["outputs"]]
    return {
        **found,
        "gallery": [shown(target, seeds, mutant) for mutant in first if mutant.fault and mutant.x.size][:GALLERY],
        "pairs": [[m.root, int(m.fault)] for m in first],
        "kinds": sorted({(m.expected, m.predicted) for m in first if m.fault}),
        "map": mapped(target, [m for m in first if m.fault and m.x.size]),
        "below": state.value() if guide.startswith("nsgen") else None,
    }


def shown(target: Target, seeds: Seeds, mutant: Mutant) -> Row:
    """A fault beside its seed, its classes by name."""
    names = dict(enumerate(target.classes or ()))
    seed = picture(dataclasses.replace(mutant, x=seeds.x[mutant.root]))["png"]
    said = {
        what: names.get(number, str(number)) for what, number in (("label", mutant.expected), ("predicted", mutant.predicted))
    }
    return {**picture(mutant), **said, "seed png": seed}


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
