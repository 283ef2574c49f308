"""What a swarm is compared with, on the same seeds in the same ball: noise, PGD, and a swarm on the margin alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from neurotest import rng
from neurotest.devices import exact
from neurotest.generate.gradient.engine import moved
from neurotest.generate.outcome import interval
from neurotest.generate.swarm.ball import Ball
from neurotest.generate.swarm.engine import Swarm
from neurotest.generate.swarm.fitness import Margin
from neurotest.generate.swarm.measure import Problem
from neurotest.generate.swarm.settings import Settings
from neurotest.mutate.unit import from_unit
from neurotest.target.failures import gradient

PGD_STEPS = 10  # of the gradient control, a quarter of the radius each
CONTROL_NAMES = {
    "noise": "random noise of equal norm",
    "pgd": "PGD of equal norm (gradients)",
    "margin": "a swarm led by the margin alone",
}


@dataclass
class SwarmControl:
    """Seeds that failed, and different (seed, wrong label) pairs, after so many forward passes (a backward one counts two)."""

    failed: int = 0
    labels: int = 0
    forwards: int = 0

    def add(self, other: SwarmControl) -> None:
        self.failed += other.failed
        self.labels += other.labels
        self.forwards += other.forwards

    def to_dict(self, seeds: int) -> dict[str, Any]:
        return {
            "failed": self.failed,
            "rate": self.failed / seeds if seeds else None,
            "rate_interval": interval(self.failed, seeds),
            "labels_per_seed": self.labels / seeds if seeds else None,
            "forwards": self.forwards,
        }


def noise(problem: Problem, tries: int, *, random: int, labels: int | None = 1) -> SwarmControl:
    """So many random changes of the ball's size per seed; a seed ends after `labels` different wrong labels, as in the swarm."""
    target, seeds, y, ball = problem.target, problem.seeds, problem.y, problem.ball
    labels_of: dict[int, set[int]] = {}
    rows, spent = torch.arange(len(seeds), device=seeds.device), 0
    for number in range(tries):
        if not len(rows):
            break
        with torch.inference_mode():
            u = ball.noise(seeds[rows], rng.torch_stream("swarm.noise", random, number))
            predicted = problem.classes(target.logits(from_unit(u, target.bounds)), rows)
        spent += len(rows)
        wrong = predicted != y[rows]
        for row, label in zip(rows[wrong].tolist(), predicted[wrong].tolist(), strict=True):
            labels_of.setdefault(row, set()).add(label)
        if labels is not None and labels_of:
            done = torch.tensor([len(labels_of.get(row, ())) >= labels for row in rows.tolist()], device=rows.device)
            rows = rows[~done]
    return SwarmControl(len(labels_of), sum(map(len, labels_of.values())), spent)


def pgd(problem: Problem, *, random: int) -> SwarmControl:
    """Projected gradient ascent on the cross-entropy (of a regression value, on how far it moved); projection stands outside the
    graph, where it hides no gradient."""
    target, seeds, y, ball = problem.target, problem.seeds, problem.y, problem.ball
    step = (ball.length(seeds) if ball.norm != "none" else torch.ones(len(seeds), 1)).to(seeds) / 4
    step = step.view(-1, *[1] * (seeds.ndim - 1))
    stream = rng.torch_stream("swarm.pgd", random)
    if ball.round:
        u = ball.noise(seeds, stream)
    else:
        u = (seeds + (2 * torch.rand(seeds.shape, generator=stream).to(seeds) - 1) * ball.reach).clamp(0, 1)
    free = Ball(ball.norm, ball.radius, None)
    for _ in range(PGD_STEPS):
        with torch.enable_grad():
            at = u.detach().clone().requires_grad_()
            logits = exact(target.logits(from_unit(at, target.bounds)))
            if target.bins is None or problem.answers is None:
                loss = torch.nn.functional.cross_entropy(logits, y.to(logits.device), reduction="sum")
            else:
                loss = moved(target.bins.values(logits), exact(problem.answers), target.bins).sum()
            direction = gradient(loss, at)
        if ball.round:
            direction = direction / direction.flatten(1).norm(dim=1).clamp_min(1e-12).view(-1, *[1] * (direction.ndim - 1))
        else:
            direction = direction.sign()
        u = free.project(u + step * direction, seeds)
    with torch.inference_mode():
        logits = target.logits(from_unit(ball.project(u, seeds), target.bounds))
        predicted = problem.classes(logits, torch.arange(len(seeds), device=seeds.device))
    wrong = int((predicted != y).sum())
    return SwarmControl(wrong, wrong, len(seeds) * (3 * PGD_STEPS + 1))


def margin(problem: Problem, settings: Settings, group: int) -> SwarmControl:
    """The same swarm, guided by the logits alone."""
    trajectory = Swarm(Margin().begin(problem), settings, group).run()
    return SwarmControl(len(trajectory.failed), len(trajectory.hits), int(trajectory.spent.sum()))
