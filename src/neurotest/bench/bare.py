"""What everything is measured against: bare forward passes of a network of the zoo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurotest import zoo
from neurotest.data.source import ArraySource, Source
from neurotest.data.spec import data
from neurotest.target import Target
from neurotest.target.load import load

Job = Callable[[], Any]
Pair = tuple[Job, Job]  # ours, and what it is measured against


def subject_of(name: str, images: int) -> tuple[Target, Source]:
    """A network and images; without weights or data here, fresh weights and noise: they cost the same."""
    entry = zoo.find(name)
    if entry.weights is not None and entry.embedded:
        return load(f"zoo:{name}"), data(f"zoo:{entry.dataset}/test", limit=images)
    noise = np.random.default_rng(0).integers(0, 256, (images, *entry.shape)).astype(np.uint8)
    return Target(entry.build().eval(), shape=entry.shape, spec=f"zoo:{name}"), ArraySource(noise)


def passes(target: Target, *inputs: Sequence[Tensor], times: int = 1) -> Job:
    """Forward passes over batches; `times` over those of the first argument, once over others."""

    def job() -> None:
        with torch.inference_mode():
            for parts in (*inputs[:1] * times, *inputs[1:]):
                for part in parts:
                    target.module(part)

    return job


def counted(target: Target, x: Tensor, forwards: int) -> Job:
    """So many forward passes, as many at a time as there are inputs."""

    def job() -> None:
        with torch.inference_mode():
            for start in range(0, forwards, len(x)):
                target.module(x[: min(len(x), forwards - start)])

    return job
