"""The mean of a layer's maps over their places, taken from its input where that is smaller to read.

A convolution with a kernel of one and a dense layer on tokens treat every place alike, so the mean of what they give is what they
make of the mean of what they get. A layer that widens six times is so recorded by reading a sixth, and reading whole maps once
more is most of what coverage costs on photographs. The numbers are the same but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as every

if TYPE_CHECKING:
    from neurotest.target.layers import Layer

Widening = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear


def mean_from_input(module: nn.Module, layer: Layer) -> Callable[[Tensor], Tensor] | None:
    """From a layer's input (n, *input_shape) the means of its output's channels (n, channels); None: the output has to be read.

    It depends on the layer alone, never on the batch, so that a profile and what is compared with it are computed in one way.
    """
    if math.prod(layer.shape) <= math.prod(layer.input_shape) or not isinstance(module, Widening):
        return None
    if not _as_torch_made_it(module) or not _one_place(module):
        return None
    channels = len(layer.shape) if isinstance(module, nn.Linear) else 1
    places = tuple(axis for axis in range(1, len(layer.shape) + 1) if axis != channels)
    if layer.axis != channels or not places:
        return None
    # The weight is looked up in every pass: somebody may have put another in its place.
    return lambda x: F.linear(x.mean(places), module.weight.flatten(1), module.bias)


def _as_torch_made_it(module: Widening) -> bool:
    """Whether nothing but the class's own code runs: a subclass or a hook of the user's may change what the layer gives."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    if every._global_forward_hooks or every._global_forward_pre_hooks:
        return False
    changed = type(module) not in get_args(Widening) or "forward" in vars(module)
    reads = all(getattr(hook, "only_reads", False) for hook in hooks)
    return reads and not changed and module.weight.dtype in (torch.float32, torch.float64)


def _one_place(module: Widening) -> bool:
    """Whether every place of the output is made of the same place of the input, of all its channels."""
    if isinstance(module, nn.Linear):
        return True
    ones = all(size == 1 for size in (*module.kernel_size, *module.stride))
    return ones and module.groups == 1 and all(size == 0 for size in module.padding)
