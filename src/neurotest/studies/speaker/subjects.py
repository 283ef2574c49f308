"""Networks and seeds of the speaker study: sounds with odd numbers only, because moves were chosen on even ones."""

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
from neurotest.data.source import ArraySource, Source
from neurotest.files import cache_dir, one_at_a_time
from neurotest.generate.swarm import PRESETS, Ball, Problem, Settings, Swarm, Trajectory
from neurotest.levels import SIXTEEN
from neurotest.mutate.space import from_unit
from neurotest.pictures import Preprocess
from neurotest.studies.frame import Row, split_of
from neurotest.target import Target
from neurotest.target.load import load
from neurotest.train.subjects import train_faulty
from neurotest.zoo import faulty

BELOW = 30.0  # decibels: what is added is so far below each seed
BALL = Ball("snr", BELOW, SIXTEEN)
SECOND = {  # a network for the same sounds, trained otherwise: it listens to what breaks the first
    "spoken-melnet": "spoken-melnet2", "speakers-resnet": "speakers-deepspeaker", "speakers-deepspeaker": "speakers-resnet",
}  # fmt: skip
# The paper's have five epochs and eighty, in batches of 20.
FAULTY: dict[str, dict[str, Row]] = {
    "spoken": {"underfit": {"epochs": 1, "batch": 20, "images": 400}, "overfit": {"epochs": 40, "batch": 20, "images": 400}},
    "speakers": {"underfit": {"epochs": 2, "batch": 20}, "overfit": {"epochs": 12, "batch": 20}},
}


@dataclass(frozen=True, eq=False)
class Subject:
    """A network and seeds it gets right: x (n, 1, samples) in [0, 1], y (n,)."""

    name: str
    target: Target
    x: Tensor
    y: Tensor
    source: Source

    def predicted(self, x: Tensor) -> Tensor:
        """Classes of sounds in [0, 1]."""
        return answers(self.target, x)


def answers(target: Target, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.cat([target.logits(from_unit(part, target.bounds)).argmax(1) for part in x.split(100)])


@functools.lru_cache(maxsize=8)
def network(name: str) -> Target:
    """A network of the zoo; one that is trained wrongly is trained once, into the study's own place in the cache."""
    base, _, fault = name.partition("+")
    if not fault:
        return load(f"zoo:{name}")
    from safetensors.torch import load_file

    entry = zoo.find(base)
    module = entry.build()
    module.load_state_dict(load_file(trained(name)))
    return Target(
        module.eval(), shape=entry.shape, classes=entry.classes, bounds=entry.bounds, preprocess=Preprocess(rate=entry.rate),
        spec=f"{name}, trained for the study",
    )  # fmt: skip


def trained(name: str) -> Path:
    base, _, fault = name.partition("+")
    place = cache_dir() / "studies" / f"speaker-{name}.safetensors"
    if not place.is_file():
        with one_at_a_time(place):  # several processes may want the same network
            if not place.is_file():
                train_faulty(base, faulty.read(fault), place, **FAULTY[base.partition("-")[0]][fault])
    return place


def about(name: str) -> Row:
    """What the file of a network trained wrongly says of it; of a sound one, nothing."""
    if "+" not in name:
        return {}
    from safetensors import safe_open

    with safe_open(trained(name), framework="np") as file:
        facts: Row = json.loads(file.metadata()["about"])
    return {key: facts[key] for key in ("accuracy", "train_accuracy")}


def subject(name: str, draw: int, n: int) -> Subject:
    """Seeds from held-out sounds with odd numbers that the network gets right."""
    target, test = network(name), split_of(name.partition("+")[0], "test")
    assert test.labels is not None
    order = rng.stream("study.speaker", draw).permutation(np.arange(1, len(test), 2))[: 3 * n + 20]
    x = SIXTEEN.unit(torch.from_numpy(np.array(test.read(order))))
    y = torch.from_numpy(test.labels[order])
    good = torch.nonzero(answers(target, x) == y)[:n, 0]
    source = test.take(order[good.numpy()])
    return Subject(name, target, x[good], y[good], source)


def stored(x: Tensor, like: Source) -> ArraySource:
    """Sounds in [0, 1] as a source."""
    source = ArraySource(SIXTEEN.stored(x), like.labels, classes=like.classes)
    source.rate = like.rate
    return source


def search(on: Subject, fitness: str, settings: Settings) -> Trajectory:
    """A swarm from every seed."""
    ball = Ball(settings.norm, settings.radius, SIXTEEN)
    problem = Problem(on.target, on.x, on.y, ball, random=settings.seed)
    return Swarm(registry.build("fitness", fitness).begin(problem), settings).run()


def paper_search(on: Subject, name: str, **settings: Any) -> Trajectory:
    """A paper's swarm in our ball, with some settings changed."""
    preset = {**PRESETS[name], "norm": "snr", "radius": BELOW, **settings}
    return search(on, str(preset.pop("fitness")), Settings(**preset))
