"""Relevance by hand, where it is conserved, and what happens on networks that are no chain."""

from __future__ import annotations

import pytest
import torch
from tests.refusals import refused
from torch import Tensor, nn

from neurotest.attribute import Relevance
from neurotest.errors import BadInput
from neurotest.target import Target

pytestmark = pytest.mark.by_hand


def dense() -> Target:
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
        second.weight.copy_(torch.tensor([[2.0, 1.0], [-1.0, 0.0]]))
    return Target(nn.Sequential(first, nn.ReLU(), second).eval(), shape=(2,))


@pytest.mark.parametrize("rule", ["lrp", "gradient"])
def test_two_dense_layers_by_hand(rule: str) -> None:
    # x = (3, 1): hidden (4, 2), logits (10, -4); both rules give 2 * 4 and 1 * 2, because all contributions are positive
    relevances = Relevance(rule=rule, eps=0).plan(dense())(torch.tensor([[3.0, 1.0]]))  # type: ignore[arg-type]
    assert relevances.relevance["1"].tolist() == [[8.0, 2.0]]
    assert relevances.activation["1"].tolist() == [[4.0, 2.0]]
    assert relevances.rule == rule


def test_positive_and_negative_contributions_share_as_alpha_and_beta_say() -> None:
    first, act, second = nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        first.weight.copy_(torch.eye(2))
        second.weight.copy_(torch.tensor([[3.0, -1.0]]))
    target = Target(nn.Sequential(first, act, second, nn.Linear(1, 2, bias=False)).eval(), shape=(2,))
    with torch.no_grad():
        target.module[3].weight.copy_(torch.tensor([[1.0], [0.0]]))  # type: ignore[index, operator]
    # one logit of 3 * 1 - 1 * 1 = 2: 1.5 * 2 to the first, -0.5 * 2 to the second
    relevances = Relevance(eps=0).plan(target)(torch.tensor([[1.0, 1.0]]))
    assert relevances.relevance["1"].tolist() == [[3.0, -1.0]]


class Net(nn.Module):
    def __init__(self, pool: nn.Module, residual: bool = False) -> None:
        super().__init__()
        self.conv, self.norm, self.act, self.pool = nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True), pool
        self.second, self.act2, self.head = nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), nn.Linear(48, 4)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.act(self.norm(self.conv(x))))
        y = self.act2(self.second(x))
        out: Tensor = self.head(torch.flatten(y + x if self.residual else y, 1))
        return out


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.AvgPool2d(2)])
def test_relevance_is_conserved_through_poolings_and_in_place_relus(pool: nn.Module) -> None:
    torch.manual_seed(0)
    target = Target(Net(pool).eval(), shape=(1, 8, 8))
    x = torch.rand(5, 1, 8, 8)
    relevances = Relevance(eps=1e-9).plan(target)(x)
    best = target.logits(x).amax(dim=1).detach()
    for name in ("act", "act2"):
        assert relevances.relevance[name].sum(dim=1).numpy() == pytest.approx(best.numpy(), rel=1e-3)


def test_a_network_that_branches_gets_the_substitute_and_says_so() -> None:
    torch.manual_seed(0)
    target = Target(Net(nn.MaxPool2d(2), residual=True).eval(), shape=(1, 8, 8), mean=[0.1], std=[0.5])
    plan = Relevance().plan(target)
    assert plan.rule == "gradient"
    relevances = plan(torch.rand(3, 1, 8, 8))
    assert relevances.relevance["act"].shape == (3, 3)
    with refused("unsuitable", "rule"):
        Relevance(rule="lrp").plan(target)


def test_gradient_times_activation_is_what_a_channel_adds_to_the_logit() -> None:
    """After the last activation the logits are linear, so taking a channel away costs exactly its relevance."""
    torch.manual_seed(0)
    module = Net(nn.MaxPool2d(2)).eval()
    x = torch.rand(1, 1, 8, 8)
    relevance = Relevance(rule="gradient", layers="act2").plan(Target(module, shape=(1, 8, 8)))(x).relevance["act2"][0]
    with torch.no_grad():
        hidden = module.act2(module.second(module.pool(module.act(module.norm(module.conv(x))))))
        logits = module.head(hidden.flatten(1))[0]
        for channel in range(3):
            without = hidden.clone()
            without[:, channel] = 0
            lost = logits.max() - module.head(without.flatten(1))[0, logits.argmax()]
            assert float(relevance[channel]) == pytest.approx(float(lost), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("settings", [{"rule": "guess"}, {"beta": -1}])
def test_settings_are_checked(settings: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        Relevance(**settings)  # type: ignore[arg-type]


def test_the_answers_are_no_part_of_a_path() -> None:
    target = Target(nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))).eval(), shape=(2,))
    assert [layer.name for layer in Relevance(layers="pre_activation").plan(target).layers] == ["0.0"]
    with refused("unsuitable", "layers"):
        Relevance(layers="0.2").plan(target)
