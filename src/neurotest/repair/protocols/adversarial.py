"""Adversarial training: attacks regenerated at every step (`pgd-at`), or made once on the old network (`static-adv`)."""

from __future__ import annotations

from neurotest.checks import eps_share, setting
from neurotest.generate.gradient.attacks import PGD
from neurotest.registry import register
from neurotest.repair.lessons import Ingredients
from neurotest.repair.plan import RepairPlan, some
from neurotest.repair.protocol import Protocol, attacked


@register(
    "repair",
    "pgd-at",
    paper="Madry et al., ICLR 2018",
    cost="every step costs steps + 1 forward and backward passes: 8 times a plain training",
    differs="Starts from the trained network instead of from random weights.",
)
class PgdTraining(Protocol):
    """Every batch of the training data is moved by PGD on the network as it is at that step, and only then learned."""

    eps: float = setting(0.1, read=eps_share)
    steps: int = setting(7, "7 in the paper")
    epochs: int = setting(10, "10 here: the network is trained already")
    batch: int = setting(64, "128 in the paper")
    rate: float = setting(0.001, "0.001 for Adam", above=0)

    def ingredients(self, plan: RepairPlan, seed: int) -> Ingredients:
        return Ingredients(base=plan.train, attack=PGD(eps=self.eps, step=2.5 * self.eps / self.steps, steps=self.steps))


@register(
    "repair",
    "static-adv",
    paper="the control of DeepSensor, which it calls PGD-AT",
    cost="20 epochs on at most 1,000 inputs",
    differs="The paper calls this adversarial training; Madry's regenerates attacks at every step, which is `pgd-at` here.",
)
class StaticAdversarial(Protocol):
    """`tests` benign inputs and as many PGD examples of them, made once on the old network."""

    needs_train = False
    tests: int = setting(500, "500 in the paper")
    eps: float = setting(0.3, read=eps_share)
    epochs: int = setting(20, "20 in the paper")
    batch: int = setting(32, "32 in the paper")
    rate: float = setting(0.001, "not given in the paper", above=0)

    def ingredients(self, plan: RepairPlan, seed: int) -> Ingredients:
        benign = some(plan.base, self.tests, seed, "benign")
        return Ingredients(base=benign, new=attacked(plan.target, benign, PGD(eps=self.eps), seed))
