"""Descent on a smooth convex function of a few hundred numbers, where a value and its slope are what costs time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

MEMORY = 10  # steps from which the curvature is guessed
FALL = 1e-4  # of what the slope promises: a step that lowers the value by less is halved
HALVINGS = 10

Function = Callable[[Tensor], tuple[float, Tensor]]  # where -> value and slope


def minimise(function: Function, start: Tensor, *, steps: int, enough: float) -> Tensor:
    """L-BFGS with halved steps, until no entry of the slope is greater than `enough`; no random number, no state.

    A step counts as one down as long as the value rises by no more than its own rounding.
    """
    here, (value, slope) = start, function(start)
    moves: list[Tensor] = []
    bends: list[Tensor] = []  # how the slope changed by each move
    for _ in range(steps):
        if float(slope.abs().max()) < enough:
            break
        way = _direction(slope, moves, bends)
        promise, slack, length = float((slope * way).sum()), 10 * torch.finfo(start.dtype).eps * abs(value), 1.0
        for _ in range(HALVINGS):
            there = here + length * way
            lower, new = function(there)
            if lower <= value + FALL * length * promise + slack:
                break
            length /= 2
        move, bend = there - here, new - slope
        if float((move * bend).sum()) > 0:
            moves, bends = [*moves, move][-MEMORY:], [*bends, bend][-MEMORY:]
        here, value, slope = there, lower, new
    return here


def _direction(slope: Tensor, moves: list[Tensor], bends: list[Tensor]) -> Tensor:
    """Minus the slope, times the inverse curvature that the last moves show (Nocedal's two loops)."""
    way, shares = -slope, []
    for move, bend in zip(reversed(moves), reversed(bends), strict=True):
        shares.append(float((move * way).sum() / (move * bend).sum()))
        way = way - shares[-1] * bend
    if moves:
        way = way * float((moves[-1] * bends[-1]).sum() / bends[-1].square().sum())
    for move, bend, share in zip(moves, bends, reversed(shares), strict=True):
        way = way + (share - float((bend * way).sum() / (move * bend).sum())) * move
    return way
