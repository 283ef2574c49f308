"""Gradients of a network's answers, with one sentence for networks that have none."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from neurotest.errors import BadInput

NO_GRADIENT = (
    "the network's output has no gradient towards its {}: it detaches, rounds, returns class numbers or runs without gradients "
    "somewhere. Use what needs none (fuzz, select, cover), or a network that can be differentiated."
)
_COMPLAINTS = ("does not require grad", "not have been used in the graph", "does not have a grad_fn")


def gradients(answer: Tensor, tensors: Sequence[Tensor], what: str = "layers") -> tuple[Tensor | None, ...]:
    """Of one number towards each tensor; None for those that it does not depend on, a refusal where that is all of them."""
    try:
        slopes: tuple[Tensor | None, ...] = torch.autograd.grad(answer, tensors, allow_unused=True)
    except RuntimeError as error:
        if not any(complaint in str(error) for complaint in _COMPLAINTS):
            raise
        raise BadInput("no-gradient", "", NO_GRADIENT.format(what)) from error
    if all(slope is None for slope in slopes):
        raise BadInput("no-gradient", "", NO_GRADIENT.format(what))
    return slopes


def gradient(answer: Tensor, tensor: Tensor, what: str = "input") -> Tensor:
    """Of one number towards one tensor."""
    (slope,) = gradients(answer, [tensor], what)
    assert slope is not None
    return slope
