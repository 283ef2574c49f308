"""What a repaired network is trained on: training images, mutated copies of them, new inputs, attacks made as it goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from neurotest import rng
from neurotest.data.source import Source
from neurotest.generate.gradient.attacks import Attack
from neurotest.generate.gradient.engine import Engine
from neurotest.mutate.space import from_unit, to_unit
from neurotest.repair.operators import Operators, unit
from neurotest.target import Target

COOL = 2.0  # temperature of distillation


@dataclass(frozen=True, eq=False)
class Aim:
    """How mutated copies are drawn: `weights` (operators, classes) say how often; `depth` how many changes follow each other."""

    operators: Operators
    weights: NDArray[np.float64]
    depth: int = 1

    @classmethod
    def even(cls, operators: Operators, classes: int, depth: int = 1) -> Aim:
        return cls(operators, np.ones((len(operators), classes)), depth)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ingredients:
    """What goes into a training set.

    base: images as they are. new: inputs with labels, all of them once an epoch, `times` over. copies: mutated images of the base
    an epoch, drawn anew each time as `aim` says. attack: what every batch is moved by first. distil: weight of staying close to
    the old network's answers on the base; what it said of an image is also the lesson for its mutated
    copies. interpolate: whether the weights are at last averaged with the old ones.
    """

    base: Source | None = None
    new: Source | None = None
    times: int = 1
    copies: int = 0
    aim: Aim | None = None
    attack: Attack | None = None
    distil: float = 0.0
    interpolate: bool = False

    @property
    def extra(self) -> int:
        """Rows an epoch beside the base."""
        return self.copies + (0 if self.new is None else self.times * len(self.new))

    def __len__(self) -> int:
        return (0 if self.base is None else len(self.base)) + self.extra


class Lessons:
    """Rows of an epoch: the base first, then mutated copies, then new inputs."""

    def __init__(self, target: Target, ingredients: Ingredients, seed: int) -> None:
        self.target, self.parts, self.seed = target, ingredients, seed
        self.base = 0 if ingredients.base is None else len(ingredients.base)
        self.old = torch.empty(0)
        if ingredients.distil and ingredients.base is not None:
            self.old = answers(target, ingredients.base)
        self.start(0)

    def __len__(self) -> int:
        return len(self.parts)

    def start(self, epoch: int) -> None:
        """Draw this epoch's copies: first what kind of change for which class, then an image of that class."""
        random, copies = rng.stream("repair.copies", self.seed, epoch), self.parts.copies
        self.step, self.epoch = 0, epoch
        if not copies:
            return
        assert self.parts.aim is not None
        assert self.parts.base is not None
        labels = self.parts.base.labels
        assert labels is not None
        aim, sizes = self.parts.aim, np.bincount(labels, minlength=self.parts.aim.weights.shape[1])
        weights = aim.weights * sizes  # an even aim draws every image equally often
        cells = random.choice(weights.size, copies, p=(weights / weights.sum()).ravel())
        kind, wanted = np.divmod(cells, weights.shape[1])
        order = np.argsort(labels, kind="stable")
        first = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        self.images = order[first[wanted] + (random.random(copies) * sizes[wanted]).astype(np.int64)]
        self.changes = [aim.operators.draw(random, kind)]
        for _ in range(aim.depth - 1):  # half of the copies are changed once more
            again = aim.operators.draw_any(random, copies)
            self.changes.append(again)
        self.deeper = random.random(copies) < 0.5

    def loss(self, module: nn.Module, rows: Tensor) -> Tensor:
        index = rows.numpy()
        parts = [index[index < self.base], index[(index >= self.base) & (index < self.base + self.parts.copies)]]
        parts = [parts[0], parts[1] - self.base, index[index >= self.base + self.parts.copies] - self.base - self.parts.copies]
        x, y = self._inputs(parts)
        if self.parts.attack is not None:
            x = self._attacked(module, x, y, index)
        logits = self.target.holding(module).logits(_like(x))
        loss = functional.cross_entropy(logits, y)
        taught = np.concatenate([parts[0], self.images[parts[1]]]) if len(parts[1]) else parts[0]
        if len(self.old) and len(taught):
            moved = distance(logits[: len(taught)], self.old[taught].to(logits))
            loss = loss + self.parts.distil * len(taught) / len(x) * moved
        return loss

    def _inputs(self, parts: list[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
        """Inputs in the target's bounds and their labels, part by part."""
        x, y = [], []
        plain, copies, new = parts
        for source, rows in ((self.parts.base, plain), (self.parts.new, new % max(1, len(self.parts.new or ())))):
            if source is not None and len(rows):
                assert source.labels is not None
                x.append(self.target.prepare(source.read(rows)))
                y.append(source.labels[rows])
        if len(copies):
            assert self.parts.base is not None
            assert self.parts.base.labels is not None
            x.insert(1 if len(plain) else 0, self._copies(copies))
            y.insert(1 if len(plain) else 0, self.parts.base.labels[self.images[copies]])
        return torch.cat(x), torch.from_numpy(np.concatenate(y)).to(self.target.device)

    def _copies(self, rows: NDArray[np.int64]) -> Tensor:
        assert self.parts.base is not None
        assert self.parts.aim is not None
        eight_bit, bounds = self.parts.base.dtype == np.uint8, self.target.bounds
        x = unit(self.parts.base.read(self.images[rows]), bounds)
        for depth, changes in enumerate(self.changes):
            deeper = np.flatnonzero(self.deeper[rows]) if depth else np.arange(len(rows))
            if len(deeper):
                x[deeper] = self.parts.aim.operators.apply(x[deeper], changes[rows[deeper]], eight_bit=eight_bit)
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


def distance(logits: Tensor, old: Tensor) -> Tensor:
    """How far the answers have moved from the old ones: the mean divergence, both softened."""
    ours, theirs = (functional.log_softmax(one / COOL, dim=1) for one in (logits, old))
    return COOL * COOL * functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)


def answers(target: Target, source: Source, batch: int = 500) -> Tensor:
    """Logits of a target on a source, (n, classes)."""
    with torch.inference_mode():
        parts = [
            target.logits(target.prepare(source.read(np.arange(i, min(i + batch, len(source)))))).float().cpu()
            for i in range(0, len(source), batch)
        ]
    return torch.cat(parts).clone()


def predictions(target: Target, source: Source) -> NDArray[np.int64]:
    """Classes of a target on a source; -1 where an answer is not finite."""
    logits = answers(target, source)
    classes = torch.where(logits.isfinite().all(1), logits.argmax(1), -1)
    return np.asarray(classes.numpy().astype(np.int64))
