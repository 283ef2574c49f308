"""Where a network's weights lie in memory: convolutions are faster where the channels of a pixel lie side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from neurotest.errors import NeurotestError
from neurotest.target.speed import laid_channels_last
from neurotest.target.target import Target

__all__ = ["channels_last", "laid_channels_last", "lies_channels_last"]

CLOSE = 1e-3  # of the largest logit: what summing up in another order may change, and a network that lost its way does not


@contextmanager
def channels_last(target: Target, trial: Tensor | None = None) -> Iterator[bool]:
    """Convolutions whose weights lie channels last: on a processor a quarter faster forwards, 1.6 times as fast backwards.

    The weights themselves are the same; what lay there before is put back at the end. trial: some inputs; where the network
    cannot run on them so (it takes views that such memory does not allow) or says something else, nothing is changed. Gives
    whether it was.
    """
    before = [(weight, weight.data, weight.requires_grad) for weight in target.module.parameters()]
    fits = True
    expected = None if trial is None else _logits(target, trial)
    try:
        for weight, data, _ in before:
            weight.requires_grad_(False)
            if data.ndim == 4:
                weight.data = data.contiguous(memory_format=torch.channels_last)
        if trial is not None and expected is not None:
            fits = _same(target, trial, expected)
            for weight, data, _ in before if not fits else ():
                weight.data = data
        yield fits
    finally:
        for weight, data, learned in before:
            weight.data = data
            weight.requires_grad_(learned)


def lies_channels_last(target: Target) -> bool:
    """Whether some convolution's weights lie so, and in no other way."""
    return any(
        w.ndim == 4 and not w.is_contiguous() and w.is_contiguous(memory_format=torch.channels_last)
        for w in target.module.parameters()
    )


def _logits(target: Target, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return target.logits(x)


def _same(target: Target, x: Tensor, expected: Tensor) -> bool:
    try:
        again = _logits(target, laid_channels_last(x))
    except NeurotestError:
        return False
    return bool(torch.allclose(again, expected, rtol=0, atol=CLOSE * float(expected.abs().max()) + 1e-12, equal_nan=True))
