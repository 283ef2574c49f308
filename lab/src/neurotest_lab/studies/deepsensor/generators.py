"""How test inputs are made in the DeepSensor study."""

from __future__ import annotations

from neurotest import zoo
from neurotest.errors import BadInput
from neurotest.generate.swarm import Ball
from neurotest.levels import EIGHT
from neurotest.target import Target
from neurotest_lab.studies import material
from neurotest_lab.studies.suites import ROUNDS, Ways

CLOSE = Ball("l2", 1.0, EIGHT)  # of the papers' coverage experiment, the only ball they state
BORROWED = "cifar10-resnet56"


def others(name: str) -> list[Target | str]:
    """Sound networks for the same data, for DeepXplore to compare with: two LeNets, or what there is for CIFAR-10."""
    base, _, fault = name.partition("+")
    subject = zoo.find(base)
    second: list[Target | str] = []
    if "lenet" in base:
        family = [s.name for s in zoo.catalogue() if s.family == subject.family and s.embedded and "lenet" in s.name]
        second += [f"zoo:{one}" for one in family if one != base][:2]
    elif fault:
        second.append(f"zoo:{base}")
    elif subject.family == "cifar10" and material.available(BORROWED):
        second.append(material.network(BORROWED))
    if not second:
        raise BadInput(
            "missing",
            "target",
            "DeepXplore compares networks, and there is no second one for this data set whose weights are here.",
        )
    return second


WAYS = Ways(
    purpose="study.deepsensor",
    ball=CLOSE,
    evaluations=10,
    # As the papers say: by blackout; and always away from the network under test, because only its errors are counted here.
    deepxplore="deepxplore:preset=mnist-paper,push=0,constraint=blackout",
    dlfuzz=f"dlfuzz:steps={ROUNDS}",  # ten neurons and four other classes, as in the papers, are its defaults
    others=others,
    train=lambda name: f"zoo:{zoo.find(name).dataset}/train[:1000]",
)
