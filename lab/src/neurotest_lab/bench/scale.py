"""Throughput of several workers over one, and what the work moves: scores and a campaign of ResNet-20, one thread each, workers
awake."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neurotest.campaign.api import fuzz
from neurotest.campaign.islands import USUAL
from neurotest.data.spec import data
from neurotest.executor import Executor, Serial, using
from neurotest.measure.several import Several
from neurotest.memory import peak
from neurotest.pieces import Piece, _see, pieces
from neurotest.scale.opening import open_executor
from neurotest.scale.tasks import pack
from neurotest.select.scorer import Pool, Scorer
from neurotest.select.scoring import Scoring, begin, score
from neurotest.select.uncertainty import DeepGini
from neurotest_lab.bench.ratio import machine, subject_of

SUBJECT, IMAGES, BATCH, WORKERS = "cifar10-resnet20", 20_000, 250, 2
METHODS: dict[str, Scorer] = {"deepgini": DeepGini()}
PASSES, SEEDS = 6000, 100  # of a campaign beside IMAGES scores
LARGE = (10_000_000, 1_000_000_000)  # images that costs are extrapolated to


def measure(images: int = IMAGES, repeats: int = 3, name: str = SUBJECT, *, ray: bool | None = None) -> dict[str, Any]:
    """Wall-clock time of the same scores, and of the same campaign in islands, by one worker over that by two processes and two
    workers of a Ray, alternately.

    Starting workers and loading the network are not counted. ray: None where it is installed.
    """
    torch.set_num_threads(1)
    ray = importlib.util.find_spec("ray") is not None if ray is None else ray
    with tempfile.TemporaryDirectory() as folder, _executors(ray) as executors:
        pool = _pool(name, images, Path(folder))
        warm = Pool(pool.target, pool.source.take(np.arange(min(images, 8 * BATCH))), 0)
        for executor in executors.values():
            with _by(executor):
                score(warm, METHODS, batch=BATCH)
            _campaign_seconds(executor, name, 0)  # what mutates is imported when it is first needed
        rounds: dict[str, list[float]] = {name: [] for name in executors if name != Serial.name}
        for number in range(repeats):
            order = list(executors.items()) if number % 2 else list(executors.items())[::-1]
            seconds = {kind: _seconds(executor, pool) for kind, executor in order}
            for kind in rounds:
                rounds[kind].append(seconds[Serial.name] / seconds[kind])
        moved = _moved(pool, min(seconds.values()))
        campaigns: dict[str, list[float]] = {kind: [] for kind in rounds}
        for number in range(repeats):
            order = list(executors.items()) if number % 2 else list(executors.items())[::-1]
            seconds = {kind: _campaign_seconds(executor, name, images * PASSES // IMAGES) for kind, executor in order}
            for kind in campaigns:
                campaigns[kind].append(seconds[Serial.name] / seconds[kind])
    words = {"processes": f"{WORKERS} processes", "ray": f"{WORKERS} workers of Ray"}
    timed = {f"scale/{name}/{words[kind]}": values for kind, values in rounds.items()}
    timed |= {f"fuzz/{name}/{words[kind]}": values for kind, values in campaigns.items()}
    return {
        "ratios": {key: float(np.median(values)) for key, values in timed.items()},
        "spread": {key: [float(q) for q in np.quantile(values, [0.25, 0.75])] for key, values in timed.items()},
        "repeats": repeats, "images": images, "moved": moved, "machine": machine(),
    }  # fmt: skip


@contextmanager
def _executors(ray: bool) -> Iterator[dict[str, Executor]]:
    executors: dict[str, Executor] = {Serial.name: Serial(), "processes": open_executor(WORKERS)}
    try:
        if ray:
            executors["ray"] = open_executor(WORKERS, "local")
        yield executors
    finally:
        for executor in executors.values():
            executor.close()


@contextmanager
def _by(executor: Executor) -> Iterator[None]:
    """Workers stay awake afterwards."""
    close, executor.close = executor.close, lambda: None  # type: ignore[method-assign]
    try:
        with using(executor):
            yield
    finally:
        executor.close = close  # type: ignore[method-assign]


def _pool(name: str, images: int, folder: Path) -> Pool:
    """Noise in a file, which workers read themselves."""
    target, source = subject_of(name, 1)
    pixels = np.random.default_rng(0).integers(0, 256, (images, *source.shape), dtype=np.uint8)
    np.savez(folder / "pool.npz", x=pixels)
    return Pool(target, data(f"npz:{folder / 'pool.npz'}"), 0)


def _seconds(executor: Executor, pool: Pool) -> float:
    began = time.perf_counter()
    with _by(executor):
        score(pool, METHODS, batch=BATCH)
    return time.perf_counter() - began


def _campaign_seconds(executor: Executor, name: str, passes: int) -> float:
    """A campaign of eight islands, with its control, from its first round on: what comes before is done by the head alone."""
    target, source = subject_of(name, SEEDS)
    with _by(executor):
        result = fuzz(target, source, oracle="metamorphic", forwards=max(64, passes), islands=USUAL, out=False)
    return sum(result.seconds_by.values()) - result.seconds_by["start"]


def _moved(pool: Pool, seconds: float) -> dict[str, float]:
    """What a piece costs: bytes to the worker and back, work of the head; and what a worker holds."""
    scoring: Scoring = begin(pool, METHODS, Several(METHODS))
    shared = (pool.target, scoring.portable(), BATCH)
    piece: Piece = next(pieces(pool.source, BATCH))
    result = _see(shared, piece)
    content = len(pack(result))
    began = time.perf_counter()
    for _ in range(20):
        pack((_see, next(pieces(pool.source, BATCH))))
        scoring.receive(result, piece)
    inputs = len(piece.index)
    return {
        "inputs_per_piece": inputs, "bytes_shared": len(pack(shared)),
        "bytes_to_worker_per_input": len(pack((_see, piece))) / inputs,
        "bytes_back_per_input": content / inputs, "head_seconds_per_input": (time.perf_counter() - began) / 20 / inputs,
        "seconds_per_input": seconds / len(pool), "worker_megabytes": peak() / 1e6,
    }  # fmt: skip


def extrapolated(content: dict[str, Any]) -> list[dict[str, str]]:
    """Rows for people: measured per input, and on paper for many."""
    moved, images = content["moved"], content["images"]
    rows = []
    for count in (images, *LARGE):
        there, back = (count * moved[key] for key in ("bytes_to_worker_per_input", "bytes_back_per_input"))
        head, work = count * moved["head_seconds_per_input"], count * moved["seconds_per_input"]
        rows.append({
            "images": f"{count:,}", "moved to workers": _bytes(there), "moved back": _bytes(back),
            "a worker holds": _bytes(1e6 * moved["worker_megabytes"]), "the head knows (16 B each)": _bytes(16 * count),
            "two workers here": _time(work), "head alone": _time(head),
            "workers until the head is busy": f"{max(1, int(2 * work / head)):,}",
        })  # fmt: skip
    return rows


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _time(seconds: float) -> str:
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 86_400:.3g} days"
