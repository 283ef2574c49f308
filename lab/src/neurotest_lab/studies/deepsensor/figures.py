"""The figures of the DeepSensor study: excitable neurons, fitness per iteration, coverage, sweeps, overlap."""

from __future__ import annotations

import torch
from torch import Tensor

from neurotest import rng, zoo
from neurotest.attribute.shapley import mask_gradient
from neurotest.errors import BadInput
from neurotest.generate.swarm import PRESETS, Ball, Settings, Trajectory
from neurotest.generate.swarm.settings import PAPER
from neurotest.levels import EIGHT
from neurotest.zoo.faulty import CLASS
from neurotest_lab.studies import excitable
from neurotest_lab.studies.deepsensor.cells import gained
from neurotest_lab.studies.deepsensor.subjects import climbed, subject
from neurotest_lab.studies.excitable import shapley
from neurotest_lab.studies.frame import Row
from neurotest_lab.studies.swarms import first_faults, paper_search, search

PAIRS = 500  # of figure 1, as in the paper; so many by mask gradients
SAMPLED = {"quick": 8, "full": 100}  # pairs whose Shapley values are sampled: some seconds each
NUMBERS = ("0.1", "0.3", "0.5", "0.7", "0.9")  # figures 5 and 10 go from 0.1 to 0.9
LAMBDAS = {"sensitivity-paper": NUMBERS, "excitability-gradient": ("0.001", "0.01", *NUMBERS)}
EPSILONS = (0.05, 0.1, 0.2, 1.0)


def excited(name: str, scale: str, draw: int, n: int, pairs: int = PAIRS) -> Row:
    """Figure 1: excitable neurons of pairs that fail, and of the same seeds with noise of equal norm that does not."""
    on, ball = subject(name, scale, draw, n), Ball("linf", 0.1, EIGHT)
    return excitable.excited(on, ball, "study.deepsensor.benign", draw, pairs=pairs, sampled=SAMPLED[scale])


def course(name: str, scale: str, draw: int, n: int) -> Row:
    """Figure 3 of the second paper: fitness per iteration and seed of both papers' swarms; and what they cost (table VI)."""
    return excitable.course(subject(name, scale, draw, n), draw)


def start(name: str, scale: str, draw: int, n: int, preset: str, particles: int) -> Row:
    """Figures 6 and 11: errors, and coverage gained, of swarms that begin at random places and of such that begin at the seed."""
    on = subject(name, scale, draw, n, avoid=_avoided(name))
    row: Row = {"seeds": len(on.x)}
    for begin in ("random", "fixed"):
        trajectory = paper_search(on, preset, particles=particles, start=begin, seed=draw)
        row[begin] = {**_errors(name, trajectory), "coverage": gained(on, trajectory.best)}
    return row


def sweep(name: str, scale: str, draw: int, n: int, preset: str, particles: int) -> Row:
    """Figures 5 and 10: errors of a paper's swarm by lambda, on sound networks also by epsilon."""
    on = subject(name, scale, draw, n, avoid=_avoided(name))
    few: Row = {**PAPER, "particles": particles, "seed": draw}
    row: Row = {"seeds": len(on.x), "lambda": {}, "epsilon": {}}
    fitness = str(PRESETS[preset]["fitness"])
    for lam in LAMBDAS[preset]:
        trajectory = search(on, f"{fitness},lam={lam}", Settings(**few))
        row["lambda"][lam] = {**_errors(name, trajectory), "fitness": float(trajectory.fitness.mean())}
    for enough in () if "+" in name else EPSILONS:
        trajectory = search(on, fitness, Settings(**{**few, "enough": enough}))
        row["epsilon"][str(enough)] = {**_errors(name, trajectory), "evaluations": float(trajectory.spent.double().mean())}
    return row


def _avoided(name: str) -> int | None:
    return CLASS[zoo.find(name.partition("+")[0]).family] if "polluted" in name else None


def _errors(name: str, trajectory: Trajectory) -> Row:
    """Seeds of which some position failed; on a polluted network, into its class."""
    label = _avoided(name)
    return {"failed": len({hit.row for hit in trajectory.hits if label is None or hit.predicted == label})}


def overlap(name: str, scale: str, draw: int, n: int) -> Row:
    """Figure 7: how many of the ten most excitable neurons two ways of changing an input share: of each seed on which all
    fail (and of noise, which seldom does), by Shapley values of the first of them and by mask gradients of all."""
    on = subject(name, scale, draw, n)
    ball = Ball("linf", 0.1, EIGHT)
    moved: dict[str, dict[int, Tensor]] = {}
    for method in ("excitability", "margin"):
        rows, faults = first_faults(search(on, method, Settings(seed=draw, evaluations=600)))
        moved[method] = dict(zip(rows.tolist(), faults, strict=True))
    moved["noise"] = dict(enumerate(ball.noise(on.x, rng.torch_stream("study.deepsensor.overlap", draw))))
    by_gradient = climbed(on, ball)
    with torch.inference_mode():
        wrong = torch.nonzero(on.target.logits(by_gradient).argmax(1) != on.y)[:, 0].tolist()
    moved["pgd"] = {row: by_gradient[row] for row in wrong}
    common = sorted(set.intersection(*(set(one) for one in moved.values())))
    if not common:
        raise BadInput("empty", "faults", "on no seed do all methods of figure 7 find a fault.")
    few = common[: max(3, SAMPLED[scale] // 2)]
    shared: Row = {}
    for estimate, rows_of in (("shapley", few), ("mask gradient", common)):
        x, y = on.x[rows_of], on.y[rows_of]
        tops = {}
        for method, one in moved.items():
            pairs = torch.stack([one[row] for row in rows_of])
            sampled = estimate == "shapley"
            values = shapley(on.target, x, pairs, y, seed=draw) if sampled else mask_gradient(on.target, x, pairs, y)
            tops[method] = [set(row.topk(10).indices.tolist()) for row in values]
            players = values.shape[1]
        names = list(tops)
        shared[estimate] = {
            f"{a} / {b}": [len(p & q) for p, q in zip(tops[a], tops[b], strict=True)]
            for i, a in enumerate(names)
            for b in names[i + 1 :]
        }
    return {"shared": shared, "chance": 100 / players, "seeds": len(common)}
