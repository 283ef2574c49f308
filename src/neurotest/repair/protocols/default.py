"""The default: aimed and chained mutations of training images, the run's inputs, distillation, averaged weights."""

from __future__ import annotations

from typing import ClassVar

from neurotest.checks import setting
from neurotest.registry import register
from neurotest.repair.lessons import Aim, Ingredients
from neurotest.repair.plan import Plan, joined
from neurotest.repair.protocol import Protocol
from neurotest.zoo.recipes import Recipe


@register(
    "repair",
    "default",
    paper="",
    cost="10 epochs on training data and seeds, as many mutated copies, and the inputs of the run; the old network runs once "
    "on every training input",
    differs="A combination of what is cheap. It is not shown to beat mutated training images alone: see the page on repair.",
)
class Default(Protocol):
    """Training data and what the run started from, mutated copies of both, aimed at what the campaign showed to be weak, and
    the run's inputs with their labels, `times` over.

    depth: how many changes a copy may have had one after the other. distil: weight of the old network's answers to inputs as
    they are, for them and for their copies. average: how much of the mean weights stays at each step. The mean is at last
    averaged with the old weights, by the weight that is best on a split of its own. copies: mutated copies an epoch for each
    input.
    """

    name: ClassVar[str] = "default"
    epochs: int = setting(10, "10 by default")
    batch: int = setting(64, "64 by default")
    rate: float = setting(0.001, "0.001 for Adam", above=0)
    copies: float = setting(1.5, "1.5 by default", least=0)
    times: int = setting(1, "1 by default")
    depth: int = setting(2, "2 by default")
    distil: float = setting(0.5, "0.5 by default", least=0)
    average: float = setting(0.99, "0.99 by default", least=0, below=1)

    def recipe(self, seed: int) -> Recipe:
        return Recipe(epochs=self.epochs, batch=self.batch, rate=self.rate, average=self.average, seed=seed)

    def ingredients(self, plan: Plan, seed: int) -> Ingredients:
        base = joined(plan.train, plan.benign)
        assert base is not None
        return Ingredients(
            base=base, new=plan.learn.inputs, times=self.times, copies=round(self.copies * len(base)),
            aim=Aim(plan.operators, plan.aim, self.depth), distil=self.distil, interpolate=True,
        )  # fmt: skip
