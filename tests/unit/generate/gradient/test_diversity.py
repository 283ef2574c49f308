"""The regulariser: by hand, against plain loops, and coupled or not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import Tensor, nn

from neurotest.errors import BadInput
from neurotest.generate.gradient.engine import Diversity, Engine, _divergence, _slope
from neurotest.target import Target

pytestmark = pytest.mark.by_hand


def by_loop(values: np.ndarray) -> float:
    """KL(U || p), p = relu(a) / sum + 1e-20, term by term in float64."""
    active = [max(0.0, float(v)) for v in values.ravel()]
    total, n = sum(active), len(active)
    shares = [(a / total if total else 0.0) + 1e-20 for a in active]
    return sum((1 / n) * math.log((1 / n) / p) for p in shares)


def test_known_vectors() -> None:
    assert float(_divergence(torch.tensor([2.0, 2.0, 2.0]))) == pytest.approx(0, abs=1e-6)
    assert float(_divergence(torch.tensor([1.0, 3.0]))) == pytest.approx(math.log(0.5) - (math.log(0.25) + math.log(0.75)) / 2)
    # One of two silent: half of (log 1/2 - log 1) plus half of (log 1/2 - log 1e-20).
    assert float(_divergence(torch.tensor([1.0, -5.0]))) == pytest.approx(math.log(0.5) + 0.5 * 20 * math.log(10), rel=1e-5)
    assert float(_divergence(torch.zeros(4))) == pytest.approx(20 * math.log(10) - math.log(4), rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-5, 5, width=32).filter(lambda v: v <= 0 or v > 1e-6), min_size=1, max_size=12))
def test_as_plain_loops_say_and_never_below_zero(values: list[float]) -> None:
    given_values = torch.tensor(values, dtype=torch.float64)
    value = float(_divergence(given_values))
    assert value == pytest.approx(by_loop(np.array(values)), rel=1e-6, abs=1e-6)
    assert value >= -1e-6


def test_its_gradient_is_that_of_the_plain_formula() -> None:
    values = torch.tensor([0.5, 2.0, -1.0, 1.5], dtype=torch.float64, requires_grad=True)
    (mine,) = torch.autograd.grad(_divergence(values), values)
    active = values.relu()
    plain = -((active / active.sum() + 1e-20).log().mean()) - math.log(4)
    (expected,) = torch.autograd.grad(plain, values)
    assert torch.allclose(mine, expected)


def test_instance_and_batch() -> None:
    dense, maps = torch.tensor([[1.0, 3.0], [3.0, 1.0]]), torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    alone = Diversity(reduce="instance")({"fc": dense, "conv": maps})
    assert alone.shape == (2,)
    expected = [by_loop(dense[i].numpy()) + by_loop(maps[i].numpy()) for i in range(2)]  # layers are added, as in the paper
    assert alone.tolist() == pytest.approx(expected, rel=1e-5)
    together = Diversity(reduce="batch")
    assert float(together({"fc": dense})) == pytest.approx(0, abs=1e-6)  # the sums 4 and 4 are equal
    assert float(together({"conv": maps})) == pytest.approx(by_loop(maps.numpy()), rel=1e-5)
    suite = Diversity()  # units summed over the suite, those of maps too
    assert float(suite({"fc": dense})) == pytest.approx(0, abs=1e-6)
    assert float(suite({"conv": maps})) == pytest.approx(by_loop(maps.numpy().sum(0)), rel=1e-5)
    assert float(suite({"fc": dense[:1], "conv": maps[:1]})) == pytest.approx(float(alone[0]), rel=1e-5)
    other = Diversity(direction="shares")
    p = (maps.double().sum(0) / maps.double().sum()).flatten()
    by_hand = sum(float(v) * math.log(float(v) * p.numel()) for v in p)
    assert float(other({"conv": maps})) == pytest.approx(by_hand, rel=1e-4)
    assert float(_divergence(torch.tensor([1.0, -5.0]), "shares")) == pytest.approx(math.log(2))  # one of two silent
    assert float(_divergence(torch.zeros(4), "shares")) == 0


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(1, 3, 3)
        self.act = nn.ReLU(inplace=True)  # writes into what the regulariser looks at
        self.fc = nn.Linear(3 * 4 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.act(self.conv(x)).flatten(1))


def test_the_fused_pass_gives_the_gradient_of_two_passes() -> None:
    target = Target(Small().eval(), shape=(1, 6, 6), bounds=(-1.0, 1.0))
    u = torch.rand(4, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    y = torch.tensor([0, 1, 2, 0])
    with Engine(target, Diversity(weight=3.0, layers="conv", reduce="instance")) as engine:
        fused = engine.gradient(u, y)
        assert (engine.forwards, engine.backwards) == (4, 4)
    free = u.clone().requires_grad_()
    module = target.module
    assert isinstance(module, Small)
    loss = nn.functional.cross_entropy(module(free * 2 - 1), y, reduction="sum")
    maps = module.conv(free * 2 - 1).relu().flatten(1)
    shares = maps / maps.sum(1, keepdim=True) + 1e-20
    away = (-(shares.log().mean(1)) - math.log(shares.shape[1])).sum()
    (expected,) = torch.autograd.grad(loss - 3 * away, free)
    assert torch.allclose(fused, expected, rtol=1e-4, atol=1e-6)


class Deep(nn.Module):
    """Maps and dense layers; one activation overwrites, one branch leads past the logits' own layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.first, self.norm, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)
        self.act, self.fc, self.out = nn.ReLU(inplace=True), nn.Linear(4 * 6 * 6, 8), nn.Linear(8, 3)

    def maps(self, x: Tensor) -> list[Tensor]:
        first = self.first(x)
        second = self.second(self.norm(first).relu())
        dense = self.fc((second.relu() + first).flatten(1))
        return [first, second, dense, self.out(dense.relu())]

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(self.act(self.norm(first)))
        return self.out(self.act(self.fc((self.act(second) + first).flatten(1))))


@pytest.mark.parametrize("layers", ["pre_activation", "second", "fc"])
@pytest.mark.parametrize("reduce", ["instance", "batch", "suite", "first"])
@pytest.mark.parametrize("direction", ["uniform", "shares"])
def test_every_layer_and_way_as_plain_autograd_says(layers: str, reduce: str, direction: str) -> None:
    module = Deep().eval()
    target = Target(module, shape=(1, 6, 6))
    u = torch.rand(5, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    y = target.logits(u).argmax(1)
    y[:2] = (y[:2] + 1) % 3  # these two fail already
    first = reduce == "first"
    way: Any = "instance" if first else reduce
    wanted = Diversity(weight=2.0, layers=layers, reduce=way, direction=direction, attack_first=first)  # type: ignore[arg-type]
    with Engine(target, wanted) as engine:
        for _ in range(2):  # the second pass uses the memory of the first
            gradient = engine.gradient(u, y)
    free = u.clone().requires_grad_()
    values = module.maps(free)
    chosen = values if layers == "pre_activation" else [values[["first", "second", "fc"].index(layers)]]
    away = torch.stack([plain(v, reduce, direction) for v in chosen]).sum(0)
    if first:
        away = away * torch.tensor([1, 1, 0, 0, 0])
    loss = nn.functional.cross_entropy(values[-1], y, reduction="sum")
    (expected,) = torch.autograd.grad(loss - 2 * away.sum() * (5 if reduce in ("batch", "suite") else 1), free)
    assert torch.allclose(gradient, expected, rtol=1e-3, atol=1e-5)


def plain(values: Tensor, reduce: str, direction: str = "uniform") -> Tensor:
    """The published formula, recorded by autograd."""
    active = values.relu().flatten(1)
    if reduce in ("batch", "suite"):
        active = active.sum(0, keepdim=True) if values.ndim == 2 or reduce == "suite" else active.reshape(1, -1)
    shares = active / active.sum(1, keepdim=True) + 1e-20
    if direction == "shares":
        return (shares * shares.log()).sum(1) + math.log(shares.shape[1])
    return -shares.log().mean(1) - math.log(shares.shape[1])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-5, 5, width=32).filter(lambda v: v <= 0 or v > 1e-6), min_size=1, max_size=12), st.floats(-3, 3))
def test_a_slope_is_the_gradient_times_its_scale(values: list[float], scale: float) -> None:
    rows = torch.tensor([values, [1.0] * len(values)], dtype=torch.float64, requires_grad=True)
    if abs(scale) < 1e-3:
        scale = 1.0
    gradient = _slope(rows.detach(), torch.empty_like(rows), scale)
    if rows.detach()[0].amax() <= 0:  # nothing is active: nothing moves
        assert not gradient[0].any()
        return
    (expected,) = torch.autograd.grad(scale * plain(rows, "instance").sum(), rows)
    assert torch.allclose(gradient, expected, rtol=1e-9, atol=1e-9)


def test_weight_zero_records_nothing_and_attack_first_waits() -> None:
    target = Target(Small().eval(), shape=(1, 6, 6))
    u = torch.rand(2, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    right = target.logits(u).argmax(1)
    with Engine(target) as plain, Engine(target, Diversity(weight=0)) as none:
        base = plain.gradient(u, right)
        assert torch.equal(base, none.gradient(u, right))
    with Engine(target, Diversity(weight=9, attack_first=True)) as first:
        assert torch.equal(first.gradient(u, right), base)
        wrong = (right + 1) % 3
        assert not torch.equal(first.gradient(u, wrong), base)


def test_bad_settings() -> None:
    for bad in ({"weight": -1.0}, {"weight": math.nan}, {"weight": "much"}, {"reduce": "sum"}):
        with pytest.raises(BadInput):
            Diversity(**bad)
    for way in ("batch", "suite"):
        with refused("conflict", "attack_first"):
            Diversity(reduce=way, attack_first=True)  # type: ignore[arg-type]
    with refused("out-of-range", "direction"):
        Diversity(direction="up")  # type: ignore[arg-type]
    target = Target(Small().eval(), shape=(1, 6, 6))
    with refused("unknown-name", "layers"), Engine(target, Diversity(layers="cnov")):
        pass
