"""What the studies of swarms share: seeds that a network gets right, searches from them, networks trained wrongly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurotest import registry, zoo
from neurotest.data.source import Source
from neurotest.files import one_at_a_time
from neurotest.generate.swarm import PRESETS, Ball, Problem, Settings, Swarm, Trajectory
from neurotest.images import Preprocess
from neurotest.levels import EIGHT, SIXTEEN, Levels
from neurotest.mutate.unit import from_unit
from neurotest.target import Target
from neurotest.target.failures import gradient
from neurotest.train.subjects import train_faulty
from neurotest.zoo import faulty
from neurotest_lab.studies.frame import Row

AT_ONCE = 250  # inputs in one forward pass


@dataclass(frozen=True, eq=False)
class Subject:
    """A network and seeds it gets right: x (n, *shape) in [0, 1], y (n,)."""

    name: str
    target: Target
    x: Tensor
    y: Tensor
    positions: np.ndarray
    source: Source

    @property
    def levels(self) -> Levels:
        return SIXTEEN if self.source.rate is not None else EIGHT

    def predicted(self, x: Tensor) -> Tensor:
        """Classes of inputs in [0, 1]."""
        return answers(self.target, x)


def answers(target: Target, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.cat([target.logits(from_unit(part, target.bounds)).argmax(1) for part in x.split(AT_ONCE)])


def subject(name: str, target: Target, test: Source, order: np.ndarray, n: int, *, avoid: int = -1) -> Subject:
    """The first n inputs of this order that the network gets right; `avoid`: none of this class."""
    assert test.labels is not None
    levels = SIXTEEN if test.rate is not None else EIGHT
    x, y = levels.unit(torch.from_numpy(np.array(test.read(order)))), torch.from_numpy(test.labels[order])
    good = torch.nonzero((answers(target, x) == y) & (y != avoid))[:n, 0]
    positions = order[good.numpy()]
    return Subject(name, target, x[good], y[good], positions, test.take(positions))


# -- networks trained wrongly


def trained(name: str, place: Path, **settings: Any) -> Path:
    """The weights of a network that is trained wrongly, once for all processes that want it."""
    base, _, fault = name.partition("+")
    if not place.is_file():
        with one_at_a_time(place):
            if not place.is_file():
                train_faulty(base, faulty.read(fault), place, **settings)
    return place


def network(name: str, weights: Path) -> Target:
    from safetensors.torch import load_file

    entry = zoo.find(name.partition("+")[0])
    module = entry.build()
    module.load_state_dict(load_file(weights))
    return Target(
        module.eval(), shape=entry.shape, classes=entry.classes, bounds=entry.bounds, preprocess=Preprocess(rate=entry.rate),
        spec=f"{name}, trained for the study",
    )  # fmt: skip


def about(weights: Path, *keys: str) -> Row:
    """What the file of a network trained wrongly says of it."""
    from safetensors import safe_open

    with safe_open(weights, framework="np") as file:
        facts: Row = json.loads(file.metadata()["about"])
    return {key: value for key, value in facts.items() if key in keys}


# -- searches


def search(on: Subject, fitness: str, settings: Settings, course: list[list[float]] | None = None) -> Trajectory:
    """A swarm from every seed; into `course` goes the fitness of each seed's best position after every round."""
    problem = Problem(on.target, on.x, on.y, Ball(settings.norm, settings.radius, on.levels), random=settings.seed)

    def watch() -> bool:
        if course is not None and swarm.round > len(course):
            course.append((swarm.value + swarm.base).tolist())
        return False

    swarm = Swarm(registry.build("fitness", fitness).begin(problem), settings, stop=watch)
    trajectory = swarm.run()
    watch()  # nobody asks after a round that ended every seed
    return trajectory


def paper_search(on: Subject, name: str, course: list[list[float]] | None = None, **settings: Any) -> Trajectory:
    """A paper's swarm, with some settings changed."""
    preset = {**PRESETS[name], **settings}
    return search(on, str(preset.pop("fitness")), Settings(**preset), course)


def first_faults(trajectory: Trajectory) -> tuple[Tensor, list[Tensor]]:
    """Seeds that fail, as rows, and the first fault of each."""
    first = {fault.row: fault.x for fault in reversed(trajectory.hits)}
    return torch.tensor(sorted(first), dtype=torch.long), [first[row] for row in sorted(first)]


def slope(on: Subject, u: Tensor) -> Tensor:
    """The gradient of the loss at inputs of the seeds' labels."""
    with torch.enable_grad():
        at = u.clone().requires_grad_()
        logits = on.target.logits(from_unit(at, on.target.bounds)).double()
        return gradient(torch.nn.functional.cross_entropy(logits, on.y, reduction="sum"), at)
