"""Swarms: their time over that of the bare forward passes they make, and over one bare pass per position.

The goals: a sensitivity swarm costs at most 1.6 times its own passes, an excitability swarm at most 8 passes per position.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch

from neurotest import registry
from neurotest.generate.swarm import PRESETS, Ball, Problem, Settings, Swarm
from neurotest.levels import EIGHT
from neurotest.target import Target
from neurotest_lab.bench.ratio import Pair, counted, subject_of

SUBJECTS = ("mnist-lenet5",)
FEW, GROUP = 10, 100  # seeds; so many searches run together by default


def swarm_pairs(name: str) -> Iterator[tuple[str, Pair]]:
    """The papers' swarms (100 particles, 10 iterations) and ours; `passes`: those it makes, `positions`: one per position."""
    target, source = subject_of(name, GROUP)
    u = target.prepare(source.read(torch.arange(GROUP).numpy()))
    with torch.inference_mode():
        y = target.logits(u).argmax(1)
    jobs: list[tuple[str, str, Settings, int]] = []
    for preset in ("sensitivity-paper", "excitability-gradient"):
        options = dict(PRESETS[preset])
        jobs.append((preset, str(options.pop("fitness")), Settings(**{**options, "enough": None}), FEW))
    # `labels=None`: a seed that fails early would otherwise make the batches smaller on the way.
    for seeds, ours in ((FEW, Settings(labels=None)), (GROUP, Settings(labels=None, evaluations=100))):
        jobs += [(f"{name} of {seeds}", name, ours, seeds) for name in ("sensitivity", "excitability")]
    for label, fitness, settings, seeds in jobs:
        job = functools.partial(_search, target, u[:seeds], y[:seeds], fitness, settings)
        forwards, positions, size = job()
        together = u[torch.arange(size) % seeds].clone()
        yield f"{label}/passes", (job, counted(target, together, forwards))
        yield f"{label}/positions", (job, counted(target, together, positions))


def _search(target: Target, u: torch.Tensor, y: torch.Tensor, fitness: str, settings: Settings) -> tuple[int, int, int]:
    """Forward passes, positions, and how many positions went through the network at once."""
    problem = Problem(target, u, y, Ball(settings.norm, settings.radius, EIGHT))
    measure = registry.build("fitness", fitness).begin(problem)
    before = measure.forwards
    swarm = Swarm(measure, settings)
    swarm.run()
    per = 2 if measure.cost > 1 else 1  # passes of one position: the answer, and the one whose gradient is taken
    return measure.forwards, (measure.forwards - before) // per, min(settings.batch, len(u) * settings.particles)
