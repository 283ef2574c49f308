"""DeepSensor: 500 inputs and the 500 tests made of them, for 20 epochs, without other training data."""

from __future__ import annotations

from neurotest.checks import setting
from neurotest.registry import register
from neurotest.repair.lessons import Ingredients
from neurotest.repair.plan import RepairPlan, some
from neurotest.repair.protocol import Protocol


@register(
    "repair",
    "deepsensor",
    paper="DeepSensor, sections on robustness improvement",
    cost="20 epochs on at most 1,000 inputs",
    differs="The paper does not name the optimiser: Adam with a OneCycle rate. Where a run stores no originals, inputs of the "
    "training data take their place.",
)
class DeepSensor(Protocol):
    """At most `tests` faults and as many benign inputs they were made from, batches of 32."""

    needs_train = False
    tests: int = setting(500, "500 in the paper")
    epochs: int = setting(20, "20 in the paper")
    batch: int = setting(32, "32 in the paper")
    rate: float = setting(0.001, "not given in the paper", above=0)

    def ingredients(self, plan: RepairPlan, seed: int) -> Ingredients:
        new = some(plan.learn.inputs, self.tests, seed, "deepsensor")
        benign = plan.learn.originals
        if benign is None:
            benign = plan.base
        return Ingredients(base=some(benign, self.tests, seed, "benign"), new=new)
