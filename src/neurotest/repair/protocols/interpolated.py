"""Without training data: fine-tuning on the run's own inputs, held to the old network, and averaged with it."""

from __future__ import annotations

from neurotest.checks import setting
from neurotest.registry import register
from neurotest.repair.lessons import Ingredients
from neurotest.repair.plan import RepairPlan
from neurotest.repair.protocol import Protocol
from neurotest.zoo.recipes import Recipe


@register(
    "repair",
    "interpolated",
    paper="after Wortsman et al., Robust fine-tuning of zero-shot models, CVPR 2022 (averaging), and Hinton et al., 2015",
    cost="20 epochs on what the run holds: a minute for a few hundred faults on a LeNet",
    differs="The averaging weight is chosen on the run's own inputs, mildly changed; distillation is added, on mixtures of the "
    "originals too, and mutated copies of the originals.",
)
class Interpolated(Protocol):
    """The faults of a run, what they were made from, and mutated copies of that; the old network's answers weigh `distil`.

    anchors: for each of these originals so many mildly changed mixtures of two of them an epoch, on which the answers shall stay
    as they were, whatever they are. The averaging weight is the one that fixes most faults that decide while of mildly changed
    inputs that decide no more than a sixteenth is lost; it is at most 0.7 if more than one in a hundred is.
    """

    needs_train = False
    epochs: int = setting(20, "20 by default")
    batch: int = setting(32, "32 by default")
    rate: float = setting(0.001, "0.001 for Adam", above=0)
    copies: float = setting(2.0, "2 by default", least=0)
    distil: float = setting(6.0, "6 by default", least=0)
    anchors: float = setting(8.0, "8 by default", least=0)
    average: float = setting(0.98, "0.98 by default", least=0, below=1)

    def recipe(self, plan: RepairPlan, seed: int) -> Recipe:
        return Recipe(epochs=self.epochs, batch=self.batch, rate=self.rate, average=self.average, seed=seed)

    def ingredients(self, plan: RepairPlan, seed: int) -> Ingredients:
        base = plan.base
        return Ingredients(
            base=base, new=plan.learn.inputs, copies=round(self.copies * len(base)), aim=plan.aim(0.2),
            distil=self.distil, anchors=round(self.anchors * len(base)), interpolate=True,
        )  # fmt: skip
