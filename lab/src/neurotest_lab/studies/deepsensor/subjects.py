"""Networks and seeds of the DeepSensor study: seeds with odd numbers only, because settings were chosen on the even ones."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from torch import Tensor

from neurotest import rng
from neurotest.files import cache_dir
from neurotest.generate.swarm import Ball
from neurotest.target import Target
from neurotest.target.load import load
from neurotest.zoo import faulty
from neurotest_lab.studies import swarms
from neurotest_lab.studies.frame import Row, split_of
from neurotest_lab.studies.swarms import Subject, slope

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


@functools.lru_cache(maxsize=8)
def network(name: str, scale: str) -> Target:
    """A zoo network; a faulty one is trained once, into the study's own place in the cache."""
    return swarms.network(name, trained(name, scale)) if "+" in name else load(f"zoo:{name}")


def trained(name: str, scale: str) -> Path:
    base, _, fault = name.partition("+")
    fewer = QUICK["lenet" if "lenet" in base else "resnet"].get(faulty.read(fault).kind, {}) if scale == "quick" else {}
    return swarms.trained(name, cache_dir() / "studies" / f"deepsensor-{scale}-{name}.safetensors", **fewer)


def about(name: str, scale: str, *keys: str) -> Row:
    """What the file of a faulty network says of it; of a sound one, nothing."""
    return swarms.about(trained(name, scale), *keys) if "+" in name else {}


def subject(name: str, scale: str, draw: int, n: int, *, avoid: int | None = None, only: int | None = None) -> Subject:
    """Seeds from test images with odd numbers that the network gets right; `avoid`: none of this class; `only`: no others."""
    test = split_of(name.partition("+")[0], "test")
    assert test.labels is not None
    order = rng.stream("study.deepsensor", draw).permutation(np.arange(1, len(test), 2))
    order = order[: 3 * n + 50] if only is None else order[test.labels[order] == only]
    return swarms.subject(name, network(name, scale), test, order, n, avoid=-1 if avoid is None else avoid)


def climbed(on: Subject, ball: Ball, steps: int = 10) -> Tensor:
    """Where gradient steps of a quarter of an Linf ball's radius end; of one level at least, or rounding would undo them."""
    u = on.x.clone()
    size = max(ball.radius / 4, 1 / 255)
    for _ in range(steps):
        u = ball.project(u + size * slope(on, u).sign(), on.x)
    return u
