"""How a network is run where exact repetition of the usual kernels is not needed: memory layout and precision.

Both change rounding, `bfloat16` by so much that predictions change; so both are off unless somebody asks, belong to the target's
description, and are stored in a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from neurotest.checks import shown
from neurotest.errors import BadInput, NeurotestError

if TYPE_CHECKING:
    from neurotest.target.target import Target

Layout = Literal["channels_last"]
Precision = Literal["bfloat16"]


def check_layout(layout: str | None) -> Layout | None:
    if layout not in (None, "channels_last"):
        raise BadInput("out-of-range", "layout", f"layout={shown(layout)}: expected channels_last, or nothing for the usual one.")
    return layout  # type: ignore[return-value]


def check_precision(precision: str | None, device: torch.device) -> Precision | None:
    if precision not in (None, "bfloat16"):
        raise BadInput("out-of-range", "precision", f"precision={shown(precision)}: expected bfloat16, or nothing for float32.")
    if precision is not None and not _has_bfloat16(device):
        message = f"precision='bfloat16' is slower here: this processor ({device.type}) has no instructions for it. Leave it out."
        raise BadInput("unsupported", "precision", message)
    return precision  # type: ignore[return-value]


def _has_bfloat16(device: torch.device) -> bool:
    """Whether the processor multiplies matrices of bfloat16 by itself."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return device.type == "cpu" and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def laid_channels_last(x: Tensor) -> Tensor:
    """The same images (n, c, h, w) with the channels of a pixel side by side; anything else as it is.

    A grey image lies both ways at once; torch takes the way that its strides spell, so they have to spell this one.
    """
    if x.ndim != 4:
        return x
    if x.shape[1] > 1:
        return x.contiguous(memory_format=torch.channels_last)
    height, width = x.shape[2:]
    return x.contiguous().as_strided(x.shape, (height * width, 1, width, 1))


def arranged(x: Tensor, layout: Layout | None) -> Tensor:
    """A batch of images as the layout wants it."""
    return x if layout is None else laid_channels_last(x)


def running(precision: Precision | None, device: torch.device) -> AbstractContextManager[object]:
    """Around a forward pass: heavy operators in lower precision, sums that need it in float32."""
    return nullcontext() if precision is None else torch.autocast(device.type, dtype=torch.bfloat16)


# -- where a network's weights lie in memory: convolutions are faster where the channels of a pixel lie side by side

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
