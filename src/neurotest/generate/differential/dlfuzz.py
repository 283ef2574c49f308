"""DLFuzz: one target, pushed towards the runners-up while chosen neurons are driven up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.checks import setting
from neurotest.devices import placed
from neurotest.errors import BadInput
from neurotest.generate.differential.ensemble import (
    BatchOutputs,
    Covered,
    Ensemble,
    Method,
    Neurons,
    Output,
    left,
    pick,
    rows_of,
)
from neurotest.generate.gradient.engine import moved
from neurotest.jobs.parts import Arrays
from neurotest.registry import register

STRATEGIES = ("often", "rarely", "weight", "threshold")
HEAVY = 0.1  # the share of neurons with the largest weights

Numbers = NDArray[np.float64]
Chosen = NDArray[np.int64]


class Selector(Protocol):
    """Chooses m neurons for every image, and learns from the result."""

    def choose(self, counts: NDArray[np.int64], scaled: Numbers, uniforms: Numbers, m: int) -> Chosen: ...

    def learn(self, covered: Covered, failed: NDArray[np.bool_]) -> None: ...

    def arrays(self) -> Arrays: ...

    def restore(self, arrays: Arrays) -> None: ...


class _Mixed:
    """DLFuzz's strategies; several share the m neurons, as even as possible, the first ones getting the rest."""

    def __init__(self, names: tuple[str, ...], neurons: Neurons, threshold: float) -> None:
        self.names, self.threshold = names, threshold
        weights = neurons.weights
        heavy = np.argsort(-weights, kind="stable")[: max(1, int(np.ceil(HEAVY * len(weights))))]
        self.heavy = np.zeros(len(weights))
        self.heavy[heavy] = 1.0

    def choose(self, counts: NDArray[np.int64], scaled: Numbers, uniforms: Numbers, m: int) -> Chosen:
        parts, left = [], m
        for number, name in enumerate(self.names):
            share = int(np.ceil(left / (len(self.names) - number)))
            left -= share
            if share:
                parts.append(self._one(name, counts, scaled, uniforms, share))
        return np.concatenate(parts, axis=1)

    def _one(self, name: str, counts: NDArray[np.int64], scaled: Numbers, uniforms: Numbers, m: int) -> Chosen:
        if name == "threshold":
            distance = np.abs(np.nan_to_num(scaled, nan=np.inf) - self.threshold)
            return np.argsort(distance, axis=1, kind="stable")[:, :m]
        weights = {"often": counts, "rarely": counts.max() - counts, "weight": self.heavy}[name].astype(np.float64)
        if not weights.any():  # nothing is covered yet
            weights = np.ones_like(weights)
        return _weighted(weights[None], uniforms, m)

    def learn(self, covered: Covered, failed: NDArray[np.bool_]) -> None:
        return None

    def arrays(self) -> Arrays:
        return {}

    def restore(self, arrays: Arrays) -> None:
        return None


def _weighted(weights: NDArray[np.float64], uniforms: NDArray[np.float64], m: int) -> NDArray[np.int64]:
    """m different columns per row, drawn in proportion to `weights` (n or 1, neurons): (n, m).

    The m largest of log weight plus Gumbel noise are such a draw, for all rows at once.
    """
    noise = -np.log(-np.log(np.clip(uniforms, 1e-300, 1 - 1e-16)))
    with np.errstate(divide="ignore"):
        keys = np.log(np.maximum(weights, 0)) + noise
    keys = np.where(np.isneginf(keys), noise - 1e9, keys)  # weight 0: only when nothing else is left
    order = np.argpartition(-keys, m - 1, axis=1)[:, :m]
    return np.asarray(order, dtype=np.int64)


GAIN = 0.01  # of coverage, over the number of the step: less makes no new seed


@register(
    "differential",
    "dlfuzz",
    paper="Guo et al., DLFuzz, ESEC/FSE 2018",
    cost="one forward and one backward pass per step and image",
    differs="One graph serves a whole batch; the published code builds one per image, which is why it is slow. Clipped in every "
    "step, and a fault is one of the saved 8-bit image. Coverage gained by an image is counted after those before it in the "
    "batch. An image that gains coverage is tried again only up to `generations` times. With the published step an image of "
    "MNIST is past the published bound of .02 after one step, so nothing is tried again there (`within=0.1` lets it be).",
    main="strategy",
)
class DLFuzz(Method):
    """Climb `class_weight` x the logits of the next four classes - that of the seed's class + `neuron_weight` x ten neurons.

    strategy: which neurons: `often` covered, `rarely` covered, `weight` (the tenth with the largest mean weight), `threshold`
    (next to being covered); several joined by + share them. within: images that gain coverage and lie this close to the seed (L2
    over its own) are climbed from again, up to `generations` times. Every step that fails is an output. Of a regression value it
    climbs how far the answer has moved, in bins, instead of the logits.
    """

    name: ClassVar[str] = "dlfuzz"
    several: ClassVar[bool] = False
    strategy: str = "often"
    step: float = setting(0.02, "0.02 in the paper", above=0, most=1)
    steps: int = setting(5, "5 by default")
    neurons: int = setting(10, "10 by default")
    runners_up: int = setting(4, "4 by default")
    class_weight: float = setting(0.5, "0.5 by default", least=0)
    neuron_weight: float = setting(0.5, "0.5 by default", least=0)
    threshold: float = setting(0.25, "0.25 by default", least=0)
    within: float = setting(0.02, "0.02 by default", least=0)
    generations: int = setting(3, "3 by default")

    def __post_init__(self) -> None:
        for part in str(self.strategy).split("+"):
            if part not in STRATEGIES:
                raise BadInput(
                    "out-of-range",
                    "strategy",
                    f"strategy={self.strategy!r}: expected {', '.join(STRATEGIES)}, or several joined by +.",
                )
        super().__post_init__()

    def selector(self, ensemble: Ensemble, random: int) -> Selector:
        return _Mixed(tuple(self.strategy.split("+")), ensemble.neurons[0], self.threshold)

    def begin(self, ensemble: Ensemble, random: int) -> _Search:
        return _Search(self, ensemble, random, self.selector(ensemble, random))


@dataclass(eq=False)
class _Batch:
    """One batch of seeds, where each ended, and its outputs."""

    seed: Tensor
    classes: NDArray[Any]  # or regression values
    last: Tensor
    x: list[Tensor] = field(default_factory=list)
    rows: list[NDArray[np.int64]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    unstable: set[int] = field(default_factory=set)

    def add(self, x: Tensor, rows: NDArray[np.int64], step: int) -> None:
        self.x.append(x)
        self.rows.append(rows)
        self.steps += [step] * len(rows)


class _Search:
    def __init__(self, method: DLFuzz, ensemble: Ensemble, random: int, selector: Selector) -> None:
        self.method, self.ensemble, self.random, self.selector = method, ensemble, random, selector
        neurons = len(ensemble.neurons[0])
        self.counts = np.zeros(neurons, dtype=np.int64)  # how often each neuron was covered
        self.m = min(method.neurons, neurons)

    def coverage(self) -> list[float]:
        return [float((self.counts > 0).mean())]

    def arrays(self) -> Arrays:
        return {"counts": self.counts, **self.selector.arrays()}

    def restore(self, arrays: Arrays) -> None:
        self.counts = arrays["counts"].astype(np.int64)
        self.selector.restore(arrays)

    def batch(self, seed: Tensor, classes: NDArray[Any], positions: NDArray[np.int64]) -> BatchOutputs:
        batch = _Batch(seed, classes, seed.clone())
        u, rows = seed, np.arange(len(seed))
        for generation in range(self.method.generations):
            stream = rng.stream("diff.neuron", self.random, int(positions[0]), generation)
            u, rows = self._climb(batch, u, rows, stream, first=generation == 0)
            if not len(rows):
                break
        failed = np.unique(np.concatenate(batch.rows)) if batch.rows else np.empty(0, dtype=np.int64)
        others = np.setdiff1d(np.arange(len(seed)), failed)
        batch.add(self.ensemble.quantise(rows_of(batch.last, others)), others, self.method.steps)
        unstable = len(batch.unstable - set(failed.tolist()))
        return BatchOutputs(torch.cat(batch.x), np.concatenate(batch.rows), np.array(batch.steps, dtype=np.int64), unstable)

    def _climb(
        self, batch: _Batch, u: Tensor, rows: NDArray[np.int64], stream: np.random.Generator, *, first: bool
    ) -> tuple[Tensor, NDArray[np.int64]]:
        """All images of a generation at once; those that are worth climbing from again, and their rows."""
        own = placed(batch.classes[rows], u.device)
        next_: list[tuple[Tensor, NDArray[np.int64]]] = []
        others, chosen = None, np.empty((0, 0), dtype=np.int64)
        for step in range(self.method.steps + 1):
            here = u.detach().requires_grad_()
            (forward,) = self.ensemble.forward(here)
            if others is None:
                others = own
                if forward.bins is None:
                    others = _runners_up(forward.logits.detach(), own, self.method.runners_up)
                uniforms = stream.random((len(rows), len(self.counts)))
                chosen = self.selector.choose(self.counts, forward.values.scaled.cpu().numpy(), uniforms, self.m)
            else:
                next_.append(self._judge(batch, here.detach(), forward, rows, step))
            if step == self.method.steps:
                break
            with torch.enable_grad():
                objective = self._objective(forward, own, others, chosen)
            gradient = self.ensemble.direction(objective, here, first=first and step == 0)
            u = (here.detach() + self.method.step * gradient).clamp(0, 1)
        batch.last[torch.from_numpy(rows).to(u.device)] = u.detach()
        return torch.cat([x for x, _ in next_]), np.concatenate([r for _, r in next_])

    def _objective(self, forward: Output, own: Tensor, others: Tensor, chosen: NDArray[np.int64]) -> Tensor:
        neurons = pick(forward.values.means, chosen)
        if (bins := forward.bins) is not None:
            return (
                moved(bins.values(forward.logits), own.to(forward.logits), bins) / bins.width
                + self.method.neuron_weight * neurons
            )
        own_logit = forward.logits.gather(1, own[:, None])[:, 0]
        other_logits = forward.logits.gather(1, others).sum(1)
        return self.method.class_weight * other_logits - own_logit + self.method.neuron_weight * neurons

    def _judge(
        self, batch: _Batch, here: Tensor, forward: Output, rows: NDArray[np.int64], number: int
    ) -> tuple[Tensor, NDArray[np.int64]]:
        """Output what fails as it is saved, count coverage, and give what is worth climbing from again."""
        tolerance = self.ensemble.tolerance
        wrong = left(forward.predicted, batch.classes[rows], tolerance)
        suspects = np.flatnonzero(wrong)
        if len(suspects):
            saved = self.ensemble.quantise(rows_of(here, suspects))
            stable = left(self.ensemble.predict(saved)[:, 0], batch.classes[rows[suspects]], tolerance)
            batch.unstable |= set(rows[suspects[~stable]].tolist())
            if stable.any():
                batch.add(rows_of(saved, stable), rows[suspects[stable]], number)
        covered = forward.values.covered(self.method.threshold)
        gains = _coverage_gains(covered, self.counts > 0)
        self.counts += covered.sum(0)
        self.selector.learn(covered, wrong)
        base = rows_of(batch.seed, rows).flatten(1)
        near = (here.flatten(1) - base).norm(dim=1) < self.method.within * base.norm(dim=1)
        again = np.flatnonzero((gains > GAIN / number) & near.cpu().numpy())
        return rows_of(here, again), rows[again]


def _runners_up(logits: Tensor, own: Tensor, k: int) -> Tensor:
    """The k likeliest classes beside `own`: (n, k), fewer where there are no more."""
    rest = logits.scatter(1, own[:, None], -torch.inf)
    return rest.topk(min(k, logits.shape[1] - 1), dim=1).indices


def _coverage_gains(covered: Covered, before: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How much coverage each row adds to `before` (neurons,) and to the rows before it: (n, neurons) -> (n,)."""
    so_far = np.logical_or.accumulate(np.vstack([before[None], covered]), axis=0).sum(1)
    return np.asarray(np.diff(so_far) / len(before))
