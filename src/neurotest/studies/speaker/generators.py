"""Every way of making test inputs in the speaker study: the papers' swarms, ours, their three baselines, controls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurotest import rng, zoo
from neurotest.campaign import fuzz
from neurotest.errors import BadInput
from neurotest.generate.differential import diff
from neurotest.generate.swarm import Ball, Settings
from neurotest.levels import SIXTEEN
from neurotest.mutate.space import from_unit
from neurotest.studies.frame import split_of
from neurotest.studies.speaker.subjects import BALL, BELOW, SECOND, Subject, paper_search, search
from neurotest.target import Target
from neurotest.target.gradients import gradient

PAPERS = ("sensitivity-paper", "excitability-gradient")
GENERATORS = (*PAPERS, "swarm", "deepxplore", "dlfuzz", "deephunter", "random", "pgd")
ROUNDS = 20  # the paper's iterations
# Steps are small: samples of speech are some hundredths of the range. Away from the network under test: only its errors count.
XPLORE = f"deepxplore:constraint=free,push=0,step=0.001,steps={ROUNDS}"
DLFUZZ = f"dlfuzz:step=0.001,steps={ROUNDS}"
TRIES = 3  # forward passes of DeepHunter for each output


@dataclass(frozen=True, eq=False)
class Suite:
    """The last test input of each seed, and counts over all; `chances`: how many there were."""

    x: Tensor  # (n, 1, samples) in [0, 1]
    predicted: Tensor  # (n,)
    errors: int
    categories: int  # different (seed, wrong label) pairs
    chances: int


Made = tuple[Tensor, int, int, int]


def generate(on: Subject, method: str, draw: int, particles: int) -> Suite:
    """A method with the paper's twenty iterations on every seed."""
    if method in ("deepxplore", "dlfuzz"):
        made = _differential(on, method, draw)
    elif method == "deephunter":
        made = _deephunter(on, draw)
    elif method in ("random", "pgd"):
        made = _steps(on, method, draw)
    else:
        made = _swarm(on, method, draw, particles)
    return Suite(made[0], on.predicted(made[0]), *made[1:])


def _swarm(on: Subject, method: str, draw: int, particles: int) -> Made:
    if method == "swarm":  # never content with one label, with the forward passes of the papers' swarms
        settings = Settings(norm="snr", radius=BELOW, labels=None, evaluations=ROUNDS * particles, seed=draw)
        trajectory = search(on, "excitability", settings)
    else:
        trajectory = paper_search(on, method, iterations=ROUNDS, particles=particles, seed=draw)
    at = np.linspace(0, len(trajectory.history) - 1, ROUNDS).round().astype(int)
    errors = sum(trajectory.history[i].wrong for i in at)
    return trajectory.best, errors, len(trajectory.hits), ROUNDS * len(on.x)


def _steps(on: Subject, method: str, draw: int) -> Made:
    """Noise of equal norm, or PGD: as many positions per seed as the paper's iterations."""
    errors, kinds = 0, set()
    u = BALL.noise(on.x, rng.torch_stream("study.speaker.start", draw))
    radius = BALL.length(on.x).view(-1, 1, 1)
    for step in range(ROUNDS):
        if method == "random":
            u = BALL.noise(on.x, rng.torch_stream("study.speaker.noise", draw, step))
        else:
            way = _slope(on, u)
            size = way.flatten(1).norm(dim=1).clamp_min(1e-12).view(-1, 1, 1)
            u = Ball("snr", BELOW, None).project(u + radius / 4 * way / size, on.x)
        predicted = on.predicted(BALL.project(u, on.x))
        wrong = torch.nonzero(predicted != on.y)[:, 0].tolist()
        errors += len(wrong)
        kinds |= {(i, int(predicted[i])) for i in wrong}
    return BALL.project(u, on.x), errors, len(kinds), ROUNDS * len(on.x)


def _slope(on: Subject, u: Tensor) -> Tensor:
    with torch.enable_grad():
        at = u.clone().requires_grad_()
        logits = on.target.logits(from_unit(at, on.target.bounds)).double()
        return gradient(torch.nn.functional.cross_entropy(logits, on.y, reduction="sum"), at)


def _differential(on: Subject, method: str, draw: int) -> Made:
    """DeepXplore stops at the first difference: one chance per seed; DLFuzz has as many as it makes outputs."""
    targets: list[Target | str] = [on.target]
    if method == "deepxplore":
        second = SECOND[on.name.partition("+")[0]]
        if zoo.find(second).weights is None:
            raise BadInput(f"DeepXplore compares networks: train the second one, `neurotest zoo train {second}`.")
        targets.append(f"zoo:{second}")
    result = diff(targets, on.source, XPLORE if method == "deepxplore" else DLFUZZ, seed=draw, out=False)
    x = on.x.clone()
    last = {int(position): i for i, position in enumerate(result.positions)}
    x[list(last)] = SIXTEEN.unit(torch.from_numpy(result.x[list(last.values())]))
    predicted = result.predictions[:, 0] if result.predictions.size else result.predicted
    wrong = result.fault & (predicted != result.expected)
    kinds = set(zip(result.positions[wrong].tolist(), predicted[wrong].tolist(), strict=True))
    return x, int(wrong.sum()), len(kinds), len(on.x) if method == "deepxplore" else len(result.fault)


def _deephunter(on: Subject, draw: int) -> Made:
    kinds: set[tuple[int, int]] = set()
    x = on.x.clone()

    def watch(fuzzer: Any, outputs: list[Any], new: list[Any]) -> None:
        kinds.update((m.root, m.predicted) for m in outputs if m.fault)
        for mutant in outputs:
            x[int(fuzzer.seeds.positions[mutant.root])] = SIXTEEN.unit(torch.from_numpy(np.asarray(mutant.x)))

    train = split_of(on.name.partition("+")[0], "train[:600]")
    outputs = ROUNDS * len(on.x)
    result = fuzz(
        on.target, on.source, "deephunter:snac", train=train, seed=draw, out=False, watch=watch, outputs=outputs,
        forwards=TRIES * outputs, islands=1,
    )  # fmt: skip
    return x, result.faults, len(kinds), outputs
