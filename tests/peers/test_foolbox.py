"""FGSM, BIM, PGD and CW against foolbox at equal settings, where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.peers.packages import package

from neurotest import zoo
from neurotest.data.spec import data
from neurotest.generate.gradient import BIM, CW, FGSM, PGD
from neurotest.generate.gradient.engine import Engine
from neurotest.target import Target
from neurotest.target.load import load

foolbox = package("foolbox")
pytestmark = [
    pytest.mark.peer("foolbox"),
    pytest.mark.skipif(not zoo.find("mnist-lenet1").embedded, reason="the embedded networks were removed"),
]

N = 200


@pytest.fixture(scope="module")
def subject() -> tuple[Target, torch.Tensor, torch.Tensor]:
    target = load("zoo:mnist-lenet1")
    source = data(f"zoo:mnist/test[:{N}]")
    x = target.prepare(source.read(np.arange(N)))
    return target, x, target.logits(x).argmax(1).detach()


@pytest.mark.parametrize("eps", [0.05, 0.1])
@pytest.mark.parametrize("name", ["fgsm", "bim", "pgd"])
def test_success_rates_agree_within_two_points(subject: tuple[Target, torch.Tensor, torch.Tensor], name: str, eps: float) -> None:
    target, x, y = subject
    ours = {"fgsm": FGSM(eps=eps), "bim": BIM(eps=eps, steps=10), "pgd": PGD(eps=eps, steps=10)}[name]
    theirs = {
        "fgsm": lambda: foolbox.attacks.LinfFastGradientAttack(),
        "bim": lambda: foolbox.attacks.LinfBasicIterativeAttack(abs_stepsize=0.01, steps=10, random_start=False),
        "pgd": lambda: foolbox.attacks.LinfProjectedGradientDescentAttack(abs_stepsize=0.01, steps=10),
    }[name]()
    # One random start alone scatters by three points on 200 inputs (theirs .495 to .525 at eps .1): PGD is averaged over four.
    starts = range(4 if name == "pgd" else 1)
    mine = np.mean([_ours(target, ours, x, y, start) for start in starts])
    peer = foolbox.PyTorchModel(target.module, bounds=(0, 1))
    other = np.mean([_theirs(theirs, peer, x, y, eps, start) for start in starts])
    assert mine == pytest.approx(other, abs=0.02)
    assert mine > 0.05


def test_cw_succeeds_as_often(subject: tuple[Target, torch.Tensor, torch.Tensor]) -> None:
    """Theirs minimises L2 and ours the maximum change: what compares is how often they succeed."""
    target, x, y = (part[:40] if isinstance(part, torch.Tensor) else part for part in subject)
    ours = CW(rate=0.1, steps=60, searches=4, weight=0.01)
    theirs = foolbox.attacks.L2CarliniWagnerAttack(
        binary_search_steps=4, steps=60, stepsize=0.1, initial_const=0.01, abort_early=False
    )
    with Engine(target, levels=None) as engine:
        moved = ours.run(engine, x, y, positions=range(len(x)), random=0)
    mine = (target.logits(moved).argmax(1) != y).double().mean().item()
    _, _, failed = theirs(foolbox.PyTorchModel(target.module, bounds=(0, 1)), x, y, epsilons=None)
    assert mine == pytest.approx(failed.double().mean().item(), abs=0.02)
    assert mine > 0.5


def _ours(target: Target, attack: FGSM | BIM, x: torch.Tensor, y: torch.Tensor, start: int) -> float:
    with Engine(target, levels=None) as engine:
        moved = attack.run(engine, x, y, positions=range(N), random=start)
    return float((target.logits(moved).argmax(1) != y).double().mean())


def _theirs(attack: Any, peer: Any, x: torch.Tensor, y: torch.Tensor, eps: float, start: int) -> float:
    torch.manual_seed(start)
    return float(attack(peer, x, y, epsilons=eps)[2].double().mean())
