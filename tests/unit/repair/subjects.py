"""A tiny network that tells bars on the left, in the middle and on the right apart, and what was found wrong with it."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from neurotest import Target
from neurotest.data import ArraySource
from neurotest.data.source import Source
from neurotest.repair.lessons import predictions
from neurotest.repair.material import Material
from neurotest.repair.operators import Operators
from neurotest.repair.plan import RepairPlan, make_plan
from neurotest.train import train
from neurotest.zoo.recipes import Recipe

SHAPE = (1, 9, 9)


def bars(n: int, seed: int) -> ArraySource:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, n)
    x = random.integers(0, 90, (n, *SHAPE)).astype(np.uint8)
    for i, label in enumerate(labels):
        x[i, :, :, 3 * label : 3 * label + 3] += 100
    return ArraySource(x, labels, classes=("left", "middle", "right"), spec=f"bars {seed}")


def network() -> nn.Module:
    torch.manual_seed(0)
    hidden = (nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3))
    return nn.Sequential(*hidden, nn.Flatten(), nn.Dropout(0.1), nn.Linear(36, 3))


def target() -> Target:
    module = train(network(), bars(90, 0), Recipe(epochs=3, batch=16, rate=0.01))
    return Target(module.eval(), shape=SHAPE, classes=("left", "middle", "right"))


def faults_of(network: Target, seeds: Source, seed: int = 0) -> Material:
    """Mutants of the seeds that the network gets wrong."""
    operators = Operators.of_shape(SHAPE)
    pools = [operators.pool(seeds, seed + k, network.bounds, "test") for k in range(3)]
    x = np.concatenate([pool.read(np.arange(len(pool))) for pool, _ in pools])
    y, kind = np.tile(np.asarray(seeds.labels), 3), np.concatenate([changes.kind for _, changes in pools])
    predicted = predictions(network, ArraySource(x))
    wrong = np.flatnonzero(predicted != y)
    names = [operators.names[kind[i]] for i in wrong]
    originals = seeds.take(np.tile(np.arange(len(seeds)), 3)[wrong])
    inputs = ArraySource(x[wrong], y[wrong], originals=ArraySource(originals.read(np.arange(len(wrong)))))
    families = tuple(zip(y[wrong].tolist(), predicted[wrong].tolist(), names, strict=True))
    chains = tuple(frozenset({name}) for name in names)
    return Material(inputs, predicted[wrong], originals.ids(), chains, families, "faults", "fuzz")


def plan(*, train: bool = True, unseen: float = 0.3) -> RepairPlan:
    network = target()
    faults = faults_of(network, bars(160, 1))
    return make_plan(network, 3, faults, bars(60, 2) if train else None, bars(60, 3), unseen=unseen, seed=0)
