"""Networks that exist twice, with functions and with modules, and what it means that their layers agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tests.unit.target.by_hand import hooks, record
from torch import Tensor, nn
from torch.nn import functional as F

from neurotest.target import Target, Want

Function = Callable[[Tensor], Tensor]


class Small(nn.Module):
    """conv - act - pool - fc1 - act - fc2; `act` is a function, or None for modules."""

    def __init__(self, act: Function | None = None, module: Callable[[], nn.Module] = nn.ReLU) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fc1, self.fc2 = nn.Conv2d(1, 3, 3, padding=1), nn.Linear(12, 5), nn.Linear(5, 4)
        self.act = act
        if act is None:
            self.act1, self.act2 = module(), module()

    def forward(self, x: Tensor) -> Tensor:
        first, second = (self.act1, self.act2) if self.act is None else (self.act, self.act)
        return self.fc2(second(self.fc1(F.max_pool2d(first(self.conv(x)), 2).flatten(1))))


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Tensor:
        return self.function(*args)


class Residual(nn.Module):
    """conv1 - relu - conv2 - add - relu - fc, in a block that does not end in its ReLU."""

    def __init__(self, functional: bool, inplace: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv1, self.conv2, self.fc = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1), nn.Linear(32, 3)
        self.functional, self.inplace = functional, inplace
        if not functional:
            self.act1, self.act2, self.sum = nn.ReLU(inplace), nn.ReLU(inplace), Call(torch.add)

    def forward(self, x: Tensor) -> Tensor:
        if not self.functional:
            return self.fc(self.act2(self.sum(self.conv2(self.act1(self.conv1(x))), x)).flatten(1))
        y = self.conv2(F.relu(self.conv1(x), inplace=self.inplace))
        if self.inplace:
            y += x
            y.relu_()
            return self.fc(y.flatten(1))
        return self.fc((y + x).relu().flatten(1))


class Attention(nn.Module):
    """Tokens attend to each other by softmax(q k) v or by torch's own function, then a residual and a mean."""

    def __init__(self, functional: bool, fused: bool) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.q, self.k, self.v, self.head = (nn.Linear(4, 4) for _ in range(4))
        functions = F.scaled_dot_product_attention, _softmax, torch.add
        self.attend, self.weights, self.sum = functions if functional else map(Call, functions)
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        y = self.attend(q, k, v) if self.fused else self.weights(q @ k.transpose(1, 2)) @ v
        return self.head(self.sum(y, x).mean(1))


def _softmax(scores: Tensor) -> Tensor:
    return scores.softmax(-1)


def target_of(module: nn.Module, *shape: int) -> Target:
    return Target(module.eval(), shape=shape, bounds=(-1, 1))


def assert_equal_layers(one: Target, other: Target, names: Mapping[str, str], x: Tensor) -> None:
    """Layers of `one` give, under every switch, what those of `other` give (names: one's -> other's)."""
    ours, theirs = ",".join(names), ",".join(names.values())
    for first, second in zip(one.survey().find(ours), (other.survey().find(names[n])[0] for n in names), strict=True):
        assert (first.shape, first.axis, first.input_shape, first.input_axis) == (
            second.shape, second.axis, second.input_shape, second.input_axis,
        )  # fmt: skip
    for settings_ in ({}, {"neuron": "unit"}, {"keep": "map"}, {"inputs": True}, {"inputs": True, "keep": "map"}):
        _same(one, other, names, x, settings_)
        _same(one, other, names, x, settings_, grad=True)
    _same(one, other, names, x, {"keep": "map"}, edit=lambda _, tensor: tensor * 0.5 + 0.25)
    _same(one, other, names, x, {"keep": "map"}, edit=lambda _, tensor: tensor * 0.5 + 0.25, grad=True)
    _same(one, other, names, x, {}, edit=lambda _, tensor: torch.zeros_like(tensor))
    _same(one, other, names, x, {"keep": "map"}, record=lambda _, tensor: tensor.flatten(1).amax(1))
    assert hooks(one) == 0
    slopes = []
    for target, layers in ((one, ours), (other, theirs)):
        free = x.clone().requires_grad_()
        trace = record(target, free, Want(layers=layers, keep="map"), grad=True)
        wanted = [free, *(trace.values[name] for name in layers.split(","))]
        slopes.append(torch.autograd.grad(trace.logits.square().sum(), wanted, allow_unused=True))
    for ours_, theirs_ in zip(*slopes, strict=True):
        assert torch.equal(ours_, theirs_)


def _same(one: Target, other: Target, names: Mapping[str, str], x: Tensor, want: dict[str, Any], **switches: Any) -> None:
    ours = record(one, x.clone(), Want(layers=",".join(names), **want), **switches)
    theirs = record(other, x.clone(), Want(layers=",".join(names.values()), **want), **switches)
    assert torch.equal(ours.logits, theirs.logits), (want, switches)
    assert list(ours.values) == list(names)
    for name, values in ours.values.items():
        assert torch.equal(values, theirs.values[names[name]]), (name, want, switches)


class Random(nn.Module):
    """A chain of dense layers, each followed by an activation, by none, or by one and a residual; as functions or modules."""

    def __init__(self, steps: list[tuple[str, bool, bool]], functional: bool, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.steps, self.functional = steps, functional
        self.dense = nn.ModuleList(nn.Linear(3, 3) for _ in range(len(steps) + 1))
        kinds = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}
        self.acts = nn.ModuleList(kinds[k](inplace=i) if i else kinds[k]() for k, i, _ in steps if not functional)
        self.sums = nn.ModuleList(Call(torch.add) for _ in steps if not functional)

    def forward(self, x: Tensor) -> Tensor:
        for number, (kind, inplace, residual) in enumerate(self.steps):
            y = self.dense[number](x)
            if self.functional:
                function = getattr(F, kind)
                y = function(y, inplace=True) if inplace else function(y)
            else:
                y = self.acts[number](y)
            if residual:
                y = y + x if self.functional else self.sums[number](y, x)
            x = y
        return self.dense[-1](x)

    def names(self) -> dict[str, str]:
        """Layer of the functional network -> layer of the one with modules."""
        counts: dict[str, int] = {}
        names = {}
        for number, (kind, _, residual) in enumerate(self.steps):
            for function, module in [(kind, "acts"), ("add", "sums")][: 1 + residual]:
                counts[function] = counts.get(function, 0) + 1
                names[f"{function}_{counts[function]}"] = f"{module}.{number}"
        return names
