"""NSGen: training data and 1,000 fault-revealing mutants of one half of the test data, judged on the other half."""

from __future__ import annotations

from neurotest.checks import setting
from neurotest.registry import register
from neurotest.repair.lessons import Ingredients
from neurotest.repair.plan import RepairPlan, some
from neurotest.repair.protocol import Protocol


@register(
    "repair",
    "nsgen",
    paper="NSGen, section 7.5, table 13",
    cost="10 epochs on the training data and at most 1,000 mutants",
    differs="The paper gives no schedule, and does not say on which network its attacks are made: ours are made on the old one "
    "(transferred) and on the repaired one (adaptive). Its halves S1 and S2 are our split by roots, and the holdout.",
)
class NsGen(Protocol):
    """Training data and at most `mutants` faults, Adam with a OneCycle rate."""

    mutants: int = setting(1000, "1000 in the paper")
    epochs: int = setting(10, "not given in the paper")
    batch: int = setting(64, "not given in the paper")
    rate: float = setting(0.001, "not given in the paper", above=0)

    def ingredients(self, plan: RepairPlan, seed: int) -> Ingredients:
        return Ingredients(base=plan.train, new=some(plan.learn.inputs, self.mutants, seed, "nsgen"))
