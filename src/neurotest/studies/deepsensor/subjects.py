"""Networks and seeds of the DeepSensor study: seeds with odd numbers only, because settings were chosen on the even ones."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurotest import registry, rng, zoo
from neurotest.data.source import Source
from neurotest.files import cache_dir, one_at_a_time
from neurotest.generate.swarm import PRESETS, Ball, Problem, Settings, Swarm, Trajectory
from neurotest.levels import EIGHT
from neurotest.studies.frame import Row, split_of
from neurotest.target import Target
from neurotest.target.load import load
from neurotest.train.subjects import train_faulty
from neurotest.zoo import faulty

# Fewer images than the recipes, so that the quick scale stays quick; a LeNet needs all of them, or it learns no patch. ResNet-20
# takes a quarter of an hour from the beginning: it is retrained, as the papers say of theirs, from its sound weights.
QUICK: dict[str, dict[str, Row]] = {
    "lenet": {"underfit": {"images": 30_000}, "overfit": {"images": 3_000}},
    "resnet": {
        "polluted": {"images": 5_000, "epochs": 2, "retrain": 0.02},
        "underfit": {"images": 3_000, "batch": 32},
        "overfit": {"images": 1_000, "epochs": 10, "retrain": 0.02},
    },
}


@dataclass(frozen=True, eq=False)
class Subject:
    """A network and seeds it gets right: x (n, *shape) in [0, 1], y (n,)."""

    name: str
    target: Target
    x: Tensor
    y: Tensor
    positions: np.ndarray
    source: Source


@functools.lru_cache(maxsize=8)
def network(name: str, scale: str) -> Target:
    """A zoo network; a faulty one is trained once, into the study's own place in the cache."""
    base, _, fault = name.partition("+")
    if not fault:
        return load(f"zoo:{name}")
    from safetensors.torch import load_file

    entry = zoo.find(base)
    module = entry.build()
    module.load_state_dict(load_file(trained(name, scale)))
    return Target(module.eval(), shape=entry.shape, classes=entry.classes, spec=f"{name}, trained for the study")


def trained(name: str, scale: str) -> Path:
    base, _, fault = name.partition("+")
    place = cache_dir() / "studies" / f"deepsensor-{scale}-{name}.safetensors"
    if not place.is_file():
        with one_at_a_time(place):  # several processes may want the same network
            if not place.is_file():
                recipe = faulty.read(fault)
                fewer = QUICK["lenet" if "lenet" in base else "resnet"].get(recipe.kind, {}) if scale == "quick" else {}
                train_faulty(base, recipe, place, **fewer)
    return place


def about(name: str, scale: str, *keys: str) -> Row:
    """What the file of a faulty network says of it; of a sound one, nothing."""
    if "+" not in name:
        return {}
    from safetensors import safe_open

    with safe_open(trained(name, scale), framework="np") as file:
        facts: Row = json.loads(file.metadata()["about"])
    return {key: value for key, value in facts.items() if key in keys}


def subject(name: str, scale: str, draw: int, n: int, *, avoid: int | None = None, only: int | None = None) -> Subject:
    """Seeds from test images with odd numbers that the network gets right; `avoid`: none of this class; `only`: no others."""
    target, test = network(name, scale), split_of(name.partition("+")[0], "test")
    assert test.labels is not None
    order = rng.stream("study.deepsensor", draw).permutation(np.arange(1, len(test), 2))
    order = order[: 3 * n + 50] if only is None else order[test.labels[order] == only]
    x = torch.from_numpy(np.array(test.read(order))).float().div(255)
    with torch.inference_mode():
        predicted = torch.cat([target.logits(part).argmax(1) for part in x.split(500)])
    y = torch.from_numpy(test.labels[order])
    good = torch.nonzero((predicted == y) & (y != (-1 if avoid is None else avoid)))[:n, 0]
    return Subject(name, target, x[good], y[good], order[good.numpy()], test.take(order[good.numpy()]))


def search(on: Subject, fitness: str, settings: Settings, course: list[list[float]] | None = None) -> Trajectory:
    """A swarm from every seed; into `course` goes the fitness of each seed's best position after every round."""
    problem = Problem(on.target, on.x, on.y, Ball(settings.norm, settings.radius, EIGHT), random=settings.seed)

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
        loss = torch.nn.functional.cross_entropy(on.target.logits(at).double(), on.y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, at)
    return gradient


def climbed(on: Subject, ball: Ball, steps: int = 10) -> Tensor:
    """Where gradient steps of a quarter of an Linf ball's radius end; of one level at least, or rounding would undo them."""
    u = on.x.clone()
    size = max(ball.radius / 4, 1 / 255)
    for _ in range(steps):
        u = ball.project(u + size * slope(on, u).sign(), on.x)
    return u
