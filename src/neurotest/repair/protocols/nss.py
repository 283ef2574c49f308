"""NSS: training data and the selected inputs with their labels, for 40 epochs."""

from __future__ import annotations

from neurotest.checks import setting
from neurotest.registry import register
from neurotest.repair.lessons import Ingredients
from neurotest.repair.plan import RepairPlan
from neurotest.repair.protocol import Protocol
from neurotest.zoo.recipes import Recipe


@register(
    "repair",
    "nss",
    paper="NSS: neuron sensitivity guided test case selection, table VIII",
    cost="40 epochs on the training data and the selected inputs",
    differs="The paper does not say what it evaluates on; here that is never what was trained on, nor made of it.",
)
class Nss(Protocol):
    """Training data and every selected input, SGD with Nesterov momentum 0.99, rate 0.001, a tenth from half-way and again
    from three quarters on."""

    epochs: int = setting(40, "40 in the paper")
    batch: int = setting(64, "not given in the paper")
    rate: float = setting(0.001, "0.001 in the paper", above=0)

    def recipe(self, plan: RepairPlan, seed: int) -> Recipe:
        return Recipe(
            epochs=self.epochs, batch=self.batch, optimiser="sgd", momentum=0.99, rate=self.rate, schedule="steps",
            drops=(0.5, 0.75), seed=seed,
        )  # fmt: skip

    def ingredients(self, plan: RepairPlan, seed: int) -> Ingredients:
        return Ingredients(base=plan.train, new=plan.learn.inputs)
