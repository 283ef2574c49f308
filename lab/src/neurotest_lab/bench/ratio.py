"""Timing two jobs against each other, and what everything is measured against: bare forward passes of a network of the zoo."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Ratio:
    """Time of one job over another's: the median of the rounds and the middle half of them."""

    median: float
    low: float
    high: float


def ratio(job: Job, bare: Job, *, repeats: int) -> Ratio:
    """Time both alternately, the order swapped each round, after one warm-up round each.

    Processor time, all threads together: on a shared machine it tells the work apart from waiting for a turn.
    """
    bare()
    job()
    rounds = []
    for number in range(repeats):
        first, second = (job, bare) if number % 2 else (bare, job)
        times = {first: _seconds(first), second: _seconds(second)}
        rounds.append(times[job] / times[bare])
    low, median, high = (float(q) for q in np.quantile(rounds, [0.25, 0.5, 0.75]))
    return Ratio(median, low, high)


def _seconds(job: Job) -> float:
    began = time.process_time()
    job()
    return time.process_time() - began


def machine() -> dict[str, Any]:
    """What the ratios were measured on."""
    return {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "processor": platform.processor() or platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


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
