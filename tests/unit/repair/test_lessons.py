"""What is trained on, row by row, against a plain loop; drawing as aimed; distillation by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.unit.repair.subjects import plan

from neurotest.generate.gradient.attacks import PGD
from neurotest.repair.lessons import COOL, Aim, Ingredients, Lessons, distance
from neurotest.repair.plan import Plan


@pytest.fixture(scope="module")
def ready() -> Plan:
    return plan()


def test_an_epoch_is_the_base_then_copies_then_new_inputs(ready: Plan) -> None:
    assert ready.train is not None
    new = ready.learn.inputs
    parts = Ingredients(base=ready.train, new=new, times=2, copies=7, aim=ready.even())
    lessons = Lessons(ready.target, parts, 0)
    lessons.start(3)
    assert len(lessons) == len(ready.train) + 7 + 2 * len(new)
    module = ready.target.module
    rows = [0, 5, len(ready.train), len(ready.train) + 6, len(ready.train) + 7, len(lessons) - 1]
    with torch.no_grad():
        together = float(lessons.loss(module, torch.tensor(rows)))
        alone = [float(lessons.loss(module, torch.tensor([row]))) for row in rows]
    assert math.isclose(together, float(np.mean(alone)), rel_tol=1e-5)
    assert new.labels is not None
    logits = ready.target.logits(ready.target.prepare(new.read(np.array([len(new) - 1]))))
    last = torch.nn.functional.cross_entropy(logits, torch.tensor([new.labels[-1]])).detach()
    assert math.isclose(alone[-1], float(last), rel_tol=1e-5)


def test_epochs_differ_and_repeat_themselves(ready: Plan) -> None:
    lessons = Lessons(ready.target, Ingredients(base=ready.train, copies=40, aim=ready.even(2)), 0)
    drawn = []
    for epoch in (1, 2, 1):
        lessons.start(epoch)
        drawn.append((lessons.images.copy(), lessons.changes[0].kind.copy()))
    assert not np.array_equal(drawn[0][0], drawn[1][0])
    assert np.array_equal(drawn[0][0], drawn[2][0])
    assert np.array_equal(drawn[0][1], drawn[2][1])


def test_an_aim_is_kept_to(ready: Plan) -> None:
    """All weight on one operator and class: every copy is of that class and changed so."""
    assert ready.train is not None
    assert ready.train.labels is not None
    weights = np.zeros((len(ready.operators), 3))
    weights[2, 1] = 1
    lessons = Lessons(ready.target, Ingredients(base=ready.train, copies=50, aim=Aim(ready.operators, weights)), 0)
    assert set(lessons.changes[0].kind.tolist()) == {2}
    assert set(ready.train.labels[lessons.images].tolist()) == {1}


def test_an_even_aim_draws_every_image_equally_often(ready: Plan) -> None:
    assert ready.train is not None
    n = len(ready.train)
    lessons = Lessons(ready.target, Ingredients(base=ready.train, copies=200 * n, aim=ready.even()), 0)
    counts = np.bincount(lessons.images, minlength=n)
    assert (np.abs(counts - 200) < 6 * math.sqrt(200)).all()


def test_the_plan_aims_at_what_is_weak(ready: Plan) -> None:
    tried = ready._tried()
    assert math.isclose(ready.aim.sum(), 1.0)
    assert ready.aim.min() > 0
    weakest, strongest = tried.mean(axis=1).argmax(), tried.mean(axis=1).argmin()
    assert ready.aim[weakest].sum() > ready.aim[strongest].sum()


def test_distance_by_hand() -> None:
    """p = (1/2, 1/2) and q = (1/4, 3/4) after softening: KL(p, q) = ln(4/3) / 2, times the temperature squared."""
    old = torch.zeros(1, 2)
    new = torch.tensor([[0.0, COOL * math.log(3)]])
    assert math.isclose(float(distance(new, old)), COOL**2 * math.log(4 / 3) / 2, rel_tol=1e-5)
    assert float(distance(old, old)) == 0


def test_distillation_holds_the_base_and_not_new_inputs(ready: Plan) -> None:
    """On the old network itself it adds nothing; on another one it does, for rows of the base."""
    assert ready.train is not None
    plain, held = (
        Lessons(ready.target, Ingredients(base=ready.train, new=ready.learn.inputs, distil=distil), 0) for distil in (0.0, 2.0)
    )
    base, new = torch.tensor([0, 1]), torch.tensor([len(ready.train)])
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(81, 3))
    with torch.no_grad():
        one, two = (float(lessons.loss(ready.target.module, base)) for lessons in (plain, held))
        assert math.isclose(one, two, abs_tol=1e-5)
        assert float(held.loss(other, base)) > float(plain.loss(other, base)) + 1e-3
        assert float(held.loss(other, new)) == float(plain.loss(other, new))


def test_attacks_are_made_on_the_network_as_it_is_and_raise_its_loss(ready: Plan) -> None:
    attack = PGD(eps=0.2, step=0.1, steps=3)
    rows = torch.arange(20)
    plain, attacked = (Lessons(ready.target, Ingredients(base=ready.train, attack=one), 0) for one in (None, attack))
    module = ready.target.module
    harder = float(attacked.loss(module, rows).detach())
    module.eval()
    assert harder > float(plain.loss(module, rows).detach())
