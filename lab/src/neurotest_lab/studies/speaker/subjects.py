"""Networks and seeds of the speaker study: sounds with odd numbers only, because moves were chosen on even ones."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from neurotest import rng
from neurotest.files import cache_dir
from neurotest.generate.swarm import Ball
from neurotest.levels import SIXTEEN
from neurotest.target import Target
from neurotest.target.load import load
from neurotest_lab.studies import swarms
from neurotest_lab.studies.frame import Row, split_of
from neurotest_lab.studies.swarms import Subject

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


@functools.lru_cache(maxsize=8)
def network(name: str) -> Target:
    """A network of the zoo; one that is trained wrongly is trained once, into the study's own place in the cache."""
    return swarms.network(name, trained(name)) if "+" in name else load(f"zoo:{name}")


def trained(name: str) -> Path:
    base, _, fault = name.partition("+")
    place = cache_dir() / "studies" / f"speaker-{name}.safetensors"
    return swarms.trained(name, place, **FAULTY[base.partition("-")[0]][fault])


def about(name: str) -> Row:
    """What the file of a network trained wrongly says of it; of a sound one, nothing."""
    return swarms.about(trained(name), "accuracy", "train_accuracy") if "+" in name else {}


def subject(name: str, draw: int, n: int) -> Subject:
    """Seeds from held-out sounds with odd numbers that the network gets right."""
    test = split_of(name.partition("+")[0], "test")
    order = rng.stream("study.speaker", draw).permutation(np.arange(1, len(test), 2))[: 3 * n + 20]
    return swarms.subject(name, network(name), test, order, n)
