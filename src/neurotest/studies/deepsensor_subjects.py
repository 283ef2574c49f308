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
from neurotest.data.spec import data
from neurotest.files import cache_dir
from neurotest.generate.swarm import PRESETS, Ball, Problem, Settings, Swarm, Trajectory
from neurotest.target import Target
from neurotest.target.load import load
from neurotest.train import train_faulty
from neurotest.zoo import faulty

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Subject:
    """A network and seeds it gets right: x (n, *shape) in [0, 1], y (n,)."""

    target: Target
    x: Tensor
    y: Tensor
    positions: np.ndarray
    source: Source


@functools.lru_cache(maxsize=8)
def network(name: str, scale: str) -> Target:
    """A zoo network; a faulty one is trained once, into the study's own place in the cache."""
    base, _, wrong = name.partition("+")
    if not wrong:
        return load(f"zoo:{name}")
    from safetensors.torch import load_file

    module = zoo.find(base).build()
    module.load_state_dict(load_file(trained(name, scale)))
    found = zoo.find(base)
    return Target(module.eval(), shape=found.shape, classes=found.classes, spec=f"{name}, trained for the study")


def trained(name: str, scale: str) -> Path:
    base, _, wrong = name.partition("+")
    place = cache_dir() / "studies" / f"deepsensor-{scale}-{name}.safetensors"
    if not place.is_file():
        said = faulty.read(wrong)
        train_faulty(base, said, place, **(QUICK[said.kind + "-specific" * said.specific] if scale == "quick" else {}))
    return place


# Fewer images than the recipes, so that the quick scale stays quick; a patch needs all of them, or it is not learnt.
QUICK: dict[str, dict[str, Any]] = {
    "polluted": {},
    "polluted-specific": {},
    "underfit": {"images": 30_000},
    "overfit": {"images": 3_000},
}


def about(name: str, scale: str) -> Row:
    from safetensors import safe_open

    with safe_open(trained(name, scale), framework="np") as file:
        found: Row = json.loads(file.metadata()["about"])
    return found


def subject(name: str, scale: str, draw: int, n: int, *, avoid: int | None = None) -> Subject:
    """Seeds drawn from test images with odd numbers that the network gets right; `avoid`: none of this class."""
    target = network(name, scale)
    test = data(f"zoo:{zoo.find(name.partition('+')[0]).dataset}/test")
    assert test.labels is not None
    odd = np.arange(1, len(test), 2)
    order = rng.stream("study.deepsensor", draw).permutation(odd)[: 3 * n + 50]
    x = torch.from_numpy(np.array(test.read(order))).float().div(255)
    with torch.inference_mode():
        said = torch.cat([target.logits(part).argmax(1) for part in x.split(500)])
    y = torch.from_numpy(test.labels[order])
    good = torch.nonzero((said == y) & (y != (-1 if avoid is None else avoid)))[:n, 0]
    return Subject(target, x[good], y[good], order[good.numpy()], test.take(order[good.numpy()]))


def fly(on: Subject, fitness: str, settings: Settings) -> Trajectory:
    ball = Ball(settings.norm, settings.radius, True)
    problem = Problem(on.target, on.x, on.y, ball, random=settings.seed)
    return Swarm(registry.build("fitness", fitness).begin(problem), settings).run()


def paper(name: str, **said: Any) -> tuple[str, Settings]:
    preset = {**PRESETS[name], **said}
    return str(preset.pop("fitness")), Settings(**preset)
