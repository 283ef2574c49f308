"""A network small enough to compute with a pencil, and how the tests of the probe record it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neurotest.target import Probe, Target, Trace, Want


def hooks(target: Target) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in target.module.modules())


def record(target: Target, x: Tensor, *wants: Want, **switches: object) -> Trace:
    with Probe(target, *wants, **switches) as probe:
        return probe(x)


def noise(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(7))


class ByHand(nn.Module):
    """Numbers small enough to compute with a pencil: y = W2 relu(W1 x), the same ReLU applied to both."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.act = nn.ReLU(inplace=inplace)
        with torch.no_grad():
            self.first.weight.copy_(torch.tensor([[1.0, -1.0], [2.0, 0.0]]))
            self.first.bias.copy_(torch.tensor([0.0, -1.0]))
            self.second.weight.copy_(torch.tensor([[1.0, 1.0], [-1.0, 0.5]]))
            self.second.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.second(self.act(self.first(x))))


X = torch.tensor([[0.25, 0.5], [1.0, 0.0]])
FIRST = [[-0.25, -0.5], [1.0, 1.0]]
ACT = [[0.0, 0.0], [1.0, 1.0]]
SECOND = [[0.0, 0.0], [2.0, -0.5]]
ACT2 = [[0.0, 0.0], [2.0, 0.0]]
