"""The default: aimed and chained mutations of training images, the run's inputs, distillation, averaged weights."""

from __future__ import annotations

from typing import Literal

from neurotest.checks import setting
from neurotest.registry import register
from neurotest.repair.lessons import Ingredients
from neurotest.repair.plan import RepairPlan, joined
from neurotest.repair.protocol import Protocol
from neurotest.repair.retrain import normalised
from neurotest.zoo.recipes import Recipe

NORMALISED, OTHERS = 0.001, 0.003  # rates for Adam, of networks with batch normalisation and without


@register(
    "repair",
    "default",
    paper="",
    cost="10 epochs on a share of training data and seeds, two mutated copies of each, and the inputs of the run; a copy costs "
    "two forward passes more than it would otherwise",
    differs="A combination of what is cheap, taken apart on even test images: see the page on repair.",
)
class Default(Protocol):
    """A share `plain` of the training data and of what the run started from, mutated copies of both, and the run's inputs with
    their labels, `times` over.

    copies: mutated copies an epoch for each input. For each of them `hard` changes are tried, and the one on which the network
    does worst is learned. aimed: the share of changes drawn where the campaign showed the network to be weak; broad: of changes
    of no particular kind, which help with operators nobody thought of. depth: how many changes a copy may have had one after
    the other. distil: weight of the old network's right answers to inputs as they are, for them and for their copies. average:
    how much of the mean weights stays at each step. The mean is at last averaged with the old weights, by the weight that is
    best on a split of its own. rate: 0 chooses 0.001 for networks with batch normalisation, which lose more of what they knew at
    higher rates, and 0.003 for others. patience: training ends after so many epochs that were no better on that split, and the
    best epoch counts; 0: it goes to the end.
    """

    epochs: int = setting(10, "10 by default")
    batch: int = setting(64, "64 by default")
    rate: float = setting(0.0, "0: 0.001 with batch normalisation, 0.003 without", least=0)
    copies: float = setting(2.0, "2 by default", least=0)
    plain: float = setting(0.3, "0.3 by default", above=0, most=1)
    times: int = setting(1, "1 by default")
    depth: int = setting(1, "1 by default")
    aimed: float = setting(0.2, "0.2 by default", least=0, most=1)
    broad: float = setting(0.3, "0.3 by default", least=0, most=1)
    hard: int = setting(2, "2 by default")
    distil: float = setting(1.0, "1 by default", least=0)
    average: float = setting(0.99, "0.99 by default", least=0, below=1)
    optimiser: Literal["adam", "sgd"] = "adam"
    schedule: Literal["onecycle", "constant"] = "onecycle"
    patience: int = setting(0, "0: to the end", least=0)

    def recipe(self, plan: RepairPlan, seed: int) -> Recipe:
        rate = self.rate or (NORMALISED if normalised(plan.target.module) else OTHERS)
        return Recipe(
            epochs=self.epochs, batch=self.batch, optimiser=self.optimiser, rate=rate, schedule=self.schedule,
            average=self.average, patience=self.patience or None, seed=seed,
        )  # fmt: skip

    def ingredients(self, plan: RepairPlan, seed: int) -> Ingredients:
        base = joined(plan.train, plan.benign)
        assert base is not None
        aim = plan.aim(self.aimed, self.depth).broader(self.broad)
        return Ingredients(
            base=base, plain=self.plain, new=plan.learn.inputs, times=self.times, copies=round(self.copies * len(base)), aim=aim,
            hard=self.hard, distil=self.distil, interpolate=True,
        )  # fmt: skip
