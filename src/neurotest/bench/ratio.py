"""Timing two jobs against each other."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Ratio:
    """Time of one job over another's: the median of the rounds and the middle half of them."""

    median: float
    low: float
    high: float


def ratio(job: Callable[[], Any], bare: Callable[[], Any], *, repeats: int) -> Ratio:
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


def _seconds(job: Callable[[], Any]) -> float:
    began = time.process_time()
    job()
    return time.process_time() - began


def machine() -> dict[str, Any]:
    """What the ratios were measured on."""
    import torch

    return {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "processor": platform.processor() or platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
