"""NSGen: conductance over a bare forward pass of the same images, and a campaign over the bare passes of what it tested."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import numpy as np
from torch import Tensor

from neurotest import zoo
from neurotest.attribute.conductance import Conductance
from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.generate.fuzz import Budget, Fuzzer, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.semantic import NSGenState
from neurotest.measure.context import Context
from neurotest.mutate.rules import Rules95
from neurotest.oracles import build_oracles
from neurotest.semantics.critical import path_layers
from neurotest.semantics.exemplars import globs
from neurotest.target import Target
from neurotest.target.load import load
from neurotest_lab.bench.ratio import Pair, counted, passes

SUBJECTS = ("fashion-lenet5", "cifar10-resnet20")
IMAGES = {"fashion-lenet5": 256}
PEERS = 16  # images for captum, which takes one layer at a time; of fewer the bare pass is mostly overhead
STEPS = 50  # captum's default
GUIDE = "nsgen:tau=0.75"  # a threshold of its own would be taken from the training data first
OUTPUTS = {"fashion-lenet5": 200}


def nsgen_pairs(name: str) -> Iterator[tuple[str, Pair]]:
    """Ours over a bare pass; captum's over ours, where it is installed; a campaign over the passes of its mutants."""
    target, dataset = load(f"zoo:{name}"), zoo.find(name).dataset
    test, train = data(f"zoo:{dataset}/test[:400]"), data(f"zoo:{dataset}/train")
    x = target.prepare(test.read(np.arange(IMAGES.get(name, 32))))
    layers = path_layers(target)
    plan = Conductance(layers=globs(layers)).plan(target, data=train)
    classes = target.logits(x).argmax(1).detach()
    yield (
        f"conductance/{len(layers)} layers, {plan.settings.steps} steps",
        (lambda: plan(x, classes), passes(target, x.split(64))),
    )
    if importlib.util.find_spec("captum") is not None:
        few, labels = x[:PEERS], classes[:PEERS]
        names = [layer.name for layer in layers]
        theirs = f"captum/{len(layers)} layers, {STEPS} steps, over a bare pass"
        yield theirs, (lambda: _captum(target, few, labels, plan.empty, names), passes(target, few.split(64)))
    yield from _campaigns(name, target, test, train)


def _captum(target: Target, x: Tensor, classes: Tensor, empty: Tensor, layers: list[str]) -> None:
    from captum.attr import LayerConductance

    for name in layers:
        LayerConductance(target.module, target.module.get_submodule(name)).attribute(
            x, baselines=empty.expand_as(x).clone(), target=classes, n_steps=STEPS
        )


def _campaigns(name: str, target: Target, source: Source, train: Source) -> Iterator[tuple[str, Pair]]:
    judges = build_oracles(target, "label")
    seeds = choose_seeds(target, source, judges)
    started = build_guide(GUIDE).start(Context(target=target, train=train, cache=True), source)
    assert isinstance(started, NSGenState)
    settings = Settings(mutations=Rules95(bilateral=False), every_fault=False, batch=128)
    budget = Budget(outputs=OUTPUTS.get(name, 10))
    tested: list[int] = []

    def campaign() -> None:
        anew = NSGenState(started.ready)  # it remembers no seed's path
        with Fuzzer(target, seeds, anew, judges, settings, budget) as fuzzer:
            for _ in fuzzer.run():
                pass
            tested[:] = [fuzzer.tally.tested, fuzzer.tally.forwards]

    campaign()
    mutants, forwards = tested
    x = target.prepare(seeds.x[np.arange(64) % len(seeds)])
    yield f"campaign/{mutants} mutants", (campaign, counted(target, x, mutants))
    yield f"campaign/{forwards} passes it counts", (campaign, counted(target, x, forwards))
