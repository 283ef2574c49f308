"""Batch normalisation between two networks: statistics of averaged weights are those of neither, so they are taken anew."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from neurotest.target import Target


def normalised(module: nn.Module) -> list[_BatchNorm]:
    """The layers of a network that keep statistics."""
    return [layer for layer in module.modules() if isinstance(layer, _BatchNorm) and layer.running_mean is not None]


def settle(target: Target, module: nn.Module, batches: Sequence[Tensor]) -> None:
    """Give every such layer the means over these batches; nothing else of the network changes, and it is left in eval mode."""
    network, layers = target.holding(module.eval()), normalised(module)
    if not layers or not batches:
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a plain mean
        layer.train()
    with torch.no_grad():
        for batch in batches:
            network.logits(batch, parts=False)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    module.eval()
