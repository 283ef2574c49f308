"""What an operator of an exported network may be given: numbers by what they mean, and arguments that would end the process.

torch checks most arguments with an error. Its kernels trust the rest: a scale of 1e-12 or a hidden state that is not there ends
the process. The limits are far beyond what networks use. `tests/fuzz/operators.py` looks for more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from neurotest.target.archive import Malformed

Check = Callable[[dict[str, Any]], None]
Bound = tuple[str, float, float]  # name, smallest and largest number
WINDOW, SIZE, SCALE = 2**20, 2**31 - 1, 2**12  # a scale is at least 1 / SCALE
_WINDOWS = {"kernel_size", "stride", "padding", "dilation", "output_padding", "pad", "groups", "hop_length", "win_length"}
_SCALES = {"scales", "scales_d", "scales_h", "scales_w", "scale_factors"}
_MODES = {"interpolation_mode", "padding_mode", "normalization"}  # a place in a list of three
_ANY = {"start", "end"}  # the end of a slice is the largest integer if there is none


def bounds(schema: Any) -> list[Bound]:
    """The arguments of an operator that are bounded."""
    limits: list[Bound] = []
    for argument in schema.arguments:
        name, kind = argument.name, str(argument.real_type)
        if name in _SCALES:
            limits.append((name, 1 / SCALE, SCALE))
        elif name in _MODES:
            limits.append((name, 0, 2))
        elif "int" in kind and name not in _ANY:
            most = WINDOW if name in _WINDOWS else SIZE
            limits.append((name, -most, most))
    return limits


def check_bounds(operator: str, limits: list[Bound], given: dict[str, Any]) -> None:
    for name, least, most in limits:
        value = given.get(name)
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, (int, float)) and not least <= one <= most:  # not: a NaN is nowhere between
                raise Malformed(f"{operator} is given {name}={one}; expected a number from {least:g} to {most:,}")


def _check_channels(given: dict[str, Any]) -> None:
    """Batch norm reads, and in training mode writes, one number for each channel, however many there are."""
    x = given.get("input")
    channels = x.shape[1] if isinstance(x, Tensor) and x.ndim > 1 else None
    for name in ("weight", "bias", "running_mean", "running_var"):
        tensor = given.get(name)
        if isinstance(tensor, Tensor) and tuple(tensor.shape) != (channels,):
            raise Malformed(f"{name} has the shape {tuple(tensor.shape)} for {channels} channels")


def check_quotient(given: dict[str, Any]) -> None:
    """The smallest integer divided by -1 is no integer: the processor stops the process."""
    x, y = given.get("self"), given.get("other")
    if not isinstance(x, Tensor) or x.is_meta or x.is_floating_point() or x.is_complex() or x.dtype is torch.bool:
        return
    if isinstance(y, Tensor) and (y.is_meta or y.is_floating_point() or y.is_complex()):
        return
    smallest = (x == torch.iinfo(x.dtype).min).any()
    if bool(smallest) and bool((y == -1).any() if isinstance(y, Tensor) else y == -1):
        raise Malformed("an integer is divided by -1 and the quotient is too large")


def _check_transform(given: dict[str, Any]) -> None:
    """The inner functions of Fourier transforms take dimensions as they are, and write as much as they are told."""
    x, dims, size = given.get("self"), given.get("dim"), given.get("last_dim_size")
    if not isinstance(x, Tensor) or not isinstance(dims, (list, tuple)):
        return
    if len(set(dims)) < len(dims) or not all(0 <= dim < x.ndim for dim in dims):
        raise Malformed(f"a Fourier transform is given dim={str(dims)[:80]}; expected different ones from 0 to {x.ndim - 1}")
    if size is not None and (not dims or x.shape[dims[-1]] != size // 2 + 1):
        raise Malformed(f"a Fourier transform back is given last_dim_size={size} for a tensor of the shape {tuple(x.shape)}")


def _check_attention(given: dict[str, Any]) -> None:
    """Heads are counted by dividing."""
    for name in ("query", "key", "value"):
        tensor = given.get(name)
        if isinstance(tensor, Tensor) and 0 in tensor.shape:
            raise Malformed(f"attention is given a {name} of the shape {tuple(tensor.shape)}, which is empty")


def _check_recurrent(given: dict[str, Any]) -> None:
    """Recurrent layers take weights and states from lists, by their places."""
    params, layers = given.get("params") or [], given.get("num_layers")
    directions, each = 2 if given.get("bidirectional") else 1, 4 if given.get("has_biases") else 2
    cells = layers * directions if isinstance(layers, int) else 0
    if cells < 1 or len(params) not in (cells * each, cells * (each + 1)):  # one more: a projection
        raise Malformed(f"a recurrent network of {layers} layers is given {len(params)} weights")
    hx = given.get("hx")
    states: Any = hx if isinstance(hx, (list, tuple)) else [hx]
    tensors = [given.get("input"), *states]
    if any(not isinstance(one, Tensor) or one.ndim != 3 for one in tensors) or len(states) != (2 if hx is states else 1):
        raise Malformed("a recurrent network is given an input or states of another shape")
    if any(state.shape[0] != cells for state in states):
        raise Malformed(f"a recurrent network of {cells} cells is given states for {[state.shape[0] for state in states]}")
    if any(0 in one.shape or not one.is_floating_point() for one in (*tensors, *params)):
        raise Malformed("a recurrent network is given an input, states or weights that are empty or no numbers with a fraction")


CHECKS: dict[str, Check] = {
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"), _check_channels),
    **dict.fromkeys(("div", "divide", "floor_divide"), check_quotient),
    **dict.fromkeys(("_fft_r2c", "_fft_c2c", "_fft_c2r"), _check_transform),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _check_recurrent),
    "scaled_dot_product_attention": _check_attention,
}  # fmt: skip
