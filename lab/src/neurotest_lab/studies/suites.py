"""Every way of making test inputs in the studies of swarms: the papers' swarms, ours, their three baselines, controls."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurotest import rng
from neurotest.campaign import fuzz
from neurotest.data.source import Source
from neurotest.generate.differential import diff
from neurotest.generate.swarm import Ball, Settings
from neurotest.target import Target
from neurotest_lab.studies.swarms import Subject, paper_search, search, slope

PAPERS = ("sensitivity-paper", "excitability-gradient")
BASELINES = ("deepxplore", "dlfuzz", "deephunter")  # not bound to a ball
GENERATORS = (*PAPERS, "swarm", *BASELINES, "random", "pgd")
ROUNDS = 20  # the papers' iterations

Counts = tuple[Tensor, int, int, int]  # last inputs, errors, categories, chances


@dataclass(frozen=True, eq=False)
class Suite:
    """The last test input of each seed, and counts over all; `chances`: how many there were.

    Where a method gave up on a seed, the seed itself stands in its place.
    """

    x: Tensor  # (n, *shape) in [0, 1]
    predicted: Tensor  # (n,)
    errors: int
    categories: int  # different (seed, wrong label) pairs
    chances: int
    seconds: float  # of the processor


@dataclass(frozen=True, kw_only=True)
class Ways:
    """How the methods of a study work on its inputs.

    purpose: of random draws. ball: of swarms and controls. evaluations: of our swarm, per particle of the papers'. deepxplore,
    dlfuzz: methods of `diff`. others: networks that DeepXplore compares with one. train: what DeepHunter learns ranges from.
    """

    purpose: str
    ball: Ball
    evaluations: int
    deepxplore: str
    dlfuzz: str
    others: Callable[[str], list[Target | str]]
    train: Callable[[str], Source | str]

    def generate(self, on: Subject, method: str, draw: int, particles: int, tries: int = 20) -> Suite:
        """A method with the papers' twenty iterations on every seed; DeepHunter gets so many forward passes for each of them."""
        began = time.process_time()
        if method in ("deepxplore", "dlfuzz"):
            counts = self._differential(on, method, draw)
        elif method == "deephunter":
            counts = self._deephunter(on, draw, tries)
        elif method in ("random", "pgd"):
            counts = self._steps(on, method, draw)
        else:
            counts = self._swarm(on, method, draw, particles)
        seconds = time.process_time() - began
        return Suite(counts[0], on.predicted(counts[0]), *counts[1:], seconds)

    def _swarm(self, on: Subject, method: str, draw: int, particles: int) -> Counts:
        ball: dict[str, Any] = {"norm": self.ball.norm, "radius": self.ball.radius, "seed": draw}
        if method == "swarm":  # the default, in the papers' ball, never content with one label
            trajectory = search(on, "excitability", Settings(labels=None, evaluations=self.evaluations * particles, **ball))
        else:
            trajectory = paper_search(on, method, iterations=ROUNDS, particles=particles, **ball)
        at = np.linspace(0, len(trajectory.history) - 1, ROUNDS).round().astype(int)
        errors = sum(trajectory.history[i].wrong for i in at)
        return trajectory.best, errors, len(trajectory.hits), ROUNDS * len(on.x)

    def _steps(self, on: Subject, method: str, draw: int) -> Counts:
        """Noise of equal norm, or PGD: as many positions per seed as the papers' iterations, in the ball."""
        errors, kinds = 0, set()
        u = self.ball.noise(on.x, rng.torch_stream(f"{self.purpose}.start", draw))
        single = (-1, *[1] * (on.x.ndim - 1))
        radius = self.ball.length(on.x).view(single)
        for step in range(ROUNDS):
            if method == "random":
                u = self.ball.noise(on.x, rng.torch_stream(f"{self.purpose}.noise", draw, step))
            else:
                way = slope(on, u)
                size = way.flatten(1).norm(dim=1).clamp_min(1e-12).view(single)
                u = dataclasses.replace(self.ball, levels=None).project(u + radius / 4 * way / size, on.x)
            predicted = on.predicted(self.ball.project(u, on.x))
            wrong = torch.nonzero(predicted != on.y)[:, 0].tolist()
            errors += len(wrong)
            kinds |= {(i, int(predicted[i])) for i in wrong}
        return self.ball.project(u, on.x), errors, len(kinds), ROUNDS * len(on.x)

    def _differential(self, on: Subject, method: str, draw: int) -> Counts:
        """DeepXplore stops at the first difference: one chance per seed; DLFuzz has as many as it makes outputs."""
        targets: list[Target | str] = [on.target]
        if method == "deepxplore":
            targets += self.others(on.name)
        result = diff(targets, on.source, self.deepxplore if method == "deepxplore" else self.dlfuzz, seed=draw, out=False)
        x = on.x.clone()
        last = {int(position): i for i, position in enumerate(result.positions)}
        x[list(last)] = on.levels.unit(torch.from_numpy(result.x[list(last.values())]))
        predicted = result.predictions[:, 0] if result.predictions.size else result.predicted
        wrong = result.fault & (predicted != result.expected)
        kinds = set(zip(result.positions[wrong].tolist(), predicted[wrong].tolist(), strict=True))
        return x, int(wrong.sum()), len(kinds), len(on.x) if method == "deepxplore" else len(result.fault)

    def _deephunter(self, on: Subject, draw: int, tries: int) -> Counts:
        kinds: set[tuple[int, int]] = set()
        x, outputs = on.x.clone(), ROUNDS * len(on.x)

        def watch(fuzzer: Any, mutants: list[Any], new: list[Any]) -> None:
            kinds.update((mutant.root, mutant.predicted) for mutant in mutants if mutant.fault)
            for mutant in mutants:
                x[int(fuzzer.seeds.positions[mutant.root])] = on.levels.unit(torch.from_numpy(np.asarray(mutant.x)))

        result = fuzz(
            on.target, on.source, "deephunter:snac", train=self.train(on.name.partition("+")[0]), seed=draw, out=False,
            watch=watch, outputs=outputs, forwards=tries * outputs, islands=1,
        )  # fmt: skip
        return x, result.faults, len(kinds), outputs
