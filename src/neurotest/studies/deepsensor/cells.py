"""The tables of the DeepSensor study, cell by cell: what fails, test errors, networks trained wrongly."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import torch

from neurotest import rng, zoo
from neurotest.campaign import fuzz
from neurotest.campaign.neurons import of_pairs
from neurotest.errors import BadInput
from neurotest.generate.differential import diff
from neurotest.generate.swarm import Ball, Settings, Trajectory, controls
from neurotest.studies.deepsensor.subjects import Subject, about, paper_search, search, slope, subject
from neurotest.studies.frame import Row
from neurotest.target import Target
from neurotest.zoo.faulty import CLASS, Patch

MAIN, DEEP = "mnist-lenet5", "cifar10-resnet20"
METHODS = ("excitability", "tiles", "margin", "sensitivity", "noise", "pgd")
FEW = ("excitability", "margin", "noise", "pgd")
GENERATORS = ("sensitivity-paper", "excitability-gradient", "swarm", "deepxplore", "dlfuzz", "deephunter", "random", "pgd")
SETS = 3
NARROW = 2 / 255  # the ball of ResNet-20: in Linf 8/255 noise alone makes half of the seeds fail
ROUNDS = 20  # the papers' iterations


# Seeds per cell. A forward pass of ResNet-20 costs twenty of LeNet-5: it gets so many seeds and evaluations in the reach table
# (`deep`), and so many seeds and particles in tables II and 3 (`deep errors`).
SIZES: dict[str, Row] = {
    "quick": {"reach": 100, "balls": 30, "errors": 10, "faulty": 100, "figures": 30, "excited": 1000, "course": 100,
              "deep": (10, 300), "deep errors": (5, 20)},
    "full": {"reach": 100, "balls": 100, "errors": 1000, "faulty": 1000, "figures": 500, "excited": 1000, "course": 500,
             "deep": (100, 1000), "deep errors": (100, 100)},
}  # fmt: skip


# -- what finds faults in which ball


def reach(name: str, scale: str, draw: int, n: int, norm: str, radius: float, methods: tuple[str, ...], most: int = 1000) -> Row:
    """Seeds that fail, by method, with at most so many evaluations each."""
    on = subject(name, scale, draw, n)
    settings = Settings(norm=norm, radius=radius, evaluations=most, seed=draw)  # type: ignore[arg-type]
    ball = Ball(settings.norm, radius, True)
    row: Row = {"seeds": len(on.x)}
    for method in methods:
        if method == "noise":
            row[method] = _control(on, controls.noise(on.target, on.x, on.y, ball, most, random=draw))
        elif method == "pgd":
            row[method] = _control(on, controls.pgd(on.target, on.x, on.y, ball, random=draw))
        elif method == "tiles":  # what the default does where it cannot read a map
            row[method] = _counts(search(on, "excitability", dataclasses.replace(settings, moves="tiles")))
        else:
            row[method] = _counts(search(on, method, settings))
    return row


def _counts(trajectory: Trajectory) -> Row:
    evaluations = float(trajectory.spent.double().mean())
    return {"failed": len(trajectory.failed), "labels": len(trajectory.hits), "evaluations": evaluations}


def _control(on: Subject, control: controls.Control) -> Row:
    return {"failed": control.failed, "labels": control.labels, "evaluations": control.forwards / len(on.x)}


# -- tables II, 3: errors, categories


def errors(name: str, scale: str, draw: int, n: int, method: str, particles: int = 100) -> Row:
    """Test errors, error categories and average categories; `of`: how many errors there could be."""
    on = subject(name, scale, draw, n)
    began = time.process_time()
    chances = ROUNDS * len(on.x)
    if method in ("deepxplore", "dlfuzz"):
        wrong, kinds, chances = _differential(on, name, method, draw)
    elif method == "deephunter":
        wrong, kinds = _deephunter(on, draw)
    elif method in ("random", "pgd"):
        wrong, kinds = _steps(on, method, draw)
    else:
        wrong, kinds = _swarm(on, method, draw, particles)
    seconds = time.process_time() - began
    return {"seeds": len(on.x), "errors": wrong, "categories": kinds, "of": chances, "cpu": seconds}


def _swarm(on: Subject, method: str, draw: int, particles: int) -> tuple[int, int]:
    if method == "swarm":  # the default, in the papers' ball, never content with one label
        settings = Settings(norm="l2", radius=1.0, labels=None, evaluations=10 * particles, seed=draw)
        trajectory = search(on, "excitability", settings)
    else:
        trajectory = paper_search(on, method, iterations=ROUNDS, particles=particles, seed=draw)
    at = np.linspace(0, len(trajectory.history) - 1, ROUNDS).round().astype(int)
    return sum(trajectory.history[i].wrong for i in at), len(trajectory.hits)


def _steps(on: Subject, method: str, draw: int) -> tuple[int, int]:
    """Noise, or PGD: as many positions per seed as the papers' iterations, in their ball."""
    ball = Ball("l2", 1.0, True)
    wrong, kinds = 0, set()
    u = ball.noise(on.x, rng.torch_stream("study.deepsensor.start", draw))
    for step in range(ROUNDS):
        if method == "random":
            u = ball.noise(on.x, rng.torch_stream("study.deepsensor.noise", draw, step))
        else:
            way = slope(on, u)
            size = way.flatten(1).norm(dim=1).clamp_min(1e-12).view(-1, 1, 1, 1)
            u = Ball("l2", 1.0, False).project(u + 0.25 * way / size, on.x)
        with torch.inference_mode():
            predicted = on.target.logits(ball.project(u, on.x)).argmax(1)
        bad = torch.nonzero(predicted != on.y)[:, 0].tolist()
        wrong += len(bad)
        kinds |= {(i, int(predicted[i])) for i in bad}
    return wrong, len(kinds)


# As published: by all three constraints, and always away from the network under test, because only its errors are counted here.
XPLORE = tuple(f"deepxplore:preset=mnist-paper,push=0,constraint={one}" for one in ("light", "occlusion", "blackout"))


def _differential(on: Subject, name: str, method: str, draw: int) -> tuple[int, int, int]:
    """Errors of the network itself, categories, and the outputs there may be: DeepXplore stops at the first difference."""
    others = [s.name for s in zoo.catalogue() if s.family == zoo.find(name).family and s.embedded and "lenet" in s.name]
    targets: list[Target | str] = [on.target]
    if method == "deepxplore":
        targets += [f"zoo:{one}" for one in others if one != name][:2]
        if len(targets) == 1:
            raise BadInput("DeepXplore compares networks, and there is no second one for this data set whose weights are here.")
    wrong, kinds, chances = 0, set(), 0
    for spec in XPLORE if method == "deepxplore" else (method,):
        result = diff(targets, on.source, spec, seed=draw, out=False)
        predicted = result.predictions[:, 0] if result.predictions.size else result.predicted
        bad = result.fault & (predicted != result.expected)
        wrong += int(bad.sum())
        kinds |= set(zip(result.positions[bad].tolist(), predicted[bad].tolist(), strict=True))
        chances += len(on.x) if method == "deepxplore" else len(result.fault)
    return wrong, len(kinds), chances


def _deephunter(on: Subject, draw: int) -> tuple[int, int]:
    kinds: set[tuple[int, int]] = set()

    def watch(fuzzer: Any, outputs: list[Any], new: list[Any]) -> None:
        kinds.update((m.root, m.predicted) for m in outputs if m.fault)

    train = f"zoo:{zoo.find(on.target.spec.removeprefix('zoo:')).dataset}/train[:1000]"
    budget: Row = {"outputs": ROUNDS * len(on.x), "forwards": 20 * ROUNDS * len(on.x)}
    result = fuzz(on.target, on.source, "deephunter:snac", train=train, seed=draw, out=False, watch=watch, **budget)
    return result.faults, len(kinds)


# -- tables III, 4 and IV, 5: faulty training


def polluted(name: str, scale: str, draw: int, n: int) -> Row:
    """How often the swarm's faults are of the polluted class, beside noise of equal norm; and which neurons carry the patch."""
    label = CLASS[zoo.find(name.partition("+")[0]).family]
    on = subject(name, scale, draw, n, avoid=label)
    trajectory = search(on, "excitability", Settings(seed=draw))
    with torch.inference_mode():
        noisy = on.target.logits(Ball("linf", 0.1, True).noise(on.x, rng.torch_stream("study.deepsensor.noise", draw))).argmax(1)
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


def incomplete(name: str, scale: str, draw: int, n: int) -> Row:
    on = subject(name, scale, draw, n)
    trajectory = search(on, "excitability", Settings(seed=draw))
    ball = Ball("linf", 0.1, True)
    noise = controls.noise(on.target, on.x, on.y, ball, 100, random=draw)
    pgd = controls.pgd(on.target, on.x, on.y, ball, random=draw)
    row: Row = {"seeds": len(on.x), "swarm": len(trajectory.failed), "noise": noise.failed, "pgd": pgd.failed}
    facts = about(name, scale, "accuracy", "train_accuracy", "recipe")
    return {**row, "about": facts} if facts else row
