"""The figures of the DeepSensor study: excitable neurons, fitness per iteration, coverage, sweeps, overlap."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from neurotest import rng, zoo
from neurotest.attribute.shapley import mask_gradient
from neurotest.coverage import cover
from neurotest.data.source import ArraySource, Source
from neurotest.data.spec import data
from neurotest.generate.swarm import Ball, Settings
from neurotest.generate.swarm.settings import PAPER
from neurotest.mutate.space import from_unit
from neurotest.studies.deepsensor_subjects import Row, Subject, fly, paper, subject
from neurotest.target import Target

PAIRS = 500  # of figure 1, as in the paper
CRITERIA = ("nc:0.2", "kmnc:1000", "nbc", "snac", "tknc:1", "bknc:1")


def excited(name: str, scale: str, draw: int, n: int, pairs: int = PAIRS) -> Row:
    """Figure 1: excitable neurons of so many pairs that fail, and of the same seeds with noise of equal norm that does not."""
    on = subject(name, scale, draw, n)
    trajectory = fly(on, "excitability", Settings(evaluations=300, seed=draw))  # what fails soon is enough here
    first = {hit.row: hit.x for hit in reversed(trajectory.hits)}
    rows = torch.tensor(sorted(first), dtype=torch.long)
    corner = torch.stack([first[int(row)] for row in rows])
    benign = Ball("linf", 0.1, True).noise(on.x[rows], rng.torch_stream("study.deepsensor.benign", draw))
    with torch.inference_mode():
        calm = torch.nonzero(on.target.logits(benign).argmax(1) == on.y[rows])[:pairs, 0]
    found: Row = {"pairs": len(calm), "seeds": len(on.x)}
    for kind, moved in (("corner", corner), ("benign", benign)):
        values = mask_gradient(on.target, on.x[rows][calm], moved[calm], on.y[rows][calm])
        even = 2 * values.sum(1, keepdim=True).clamp_min(0) / values.shape[1]
        found[kind] = {
            **{f"above {limit:g}": (values > limit).sum(1).tolist() for limit in (0.5, 0.02)},
            "above twice the mean": ((values > even) & (values > 0)).sum(1).tolist(),
            "loss change": values.sum(1).tolist(),
        }  # fmt: skip
    return found


def course(name: str, scale: str, draw: int, n: int) -> Row:
    """Figure 3 of the second paper: fitness per iteration of both papers' swarms; and what they cost (table VI)."""
    on = subject(name, scale, draw, n)
    found: Row = {"seeds": len(on.x)}
    for preset in ("sensitivity-paper", "excitability-paper"):
        fitness, said = paper(preset, seed=draw)
        fly(Subject(on.target, on.x[:1], on.y[:1], on.positions[:1], on.source), fitness, said)  # what is loaded on first use
        began, clock = time.process_time(), time.perf_counter()
        trajectory = fly(on, fitness, said)
        spent, waited = time.process_time() - began, time.perf_counter() - clock
        found[preset] = {
            "fitness": [m.fitness for m in trajectory.history],
            "cpu": spent,
            "wall": waited,
            "threads": torch.get_num_threads(),
        }
    return found


def coverage(name: str, scale: str, draw: int, n: int) -> Row:
    """Figures 3 (first paper) and 6: what suites in the papers' ball add to the seeds' coverage, and errors of both starts."""
    on = subject(name, scale, draw, n)
    train = data(f"zoo:{zoo.find(name).dataset}/train[:1000]")
    ball = Ball("l2", 1.0, True)
    suites: dict[str, Tensor] = {"random": ball.noise(on.x, rng.torch_stream("study.deepsensor.suite", draw))}
    found: Row = {"errors": {}}
    for start in ("random", "fixed"):
        fitness, said = paper("sensitivity-paper", particles=20, start=start, seed=draw)
        trajectory = fly(on, fitness, said)
        suites[f"deepsensor, {start} start"] = trajectory.best
        found["errors"][start] = len(trajectory.failed)
    suites["swarm, excitability"] = fly(on, "excitability", Settings(norm="l2", radius=1.0, evaluations=300, seed=draw)).best
    base = _covered(on.target, on.x, train)
    for suite, images in suites.items():
        now = _covered(on.target, torch.cat([on.x, images]), train)
        found[suite] = {criterion: 100 * (now[criterion] - base[criterion]) for criterion in CRITERIA}
    return found


def _covered(target: Target, x: Tensor, train: Source) -> dict[str, float]:
    images = (x * 255).round().byte().numpy()
    found = cover(target, ArraySource(images), list(CRITERIA), train=train)
    return {name: float(found[name].value.value) for name in CRITERIA}


def sweep(name: str, scale: str, draw: int, n: int) -> Row:
    """Figures 5 and 10: errors by lambda and by epsilon, sensitivity swarm in the papers' ball."""
    on = subject(name, scale, draw, n)
    few: Row = {**PAPER, "particles": 20, "seed": draw}
    found: Row = {"seeds": len(on.x), "lambda": {}, "epsilon": {}}
    for lam in (0.1, 0.3, 0.5, 0.7, 0.9):
        trajectory = fly(on, f"sensitivity:scale=raw,signed=true,lam={lam}", Settings(**few))
        found["lambda"][str(lam)] = [len(trajectory.failed), float(trajectory.fitness.mean())]
    for quantile in ("q0.5", "q0.8", "q0.95"):
        trajectory = fly(on, f"sensitivity:lam={quantile}", Settings(**few))
        found["lambda"][quantile] = [len(trajectory.failed), float(trajectory.fitness.mean())]
    for enough in (0.05, 0.1, 0.2, 1.0):
        trajectory = fly(on, "sensitivity", Settings(**{**few, "enough": enough}))
        found["epsilon"][str(enough)] = [len(trajectory.failed), float(trajectory.spent.double().mean())]
    return found


def overlap(name: str, scale: str, draw: int, n: int) -> Row:
    """Figure 7: the ten most excitable neurons per method, by mask gradients over its failing pairs, and how many are shared."""
    on = subject(name, scale, draw, n)
    ball = Ball("linf", 0.1, True)
    pairs: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
    for method in ("excitability", "margin", "sensitivity"):
        trajectory = fly(on, method, Settings(seed=draw, evaluations=600 if method != "sensitivity" else 200))
        first = {hit.row: hit.x for hit in reversed(trajectory.hits)}
        if len(first) >= 3:
            rows = torch.tensor(sorted(first))
            pairs[method] = (on.x[rows], torch.stack([first[int(r)] for r in rows]), on.y[rows])
    noisy = ball.noise(on.x, rng.torch_stream("study.deepsensor.overlap", draw))
    pairs["noise"] = (on.x, noisy, on.y)
    pairs["pgd"] = _by_gradient(on, ball)
    tops = {}
    for method, (x, moved, y) in pairs.items():
        values = mask_gradient(on.target, x, moved, y).mean(0)
        tops[method] = set(values.topk(10).indices.tolist())
        players = len(values)
    names = list(tops)
    shared = {f"{a} / {b}": len(tops[a] & tops[b]) for i, a in enumerate(names) for b in names[i + 1 :]}
    return {"shared": shared, "chance": 100 / players, "pairs": {method: len(one[0]) for method, one in pairs.items()}}


def _by_gradient(on: Subject, ball: Ball) -> tuple[Tensor, Tensor, Tensor]:
    u = on.x.clone()
    for _ in range(10):
        with torch.enable_grad():
            at = u.clone().requires_grad_()
            loss = torch.nn.functional.cross_entropy(
                on.target.logits(from_unit(at, on.target.bounds)).double(), on.y, reduction="sum"
            )
            (way,) = torch.autograd.grad(loss, at)
        u = ball.project(u + 0.025 * way.sign(), on.x)
    with torch.inference_mode():
        wrong = on.target.logits(u).argmax(1) != on.y
    keep = wrong if bool(wrong.any()) else torch.ones_like(wrong)
    return on.x[keep], u[keep], on.y[keep]
