"""Attacks: the diversity regulariser over plain PGD, step for step, and the published second forward pass beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from neurotest import zoo
from neurotest.data.spec import data
from neurotest.generate.gradient.engine import Diversity, Engine
from neurotest.target import Probe, Target
from neurotest.target.load import load
from neurotest_lab.bench.ratio import Pair, passes

SUBJECTS = ("mnist-lenet5", "cifar10-resnet20")
IMAGES = {"mnist-lenet5": 100, "cifar10-resnet20": 50}
STEPS = {"mnist-lenet5": 10}  # others take fewer, they are slower; an attack takes 40
FEW = 6


def attack_pairs(name: str) -> Iterator[tuple[str, Pair]]:
    """PGD steps with the regulariser on the first, middle, last and all layers, over plain ones; and a step over a pass."""
    target = load(f"zoo:{name}")
    n = IMAGES.get(name, 100)
    source = data(f"zoo:{zoo.find(name).dataset}/test", limit=n)
    x = target.prepare(source.read(np.arange(len(source))))
    with torch.no_grad():
        y = target.logits(x).argmax(1)
    layers = [layer.name for layer in target.survey().find("pre_activation")]
    steps = STEPS.get(name, FEW)
    plain = _steps(target, None, x, y, steps)
    chosen = {"first": layers[0], "middle": layers[len(layers) // 2], "last": layers[-1], f"all {len(layers)}": "pre_activation"}
    for word, which in chosen.items():
        diverse = _steps(target, Diversity(layers=which), x, y, steps)
        yield f"diversity over plain PGD, {word} layer{'s' * (which == 'pre_activation')}", (diverse, plain)
    second = _two_passes(target, Diversity(layers=chosen["middle"]), x, y, steps)
    yield "diversity with a second forward pass, as published, middle layer", (second, plain)
    yield "a PGD step over a forward pass", (plain, passes(target, [x], times=steps))


def _steps(target: Target, diversity: Diversity | None, x: Tensor, y: Tensor, steps: int) -> Callable[[], None]:
    def job() -> None:
        u = x
        with Engine(target, diversity) as engine:
            for _ in range(steps):
                u = (u + 0.01 * engine.gradient(u, y).sign()).clamp(0, 1).detach()

    return job


def _two_passes(target: Target, diversity: Diversity, x: Tensor, y: Tensor, steps: int) -> Callable[[], None]:
    """The loss from one pass and the regulariser from another, as the study's code does it."""

    def job() -> None:
        u = x
        with Engine(target) as engine, Probe(target, diversity.want, grad=True) as probe:
            for _ in range(steps):
                free = u.detach().requires_grad_()
                away = diversity(probe(free)[diversity.want]).sum()
                (slope,) = torch.autograd.grad(away, free)
                u = (u + 0.01 * (engine.gradient(u, y) - slope).sign()).clamp(0, 1).detach()

    return job
