"""Statistics of batch normalisation: by hand, against torch's own, and that nothing else changes."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from tests.unit.repair.subjects import SHAPE, plan
from torch import nn

from neurotest import Target
from neurotest.repair.lessons import Ingredients, Lessons
from neurotest.repair.plan import RepairPlan
from neurotest.repair.protocol import control
from neurotest.repair.protocols.default import Default
from neurotest.repair.retrain import SETTLED, _move, normalised, settle


@pytest.fixture(scope="module")
def ready() -> RepairPlan:
    return plan()


def test_by_hand() -> None:
    """Two batches with means 1 and 4 and variances (of a sample) 2 and 8: the means of both."""
    layer = nn.BatchNorm1d(1)
    batches = [torch.tensor([[0.0], [2.0]]), torch.tensor([[2.0], [6.0]])]
    settle(Target(layer.eval(), shape=(1,), bounds=(0, 6)), layer, batches)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    assert layer.running_mean.tolist() == [2.5]
    assert layer.running_var.tolist() == [5.0]
    assert layer.momentum == 0.1
    assert not layer.training


def test_as_torch_has_it(ready: RepairPlan) -> None:
    batches = Lessons(ready.target, Ingredients(base=ready.train, copies=40, aim=ready.even()), 0).sample(
        ready.target.module, 1, 64
    )
    ours, theirs = (copy.deepcopy(ready.target.module) for _ in range(2))
    settle(ready.target, ours, batches)
    for module in theirs.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    torch.optim.swa_utils.update_bn(batches, theirs)
    for name, value in theirs.state_dict().items():
        assert torch.allclose(ours.state_dict()[name], value, atol=1e-6), name


def test_only_statistics_change(ready: RepairPlan) -> None:
    module = copy.deepcopy(ready.target.module)
    settle(ready.target, module, [torch.rand(8, *SHAPE)])
    changed = {
        name for name, value in module.state_dict().items() if not torch.equal(value, ready.target.module.state_dict()[name])
    }
    assert {name.rpartition(".")[2] for name in changed} <= {"running_mean", "running_var", "num_batches_tracked"}
    assert changed
    assert not any(one.training for one in module.modules())
    plain = nn.Sequential(nn.Flatten(), nn.Linear(81, 3)).eval()
    assert not normalised(plain)
    before = copy.deepcopy(plain.state_dict())
    settle(Target(plain, shape=SHAPE), plain, [torch.rand(8, *SHAPE)])
    assert all(torch.equal(value, before[name]) for name, value in plain.state_dict().items())


def test_the_old_network_stays_what_it_is(ready: RepairPlan) -> None:
    """Weight 0 is the old network bit for bit; any other weight has statistics of its own."""
    old = ready.target.module.state_dict()
    new = {name: value + 1 if value.is_floating_point() else value for name, value in old.items()}
    module = copy.deepcopy(ready.target.module)
    batches = [torch.rand(16, *SHAPE)]
    module.train()  # as drawing a sample of the lessons leaves it
    _move(ready, module, new, 0.0, batches)
    assert not any(one.training for one in module.modules())
    assert all(torch.equal(value, old[name]) for name, value in module.state_dict().items())
    _move(ready, module, new, 0.5, batches)
    assert not torch.allclose(module.state_dict()["1.running_mean"], old["1.running_mean"] + 0.5)
    assert torch.allclose(module.state_dict()["0.weight"], old["0.weight"] + 0.5)


def test_a_sample_repeats_itself(ready: RepairPlan) -> None:
    """Whatever was trained before: a repair that goes on after its last epoch ends with the same statistics."""
    parts = Ingredients(base=ready.train, new=ready.learn.inputs, copies=40, aim=ready.even(), hard=2, anchors=9, distil=1.0)
    one, other = (Lessons(ready.target, parts, 0) for _ in range(2))
    one.start(4)
    module = copy.deepcopy(ready.target.module).eval()
    first, second = (lessons.sample(module, 2, SETTLED) for lessons in (one, other))
    assert sum(map(len, first)) == len(parts) - 9
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_network_with_statistics_gets_the_lower_rate(ready: RepairPlan) -> None:
    """0 chooses; a rate that was asked for is kept. The control has the rate of its protocol."""
    plain = nn.Sequential(nn.Flatten(), nn.Linear(81, 3)).eval()
    other = dataclasses.replace(ready, target=Target(plain, shape=SHAPE, classes=ready.target.classes))
    assert [Default().recipe(one, 0).rate for one in (ready, other)] == [0.001, 0.003]
    assert [Default(rate=0.02).recipe(one, 0).rate for one in (ready, other)] == [0.02, 0.02]
    assert "up to 0.001" in control("mutated", Default(epochs=1), ready, 0).about["recipe"]
