"""Figures about excitable neurons that are drawn of pictures and of sound: how many there are, and how fitness rises."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import torch
from torch import Tensor

from neurotest import rng
from neurotest.attribute.shapley import mask_gradient
from neurotest.attribute.shapley.estimate import permutation
from neurotest.attribute.shapley.game import Game
from neurotest.errors import BadInput
from neurotest.generate.swarm import Ball, Settings
from neurotest.mutate.unit import from_unit
from neurotest.target import Target
from neurotest_lab.studies.frame import Row, spread
from neurotest_lab.studies.suites import PAPERS
from neurotest_lab.studies.swarms import Subject, first_faults, paper_search, search

ORDERS = 40  # random orders of neurons per pair
KINDS = ("corner", "benign")


def excited(on: Subject, ball: Ball, purpose: str, draw: int, *, pairs: int, sampled: int, orders: int = ORDERS) -> Row:
    """Figure 1: excitable neurons of so many pairs that fail, and of the same seeds with noise of equal norm that does not: by
    mask gradients, and for the first of them by sampled Shapley values."""
    settings = Settings(norm=ball.norm, radius=ball.radius, evaluations=300, seed=draw)  # what fails soon is enough
    rows, faults = first_faults(search(on, "excitability", settings))
    benign = ball.noise(on.x[rows], rng.torch_stream(purpose, draw))
    calm = torch.nonzero(on.predicted(benign) == on.y[rows])[:pairs, 0] if len(rows) else rows
    if not len(calm):
        raise BadInput("empty", "faults", "on no seed does the swarm find a fault where noise of equal norm is none.")
    row: Row = {"pairs": len(calm), "seeds": len(on.x)}
    x, y, few = from_unit(on.x[rows][calm], on.target.bounds), on.y[rows][calm], slice(sampled)
    for kind, positions in zip(KINDS, (torch.stack(faults), benign), strict=True):
        moved = from_unit(positions[calm], on.target.bounds)
        gradient = mask_gradient(on.target, x, moved, y)
        values = shapley(on.target, x[few], moved[few], y[few], seed=draw, orders=orders)
        row[kind] = {"shapley": _excitable(values), "mask gradient": _excitable(gradient)}
        tops = [set(part.mean(0).topk(10).indices.tolist()) for part in (values, gradient[few])]
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


def course(on: Subject, draw: int, **settings: Any) -> Row:
    """Figure 3 of the second paper: fitness per iteration and seed of both papers' swarms; and what they cost."""
    row: Row = {"seeds": len(on.x)}
    for preset in PAPERS:
        # What is loaded on first use.
        paper_search(dataclasses.replace(on, x=on.x[:1], y=on.y[:1]), preset, seed=draw, **settings)
        fitness: list[list[float]] = []
        began, clock = time.process_time(), time.perf_counter()
        paper_search(on, preset, fitness, seed=draw, **settings)
        cpu, wall = time.process_time() - began, time.perf_counter() - clock
        row[preset] = {"fitness": fitness, "cpu": cpu, "wall": wall, "threads": torch.get_num_threads()}
    return row


# -- their tables


def excited_rows(cells: dict[str, Row]) -> list[Row]:
    return [
        {"network": key, "values": estimate, "pairs": len(next(iter(cell[kind][estimate].values()))), "kind": kind,
         "measure": measure, **spread(values, 3, ("mean", "low", "high")), "top ten shared": cell[kind]["shared of 10"]}
        for key, cell in cells.items()
        for estimate in ("shapley", "mask gradient")
        for kind in KINDS
        for measure, values in cell[kind][estimate].items()
    ]  # fmt: skip


def course_rows(cells: dict[str, Row]) -> list[Row]:
    return [
        {"network": key, "swarm": preset, "iteration": i + 1, **spread(values, 5, ("fitness", "low", "high"))}
        for key, cell in cells.items()
        for preset in PAPERS
        for i, values in enumerate(cell[preset]["fitness"])
    ]
