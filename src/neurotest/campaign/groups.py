"""One group of a swarm, by whichever worker there is: every draw is a function of the seed, the group and the round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.data.source import content_ids
from neurotest.devices import placed
from neurotest.generate.fuzz.mutants import Mutant
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.swarm import Ball, Fitness, Hit, Problem, Settings, Swarm, controls
from neurotest.generate.swarm.controls import SwarmControl
from neurotest.generate.swarm.engine import Moment
from neurotest.mutate.chain import FREE, Mutation
from neurotest.mutate.unit import distances
from neurotest.target import Profile, Target


def never() -> bool:
    return False


@dataclass(frozen=True, eq=False)
class Group:
    """Seeds that are searched together."""

    number: int
    rows: NDArray[np.int64]  # of all seeds
    seeds: Seeds  # these alone
    expected: NDArray[np.int64]


@dataclass(eq=False)
class GroupResult:
    """What a group gave. Faults are numbered from 0; their roots are rows of all seeds."""

    faults: list[Mutant]
    unstable: int
    forwards: int
    course: list[Moment]
    spent: int
    notes: tuple[str, ...]
    controls: dict[str, SwarmControl]


@dataclass(frozen=True, eq=False)
class Search:
    """What all groups have in common. stop: asked after every round, where the search is in the user's own process."""

    target: Target
    fitness: Fitness
    settings: Settings
    layers: str | None
    neuron: str
    profile: Profile | None
    beside: Sequence[str]
    oracle: str
    stop: Callable[[], bool] = field(default=never)


def search(shared: Search, group: Group) -> GroupResult | None:
    """One group; None if it was stopped on the way."""
    target, settings, seeds = shared.target, shared.settings, group.seeds
    u = seeds.unit(seeds.x, target.device)
    y = torch.from_numpy(group.expected).to(target.device)
    ball = Ball(settings.norm, settings.radius, seeds.levels)
    answers = None if seeds.values is None else placed(seeds.values, target.device)
    problem = Problem(target, u, y, ball, shared.layers, shared.neuron, shared.profile, settings.seed, answers)
    measure = shared.fitness.begin(problem)
    swarm = Swarm(measure, settings, group.number, shared.stop)
    trajectory = swarm.run()
    if swarm.stopped:
        return None
    faults, unstable = _faults(shared, group, trajectory.hits, u)
    spent = int(trajectory.spent.sum())
    beside = _controls(shared, problem, group.number)
    return GroupResult(faults, unstable, measure.forwards, trajectory.history, spent, tuple(measure.notes), beside)


def _faults(shared: Search, group: Group, hits: list[Hit], u: torch.Tensor) -> tuple[list[Mutant], int]:
    """Hits as they are saved, run again from there; what no longer fails is dropped and counted."""
    if not hits:
        return [], 0
    target, seeds = shared.target, group.seeds
    saved = seeds.stored(torch.stack([hit.x for hit in hits]))
    with torch.inference_mode():
        logits = target.logits(target.prepare(np.array(saved)))
        classes = seeds.counted(logits, np.array([hit.row for hit in hits]))
        answers = seeds.answers(logits)
    distance = distances(seeds.unit(saved, target.device), u[[hit.row for hit in hits]])
    contents = content_ids(saved)
    faults: list[Mutant] = []
    unstable = 0
    for i, hit in enumerate(hits):
        if classes[i] == group.expected[hit.row]:
            unstable += 1
            continue
        faults.append(
            Mutant(
                number=len(faults), batch=group.number, iteration=hit.iteration, root=int(group.rows[hit.row]),
                content=str(contents[i]), x=saved[i], chain=(Mutation(FREE + shared.fitness.name, ()),),
                label=int(seeds.roots.labels[hit.row]), expected=int(group.expected[hit.row]), predicted=int(classes[i]),
                oracle="nonfinite" if classes[i] < 0 else shared.oracle, accepted=True, gain=hit.fitness,
                answer=None if seeds.bins is None else float(answers[i]),
                distance=(float(distance[i, 0]), float(distance[i, 1]), float(distance[i, 2])),
            )
        )  # fmt: skip
    return faults, unstable


def _controls(shared: Search, problem: Problem, number: int) -> dict[str, SwarmControl]:
    settings, random = shared.settings, shared.settings.seed + 1000 * number
    tries = settings.evaluations or settings.particles * (settings.iterations or 1)
    runs: dict[str, Callable[[], SwarmControl]] = {
        "noise": lambda: controls.noise(problem, tries, random=random, labels=settings.labels),
        "pgd": lambda: controls.pgd(problem, random=random),
        "margin": lambda: controls.margin(problem, dataclasses.replace(settings, enough=None), number),
    }
    return {name: run() for name, run in runs.items() if name in shared.beside}
