"""The tables of the DeepSensor study, cell by cell: what fails, test errors, networks trained wrongly."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import torch
from torch import Tensor

from neurotest import rng, zoo
from neurotest.campaign.neurons import of_pairs
from neurotest.coverage import cover
from neurotest.data.source import ArraySource, Source
from neurotest.generate.swarm import Ball, Problem, Settings, Trajectory, controls
from neurotest.levels import EIGHT
from neurotest.target import Target
from neurotest.zoo.faulty import CLASS, Patch
from neurotest_lab.studies.deepsensor.generators import CLOSE, WAYS
from neurotest_lab.studies.deepsensor.subjects import about, climbed, subject
from neurotest_lab.studies.frame import Row, split_of
from neurotest_lab.studies.suites import GENERATORS
from neurotest_lab.studies.swarms import Subject, first_faults, search

MAIN, DEEP = "mnist-lenet5", "cifar10-resnet20"
METHODS = ("excitability", "tiles", "margin", "sensitivity", "noise", "pgd")
FEW = ("excitability", "margin", "noise", "pgd")
WIDE = ("swarm, linf", "noise, linf", "pgd, linf")  # beside the papers' methods on networks trained wrongly
FAULTY_METHODS = (*GENERATORS, *WIDE)
SETS = 3
NARROW = 2 / 255  # the ball of ResNet-20: in Linf 8/255 noise alone makes half of the seeds fail
CRITERIA = ("nc:0.2", "kmnc:10000", "nbc", "snac", "tknc:1", "bknc:1")


# Seeds per cell. A forward pass of ResNet-20 costs twenty of LeNet-5: it gets so many seeds and evaluations in the reach table
# (`deep`), and so many seeds and particles in tables II, 3 (`deep errors`), III, 4 and IV, 5 (`deep faulty`). The papers have 100
# particles.
SIZES: dict[str, Row] = {
    "quick": {"reach": 100, "balls": 30, "errors": (10, 100), "polluted": 100, "faulty": (30, 20), "start": 10, "sweep": 20,
              "excited": 200, "course": 20, "overlap": 12, "map": 30, "deep": (10, 300), "deep errors": (10, 20),
              "deep faulty": (10, 8), "deep map": 10, "particles": 20},
    "full": {"reach": 100, "balls": 100, "errors": (1000, 100), "polluted": 1000, "faulty": (1000, 100), "start": 1000,
             "sweep": 1000, "excited": 1000, "course": 500, "overlap": 100, "map": 500, "deep": (100, 1000),
             "deep errors": (100, 100), "deep faulty": (100, 100), "deep map": 100, "particles": 100},
}  # fmt: skip


# -- what finds faults in which ball


def reach(name: str, scale: str, draw: int, n: int, norm: str, radius: float, methods: tuple[str, ...], most: int = 1000) -> Row:
    """Seeds that fail, by method, with at most so many evaluations each."""
    on = subject(name, scale, draw, n)
    settings = Settings(norm=norm, radius=radius, evaluations=most, seed=draw)  # type: ignore[arg-type]
    ball = Ball(settings.norm, radius, EIGHT)
    row: Row = {"seeds": len(on.x)}
    for method in methods:
        if method == "noise":
            row[method] = _control(on, controls.noise(Problem(on.target, on.x, on.y, ball), most, random=draw))
        elif method == "pgd":
            row[method] = _control(on, controls.pgd(Problem(on.target, on.x, on.y, ball), random=draw))
        elif method == "tiles":  # what the default does where it cannot read a map
            row[method] = _counts(search(on, "excitability", dataclasses.replace(settings, moves="tiles")))
        else:
            row[method] = _counts(search(on, method, settings))
    return row


def _counts(trajectory: Trajectory) -> Row:
    evaluations = float(trajectory.spent.double().mean())
    return {"failed": len(trajectory.failed), "labels": len(trajectory.hits), "evaluations": evaluations}


def _control(on: Subject, control: controls.SwarmControl) -> Row:
    return {"failed": control.failed, "labels": control.labels, "evaluations": control.forwards / len(on.x)}


# -- tables II, 3: errors, categories; figure 3: coverage


def errors(name: str, scale: str, draw: int, n: int, method: str, particles: int = 100) -> Row:
    """Test errors, error categories and how far the last inputs lie from their seeds; `of`: how many errors there could be.
    What the last inputs, brought into the papers' ball, add to the seeds' coverage: figure 3 of the first paper."""
    on = subject(name, scale, draw, n)
    suite = WAYS.generate(on, method, draw, particles)
    return {
        "seeds": len(on.x), "errors": suite.errors, "categories": suite.categories, "of": suite.chances, "cpu": suite.seconds,
        "l2": distance(on, suite.x), "coverage": gained(on, CLOSE.project(suite.x, on.x)),
    }  # fmt: skip


def distance(on: Subject, x: Tensor) -> float:
    return float((x - on.x).flatten(1).norm(dim=1).mean())


def gained(on: Subject, x: Tensor) -> dict[str, float]:
    """Points of coverage that inputs add to their seeds'; neurons' ranges from 1,000 training images."""
    train = split_of(on.name.partition("+")[0], "train[:1000]")
    before, after = (_covered(on.target, part, train) for part in (on.x, torch.cat([on.x, x])))
    return {criterion: 100 * (after[criterion] - before[criterion]) for criterion in CRITERIA}


def _covered(target: Target, x: Tensor, train: Source) -> dict[str, float]:
    images = ArraySource((x * 255).round().byte().numpy())
    results = cover(target, images, list(CRITERIA), train=train)
    return {name: float(results[name].value.value) for name in CRITERIA}


# -- tables III, 4 and IV, 5: faulty training


def training(name: str, scale: str) -> Row:
    """A network trained wrongly, once for all cells that need it; what its file says of it."""
    began = time.process_time()
    facts = about(name, scale, "accuracy", "train_accuracy", "triggers")
    return {**facts, "seconds": time.process_time() - began}


def polluted(name: str, scale: str, draw: int, n: int) -> Row:
    """How often the swarm's faults are of the polluted class, beside noise of equal norm; and which neurons carry the patch."""
    label = CLASS[zoo.find(name.partition("+")[0]).family]
    on = subject(name, scale, draw, n, avoid=label)
    trajectory = search(on, "excitability", Settings(seed=draw))
    with torch.inference_mode():
        noisy = on.target.logits(Ball("linf", 0.1, EIGHT).noise(on.x, rng.torch_stream("study.deepsensor.noise", draw))).argmax(1)
    row: Row = {
        "seeds": len(on.x), "failed": len(trajectory.failed), "towards": sum(f.predicted == label for f in trajectory.hits),
        "faults": len(trajectory.hits), "noise towards": int((noisy == label).sum()), "noise failed": int((noisy != on.y).sum()),
    }  # fmt: skip
    if facts := about(name, scale, "accuracy", "triggers", "class", "recipe"):
        row["about"] = facts
        if draw == 0:
            row["carriers"] = carriers(on, trajectory, name, scale)
    return row


def carriers(on: Subject, trajectory: Trajectory, name: str, scale: str) -> Row:
    """The neurons that contribute most when the patch is stamped, and how many of the swarm's own are among them."""
    facts = about(name, scale, "patch", "class")
    colours = np.array(facts["patch"], dtype=np.uint8)
    patch = Patch(colours, colours.shape[-1])  # shown whole: small parts trigger little
    few = on.x[:20]
    stamped = patch.stamp((few * 255).round().byte().numpy(), rng.stream("study.deepsensor.patch", 0))
    moved = torch.from_numpy(np.ascontiguousarray(stamped)).float().div(255)
    by_patch = of_pairs(on.target, few, moved, on.y[:20], top=10, rounds=12)
    faults = [f for f in trajectory.hits if f.predicted == facts["class"]][:20] or trajectory.hits[:20]
    rows = torch.tensor([f.row for f in faults])
    by_swarm = of_pairs(on.target, on.x[rows], torch.stack([f.x for f in faults]), on.y[rows], top=10, rounds=12)
    ours, theirs = ({(n.layer, n.index) for n in one.neurons} for one in (by_swarm, by_patch))
    players = sum(row["neurons"] for row in by_patch.layers)
    return {
        "patch": [vars(n) for n in by_patch.neurons], "swarm": [vars(n) for n in by_swarm.neurons],
        "shared": len(ours & theirs), "chance": 100 / players,
    }  # fmt: skip


def faulty(name: str, scale: str, draw: int, n: int, method: str, particles: int) -> Row:
    """Tables III, 4 and IV, 5: one test input per seed (of other classes than the polluted one), how many the network gets wrong,
    and how many it takes for the polluted class. Methods with `linf` have the ball of the other tables instead of the papers'."""
    label = CLASS[zoo.find(name.partition("+")[0]).family]
    on = subject(name, scale, draw, n, avoid=label)
    if method in WIDE:
        x = wide(on, method, draw, NARROW if name.startswith(DEEP) else 0.1)
        with torch.inference_mode():
            predicted = on.target.logits(x).argmax(1)
    else:
        suite = WAYS.generate(on, method, draw, particles, tries=3)
        x, predicted = suite.x, suite.predicted
    wrong, towards = int((predicted != on.y).sum()), int((predicted == label).sum())
    row: Row = {"seeds": len(on.x), "errors": wrong, "towards": towards, "l2": distance(on, x)}
    facts = about(name, scale, "accuracy", "train_accuracy", "triggers")
    return {**row, "about": facts} if facts else row


def wide(on: Subject, method: str, draw: int, radius: float) -> Tensor:
    """One input per seed in an Linf ball: the first fault of our swarm, one random noise, or the end of PGD."""
    ball = Ball("linf", radius, EIGHT)
    if method == "noise, linf":
        return ball.noise(on.x, rng.torch_stream("study.deepsensor.noise", draw))
    if method == "pgd, linf":
        return climbed(on, ball)
    evaluations = 300 if on.name.startswith(DEEP) else 1000
    trajectory = search(on, "excitability", Settings(radius=radius, evaluations=evaluations, seed=draw))
    rows, faults = first_faults(trajectory)
    x = trajectory.best.clone()
    if len(rows):
        x[rows] = torch.stack(faults)
    return x
