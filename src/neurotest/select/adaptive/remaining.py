"""How many faults are left: by a random sample of labels where there is one, otherwise by what the model believes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from neurotest.stats.bootstrap import wilson

# How far the model's sums were from the truth, noise apart, on the even-index pools of lab/scripts/design_adaptive.py.
FEWER, MORE = 2.5, 2.0
# With a prior, two models guess: the spread of the truth around their geometric mean in logarithms, and how much of their
# disagreement adds to it. Set on even-index pools of six to seven subjects.
SURE, DISAGREEMENT = 0.35, 0.35
# A prior that took predictions for the truth has seen no fault of which the network is sure, and how far it errs differs from
# network to network. The spread comes from six of them, so Student's quantile (5 degrees of freedom) stands for the normal one.
WIDER_SELF = 2.571 / 1.960
GRID = 401
RECENT = 200  # random labels that count: older ones were drawn among many faults that have been found since


@dataclass(frozen=True)
class Draw:
    """Positions drawn at random from all candidates that had no label then, that is, from all but `labelled`."""

    positions: tuple[int, ...]
    labelled: frozenset[int]
    expected: float | None = None  # faults the model expected among them; None in runs of older versions


class Remaining(NamedTuple):
    """Faults left; `random` labels are behind it, or 0 where it is the model's guess and the interval no more than experience."""

    value: float
    low: float
    high: float
    random: int = 0


def sampled(draws: Sequence[Draw], faulty: Mapping[int, bool], n: int, left: int) -> Remaining | None:
    """From random draws among n candidates of which `left` have no label; faulty: what labels say, by position.

    Each draw estimates the faults among the candidates it was drawn from; those found since are taken off. Draws count by their
    size, the newest first, and Wilson's interval of the pooled share holds whatever the model believes.
    """
    labels = faults = 0
    size = removed = 0.0
    for draw in reversed(draws):
        drawn = [faulty[p] for p in draw.positions if p in faulty]
        since = sum(fault for p, fault in faulty.items() if p not in draw.labelled)
        labels, faults = labels + len(drawn), faults + sum(drawn)
        size, removed = size + len(drawn) * (n - len(draw.labelled)), removed + len(drawn) * since
        if labels >= RECENT:
            break
    if not labels:
        return None
    share = wilson(faults, labels)
    low, value, high = (min(max(s * size / labels - removed / labels, 0.0), left) for s in (share.low, share.value, share.high))
    return Remaining(value, low, high, labels)


def modelled(head: Tensor, mixed: Tensor) -> Remaining:
    """From the fault probabilities of all candidates that are left: the corrected head's, and those selection goes by."""
    guesses = float(head.sum()), float(mixed.sum())
    noise = 3 + 2 * math.sqrt(float((head * (1 - head)).sum()))
    high = min(float(len(head)), max(guesses) * MORE + noise)
    return Remaining(min(guesses[0], high), max(0.0, min(guesses) / FEWER - noise), high)


def between(one: float, other: float) -> float:
    """The geometric mean of two guesses, in which neither outweighs the other."""
    return math.sqrt(max(one, 1e-9) * max(other, 1e-9))


def combined(head: Tensor, mixed: Tensor, draws: Sequence[Draw], faulty: Mapping[int, bool], wider: float = 1.0) -> Remaining:
    """From two models' fault probabilities of all candidates that are left, corrected by the labels of random draws.

    The truth is taken to be a factor times the models' geometric mean. Before any random label the factor is near one, the
    less sure the more the models disagree; the faults of a random draw are a Poisson number around the factor times what was
    expected of it. The interval holds 95 % of the factors, and the noise of so many coin tosses on both sides. wider:
    a factor of the spread.
    """
    guesses = float(head.sum()), float(mixed.sum())
    middle = between(*guesses)
    spread = wider * (SURE + DISAGREEMENT * abs(math.log(max(guesses[0], 1e-9) / max(guesses[1], 1e-9))))
    logs = np.linspace(-4 * spread, 4 * spread, GRID)
    weight, labels = -0.5 * (logs / spread) ** 2, 0
    for draw in reversed(draws):
        judged = [faulty[p] for p in draw.positions if p in faulty]
        if not judged or draw.expected is None:
            continue
        expected = max(draw.expected, 1e-9) * len(judged) / len(draw.positions)
        weight = weight + sum(judged) * logs - expected * np.exp(logs)
        labels += len(judged)
        if labels >= RECENT:
            break
    chance = np.cumsum(np.exp(weight - weight.max()))
    low, value, high = (middle * math.exp(logs[np.searchsorted(chance, q * chance[-1])]) for q in (0.025, 0.5, 0.975))
    noise = 3 + 2 * math.sqrt(float((head * (1 - head)).sum()))
    most = float(len(head))
    return Remaining(min(value, most), min(most, max(0.0, low - noise)), min(most, high + noise), labels)
