"""What a repaired network is trained on: training images, mutated copies of them, new inputs, attacks made as it goes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from neurotest import rng
from neurotest.data.source import Source
from neurotest.generate.gradient.attacks import Attack
from neurotest.generate.gradient.engine import Engine
from neurotest.levels import levels_of
from neurotest.mutate.unit import from_unit, to_unit
from neurotest.repair.operators import Operators, unit
from neurotest.target import Target
from neurotest.target.outputs import Bins

COOL = 2.0  # temperature of distillation
MILD = 0.25  # of a change
SAMPLE = 128  # inputs of a batch
CELLS = 1 << 24  # values of copies that are made together at most


@dataclass(frozen=True, eq=False)
class Aim:
    """How mutated copies are drawn: `weights` (operators, classes) say how often; `depth` how many changes follow each other."""

    operators: Operators
    weights: NDArray[np.float64]
    depth: int = 1

    def kinds(self, random: np.random.Generator, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """An operator for each of the labels, as often as the weights of its class say."""
        ends = np.cumsum(self.weights / self.weights.sum(axis=0), axis=0)[:, labels]  # (operators, n)
        return np.asarray((random.random(len(labels)) >= ends[:-1]).sum(axis=0))

    def broader(self, share: float) -> Aim:
        """With changes of no particular kind for a share of the copies."""
        operators = self.operators.broader()
        added = len(operators) - len(self.operators)
        if not share or not added:
            return self
        classes = self.weights.shape[1]
        even = np.full((added, classes), share / (added * classes))
        return Aim(operators, np.concatenate([(1 - share) * self.weights / self.weights.sum(), even]), self.depth)

    @classmethod
    def even(cls, operators: Operators, classes: int, depth: int = 1) -> Aim:
        return cls(operators, np.ones((len(operators), classes)), depth)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ingredients:
    """What goes into a training set.

    base: images as they are, of which a share `plain`, another one each time, is learned in an epoch. new: inputs with labels,
    all of them once an epoch, `times` over. copies: mutated images of the base an epoch, drawn anew each time as `aim` says.
    hard: so many changes are tried for a copy, and the one that the network does worst on is learned. attack: what every batch
    is moved by first. distil: weight of staying close to the old network's answers on the base, where they are right; what it
    said of an image is also the lesson for its mutated copies. anchors: so many rows an epoch without any label: mildly changed
    mixtures of two images of the base, on which the answers shall stay what they were. interpolate: whether the weights are at
    last averaged with the old ones.
    """

    base: Source | None = None
    plain: float = 1.0
    new: Source | None = None
    times: int = 1
    copies: int = 0
    aim: Aim | None = None
    hard: int = 1
    attack: Attack | None = None
    distil: float = 0.0
    anchors: int = 0
    interpolate: bool = False

    @property
    def extra(self) -> int:
        """Rows an epoch beside the base."""
        return self.copies + (0 if self.new is None else self.times * len(self.new)) + self.anchors

    @property
    def unchanged(self) -> int:
        """Rows of the base in an epoch."""
        return 0 if self.base is None else max(1, round(self.plain * len(self.base)))

    def __len__(self) -> int:
        return self.unchanged + self.extra


class Lessons:
    """Rows of an epoch: the base first, then mutated copies, then new inputs, then anchors."""

    def __init__(self, target: Target, ingredients: Ingredients, seed: int) -> None:
        self.target, self.parts, self.seed = target, ingredients, seed
        self.base = ingredients.unchanged
        self.old = torch.empty(0)
        if ingredients.distil and ingredients.base is not None:
            self.old = _answers(target, ingredients.base)
            self.knows = predictions(target, ingredients.base) == ingredients.base.labels
        self.start(0)

    @property
    def _base(self) -> Source:
        assert self.parts.base is not None  # copies and anchors are made of it
        return self.parts.base

    @property
    def _aim(self) -> Aim:
        assert self.parts.aim is not None
        return self.parts.aim

    def __len__(self) -> int:
        return len(self.parts)

    def start(self, epoch: int) -> None:
        """Draw this epoch's copies: first what kind of change for which class, then an image of that class.

        Of a copy there are `hard` candidates, one after the other; the network itself says later which is learned.
        """
        random, copies = rng.stream("repair.copies", self.seed, epoch), self.parts.copies
        self.step, self.epoch = 0, epoch
        size = 0 if self.parts.base is None else len(self.parts.base)
        order = rng.stream("repair.plain", self.seed, epoch).permutation(size) if self.base < size else np.arange(size)
        self.plain = order[: self.base]  # which of the base, by row
        if self.parts.anchors:
            self._mix(rng.stream("repair.anchors", self.seed, epoch))
        self.ready, self.place = torch.empty(0), np.full(copies, -1)  # copies that are made ahead, and where each of them is
        if not copies:
            return
        labels, aim = np.asarray(self._base.labels), self._aim
        sizes = np.bincount(labels, minlength=aim.weights.shape[1])
        weights = aim.weights * sizes  # an even aim draws every image equally often
        cells = random.choice(weights.size, copies, p=(weights / weights.sum()).ravel())
        kind, wanted = np.divmod(cells, weights.shape[1])
        order = np.argsort(labels, kind="stable")
        first = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        self.images = order[first[wanted] + (random.random(copies) * sizes[wanted]).astype(np.int64)]
        rivals = [aim.kinds(random, wanted) for _ in range(self.parts.hard - 1)]
        total = copies * self.parts.hard
        self.changes = [aim.operators.draw(random, np.concatenate([kind, *rivals]))]
        self.changes += [aim.operators.draw_any(random, total) for _ in range(aim.depth - 1)]
        self.deeper = random.random(total) < 0.5  # half of the copies are changed once more

    def _mix(self, random: np.random.Generator) -> None:
        """Draw this epoch's anchors: two images, at most half of the second, and a quarter of a change."""
        count, operators = self.parts.anchors, self._aim.operators
        first, second = (random.integers(0, len(self._base), count) for _ in range(2))
        share = 0.5 * random.random(count) * (random.random(count) < 0.5)
        self.mixtures = first, second, share, operators.milder(operators.draw_any(random, count), MILD)

    def ahead(self, module: nn.Module, rows: Tensor) -> None:
        """Make the copies among the rows, many at a time: operators cost by the call."""
        if not self.parts.copies:
            return
        index = rows.numpy() - self.base
        index = np.unique(index[(index >= 0) & (index < self.parts.copies)])
        if len(index) and len(index) * math.prod(self._base.shape) <= CELLS:  # of large images a batch is enough
            self._make(module, index)

    def _make(self, module: nn.Module, copies: NDArray[np.int64]) -> None:
        self.ready, self.place[:] = self._hardest(module, copies), -1
        self.place[copies] = np.arange(len(copies))

    def _hardest(self, module: nn.Module, copies: NDArray[np.int64]) -> Tensor:
        """Of every copy's candidates the one with the greatest loss on the network as it is now."""
        best = self._candidate(copies)
        if self.parts.hard == 1:
            return best
        network = self.target.holding(module.eval())
        labels = torch.from_numpy(_truth(self.target, self._base)[self.images[copies]]).to(self.target.device)
        with torch.no_grad():
            most = _misfit(self.target, network.logits(_like(best)), labels)
            for number in range(1, self.parts.hard):
                rival = self._candidate(copies + number * self.parts.copies)
                losses = _misfit(self.target, network.logits(_like(rival)), labels)
                best[losses > most] = rival[losses > most]
                most = torch.maximum(most, losses)
        module.train()
        return best

    def loss(self, module: nn.Module, rows: Tensor) -> Tensor:
        plain, copies, new, anchors = self._kinds(rows.numpy())
        plain = self.plain[plain]
        network, count = self.target.holding(module), len(plain) + len(copies) + len(new)
        loss = torch.zeros((), device=self.target.device)
        x, y = self._inputs(module, [plain, copies, new]) if count else (None, None)
        anchor = self._anchors(anchors) if len(anchors) else None
        if x is not None and self.parts.attack is not None:
            assert y is not None
            x = self._attacked(module, x, y, rows.numpy())
        logits = network.logits(_like(torch.cat([one for one in (x, anchor) if one is not None])))
        if y is not None:
            loss = loss + _misfit(self.target, logits[:count], y).mean() * count / len(rows)
        taught = np.concatenate([plain, self.images[copies]]) if len(copies) else plain
        if len(self.old):
            places = np.flatnonzero(self.knows[taught])
            if len(places):
                moved = _distance(logits[torch.from_numpy(places)], self.old[taught[places]].to(logits), self.target.bins)
                loss = loss + self.parts.distil * len(places) / len(rows) * moved
        if anchor is not None:
            with torch.no_grad():
                old = self.target.logits(_like(anchor))
            loss = loss + self.parts.distil * len(anchors) / len(rows) * _distance(logits[count:], old, self.target.bins)
        return loss

    def sample(self, module: nn.Module, epoch: int, count: int) -> list[Tensor]:
        """Inputs as this epoch learns them, in batches, about so many; anchors are not among them."""
        self.start(epoch)
        rows = rng.stream("repair.sample", self.seed).permutation(len(self) - self.parts.anchors)[:count]
        batches = []
        for part in np.array_split(rows, max(1, len(rows) // SAMPLE)):
            plain, copies, new, _ = self._kinds(part)
            batches.append(_like(self._inputs(module, [self.plain[plain], copies, new])[0]))
        return batches

    def _kinds(self, index: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Rows of the base, of copies, of new inputs and of anchors, each counted from 0."""
        ends = np.cumsum([0, self.base, self.parts.copies, len(self) - self.base - self.parts.copies - self.parts.anchors])
        kind = np.searchsorted(ends, index, side="right") - 1
        return [index[kind == number] - ends[number] for number in range(4)]

    def _anchors(self, rows: NDArray[np.int64]) -> Tensor:
        first, second, share = (values[rows] for values in self.mixtures[:3])
        one, other = (unit(self._base.read(index), self.target.bounds) for index in (first, second))
        mixed = torch.lerp(one, other, torch.from_numpy(share).to(one).view(-1, *[1] * (one.ndim - 1)))
        levels = levels_of(self._base.dtype)
        mixed = self._aim.operators.apply(mixed, self.mixtures[3][rows], levels=levels)
        return from_unit(mixed, self.target.bounds).to(self.target.device)

    def _inputs(self, module: nn.Module, parts: list[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
        """Inputs in the target's bounds and their labels, part by part."""
        x, y = [], []
        plain, copies, new = parts
        for source, rows in ((self.parts.base, plain), (self.parts.new, new % max(1, len(self.parts.new or ())))):
            if source is not None and len(rows):
                assert source.labels is not None
                x.append(self.target.prepare(source.read(rows)))
                y.append(_truth(self.target, source)[rows])
        if len(copies):
            x.insert(1 if len(plain) else 0, self._copies(module, copies))
            y.insert(1 if len(plain) else 0, _truth(self.target, self._base)[self.images[copies]])
        return torch.cat(x), torch.from_numpy(np.concatenate(y)).to(self.target.device)

    def _copies(self, module: nn.Module, rows: NDArray[np.int64]) -> Tensor:
        if (self.place[rows] < 0).any():
            self._make(module, rows)
        return self.ready[torch.from_numpy(self.place[rows])]

    def _candidate(self, rows: NDArray[np.int64]) -> Tensor:
        """Images changed as it was drawn."""
        levels, bounds = levels_of(self._base.dtype), self.target.bounds
        x = unit(self._base.read(self.images[rows % self.parts.copies]), bounds)
        for depth, changes in enumerate(self.changes):
            deeper = np.flatnonzero(self.deeper[rows]) if depth else np.arange(len(rows))
            if len(deeper):
                x[deeper] = self._aim.operators.apply(x[deeper], changes[rows[deeper]], levels=levels)
        return from_unit(x, bounds).to(self.target.device)

    def _attacked(self, module: nn.Module, x: Tensor, y: Tensor, index: NDArray[np.int64]) -> Tensor:
        """The batch moved away from its labels on the network as it is now."""
        assert self.parts.attack is not None
        module.eval()
        self.step += 1
        with Engine(self.target.holding(module)) as engine:
            seeds = to_unit(x, self.target.bounds)
            random = int(rng.stream("repair.attack", self.seed, self.epoch, self.step).integers(2**31))
            moved = self.parts.attack.run(engine, seeds, y, positions=index.tolist(), random=random)
        module.train()
        return from_unit(moved.detach(), self.target.bounds)


def _like(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def _truth(target: Target, source: Source) -> NDArray[Any]:
    """(n,) labels; where the target predicts a quantity the quantities, or the middles of the bins where nothing else is
    known."""
    assert source.labels is not None
    if target.bins is None:
        return source.labels
    if source.quantities is not None:
        return np.asarray(source.quantities, dtype=np.float64)
    return target.bins.middles()[source.labels]


def _misfit(target: Target, logits: Tensor, y: Tensor) -> Tensor:
    """(n,) the loss: cross-entropy or, of a quantity, the distance in tolerances, squared where it is small."""
    if target.bins is None:
        return functional.cross_entropy(logits, y, reduction="none")
    scale = target.bins.tolerance
    return functional.smooth_l1_loss(target.bins.values(logits) / scale, y.to(logits) / scale, reduction="none")


def _distance(logits: Tensor, old: Tensor, bins: Bins | None = None) -> Tensor:
    """How far the answers have moved from the old ones: the mean divergence, both softened; of a quantity the mean square in
    tolerances."""
    if bins is not None:
        return ((bins.values(logits) - bins.values(old)) / bins.tolerance).square().mean()
    ours, theirs = (functional.log_softmax(one / COOL, dim=1) for one in (logits, old))
    return COOL * COOL * functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)


def _answers(target: Target, source: Source, batch: int = 128) -> Tensor:
    """Logits of a target on a source, (n, classes)."""
    with torch.inference_mode():
        parts = [
            target.logits(target.prepare(source.read(np.arange(i, min(i + batch, len(source)))))).float().cpu()
            for i in range(0, len(source), batch)
        ]
    return torch.cat(parts).clone()


def predictions(target: Target, source: Source) -> NDArray[np.int64]:
    """Classes of a target on a source; -1 where an answer is not finite."""
    logits = _answers(target, source)
    labels = torch.zeros(len(source), dtype=torch.int64) if source.labels is None else torch.from_numpy(source.labels)
    quantities = None if source.quantities is None else torch.from_numpy(np.asarray(source.quantities))
    return np.asarray(target.counted(logits, labels, quantities).numpy().astype(np.int64))
