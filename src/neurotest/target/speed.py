"""How a network is run where exact repetition of the usual kernels is not needed: memory layout and precision.

Both change rounding, `bfloat16` by so much that predictions change; so both are off unless somebody asks, belong to the target's
description, and are stored in a run.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor

from neurotest.checks import shown
from neurotest.errors import BadInput

Layout = Literal["channels_last"]
Precision = Literal["bfloat16"]


def check_layout(layout: str | None) -> Layout | None:
    if layout not in (None, "channels_last"):
        raise BadInput("out-of-range", "layout", f"layout={shown(layout)}: expected channels_last, or nothing for the usual one.")
    return layout  # type: ignore[return-value]


def check_precision(precision: str | None, device: torch.device) -> Precision | None:
    if precision not in (None, "bfloat16"):
        raise BadInput("out-of-range", "precision", f"precision={shown(precision)}: expected bfloat16, or nothing for float32.")
    if precision is not None and not has_bfloat16(device):
        raise BadInput(
            "unsupported",
            "precision",
            f"precision='bfloat16': this processor ({device.type}) has no instructions for it, so it would be slower and less "
            "exact: leave it out.",
        )
    return precision  # type: ignore[return-value]


def has_bfloat16(device: torch.device) -> bool:
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
    """A batch of pictures as the layout wants it."""
    return x if layout is None else laid_channels_last(x)


def running(precision: Precision | None, device: torch.device) -> AbstractContextManager[object]:
    """Around a forward pass: heavy operators in lower precision, sums that need it in float32."""
    return nullcontext() if precision is None else torch.autocast(device.type, dtype=torch.bfloat16)
