"""Protocols: how a network is retrained. A protocol is settings; the plan holds the data, and controls use its schedule."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from neurotest.checks import Settings
from neurotest.data.source import ArraySource, Source
from neurotest.errors import BadInput
from neurotest.generate.gradient.attacks import PGD, Attack
from neurotest.generate.gradient.engine import Engine
from neurotest.levels import levels_of
from neurotest.repair.lessons import Ingredients
from neurotest.repair.operators import stored, unit
from neurotest.repair.plan import RepairPlan, some
from neurotest.repair.retrain import Repaired, retrain
from neurotest.target import Target
from neurotest.train import Checkpoint, Report
from neurotest.zoo.recipes import Recipe

BATCH = 100  # of an attack


class Protocol(Settings, ABC):
    """How to repair. needs_train: whether it cannot do without training data."""

    name: ClassVar[str]
    needs_train: ClassVar[bool] = True

    epochs: int  # of the schedule
    batch: int
    rate: float

    def recipe(self, plan: RepairPlan, seed: int) -> Recipe:
        """The schedule: by default Adam with a OneCycle rate."""
        return Recipe(epochs=self.epochs, batch=self.batch, rate=self.rate, seed=seed)

    @abstractmethod
    def ingredients(self, plan: RepairPlan, seed: int) -> Ingredients:
        """What is trained on."""

    def repair(
        self, plan: RepairPlan, seed: int, *, checkpoint: Checkpoint | None = None, report: Report | None = None
    ) -> Repaired:
        """A repaired copy of the plan's network."""
        return retrain(plan, self.ingredients(plan, seed), self.recipe(plan, seed), checkpoint=checkpoint, report=report)


# -- controls: the same schedule with something else in place of the protocol's new inputs


def _plain(plan: RepairPlan, own: Ingredients) -> Source:
    """What a control has in place of the protocol's base: training data alone, or else what the protocol itself has."""
    base = plan.base if own.base is None else own.base
    return plan.train if plan.train is not None and len(base) >= len(plan.train) else base


def _schedule_only(plan: RepairPlan, own: Ingredients, seed: int) -> Ingredients:
    """The same schedule without new data."""
    return Ingredients(base=_plain(plan, own))


def _random_picks(plan: RepairPlan, own: Ingredients, seed: int) -> Ingredients:
    """As many inputs picked at random: from the pool that was selected from, or seeds of the run mutated at random."""
    count = 0 if own.new is None else len(own.new)
    if not count:
        raise BadInput("empty", "picks", "the protocol trains on no inputs of the run, so there is nothing to pick as many of.")
    if plan.learn.kind == "picks":
        if plan.pool is None:
            raise BadInput(
                "missing",
                "pool",
                "the pool that the run selected from is not here, or may not be opened: give it again with --pool.",
            )
        new = some(plan.pool, count, seed, "random")
    else:
        originals = plan.learn.originals
        if originals is None:
            raise BadInput("missing", "seeds", "the run does not store what its faults were made from.")
        rows = np.resize(np.arange(len(originals)), count)
        new = plan.operators.pool(originals.take(rows), seed, plan.target.bounds, "random")[0]
    return Ingredients(base=_plain(plan, own), new=new, times=own.times)


def _static_attack(plan: RepairPlan, own: Ingredients, seed: int) -> Ingredients:
    """As many inputs moved by PGD on the old network, once and for all."""
    base = _plain(plan, own)
    count = max(len(own) - len(base), 0) or len(base)
    new = attacked(plan.target, some(base, count, seed, "static"), PGD(eps=0.1, step=0.02, steps=10), seed)
    return Ingredients(base=base, new=new, times=max(1, round(count / len(new))))


def _mutated_only(plan: RepairPlan, own: Ingredients, seed: int) -> Ingredients:
    """As many rows, as large a share of images as they are, all others mutated anew in every epoch by the same operators, each as
    often as the others: they cost no label."""
    base = _plain(plan, own)
    parts = Ingredients(base=base, plain=own.plain, aim=plan.even())
    return dataclasses.replace(parts, copies=max(len(own) - len(parts), 0) or len(base))


CONTROLS = {"schedule": _schedule_only, "random": _random_picks, "static-pgd": _static_attack, "mutated": _mutated_only}


def control(
    name: str,
    protocol: Protocol,
    plan: RepairPlan,
    seed: int,
    *,
    checkpoint: Checkpoint | None = None,
    report: Report | None = None,
) -> Repaired:
    """The protocol's schedule on a control's data; without averaging, early stop or distillation."""
    own = protocol.ingredients(plan, seed)
    recipe = dataclasses.replace(protocol.recipe(plan, seed), average=0.0, patience=None)
    return retrain(plan, CONTROLS[name](plan, own, seed), recipe, checkpoint=checkpoint, report=report)


def attacked(target: Target, source: Source, attack: Attack, seed: int) -> Source:
    """Every input moved away from its label on this target, as it would be saved."""
    assert source.labels is not None
    x = np.empty((len(source), *source.shape), source.dtype)
    import torch

    with Engine(target, levels=levels_of(x.dtype)) as engine:
        for start in range(0, len(source), BATCH):
            rows = np.arange(start, min(start + BATCH, len(source)))
            seeds = unit(source.read(rows), target.bounds).to(target.device)
            labels = torch.from_numpy(source.labels[rows]).to(target.device)
            moved = attack.run(engine, seeds, labels, positions=rows.tolist(), random=seed)
            x[rows] = stored(engine.quantise(moved, seeds, attack.radius), x, target.bounds)
    return ArraySource(x, source.labels, classes=source.classes, spec=source.spec, originals=source)
