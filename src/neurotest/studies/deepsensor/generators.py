"""Every way of making test inputs in the DeepSensor study: both papers' swarms, ours, their three baselines, controls."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurotest import rng, zoo
from neurotest.campaign import fuzz
from neurotest.errors import BadInput
from neurotest.generate.differential import diff
from neurotest.generate.swarm import Ball, Settings
from neurotest.levels import EIGHT
from neurotest.studies import material
from neurotest.studies.deepsensor.subjects import Subject, paper_search, search, slope
from neurotest.studies.frame import Row
from neurotest.target import Target

PAPERS = ("sensitivity-paper", "excitability-gradient")
BASELINES = ("deepxplore", "dlfuzz", "deephunter")  # not bound to a ball
GENERATORS = (*PAPERS, "swarm", *BASELINES, "random", "pgd")
ROUNDS = 20  # the papers' iterations
CLOSE = Ball("l2", 1.0, EIGHT)  # of the papers' coverage experiment, the only ball they state
BORROWED = "cifar10-resnet56"
# As the papers say: by blackout; and always away from the network under test, because only its errors are counted here.
XPLORE = "deepxplore:preset=mnist-paper,push=0,constraint=blackout"
DLFUZZ = f"dlfuzz:steps={ROUNDS}"  # ten neurons and four other classes, as in the papers, are its defaults


@dataclass(frozen=True, eq=False)
class Suite:
    """What a method made: the last test input of each seed, and counts over all of them; `chances`: how many there were.

    Where a method gave up on a seed, the seed itself stands in its place.
    """

    x: Tensor  # (n, *shape) in [0, 1]
    predicted: Tensor  # (n,)
    errors: int
    categories: int  # different (seed, wrong label) pairs
    chances: int
    seconds: float  # of the processor


def generate(on: Subject, method: str, draw: int, particles: int, tries: int = 20) -> Suite:
    """A method with the papers' twenty iterations on every seed; DeepHunter gets so many forward passes for each of them."""
    began = time.process_time()
    if method in ("deepxplore", "dlfuzz"):
        x, errors, categories, chances = _differential(on, method, draw)
    elif method == "deephunter":
        x, errors, categories, chances = _deephunter(on, draw, tries)
    elif method in ("random", "pgd"):
        x, errors, categories, chances = _steps(on, method, draw)
    else:
        x, errors, categories, chances = _swarm(on, method, draw, particles)
    seconds = time.process_time() - began
    with torch.inference_mode():
        predicted = on.target.logits(x).argmax(1)
    return Suite(x, predicted, errors, categories, chances, seconds)


Made = tuple[Tensor, int, int, int]  # last inputs, errors, categories, chances


def _swarm(on: Subject, method: str, draw: int, particles: int) -> Made:
    if method == "swarm":  # the default, in the papers' ball, never content with one label
        settings = Settings(norm="l2", radius=1.0, labels=None, evaluations=10 * particles, seed=draw)
        trajectory = search(on, "excitability", settings)
    else:
        trajectory = paper_search(on, method, iterations=ROUNDS, particles=particles, seed=draw)
    at = np.linspace(0, len(trajectory.history) - 1, ROUNDS).round().astype(int)
    errors = sum(trajectory.history[i].wrong for i in at)
    return trajectory.best, errors, len(trajectory.hits), ROUNDS * len(on.x)


def _steps(on: Subject, method: str, draw: int) -> Made:
    """Noise, or PGD: as many positions per seed as the papers' iterations, in their ball."""
    errors, kinds = 0, set()
    u = CLOSE.noise(on.x, rng.torch_stream("study.deepsensor.start", draw))
    for step in range(ROUNDS):
        if method == "random":
            u = CLOSE.noise(on.x, rng.torch_stream("study.deepsensor.noise", draw, step))
        else:
            way = slope(on, u)
            size = way.flatten(1).norm(dim=1).clamp_min(1e-12).view(-1, 1, 1, 1)
            u = Ball("l2", 1.0, None).project(u + 0.25 * way / size, on.x)
        with torch.inference_mode():
            predicted = on.target.logits(CLOSE.project(u, on.x)).argmax(1)
        wrong = torch.nonzero(predicted != on.y)[:, 0].tolist()
        errors += len(wrong)
        kinds |= {(i, int(predicted[i])) for i in wrong}
    return CLOSE.project(u, on.x), errors, len(kinds), ROUNDS * len(on.x)


def others(name: str) -> list[Target | str]:
    """Sound networks for the same data, for DeepXplore to compare with: two LeNets, or what there is for CIFAR-10."""
    base, _, fault = name.partition("+")
    subject = zoo.find(base)
    second: list[Target | str] = []
    if "lenet" in base:
        family = [s.name for s in zoo.catalogue() if s.family == subject.family and s.embedded and "lenet" in s.name]
        second += [f"zoo:{one}" for one in family if one != base][:2]
    elif fault:
        second.append(f"zoo:{base}")
    elif subject.family == "cifar10" and material.available(BORROWED):
        second.append(material.network(BORROWED))
    return second


def _differential(on: Subject, method: str, draw: int) -> Made:
    """DeepXplore stops at the first difference: one chance per seed; DLFuzz has as many as it makes outputs."""
    targets: list[Target | str] = [on.target]
    if method == "deepxplore":
        targets += others(on.name)
        if len(targets) == 1:
            raise BadInput("DeepXplore compares networks, and there is no second one for this data set whose weights are here.")
    result = diff(targets, on.source, XPLORE if method == "deepxplore" else DLFUZZ, seed=draw, out=False)
    x = on.x.clone()
    last = {int(position): i for i, position in enumerate(result.positions)}
    x[list(last)] = torch.from_numpy(result.x[list(last.values())]).float().div(255)
    predicted = result.predictions[:, 0] if result.predictions.size else result.predicted
    wrong = result.fault & (predicted != result.expected)
    kinds = set(zip(result.positions[wrong].tolist(), predicted[wrong].tolist(), strict=True))
    chances = len(on.x) if method == "deepxplore" else len(result.fault)
    return x, int(wrong.sum()), len(kinds), chances


def _deephunter(on: Subject, draw: int, tries: int) -> Made:
    kinds: set[tuple[int, int]] = set()
    x = on.x.clone()

    def watch(fuzzer: Any, outputs: list[Any], new: list[Any]) -> None:
        kinds.update((m.root, m.predicted) for m in outputs if m.fault)
        for mutant in outputs:
            x[int(fuzzer.seeds.positions[mutant.root])] = torch.from_numpy(np.asarray(mutant.x)).float().div(255)

    train = f"zoo:{zoo.find(on.name.partition('+')[0]).dataset}/train[:1000]"
    budget: Row = {"islands": 1, "outputs": ROUNDS * len(on.x), "forwards": tries * ROUNDS * len(on.x)}
    result = fuzz(on.target, on.source, "deephunter:snac", train=train, seed=draw, out=False, watch=watch, **budget)
    return x, result.faults, len(kinds), ROUNDS * len(on.x)
