"""What is trained on, row by row, against a plain loop; drawing as aimed; distillation by hand."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from tests.unit.repair.subjects import plan

from neurotest.generate.gradient.attacks import PGD
from neurotest.repair.lessons import COOL, Aim, Ingredients, Lessons, _distance
from neurotest.repair.plan import RepairPlan


@pytest.fixture(scope="module")
def ready() -> RepairPlan:
    return plan()


def test_an_epoch_is_the_base_then_copies_then_new_inputs(ready: RepairPlan) -> None:
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


def test_epochs_differ_and_repeat_themselves(ready: RepairPlan) -> None:
    lessons = Lessons(ready.target, Ingredients(base=ready.train, copies=40, aim=ready.even(2)), 0)
    drawn = []
    for epoch in (1, 2, 1):
        lessons.start(epoch)
        drawn.append((lessons.images.copy(), lessons.changes[0].kind.copy()))
    assert not np.array_equal(drawn[0][0], drawn[1][0])
    assert np.array_equal(drawn[0][0], drawn[2][0])
    assert np.array_equal(drawn[0][1], drawn[2][1])


def test_an_aim_is_kept_to(ready: RepairPlan) -> None:
    """All weight on one operator and class: every copy is of that class and changed so."""
    assert ready.train is not None
    assert ready.train.labels is not None
    weights = np.zeros((len(ready.operators), 3))
    weights[2, 1] = 1
    lessons = Lessons(ready.target, Ingredients(base=ready.train, copies=50, aim=Aim(ready.operators, weights)), 0)
    assert set(lessons.changes[0].kind.tolist()) == {2}
    assert set(ready.train.labels[lessons.images].tolist()) == {1}


def test_an_even_aim_draws_every_image_equally_often(ready: RepairPlan) -> None:
    assert ready.train is not None
    n = len(ready.train)
    lessons = Lessons(ready.target, Ingredients(base=ready.train, copies=200 * n, aim=ready.even()), 0)
    counts = np.bincount(lessons.images, minlength=n)
    assert (np.abs(counts - 200) < 6 * math.sqrt(200)).all()


def test_the_plan_aims_at_what_is_weak(ready: RepairPlan) -> None:
    tried = ready._tried()
    weights = ready.aim(0.2).weights
    assert math.isclose(weights.sum(), 1.0)
    assert weights.min() > 0
    weakest, strongest = tried.mean(axis=1).argmax(), tried.mean(axis=1).argmin()
    assert weights[weakest].sum() > weights[strongest].sum()
    assert np.allclose(ready.aim(0.0).weights, 1 / weights.size)


def test_distance_by_hand() -> None:
    """p = (1/2, 1/2) and q = (1/4, 3/4) after softening: KL(p, q) = ln(4/3) / 2, times the temperature squared."""
    old = torch.zeros(1, 2)
    new = torch.tensor([[0.0, COOL * math.log(3)]])
    assert math.isclose(float(_distance(new, old)), COOL**2 * math.log(4 / 3) / 2, rel_tol=1e-5)
    assert float(_distance(old, old)) == 0


def test_wrong_answers_of_the_old_network_are_not_taught(ready: RepairPlan) -> None:
    assert ready.train is not None
    lessons = Lessons(ready.target, Ingredients(base=ready.train, distil=2.0), 0)
    plain = Lessons(ready.target, Ingredients(base=ready.train), 0)
    lessons.knows = np.arange(len(ready.train)) != 3
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(81, 3))
    with torch.no_grad():
        for row in range(5):
            rows = torch.tensor([row])
            more = float(lessons.loss(other, rows)) - float(plain.loss(other, rows))
            assert (more == 0) == (row == 3)


def test_distillation_holds_the_base_and_not_new_inputs(ready: RepairPlan) -> None:
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


def test_attacks_are_made_on_the_network_as_it_is_and_raise_its_loss(ready: RepairPlan) -> None:
    attack = PGD(eps=0.2, step=0.1, steps=3)
    rows = torch.arange(20)
    plain, attacked = (Lessons(ready.target, Ingredients(base=ready.train, attack=one), 0) for one in (None, attack))
    module = ready.target.module
    harder = float(attacked.loss(module, rows).detach())
    module.eval()
    assert harder > float(plain.loss(module, rows).detach())


def test_the_hardest_candidate_is_learned(ready: RepairPlan) -> None:
    """Against a loop over candidates: whichever has the greatest loss on the network as it is."""
    assert ready.train is not None
    assert ready.train.labels is not None
    lessons = Lessons(ready.target, Ingredients(base=ready.train, copies=12, aim=ready.even(), hard=3), 0)
    first = len(ready.train)
    lessons.ahead(ready.target.module, torch.arange(first, first + 12))
    ready.target.module.eval()
    for number in range(12):
        label = torch.tensor([ready.train.labels[lessons.images[number]]])
        candidates = [lessons._candidate(np.array([number + 12 * rival])) for rival in range(3)]
        losses = [float(torch.nn.functional.cross_entropy(ready.target.logits(x).detach(), label)) for x in candidates]
        assert torch.equal(lessons.ready[lessons.place[number]], candidates[int(np.argmax(losses))][0])


def test_copies_are_the_same_ahead_or_not(ready: RepairPlan) -> None:
    assert ready.train is not None
    parts, first = Ingredients(base=ready.train, copies=9, aim=ready.even(2)), len(ready.train)
    one, other = Lessons(ready.target, parts, 0), Lessons(ready.target, parts, 0)
    one.ahead(ready.target.module, torch.arange(first + 9))
    with torch.no_grad():
        for row in (first, first + 4, first + 8):
            rows = torch.tensor([row])
            assert float(one.loss(ready.target.module, rows)) == pytest.approx(float(other.loss(ready.target.module, rows)))


def test_a_share_of_the_base_each_epoch(ready: RepairPlan) -> None:
    assert ready.train is not None
    lessons = Lessons(ready.target, Ingredients(base=ready.train, plain=0.25), 0)
    count = round(0.25 * len(ready.train))
    assert len(lessons) == count
    epochs = []
    for epoch in (1, 2):
        lessons.start(epoch)
        epochs.append(set(lessons.plain.tolist()))
        assert len(epochs[-1]) == count
    assert epochs[0] != epochs[1]


def test_operators_are_drawn_as_the_weights_of_the_class_say(ready: RepairPlan) -> None:
    weights = np.ones((len(ready.operators), 3))
    weights[:, 1] = 0
    weights[2, 1], weights[4, 1] = 3, 1
    kinds = Aim(ready.operators, weights).kinds(np.random.default_rng(0), np.full(4000, 1))
    assert set(kinds.tolist()) == {2, 4}
    assert abs((kinds == 2).mean() - 0.75) < 6 * math.sqrt(0.75 * 0.25 / 4000)


def test_broader_aims_keep_their_share(ready: RepairPlan) -> None:
    aim = ready.even().broader(0.25)
    assert len(aim.operators) == len(ready.operators) + 4
    assert math.isclose(aim.weights[-4:].sum(), 0.25)
    assert math.isclose(aim.weights.sum(), 1.0)
    assert ready.even().broader(0.0).operators is ready.operators


def test_anchors_have_no_label_and_cost_nothing_on_the_old_network(ready: RepairPlan) -> None:
    """The old network has not moved from its own answers; a moved one has, by the mean distance."""
    assert ready.train is not None
    lessons = Lessons(ready.target, Ingredients(base=ready.train, anchors=8, aim=ready.even(), distil=2.0), 0)
    rows = torch.arange(len(lessons) - 8, len(lessons))
    ready.target.module.eval()
    with torch.no_grad():
        assert float(lessons.loss(ready.target.module, rows)) == pytest.approx(0.0, abs=1e-6)
        moved = copy.deepcopy(ready.target.module)
        moved[-1].bias += torch.tensor([0.5, 0.0, -0.5])
        x = lessons._anchors(np.arange(8))
        expected = 2.0 * _distance(ready.target.holding(moved).logits(x), ready.target.logits(x))
        assert float(lessons.loss(moved, rows)) == pytest.approx(float(expected), rel=1e-4)
