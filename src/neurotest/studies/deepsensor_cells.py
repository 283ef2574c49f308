"""The tables of the DeepSensor study, cell by cell: what fails, test errors, networks trained wrongly."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import torch

from neurotest import rng, zoo
from neurotest.campaign.neurons import of_pairs
from neurotest.errors import BadInput
from neurotest.generate.swarm import Ball, Settings, Trajectory, controls
from neurotest.studies.deepsensor_subjects import Row, Subject, about, fly, paper, subject
from neurotest.target import Target
from neurotest.zoo.faulty import CLASS, Patch

ROUNDS = 20  # the papers' iterations


def counted(trajectory: Trajectory) -> Row:
    return {
        "failed": len(trajectory.failed),
        "labels": len(trajectory.hits),
        "evaluations": float(trajectory.spent.double().mean()),
    }


# -- what finds faults in which ball


def reach(name: str, scale: str, draw: int, n: int, norm: str, radius: float, methods: tuple[str, ...], most: int = 1000) -> Row:
    """Seeds that fail, by method, with at most so many evaluations each."""
    on = subject(name, scale, draw, n)
    said = Settings(norm=norm, radius=radius, evaluations=most, seed=draw)  # type: ignore[arg-type]
    ball = Ball(said.norm, radius, True)
    found: Row = {"seeds": len(on.x)}
    for method in methods:
        if method == "noise":
            one = controls.noise(on.target, on.x, on.y, ball, most, random=draw)
        elif method == "pgd":
            one = controls.pgd(on.target, on.x, on.y, ball, random=draw)
        elif method == "tiles":  # what the default does where it cannot read a map
            found[method] = counted(fly(on, "excitability", dataclasses.replace(said, moves="tiles")))
            continue
        else:
            found[method] = counted(fly(on, method, said))
            continue
        found[method] = {"failed": one.failed, "labels": one.labels, "evaluations": one.forwards / len(on.x)}
    return found


# -- tables II, 3: errors, categories


def errors(name: str, scale: str, draw: int, n: int, method: str, particles: int = 100) -> Row:
    """Test errors, error categories and average categories; `of`: how many errors there could be."""
    on = subject(name, scale, draw, n)
    began = time.process_time()
    if method in ("deepxplore", "dlfuzz"):
        wrong, kinds, chances = _differential(on, name, method, draw)
    else:
        chances = ROUNDS * len(on.x)
        if method == "deephunter":
            wrong, kinds = _deephunter(on, draw)
        elif method in ("random", "pgd"):
            wrong, kinds = _steps(on, method, draw)
        else:
            wrong, kinds = _swarm(on, method, draw, particles)
    spent = time.process_time() - began
    return {"seeds": len(on.x), "errors": wrong, "categories": kinds, "of": chances, "cpu": spent}


def _swarm(on: Subject, method: str, draw: int, particles: int) -> tuple[int, int]:
    if method == "swarm":  # the default, in the papers' ball, never content with one label
        trajectory = fly(on, "excitability", Settings(norm="l2", radius=1.0, labels=None, evaluations=10 * particles, seed=draw))
    else:
        fitness, said = paper(method, iterations=ROUNDS, particles=particles, seed=draw)
        trajectory = fly(on, fitness, said)
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
            with torch.enable_grad():
                at = u.clone().requires_grad_()
                loss = torch.nn.functional.cross_entropy(on.target.logits(at).double(), on.y, reduction="sum")
                (way,) = torch.autograd.grad(loss, at)
            size = way.flatten(1).norm(dim=1).clamp_min(1e-12).view(-1, 1, 1, 1)
            u = Ball("l2", 1.0, False).project(u + 0.25 * way / size, on.x)
        with torch.inference_mode():
            said = on.target.logits(ball.project(u, on.x)).argmax(1)
        bad = torch.nonzero(said != on.y)[:, 0].tolist()
        wrong += len(bad)
        kinds |= {(i, int(said[i])) for i in bad}
    return wrong, len(kinds)


# As published: by all three constraints, and always away from the network under test, because only its errors are counted here.
XPLORE = tuple(f"deepxplore:preset=mnist-paper,push=0,constraint={one}" for one in ("light", "occlusion", "blackout"))


def _differential(on: Subject, name: str, method: str, draw: int) -> tuple[int, int, int]:
    """Errors of the network itself, categories, and the outputs there may be: DeepXplore stops at the first difference."""
    from neurotest.generate.differential import diff

    others = [s.name for s in zoo.catalogue() if s.family == zoo.find(name).family and s.embedded and "lenet" in s.name]
    targets: list[Target | str] = [on.target]
    if method == "deepxplore":
        targets += [f"zoo:{one}" for one in others if one != name][:2]
        if len(targets) == 1:
            raise BadInput("DeepXplore compares networks, and there is no second one for this data set whose weights are here.")
    wrong, kinds, chances = 0, set(), 0
    for spec in XPLORE if method == "deepxplore" else (method,):
        found = diff(targets, on.source, spec, seed=draw, out=False)
        said = found.predictions[:, 0] if found.predictions.size else found.predicted
        bad = found.fault & (said != found.expected)
        wrong += int(bad.sum())
        kinds |= set(zip(found.positions[bad].tolist(), said[bad].tolist(), strict=True))
        chances += len(on.x) if method == "deepxplore" else len(found.fault)
    return wrong, len(kinds), chances


def _deephunter(on: Subject, draw: int) -> tuple[int, int]:
    from neurotest.campaign import fuzz

    kinds: set[tuple[int, int]] = set()

    def watch(fuzzer: Any, found: list[Any], new: list[Any]) -> None:
        kinds.update((m.root, m.predicted) for m in found if m.fault)

    train = f"zoo:{zoo.find(on.target.spec.removeprefix('zoo:')).dataset}/train[:1000]"
    budget: Row = {"outputs": ROUNDS * len(on.x), "forwards": 20 * ROUNDS * len(on.x)}
    found = fuzz(on.target, on.source, "deephunter:snac", train=train, seed=draw, out=False, watch=watch, **budget)
    return found.faults, len(kinds)


# -- tables III, 4 and IV, 5: faulty training


def polluted(name: str, scale: str, draw: int, n: int) -> Row:
    """How often the swarm's faults are of the polluted class, beside noise of equal norm; and which neurons carry the patch."""
    label = CLASS[zoo.find(name.partition("+")[0]).family]
    on = subject(name, scale, draw, n, avoid=label)
    trajectory = fly(on, "excitability", Settings(seed=draw))
    towards = sum(hit.predicted == label for hit in trajectory.hits)
    ball = Ball("linf", 0.1, True)
    with torch.inference_mode():
        u = ball.noise(on.x, rng.torch_stream("study.deepsensor.noise", draw))
        noisy = on.target.logits(u).argmax(1)
    found: Row = {
        "seeds": len(on.x), "failed": len(trajectory.failed), "towards": towards, "faults": len(trajectory.hits),
        "noise towards": int((noisy == label).sum()), "noise failed": int((noisy != on.y).sum()),
    }  # fmt: skip
    if "+" in name:
        found["about"] = {
            key: value for key, value in about(name, scale).items() if key in ("accuracy", "triggers", "class", "recipe")
        }
        if draw == 0:
            found["carriers"] = carriers(on, trajectory, name, scale)
    return found


def carriers(on: Subject, trajectory: Trajectory, name: str, scale: str) -> Row:
    """The neurons that owe most when the patch is stamped, and how many of the swarm's own are among them."""
    told = about(name, scale)
    colours = np.array(told["patch"], dtype=np.uint8)
    patch = Patch(colours, colours.shape[-1])  # shown whole: small parts trigger little
    few = on.x[:20]
    stamped = patch.stamp((few * 255).round().byte().numpy(), rng.stream("study.deepsensor.patch", 0))
    moved = torch.from_numpy(np.ascontiguousarray(stamped)).float().div(255)
    by_patch = of_pairs(on.target, few, moved, on.y[:20], top=10, rounds=12)
    hits = [hit for hit in trajectory.hits if hit.predicted == told["class"]][:20] or trajectory.hits[:20]
    rows = torch.tensor([hit.row for hit in hits])
    by_swarm = of_pairs(on.target, on.x[rows], torch.stack([hit.x for hit in hits]), on.y[rows], top=10, rounds=12)
    ours, theirs = ({(n.layer, n.index) for n in one.neurons} for one in (by_swarm, by_patch))
    players = sum(row["neurons"] for row in by_patch.layers)
    return {
        "patch": [vars(n) for n in by_patch.neurons], "swarm": [vars(n) for n in by_swarm.neurons],
        "shared": len(ours & theirs), "chance": 100 / players,
    }  # fmt: skip


def incomplete(name: str, scale: str, draw: int, n: int) -> Row:
    on = subject(name, scale, draw, n)
    trajectory = fly(on, "excitability", Settings(seed=draw))
    ball = Ball("linf", 0.1, True)
    noise, pgd = (
        controls.noise(on.target, on.x, on.y, ball, 100, random=draw),
        controls.pgd(on.target, on.x, on.y, ball, random=draw),
    )
    found: Row = {"seeds": len(on.x), "swarm": len(trajectory.failed), "noise": noise.failed, "pgd": pgd.failed}
    if "+" in name:
        found["about"] = {
            key: value for key, value in about(name, scale).items() if key in ("accuracy", "train_accuracy", "recipe")
        }
    return found
