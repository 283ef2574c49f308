"""The figures of the DeepSensor study: excitable neurons, fitness per iteration, coverage, sweeps, overlap."""

from __future__ import annotations

import dataclasses
import time

import torch
from torch import Tensor

from neurotest import rng
from neurotest.attribute.shapley import mask_gradient
from neurotest.attribute.shapley.game import Game
from neurotest.attribute.shapley.permutation import permutation
from neurotest.coverage import cover
from neurotest.data.source import ArraySource, Source
from neurotest.generate.swarm import Ball, Settings
from neurotest.generate.swarm.settings import PAPER
from neurotest.studies.deepsensor.subjects import Subject, first_faults, paper_search, search, slope, subject
from neurotest.studies.frame import Row, split_of
from neurotest.target import Target

PAIRS = 500  # of figure 1, as in the paper; so many by mask gradients
SAMPLED = {"quick": 10, "full": 100}  # pairs whose Shapley values are sampled: some seconds each
ORDERS = 40  # random orders of neurons per pair
CRITERIA = ("nc:0.2", "kmnc:1000", "nbc", "snac", "tknc:1", "bknc:1")


def excited(name: str, scale: str, draw: int, n: int, pairs: int = PAIRS) -> Row:
    """Figure 1: excitable neurons of so many pairs that fail, and of the same seeds with noise of equal norm that does not: by
    mask gradients, and for the first of them by sampled Shapley values."""
    on = subject(name, scale, draw, n)
    rows, faults = first_faults(search(on, "excitability", Settings(evaluations=300, seed=draw)))  # what fails soon is enough
    benign = Ball("linf", 0.1, True).noise(on.x[rows], rng.torch_stream("study.deepsensor.benign", draw))
    with torch.inference_mode():
        calm = torch.nonzero(on.target.logits(benign).argmax(1) == on.y[rows])[:pairs, 0]
    row: Row = {"pairs": len(calm), "seeds": len(on.x)}
    for kind, moved in (("corner", torch.stack(faults)), ("benign", benign)):
        x, y = on.x[rows][calm], on.y[rows][calm]
        few = slice(SAMPLED[scale])
        gradient = mask_gradient(on.target, x, moved[calm], y)
        sampled = shapley(on.target, x[few], moved[calm][few], y[few], seed=draw)
        row[kind] = {"shapley": _excitable(sampled), "mask gradient": _excitable(gradient)}
        tops = [set(values.mean(0).topk(10).indices.tolist()) for values in (sampled, gradient[few])]
        row[kind]["shared of 10"] = len(tops[0] & tops[1])
    return row


def shapley(target: Target, x: Tensor, moved: Tensor, y: Tensor, *, seed: int, orders: int = ORDERS) -> Tensor:
    """Shapley values of hidden neurons for every pair (n, players): mean marginal contributions over random orders."""
    game = Game(target, x, moved, y)
    return torch.stack([permutation(game, row, orders=orders, seed=seed).values for row in range(len(x))])


def _excitable(values: Tensor) -> Row:
    """Per pair how many neurons count as excitable, by the paper's limit, by a lower one, and by their share of the change."""
    even = 2 * values.sum(1, keepdim=True).clamp_min(0) / values.shape[1]
    return {
        **{f"above {limit:g}": (values > limit).sum(1).tolist() for limit in (0.5, 0.02)},
        "above twice the mean": ((values > even) & (values > 0)).sum(1).tolist(),
        "loss change": values.sum(1).tolist(),
    }


def course(name: str, scale: str, draw: int, n: int) -> Row:
    """Figure 3 of the second paper: fitness per iteration of both papers' swarms; and what they cost (table VI)."""
    on = subject(name, scale, draw, n)
    row: Row = {"seeds": len(on.x)}
    for preset in ("sensitivity-paper", "excitability-gradient"):
        paper_search(dataclasses.replace(on, x=on.x[:1], y=on.y[:1]), preset, seed=draw)  # what is loaded on first use
        began, clock = time.process_time(), time.perf_counter()
        trajectory = paper_search(on, preset, seed=draw)
        cpu, wall = time.process_time() - began, time.perf_counter() - clock
        fitness = [moment.fitness for moment in trajectory.history]
        row[preset] = {"fitness": fitness, "cpu": cpu, "wall": wall, "threads": torch.get_num_threads()}
    return row


def coverage(name: str, scale: str, draw: int, n: int) -> Row:
    """Figures 3 (first paper) and 6: what suites in the papers' ball add to the seeds' coverage, and errors of both starts."""
    on, train = subject(name, scale, draw, n), split_of(name, "train[:1000]")
    noise = Ball("l2", 1.0, True).noise(on.x, rng.torch_stream("study.deepsensor.suite", draw))
    suites: dict[str, Tensor] = {"random": noise}
    row: Row = {"errors": {}}
    for start in ("random", "fixed"):
        trajectory = paper_search(on, "sensitivity-paper", particles=20, start=start, seed=draw)
        suites[f"deepsensor, {start} start"] = trajectory.best
        row["errors"][start] = len(trajectory.failed)
    ours = search(on, "excitability", Settings(norm="l2", radius=1.0, evaluations=300, seed=draw))
    before = _covered(on.target, on.x, train)
    for suite, images in {**suites, "swarm, excitability": ours.best}.items():
        after = _covered(on.target, torch.cat([on.x, images]), train)
        row[suite] = {criterion: 100 * (after[criterion] - before[criterion]) for criterion in CRITERIA}
    return row


def _covered(target: Target, x: Tensor, train: Source) -> dict[str, float]:
    images = ArraySource((x * 255).round().byte().numpy())
    results = cover(target, images, list(CRITERIA), train=train)
    return {name: float(results[name].value.value) for name in CRITERIA}


def sweep(name: str, scale: str, draw: int, n: int) -> Row:
    """Figures 5 and 10: errors by lambda and by epsilon, sensitivity swarm in the papers' ball."""
    on = subject(name, scale, draw, n)
    few: Row = {**PAPER, "particles": 20, "seed": draw}
    row: Row = {"seeds": len(on.x), "lambda": {}, "epsilon": {}}
    absolute = {str(lam): f"sensitivity:scale=raw,signed=true,lam={lam}" for lam in (0.1, 0.3, 0.5, 0.7, 0.9)}
    for label, fitness in {**absolute, **{q: f"sensitivity:lam={q}" for q in ("q0.5", "q0.8", "q0.95")}}.items():
        trajectory = search(on, fitness, Settings(**few))
        row["lambda"][label] = [len(trajectory.failed), float(trajectory.fitness.mean())]
    for enough in (0.05, 0.1, 0.2, 1.0):
        trajectory = search(on, "sensitivity", Settings(**{**few, "enough": enough}))
        row["epsilon"][str(enough)] = [len(trajectory.failed), float(trajectory.spent.double().mean())]
    return row


def overlap(name: str, scale: str, draw: int, n: int) -> Row:
    """Figure 7: the ten most excitable neurons per method over its failing pairs, and how many are shared: by Shapley values of
    the first pairs, and by mask gradients of all."""
    on = subject(name, scale, draw, n)
    ball = Ball("linf", 0.1, True)
    pairs: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
    for method in ("excitability", "margin", "sensitivity"):
        settings = Settings(seed=draw, evaluations=600 if method != "sensitivity" else 200)
        rows, faults = first_faults(search(on, method, settings))
        if len(rows) >= 3:
            pairs[method] = (on.x[rows], torch.stack(faults), on.y[rows])
    pairs["noise"] = (on.x, ball.noise(on.x, rng.torch_stream("study.deepsensor.overlap", draw)), on.y)
    pairs["pgd"] = _by_gradient(on, ball)
    few = max(3, SAMPLED[scale] // 2)
    shared: Row = {}
    for estimate in ("shapley", "mask gradient"):
        tops = {}
        for method, (x, moved, y) in pairs.items():
            sampled = estimate == "shapley"
            values = (
                shapley(on.target, x[:few], moved[:few], y[:few], seed=draw) if sampled else mask_gradient(on.target, x, moved, y)
            )
            tops[method] = set(values.mean(0).topk(10).indices.tolist())
            players = values.shape[1]
        names = list(tops)
        shared[estimate] = {f"{a} / {b}": len(tops[a] & tops[b]) for i, a in enumerate(names) for b in names[i + 1 :]}
    counts = {method: len(one[0]) for method, one in pairs.items()}
    return {"shared": shared, "chance": 100 / players, "pairs": counts, "sampled": few}


def _by_gradient(on: Subject, ball: Ball) -> tuple[Tensor, Tensor, Tensor]:
    u = on.x.clone()
    for _ in range(10):
        u = ball.project(u + 0.025 * slope(on, u).sign(), on.x)
    with torch.inference_mode():
        wrong = on.target.logits(u).argmax(1) != on.y
    keep = wrong if bool(wrong.any()) else torch.ones_like(wrong)
    return on.x[keep], u[keep], on.y[keep]
