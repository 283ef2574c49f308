"""The pieces of the study of NSGen: campaigns, what they share, and conductance. Each gives plain data."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.attribute.conductance import Conductance
from neurotest.data.source import Source
from neurotest.generate.fuzz import Budget, Mutant, build_guide
from neurotest.generate.fuzz.guides import Guide
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.fuzz.semantic import NSGen, PathState
from neurotest.generate.fuzz.soft import Path
from neurotest.measure.context import Context
from neurotest.semantics.critical import path_layers
from neurotest.semantics.exemplars import globs
from neurotest.semantics.guidance import Guidance, Semantics
from neurotest.semantics.threshold import PathSample, tau
from neurotest.target import Layer, Probe, Target, Want
from neurotest.target.load import load
from neurotest_lab.studies.frame import Row, odd, split_of
from neurotest_lab.studies.fuzzing.cells import PROTOCOLS, Stepped, drawn, fuzzer_of, picture

LIMITS: dict[str, dict[str, int]] = {
    "quick": {"iterations": 20, "outputs": 30, "forwards": 3000},
    "full": {"iterations": 10_000, "outputs": 1000, "forwards": 700_000},
}
# A protocol that is not reached after so many forward passes has the numbers of the end, and `reached` says so.
MOST = {"quick": 9000, "full": 20_000_000}
LESS = 2 / 3  # of them for guides that read no paths: where the outputs have ended by then, there are no more
STARTS = {"quick": 200, "full": 500}
PER_CLASS = {"quick": 3, "full": 10}
GALLERY = 4
MAPPED = 40  # faults of a campaign that are on the map
AGREEMENT = {"quick": 64, "full": 256}
STEPS = 64
GAP = 0.02
EVERY = 1000  # layers: all that a path could pass


def subject_of(name: str) -> tuple[Target, Source, Source]:
    """A network, the odd test images, which nothing here was designed on, and the training images."""
    return load(f"zoo:{name}"), odd(split_of(name, "test")), split_of(name, "train")


@dataclass(frozen=True, eq=False)
class Shared:
    """What all variants of a subject need: words of every layer a path could pass, and the paths through them of training images
    under all rules. One backward pass reads all layers, so a variant with fewer of them is a part of this."""

    ready: Semantics
    sample: PathSample

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
def with_tau(subject: str, text: str) -> Guide:
    """A guide; NSGen's with the threshold that the shared paths give where they are its own, so that nobody reads them again."""
    guide = build_guide(text)
    if not isinstance(guide, NSGen) or guide.target != "reference" or guide.critical not in ("conductance", "all"):
        return guide
    paths = shared(subject, guide.per_class)
    value = tau(paths.similarities(guide), guide.quantile, guide.seed).value
    return dataclasses.replace(guide, tau=value, describe=paths.ready.bank)


def campaign(subject: str, seed: int, guide: str, scale: str, protocols: Sequence[str] = PROTOCOLS) -> Row:
    """One campaign with its numbers at each protocol's limit."""
    target, test, train = subject_of(subject)
    source, limits = drawn("study.nsgen", seed, test, STARTS[scale]), LIMITS[scale]
    method = with_tau(subject, guide)
    context = Context(target=target, train=train, seed=seed, cache=True)
    # The turns of table 3 are finished before others begin: some take all their tries, and would be waited for while many run.
    whole = Budget(forwards=int(MOST[scale] * (1 if isinstance(method, NSGen | Path) else LESS)))
    kept = 0

    def keep(mutant: Mutant) -> bool:
        nonlocal kept
        wanted = mutant.fault and kept < MAPPED
        kept += wanted
        return wanted

    with fuzzer_of(context, source, method, dataclasses.replace(whole, iterations=limits["iterations"])) as fuzzer:
        stepped = Stepped(fuzzer, limits, keep, protocols)

        def widen() -> None:
            if stepped.reached("iterations"):
                fuzzer.budget = whole

        rows = stepped.run(widen)
    first = stepped.outputs[: limits["outputs"]]
    faults = [mutant for mutant in first if mutant.fault]
    shown = [mutant for mutant in faults if mutant.x.size]
    return {
        **rows,
        "gallery": [beside_seed(target, fuzzer.seeds, mutant) for mutant in shown[:GALLERY]],
        "pairs": [[m.root, int(m.fault)] for m in first],
        "kinds": sorted({(m.expected, m.predicted) for m in faults}),
        "map": mapped(target, shown),
        "below": fuzzer.guide.value() if isinstance(fuzzer.guide, PathState) else None,
    }


def beside_seed(target: Target, seeds: Seeds, mutant: Mutant) -> Row:
    """A fault and its seed, its classes by name."""
    names = dict(enumerate(target.classes or ()))
    label, predicted = (names.get(number, str(number)) for number in (mutant.expected, mutant.predicted))
    seed = picture(dataclasses.replace(mutant, x=seeds.x[mutant.root]))["png"]
    return {**picture(mutant), "label": label, "predicted": predicted, "seed png": seed}


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
    noise = torch.from_numpy(rng.stream("study.nsgen.noise", 0).choice([-1.0, 1.0], size=tuple(x.shape)).astype(np.float32) / 255)
    few, fine = ours(x, classes), many(x, classes)
    noisy = ours((x + noise * (target.bounds[1] - target.bounds[0])).clamp(*target.bounds), classes)
    rows = []
    for layer in layers:
        best = fine.scores[layer.name].topk(2, dim=1).values
        clear = ((best[:, 0] - best[:, 1]) > GAP * best[:, 0].abs()).numpy()
        first, exact, shaken = (one.scores[layer.name].argmax(1) for one in (few, fine, noisy))
        same, steady = (first == exact).numpy(), (first == shaken).numpy()
        rows.append({
            "layer": layer.name, "clear": int(clear.sum()), "same": float(same[clear].mean()) if clear.any() else None,
            "near ties": int((~clear).sum()), "same of near ties": float(same[~clear].mean()) if (~clear).any() else None,
            "same under noise": float(steady.mean()), "completeness": float(few.completeness()[layer.name].nanmedian()),
        })  # fmt: skip
    return {"images": n, "steps": ours.settings.steps, "layers": rows}
