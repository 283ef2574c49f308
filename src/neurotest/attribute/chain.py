"""Networks that are one chain of modules, and how relevance goes back through each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from neurotest.target import Target

LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
MAXIMA = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
MEANS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
# Relevance passes these unchanged.
THROUGH = (
    nn.ReLU,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.Identity,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
)
SHAPES = (nn.Flatten, nn.Unflatten)


@dataclass(frozen=True, eq=False)
class Step:
    """One module of the chain; `taken` and `made` are the shapes of a batch before and after it."""

    name: str
    module: nn.Module
    taken: tuple[int, ...]
    made: tuple[int, ...]

    def back(self, given: Tensor, relevance: Tensor, beta: float, eps: float) -> Tensor:
        """Relevance of the step's input from that of its output."""
        if isinstance(self.module, LINEAR):
            return _alpha_beta(self.module, given, relevance, beta, eps)
        if isinstance(self.module, MAXIMA):
            return _transposed(self.module.forward, given, relevance)  # all to the greatest, as the gradient goes
        if isinstance(self.module, MEANS):
            made = self.module.forward(given)
            return given * _transposed(self.module.forward, given, relevance / (made + eps * _sign(made)))
        return relevance


@dataclass(frozen=True, eq=False)
class Chain:
    steps: tuple[Step, ...]

    def forward(self, x: Tensor) -> list[Tensor]:
        """The input of every step, then the output of the last."""
        found = [x]
        with torch.no_grad():
            for step in self.steps:
                # An in-place module would overwrite the record of the step before it.
                given = found[-1].reshape(step.taken)
                found.append(step.module.forward(given.clone() if getattr(step.module, "inplace", False) else given))
        return found


def find_chain(target: Target) -> Chain | None:
    """The target's leaf modules as a chain, if running them one after the other gives what the network gives."""
    survey = target.survey()
    modules = dict(target.module.named_modules())
    steps = []
    for layer in survey.layers:
        module = modules[layer.module]
        if any(True for _ in module.children()):
            continue
        if not isinstance(module, LINEAR + MAXIMA + MEANS + THROUGH + SHAPES):
            return None
        steps.append(Step(layer.name, module, (-1, *layer.input_shape), (-1, *layer.shape)))
    chain = Chain(tuple(steps))
    assert target.shape is not None
    noise = torch.rand((2, *target.shape), generator=torch.Generator().manual_seed(1)).to(target.device)
    try:
        with torch.inference_mode():
            same = torch.allclose(chain.forward(noise)[-1], target.module(noise), rtol=1e-4, atol=1e-5)
    except RuntimeError:  # shapes that do not follow each other: the network branches
        return None
    return chain if steps and same else None


def _alpha_beta(module: nn.Module, given: Tensor, relevance: Tensor, beta: float, eps: float) -> Tensor:
    """Positive contributions share (1 + beta) times the relevance, negative ones -beta times; biases take none.

    A neuron that receives contributions of one sign only passes all its relevance on to these.
    """
    weight = module.weight
    assert isinstance(weight, Tensor)
    ups, downs = weight.detach().clamp(min=0), weight.detach().clamp(max=0)
    plus, minus = given.clamp(min=0), given.clamp(max=0)
    signed = bool((given < 0).any())  # after a ReLU nothing is negative, and half of the work falls away
    positive, negative = _apply(module, plus, ups), _apply(module, plus, downs)
    if signed:
        positive, negative = positive + _apply(module, minus, downs), negative + _apply(module, minus, ups)
    both = (positive != 0) & (negative != 0)
    up = torch.where(both, 1 + beta, 1.0) * _share(relevance, positive, eps)
    down = torch.where(both, -beta, 1.0) * _share(relevance, negative, eps)
    found = plus * (_back(module, plus, ups, up) + _back(module, plus, downs, down))
    if signed:
        found = found + minus * (_back(module, minus, downs, up) + _back(module, minus, ups, down))
    return found


def _share(relevance: Tensor, total: Tensor, eps: float) -> Tensor:
    """relevance / total, 0 where nothing was contributed."""
    some = total != 0
    return torch.where(some, relevance / torch.where(some, total + eps * total.sign(), 1.0), 0.0)


def _apply(module: nn.Module, given: Tensor, weight: Tensor) -> Tensor:
    if isinstance(module, nn.Linear):
        return F.linear(given, weight)
    assert isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    found: Tensor = module._conv_forward(given, weight, None)
    return found


def _back(module: nn.Module, given: Tensor, weight: Tensor, upper: Tensor) -> Tensor:
    """The transposed operator on `upper`."""
    if isinstance(module, nn.Linear):
        return torch.matmul(upper, weight)
    return _transposed(lambda x: _apply(module, x, weight), given, upper)


def _transposed(function: Callable[[Tensor], Tensor], given: Tensor, upper: Tensor) -> Tensor:
    with torch.enable_grad():
        x = given.detach().requires_grad_(True)
        (found,) = torch.autograd.grad(function(x), x, upper)
    return found


def _sign(values: Tensor) -> Tensor:
    return torch.where(values < 0, -1.0, 1.0)
