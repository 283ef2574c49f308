"""What an ONNX operator computes, in torch functions: layers, activations, poolings and norms. Others: `onnx_tensors.py`.

Inputs come by position (None where an optional one is missing), attributes by name. Each function is written from the operator's
definition and serves all versions of it: what newer versions take as an input, older ones had as an attribute of that name.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Function = Callable[..., Any]
# Operators that are one function of torch. A lambda takes what the operator has, and not what torch has beside it.
FUNCTIONS: dict[str, Function] = {
    "MatMul": lambda a, b: torch.matmul(a, b),
    "Einsum": lambda *tensors, equation: torch.einsum(equation, *tensors),
    "Relu": lambda x: F.relu(x),
    "LeakyRelu": lambda x, *, alpha=0.01: F.leaky_relu(x, alpha),
    "ThresholdedRelu": lambda x, *, alpha=1.0: F.threshold(x, alpha, 0.0),
    "Elu": lambda x, *, alpha=1.0: F.elu(x, alpha),
    "Celu": lambda x, *, alpha=1.0: F.celu(x, alpha),
    "Gelu": lambda x, *, approximate="none": F.gelu(x, approximate=approximate),
    "Sigmoid": lambda x: torch.sigmoid(x),
    "Swish": lambda x, *, alpha=1.0: F.silu(x) if alpha == 1 else x * torch.sigmoid(alpha * x),
    "HardSwish": lambda x: F.hardswish(x),
    "Tanh": lambda x: torch.tanh(x),
    "Softplus": lambda x: F.softplus(x),
    "Softsign": lambda x: F.softsign(x),
    "Mish": lambda x: F.mish(x),
    "GlobalAveragePool": lambda x: x.mean(tuple(range(2, x.ndim)), keepdim=True),
    "GlobalMaxPool": lambda x: x.amax(tuple(range(2, x.ndim)), keepdim=True),
    "InstanceNormalization": lambda x, scale, bias, *, epsilon=1e-5: F.instance_norm(x, weight=scale, bias=bias, eps=epsilon),
    "LRN": lambda x, *, size, alpha=1e-4, beta=0.75, bias=1.0: F.local_response_norm(x, size, alpha, beta, bias),
    "LpNormalization": lambda x, *, axis=-1, p=2: x / torch.linalg.vector_norm(x, p, dim=axis, keepdim=True),
}


class Unsupported(Exception):
    """A setting of an operator that is not implemented."""


def operator(*names: str) -> Callable[[Function], Function]:
    """Register a function as what these ONNX operators compute."""

    def add(function: Function) -> Function:
        FUNCTIONS.update(dict.fromkeys(names, function))
        return function

    return add


def ints(value: Any) -> list[int]:
    """Sizes or axes, which may be computed by the network itself."""
    if isinstance(value, Tensor):
        value = value.tolist()
    return [int(one) for one in value] if isinstance(value, (list, tuple)) else [int(value)]


def number(value: Any) -> Any:
    """One number, from whatever holds it; None stays None."""
    if isinstance(value, Tensor):
        return value.reshape(-1)[0].item() if value.numel() == 1 else value
    return value[0] if isinstance(value, list) else value


# -- layers


def _same_padding(x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], lower: bool) -> list[int]:
    """The padding that `auto_pad` stands for, all beginnings first."""
    begins, ends = [], []
    for size, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        total = max(0, (math.ceil(size / s) - 1) * s + (k - 1) * d + 1 - size)
        small, large = total // 2, total - total // 2
        begins.append(large if lower else small)
        ends.append(small if lower else large)
    return begins + ends


def _padded(
    x: Tensor, pads: Sequence[int] | None, auto_pad: str, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    value: float = 0.0, most: Sequence[int] | None = None,
) -> tuple[Tensor, list[int]]:  # fmt: skip
    """The input, padded where both sides differ (or more than `most`), and the padding that is left for the layer itself."""
    dims = len(kernel)
    pads = list(pads or [0] * 2 * dims)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        pads = _same_padding(x, kernel, strides, dilations, auto_pad == "SAME_LOWER")
    begins, ends = pads[:dims], pads[dims:]
    if begins == ends and min(begins) >= 0 and all(b <= m for b, m in zip(begins, most or begins, strict=True)):
        return x, begins
    sides = [side for pair in zip(reversed(begins), reversed(ends), strict=True) for side in pair]
    return F.pad(x, sides, value=value), [0] * dims


@operator("Conv")
def _conv(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, strides: Any = None, pads: Any = None, dilations: Any = None,
    group: int = 1, auto_pad: str = "NOTSET", kernel_shape: Any = None,
) -> Tensor:  # fmt: skip
    dims = weight.ndim - 2
    strides, dilations = strides or [1] * dims, dilations or [1] * dims
    x, padding = _padded(x, pads, auto_pad, list(weight.shape[2:]), strides, dilations)
    return (F.conv1d, F.conv2d, F.conv3d)[dims - 1](x, weight, bias, strides, padding, dilations, group)


@operator("ConvTranspose")
def _conv_transpose(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, strides: Any = None, pads: Any = None, dilations: Any = None,
    group: int = 1, auto_pad: str = "NOTSET", output_padding: Any = None, output_shape: Any = None, kernel_shape: Any = None,
) -> Tensor:  # fmt: skip
    dims = weight.ndim - 2
    pads = pads or [0] * 2 * dims
    if auto_pad not in ("NOTSET", "VALID") or output_shape or pads[:dims] != pads[dims:]:
        raise Unsupported("ConvTranspose with output_shape, auto_pad or uneven pads")
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    return function(x, weight, bias, strides or 1, pads[:dims], output_padding or 0, group, dilations or 1)


@operator("Gemm")
def _gemm(
    a: Tensor, b: Tensor, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> Tensor:
    a, b = a.t() if transA else a, b if transB else b.t()
    c = None if c is None else torch.as_tensor(c, dtype=a.dtype, device=a.device)
    if alpha == 1 and beta == 1 and (c is None or (c.ndim == 1 and len(c) == len(b))):
        return F.linear(a, b, c)
    product = F.linear(a, b) * alpha
    return product if c is None else product + beta * c


# -- activations


@operator("PRelu")
def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    if slope.numel() in (1, x.shape[1]) and slope.numel() == max(slope.shape, default=1):
        return F.prelu(x, slope.reshape(-1))
    return torch.where(x < 0, x * slope, x)


@operator("Selu")
def _selu(x: Tensor, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Tensor:
    if abs(alpha - 1.6732632423543772) < 1e-5 and abs(gamma - 1.0507009873554805) < 1e-5:
        return F.selu(x)
    return gamma * F.elu(x, alpha)


@operator("HardSigmoid")
def _hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return F.hardsigmoid(x) if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5 else (alpha * x + beta).clamp(0, 1)


@operator("Clip")
def _clip(x: Tensor, low: Any = None, high: Any = None, *, min: float | None = None, max: float | None = None) -> Tensor:
    low, high = number(low) if low is not None else min, number(high) if high is not None else max
    return x if low is None and high is None else torch.clamp(x, low, high)


def _softmax(function: Callable[..., Tensor], x: Tensor, *, axis: int | None = None, opset: int = 13) -> Tensor:
    """Before opset 13 all axes from `axis` on were one."""
    if opset >= 13:
        return function(x, dim=-1 if axis is None else axis)
    axis = (1 if axis is None else axis) % x.ndim
    return function(x.flatten(axis), dim=axis).reshape(x.shape)


operator("Softmax")(functools.partial(_softmax, F.softmax))
operator("LogSoftmax")(functools.partial(_softmax, F.log_softmax))


# -- poolings


@operator("MaxPool")
def _max_pool(
    x: Tensor, *, kernel_shape: list[int], strides: Any = None, pads: Any = None, dilations: Any = None, ceil_mode: int = 0,
    auto_pad: str = "NOTSET", storage_order: int = 0,
) -> Tensor:  # fmt: skip
    strides, dilations = (one or [1] * len(kernel_shape) for one in (strides, dilations))
    half = [k // 2 for k in kernel_shape]
    x, padding = _padded(x, pads, auto_pad, kernel_shape, strides, dilations, -math.inf, half)
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(kernel_shape) - 1]
    return function(x, kernel_shape, strides, padding, dilations, ceil_mode=bool(ceil_mode))


@operator("AveragePool")
def _average_pool(
    x: Tensor, *, kernel_shape: list[int], strides: Any = None, pads: Any = None, dilations: Any = None, ceil_mode: int = 0,
    auto_pad: str = "NOTSET", count_include_pad: int = 0,
) -> Tensor:  # fmt: skip
    strides, dilations = (one or [1] * len(kernel_shape) for one in (strides, dilations))
    if max(dilations) > 1:
        raise Unsupported("AveragePool with dilations")
    half = [k // 2 for k in kernel_shape]
    function: Any = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(kernel_shape) - 1]
    padded, padding = _padded(x, pads, auto_pad, kernel_shape, strides, dilations, 0.0, half)
    if padded is x or count_include_pad:
        return function(padded, kernel_shape, strides, padding, bool(ceil_mode), bool(count_include_pad))  # type: ignore[no-any-return]
    inside, _ = _padded(torch.ones_like(x[:1, :1]), pads, auto_pad, kernel_shape, strides, dilations, 0.0, half)
    sums = function(padded, kernel_shape, strides, 0, bool(ceil_mode))
    return sums / function(inside, kernel_shape, strides, 0, bool(ceil_mode))  # type: ignore[no-any-return]


# -- norms


@operator("BatchNormalization")
def _batch_norm(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5, momentum: float = 0.9,
    training_mode: int = 0, spatial: int = 1,
) -> Tensor:  # fmt: skip
    if training_mode or not spatial:
        raise Unsupported("BatchNormalization in training mode: export after model.eval()")
    return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)


@operator("LayerNormalization")
def _layer_norm(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    shape = x.shape[axis % x.ndim :]
    return F.layer_norm(x, shape, scale.expand(shape), None if bias is None else bias.expand(shape), epsilon)


@operator("RMSNormalization")
def _rms_norm(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Tensor:
    shape = x.shape[axis % x.ndim :]
    return F.rms_norm(x, shape, scale.expand(shape), epsilon)


@operator("GroupNormalization")
def _group_norm(x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1) -> Tensor:
    if len(scale) != x.shape[1]:  # opset 18 has one value per group
        scale, bias = (one.repeat_interleave(x.shape[1] // num_groups) for one in (scale, bias))
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@operator("Dropout")
def _dropout(x: Tensor, ratio: Any = None, training: Any = None, *, seed: int = 0, is_test: int = 1) -> Tensor:
    if number(training):
        raise Unsupported("Dropout in training mode: export after model.eval()")
    return x
