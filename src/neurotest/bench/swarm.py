"""Swarms: their time over that of the bare forward passes they make, and over one bare pass per position.

The goals: a sensitivity swarm costs at most 1.6 times its own passes, an excitability swarm at most 8 passes per position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from neurotest import registry
from neurotest.bench.fuzz import subject_of
from neurotest.generate.swarm import PRESETS, Ball, Problem, Settings, Swarm
from neurotest.target import Target

Pair = tuple[Callable[[], Any], Callable[[], Any]]
SUBJECTS = ("mnist-lenet5",)
FEW, GROUP = 10, 100  # seeds; so many fly together by default


def swarm_pairs(name: str) -> Iterator[tuple[str, Pair]]:
    """The papers' swarms (100 particles, 10 iterations) and ours; `passes`: those it makes, `positions`: one per position."""
    target, source = subject_of(name)
    u = target.prepare(source.read(torch.arange(GROUP).numpy()))
    with torch.inference_mode():
        y = target.logits(u).argmax(1)
    jobs: list[tuple[str, str, Settings, int]] = []
    for preset in ("sensitivity-paper", "excitability-paper"):
        said = dict(PRESETS[preset])
        jobs.append((preset, str(said.pop("fitness")), Settings(**{**said, "enough": None}), FEW))
    # `labels=None`: a seed that fails early would otherwise make the batches smaller on the way.
    for seeds, ours in ((FEW, Settings(labels=None)), (GROUP, Settings(labels=None, evaluations=100))):
        jobs += [(f"{name} of {seeds}", name, ours, seeds) for name in ("sensitivity", "excitability")]
    for label, fitness, settings, seeds in jobs:
        x, labels = u[:seeds], y[:seeds]
        forwards, positions, size = _fly(target, x, labels, fitness, settings)
        yield f"{label}/passes", (_job(target, x, labels, fitness, settings), _bare(target, x, forwards, size))
        yield f"{label}/positions", (_job(target, x, labels, fitness, settings), _bare(target, x, positions, size))


def _fly(target: Target, u: torch.Tensor, y: torch.Tensor, fitness: str, said: Settings) -> tuple[int, int, int]:
    """Forward passes, positions, and how many positions went through the network at once."""
    problem = Problem(target, u, y, Ball(said.norm, said.radius, True))
    measure = registry.build("fitness", fitness).begin(problem)
    before = measure.forwards
    swarm = Swarm(measure, said)
    swarm.run()
    per = 2 if measure.cost > 1 else 1  # passes of one position: the answer, and the one whose gradient is taken
    return measure.forwards, (measure.forwards - before) // per, min(said.batch, len(u) * said.particles)


def _job(target: Target, u: torch.Tensor, y: torch.Tensor, fitness: str, said: Settings) -> Callable[[], Any]:
    return lambda: _fly(target, u, y, fitness, said)


def _bare(target: Target, u: torch.Tensor, forwards: int, size: int) -> Callable[[], None]:
    x = u[torch.arange(size) % len(u)].clone()

    def job() -> None:
        with torch.inference_mode():
            for start in range(0, forwards, size):
                target.module(x[: min(size, forwards - start)])

    return job
