"""Conductance by hand, by a plain loop, and what it must add up to."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import Tensor, nn

from neurotest.attribute.conductance import Conductance
from neurotest.data.source import ArraySource
from neurotest.target import Target

pytestmark = pytest.mark.by_hand


def dense() -> Target:
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
        second.weight.copy_(torch.tensor([[2.0, 1.0], [-1.0, 3.0]]))
    return Target(nn.Sequential(first, nn.ReLU(), second).eval(), shape=(2,), bounds=(0, 4))


@pytest.mark.parametrize("grid", ["uniform", "early"])
def test_two_dense_layers_by_hand(grid: str) -> None:
    # x = (3, 1): hidden (4, 2). On the way from 0 both rise in proportion, so what passes each is weight times activation.
    plan = Conductance(layers="1", baseline="black", grid=grid, steps=3).plan(dense())  # type: ignore[arg-type]
    attribution = plan(torch.tensor([[3.0, 1.0], [3.0, 1.0]]), torch.tensor([0, 1]))
    assert attribution.scores["1"].numpy() == pytest.approx(np.array([[8.0, 2.0], [-4.0, 6.0]]), abs=1e-5)
    assert attribution.gained is not None
    assert attribution.gained.tolist() == pytest.approx([10.0, 2.0], abs=1e-5)
    assert attribution.completeness()["1"].tolist() == pytest.approx([1.0, 1.0], abs=1e-5)
    assert attribution.activation["1"].tolist() == [[4.0, 2.0], [4.0, 2.0]]


def test_without_classes_the_predicted_one_is_meant() -> None:
    plan = Conductance(layers="1", baseline="black").plan(dense())
    assert plan(torch.tensor([[3.0, 1.0], [0.0, 2.0]])).classes.tolist() == [0, 0]
    assert plan(torch.tensor([[3.0, 0.0]])).classes.tolist() == [0]  # logits 9 and 6


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        self.second, self.act2, self.head = nn.Conv2d(4, 3, 3), nn.Tanh(), nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.flatten(self.act2(self.second(self.act(self.norm(self.conv(x))))), 1))
        return out


def net(seed: int = 0) -> Target:
    torch.manual_seed(seed)
    return Target(Net().eval(), shape=(2, 6, 6), mean=[0.4, 0.6], std=[0.3, 0.2])


def by_loop(target: Target, x: Tensor, label: int, alphas: np.ndarray, empty: Tensor, rule: str) -> np.ndarray:
    """One input, one point at a time, layer `act` by hand-written forward passes."""
    module = target.module
    assert isinstance(module, Net)
    maps, slopes = [], []
    for alpha in alphas:
        point = empty + float(alpha) * (x - empty)
        inside = torch.relu(module.norm(module.conv(target._preprocessed(point)))).detach().requires_grad_(True)
        logit = module.head(torch.flatten(module.act2(module.second(inside)), 1))[0, label]
        slopes.append(torch.autograd.grad(logit, inside)[0])
        maps.append(inside.detach())
    total = torch.zeros_like(maps[0])
    for k in range(len(alphas) - 1):
        slope = slopes[k] if rule == "left" else (slopes[k] + slopes[k + 1]) / 2
        total += slope * (maps[k + 1] - maps[k])
    return total.sum((2, 3))[0].numpy()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("grid", "rule"), [("uniform", "trapezoid"), ("early", "trapezoid"), ("captum", "left")])
def test_the_shared_pass_gives_what_a_loop_over_points_gives(grid: str, rule: str) -> None:
    target = net()
    conductance = Conductance(layers="act,act2", grid=grid, rule=rule, steps=6)  # type: ignore[arg-type]
    plan = conductance.plan(target)
    x = torch.rand(5, 2, 6, 6, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 1, 4, 1, 2])
    attribution = plan(x, labels)
    assert set(attribution.scores) == {"act", "act2"}
    for i in range(len(x)):
        expected = by_loop(target, x[i : i + 1], int(labels[i]), conductance.alphas(), plan.empty, rule)
        assert attribution.scores["act"][i].numpy() == pytest.approx(expected, rel=1e-4, abs=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000))
def test_contributions_of_a_layer_that_cuts_the_network_add_up_to_what_the_class_gained(seed: int) -> None:
    target = net(seed)
    x = torch.rand(3, 2, 6, 6, generator=torch.Generator().manual_seed(seed))
    attribution = Conductance(layers="act,act2", steps=64, grid="uniform").plan(target)(x)
    assert attribution.gained is not None
    for name in ("act", "act2"):
        assert attribution.scores[name].sum(1).numpy() == pytest.approx(
            attribution.gained.numpy(), abs=0.02 * float(attribution.gained.abs().max()) + 1e-3
        )


def test_how_inputs_are_divided_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    target, x = net(), torch.rand(9, 2, 6, 6)
    whole = Conductance(layers="act").plan(target)(x)
    monkeypatch.setattr("neurotest.attribute.conductance.POINTS", 16)
    assert torch.allclose(Conductance(layers="act").plan(target)(x).scores["act"], whole.scores["act"], atol=1e-5)


def test_the_network_is_left_as_it_was() -> None:
    target = net()
    target.module.conv.weight.requires_grad_(False)  # type: ignore[union-attr]
    before = [p.requires_grad for p in target.module.parameters()]
    Conductance(layers="act").plan(target)(torch.rand(2, 2, 6, 6))
    assert [p.requires_grad for p in target.module.parameters()] == before
    assert all(p.grad is None for p in target.module.parameters())


def test_it_can_be_used_inside_inference_mode() -> None:
    target = net()
    with torch.inference_mode():
        x = torch.rand(2, 2, 6, 6)
        attribution = Conductance(layers="act").plan(target)(x, target.logits(x).argmax(1))
    assert attribution.scores["act"].shape == (2, 4)


def test_the_empty_image() -> None:
    plain = dense()
    with refused("missing", "baseline"):
        Conductance(layers="1").plan(plain)
    data = ArraySource(np.full((4, 2), 3.0, dtype=np.float32))
    assert Conductance(layers="1").plan(plain, data=data).empty.tolist() == [[3.0, 3.0]]
    assert Conductance(layers="act").plan(net()).empty[0, :, 0, 0].tolist() == pytest.approx([0.4, 0.6])
    with refused("wrong-shape", "baseline"):
        Conductance(layers="1").plan(plain, empty=torch.zeros(1, 3))


@pytest.mark.parametrize("bad", [{"steps": 0}, {"steps": 2.5}, {"grid": "log"}, {"rule": "right"}, {"baseline": "white"}])
def test_bad_settings_are_told(bad: dict[str, object]) -> None:
    with refused("out-of-range", next(iter(bad))):
        Conductance(**bad)  # type: ignore[arg-type]


def test_the_output_layer_is_no_neuron_of_a_path() -> None:
    with refused("unsuitable", "layers"):
        Conductance(layers="2", baseline="black").plan(dense())
