"""What a repair works with: everything that may be trained on, what decides, and what it is judged by, kept apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.repair.lessons import MILD, Aim, predictions
from neurotest.repair.material import Material, Split, campaign_weights, refuse_leaks, set_aside, split, withheld_operators
from neurotest.repair.operators import Operators
from neurotest.target import Target

DECIDING_SHARE, DECIDING_MAX = 0.1, 1000  # share of the training data that decides and is not trained on, and how many at most
ASIDE_SHARE = 0.2  # of a run, where it has to decide itself
IMAGES_PER_OPERATOR = 300  # images that every operator is tried on
MILD_COPIES = 8  # mildly changed copies of an input that decides
SETS = ("clean", "mutated", "unseen-operators", "faults-seen", "faults-unseen", "faults-operators", "shift")


@dataclass(frozen=True, eq=False)
class RepairPlan:
    """target: the old network. train: trained on. deciding: never trained on nor judged by. sets: what is judged by, by name."""

    target: Target
    classes: int
    train: Source | None
    deciding: Source
    parts: Split
    operators: Operators  # trained with
    withheld: tuple[str, ...]
    sets: dict[str, Source]
    seed: int
    benign: Source | None = None  # what the run started from, but for roots of held-out faults and what decides
    deciding_faults: Source | None = None  # and faults that decide
    notes: tuple[str, ...] = ()
    pool: Source | None = field(default=None, repr=False)  # where picks were selected from

    @property
    def learn(self) -> Material:
        return self.parts.learn

    @cached_property
    def deciding_mutated(self) -> Source:
        """About as many as decide at most: a few images are changed in several ways each."""
        rows = np.repeat(np.arange(len(self.deciding)), max(1, DECIDING_MAX // len(self.deciding)))
        return self.operators.pool(self.deciding.take(rows), self.seed, self.target.bounds, "deciding")[0]

    @cached_property
    def deciding_mild(self) -> Source:
        """What decides, each several times, changed so little that it is as good as another input of the same kind."""
        rows = np.repeat(np.arange(len(self.deciding)), MILD_COPIES)
        source = self.deciding.take(rows)
        changes = self.operators.draw_any(rng.stream("repair.mild", self.seed), len(source))
        return self.operators.changed(source, self.operators.milder(changes, MILD), self.target.bounds)

    @cached_property
    def old(self) -> dict[str, NDArray[np.int64]]:
        """What the old network predicts on every set."""
        return {name: predictions(self.target, source) for name, source in self.sets.items()}

    @property
    def base(self) -> Source:
        """Inputs as they are that training may use: the training data, or else what the run started from."""
        source = self.train if self.train is not None else self.benign
        return self.learn.inputs if source is None else source

    @cached_property
    def weak(self) -> NDArray[np.float64]:
        """(operators, classes): how weak the network is, by the campaign and by trying every operator on images that decide."""
        tried = self._tried()
        campaign = campaign_weights(self.learn, self.operators, self.classes)
        return np.asarray((tried / max(tried.sum(), 1e-12) + campaign) / 2)

    def aim(self, share: float, depth: int = 1) -> Aim:
        """Changes drawn evenly, but for a share of them that goes where the network is weak."""
        weights = (1 - share) / self.weak.size + share * self.weak
        return Aim(self.operators, weights / weights.sum(), depth)

    def _tried(self) -> NDArray[np.float64]:
        """Error rate of every operator and class on the images that decide, drawn towards the operator's own mean."""
        images = self.deciding.take(np.arange(min(IMAGES_PER_OPERATOR, len(self.deciding))))
        assert images.labels is not None
        rates = np.zeros((len(self.operators), self.classes))
        for number in range(len(self.operators)):
            kind = np.full(len(images), number)
            changes = self.operators.draw(rng.stream("repair.tried", self.seed, number), kind)
            wrong = predictions(self.target, self.operators.changed(images, changes, self.target.bounds)) != images.labels
            sizes = np.bincount(images.labels, minlength=self.classes)
            errors = np.bincount(images.labels, weights=wrong, minlength=self.classes)
            rates[number] = (errors + 5 * wrong.mean()) / (sizes + 5)
        return rates

    def even(self, depth: int = 1) -> Aim:
        return Aim.even(self.operators, self.classes, depth)

    def about(self) -> dict[str, Any]:
        """Sizes, for people and for the run."""
        parts = vars(self.parts)
        return {
            "train": 0 if self.train is None else len(self.train), "deciding": len(self.deciding),
            "trained_with": list(self.operators.names), "withheld": list(self.withheld),
            self.learn.kind: {name: len(part) for name, part in parts.items()},
            "sets": {name: len(source) for name, source in self.sets.items()},
        }  # fmt: skip


def make_plan(
    target: Target, classes: int, material: Material, train: Source | None, holdout: Source, shift: Source | None = None, *,
    unseen: float, seed: int, pool: Source | None = None,
) -> RepairPlan:  # fmt: skip
    """Split everything; data that would be on both sides are refused."""
    for name, source in (("train", train), ("holdout", holdout), ("shift", shift)):
        if source is not None and source.labels is None:
            raise BadInput("no-labels", name, f"--{name} {source.what} has no labels: give labelled data.")
    every = Operators.of_source(holdout)
    withheld = withheld_operators(every, unseen, seed)
    operators = every.without(withheld)
    parts = split(material, withheld, seed)
    if not len(parts.learn):
        raise BadInput(
            "empty",
            "unseen",
            f"of {len(material)} {material.kind} none is left to train on: all are made by the operators withheld for judging "
            f"({', '.join(withheld)}). Pass --unseen 0, or another --seed.",
        )
    trained = {
        "training data (--train)": train,
        f"{material.kind} of the run": parts.learn.inputs,
        "seeds of the run": material.benign if material.benign is not None else parts.learn.inputs.originals,
    }
    refuse_leaks(trained, {"holdout": holdout, "shift": shift})
    notes: list[str] = []
    sets = _sets(target, holdout, shift, parts, operators, every.only(withheld), seed)
    held = {root for part in (parts.seen, parts.unseen, parts.withheld) for root in part.roots.tolist()}
    about: dict[str, Any]
    if train is None:
        learn, benign, faults, deciding = set_aside(parts.learn, held, ASIDE_SHARE, seed)
        notes.append(f"no training data: {len(benign)} inputs the run started from hold the network to its answers.")
        parts = dataclasses.replace(parts, learn=learn)
        about = {"benign": benign, "deciding_faults": faults.inputs, "notes": tuple(notes), "pool": pool}
        return RepairPlan(target, classes, None, deciding, parts, operators, withheld, sets, seed, **about)
    train, deciding = _deciding(train, held, seed, notes)
    seeds = _benign(material, {*held, *train.ids().tolist(), *deciding.ids().tolist()})
    about = {"benign": seeds, "notes": tuple(notes), "pool": pool}
    return RepairPlan(target, classes, train, deciding, parts, operators, withheld, sets, seed, **about)


def _benign(material: Material, others: set[str]) -> Source | None:
    """What the run started from and is nowhere else."""
    if material.benign is None:
        return None
    free = np.array([one not in others for one in material.benign.ids().tolist()])
    return material.benign.take(free) if free.any() else None


def _deciding(train: Source, held: set[str], seed: int, notes: list[str]) -> tuple[Source, Source]:
    """What is trained on, and what decides. Images that held-out faults were made from are in neither."""
    free = np.array([one not in held for one in train.ids().tolist()])
    if not free.all():
        notes.append(f"{int((~free).sum())} training inputs are what held-out faults were made from, and were left out.")
        train = train.take(np.flatnonzero(free))
    order = rng.stream("repair.deciding", seed).permutation(len(train))
    count = min(DECIDING_MAX, max(1, round(DECIDING_SHARE * len(train))))
    if len(train) < 2:
        raise BadInput("too-few", "train", f"--train {train.what} has {len(train)} inputs: give at least two.")
    return train.take(np.sort(order[count:])), train.take(np.sort(order[:count]))


def _sets(
    target: Target, holdout: Source, shift: Source | None, parts: Split, seen: Operators, withheld: Operators, seed: int
) -> dict[str, Source]:
    sets: dict[str, Source | None] = {"clean": holdout}
    for name, operators in (("mutated", seen), ("unseen-operators", withheld)):
        if len(operators):
            sets[name] = operators.pool(holdout, seed, target.bounds, name)[0]
    held = (("faults-seen", parts.seen), ("faults-unseen", parts.unseen), ("faults-operators", parts.withheld))
    sets |= {name: part.inputs for name, part in held if len(part)}
    sets["shift"] = shift
    return {name: sets[name] for name in SETS if sets.get(name) is not None}  # type: ignore[misc]


def some(source: Source, count: int, seed: int, purpose: str) -> Source:
    """So many inputs at random, or all."""
    if len(source) <= count:
        return source
    return source.take(np.sort(rng.stream(f"repair.some.{purpose}", seed).permutation(len(source))[:count]))


class _Joined(Source):
    """Labelled inputs of several sources as one; they are read where they are."""

    def __init__(self, parts: Sequence[Source]) -> None:
        first = parts[0]
        labels = np.concatenate([np.asarray(part.labels) for part in parts])
        super().__init__(len(labels), first.shape, first.dtype, labels, classes=first.classes, spec=first.spec)
        self._parts = tuple(parts)
        self._rows_of = np.concatenate([np.stack([np.full(len(p), n), np.arange(len(p))], 1) for n, p in enumerate(parts)])

    def _rows(self, index: NDArray[np.int64]) -> NDArray[Any]:
        out = np.empty((len(index), *self.shape), self.dtype)
        for number, part in enumerate(self._parts):
            mine = self._rows_of[index, 0] == number
            if mine.any():
                out[mine] = part.read(self._rows_of[index[mine], 1])
        return out

    def _keep(self, index: NDArray[np.int64]) -> None:
        self._rows_of = self._rows_of[index]


def joined(*sources: Source | None) -> Source | None:
    """Those that are there and are of the first one's kind, in one."""
    parts = [source for source in sources if source is not None and len(source)]
    parts = [part for part in parts if (part.dtype, part.shape) == (parts[0].dtype, parts[0].shape)]
    return _Joined(parts) if len(parts) > 1 else parts[0] if parts else None
