"""What an ONNX operator computes, in torch functions: arithmetic, reductions, shapes and indices. Layers: `onnx_functions.py`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from neurotest.target.onnx_functions import FUNCTIONS, Unsupported, ints, number, operator
from neurotest.target.operators import check_quotient

__all__ = ["FUNCTIONS", "TYPES"]

MOST_INTEGERS = 1 << 24  # integers computed from sizes
# Numbers of the ONNX data types.
TYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64, 9: torch.bool,
    10: torch.float16, 11: torch.float64, 16: torch.bfloat16,
}  # fmt: skip
FUNCTIONS |= {
    "Abs": torch.abs, "Neg": torch.neg, "Exp": torch.exp, "Log": torch.log, "Sqrt": torch.sqrt, "Reciprocal": torch.reciprocal,
    "Floor": torch.floor, "Ceil": torch.ceil, "Round": torch.round, "Sign": torch.sign, "Sin": torch.sin, "Cos": torch.cos,
    "Tan": torch.tan, "Atan": torch.atan, "Sinh": torch.sinh, "Cosh": torch.cosh, "Erf": torch.erf, "IsNaN": torch.isnan,
    "IsInf": torch.isinf, "Not": torch.logical_not,
    "Identity": lambda x: x,
    "Mean": lambda *values: functools.reduce(torch.add, values) / len(values),
    "CastLike": lambda x, like, *, saturate=1: x.to(like.dtype),
    "ArgMax": lambda x, *, axis=0, keepdims=1, select_last_index=0: x.argmax(axis, keepdim=bool(keepdims)),
    "ArgMin": lambda x, *, axis=0, keepdims=1, select_last_index=0: x.argmin(axis, keepdim=bool(keepdims)),
    "Concat": lambda *tensors, axis: torch.cat([torch.as_tensor(one) for one in tensors], axis),
    "Transpose": lambda x, *, perm=None: x.permute(list(reversed(range(x.ndim))) if perm is None else list(perm)),
    # Sizes are small tensors of integers on the CPU, wherever the network runs.
    "Shape": lambda x, *, start=0, end=None: torch.tensor(x.shape[start:end], dtype=torch.int64, device="cpu"),
    "Size": lambda x: torch.tensor(x.numel(), dtype=torch.int64, device="cpu"),
}  # fmt: skip
_PAIRS: dict[str, Callable[[Any, Any], Tensor]] = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Pow": torch.pow, "Equal": torch.eq, "Greater": torch.gt,
    "Less": torch.lt, "GreaterOrEqual": torch.ge, "LessOrEqual": torch.le, "And": torch.logical_and, "Or": torch.logical_or,
    "Xor": torch.logical_xor,
}  # fmt: skip
_MANY: dict[str, Callable[[Any, Any], Tensor]] = {"Min": torch.minimum, "Max": torch.maximum, "Sum": torch.add}
_REDUCTIONS: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "ReduceMean": lambda x, d, k: x.mean(d, keepdim=k),
    "ReduceSum": lambda x, d, k: x.sum(d, keepdim=k),
    "ReduceMax": lambda x, d, k: x.amax(d, keepdim=k),
    "ReduceMin": lambda x, d, k: x.amin(d, keepdim=k),
    "ReduceL1": lambda x, d, k: x.abs().sum(d, keepdim=k),
    "ReduceL2": lambda x, d, k: torch.linalg.vector_norm(x, dim=d, keepdim=k),
    "ReduceSumSquare": lambda x, d, k: x.square().sum(d, keepdim=k),
    "ReduceLogSum": lambda x, d, k: x.sum(d, keepdim=k).log(),
    "ReduceLogSumExp": lambda x, d, k: torch.logsumexp(x, d, keepdim=k),
}


def _tensors(a: Any, b: Any) -> tuple[Any, Any]:
    """At least one of the two as a tensor, on one device: a number keeps the other's type, and what was computed from sizes
    lies on the CPU."""
    if not isinstance(a, Tensor):
        return torch.as_tensor(a, dtype=getattr(b, "dtype", None), device=getattr(b, "device", None)), b
    if isinstance(b, Tensor) and a.device != b.device:
        a, b = (a.to(b.device), b) if a.device.type == "cpu" else (a, b.to(a.device))
    return a, b


def _joined(pair: Callable[[Any, Any], Tensor], *values: Any) -> Tensor:
    result: Tensor = functools.reduce(lambda a, b: pair(*map(torch.as_tensor, _tensors(a, b))), values)
    return result


def _reduce(
    reduction: Callable[[Tensor, list[int], bool], Tensor], x: Tensor, given: Any = None, *, axes: Any = None, keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Tensor:  # fmt: skip
    dims = ints(given) if given is not None else axes
    if not dims and noop_with_empty_axes:
        return x
    return reduction(x, dims or list(range(x.ndim)), bool(keepdims))


FUNCTIONS |= {name: functools.partial(lambda pair, a, b: pair(*_tensors(a, b)), pair) for name, pair in _PAIRS.items()}
FUNCTIONS |= {name: functools.partial(_joined, pair) for name, pair in _MANY.items()}
FUNCTIONS |= {name: functools.partial(_reduce, reduction) for name, reduction in _REDUCTIONS.items()}


@operator("Div")
def _div(a: Any, b: Any) -> Tensor:
    a, b = _tensors(a, b)
    whole = not a.is_floating_point() and not (b.is_floating_point() if isinstance(b, Tensor) else isinstance(b, float))
    if whole:
        check_quotient({"self": a, "other": b})
        return torch.div(a, b, rounding_mode="trunc")
    return torch.div(a, b)


@operator("Mod")
def _mod(a: Any, b: Any, *, fmod: int = 0) -> Tensor:
    a, b = _tensors(a, b)
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


@operator("Where")
def _where(condition: Tensor, a: Any, b: Any) -> Tensor:
    a, b = _tensors(a, b)
    device = next((one.device for one in (condition, a, b) if isinstance(one, Tensor) and one.device.type != "cpu"), None)
    if device is not None:
        condition, a, b = (one.to(device) if isinstance(one, Tensor) else one for one in (condition, a, b))
    return torch.where(condition, a, b)


@operator("Cast")
def _cast(x: Any, *, to: int, saturate: int = 1) -> Tensor:
    if to not in TYPES:
        raise Unsupported(f"Cast to type {to}")
    return torch.as_tensor(x).to(TYPES[to])


@operator("TopK")
def _top_k(x: Tensor, k: Any = None, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    values, places = torch.topk(x, ints(k)[0], axis, bool(largest), bool(sorted))
    return values, places


@operator("CumSum")
def _cumulative_sum(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    if exclusive or reverse:
        raise Unsupported("CumSum, exclusive or reversed")
    return x.cumsum(ints(axis)[0])


def _check_count(count: float, operator: str) -> None:
    """What lies on the CPU is computed for real when the network is rehearsed."""
    if not count <= MOST_INTEGERS:
        raise Unsupported(f"{operator} of more than {MOST_INTEGERS:,} values")


@operator("ConstantOfShape")
def _constant_of_shape(sizes: Any, *, value: Any = 0.0, device: torch.device | None = None) -> Tensor:
    dtype = torch.float32 if isinstance(value, float) else torch.bool if isinstance(value, bool) else torch.int64
    if device is None:
        _check_count(math.prod(ints(sizes)), "ConstantOfShape")
    return torch.full(ints(sizes), value, dtype=dtype, device=device)


@operator("Range")
def _range(start: Any, limit: Any, delta: Any) -> Tensor:
    first, last, step = number(start), number(limit), number(delta)
    _check_count((last - first) / step if step else math.inf, "Range")
    return torch.arange(first, last, step)


@operator("Reshape")
def _reshape(x: Tensor, sizes: Any, *, allowzero: int = 0) -> Tensor:
    wanted = ints(sizes)
    return x.reshape([x.shape[place] if s == 0 and not allowzero else s for place, s in enumerate(wanted)])


@operator("Flatten")
def _flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis % x.ndim if axis < 0 else axis
    return x.flatten(1) if axis == 1 and x.ndim > 1 else x.reshape(math.prod(x.shape[:axis]), -1)


@operator("Squeeze")
def _squeeze(x: Tensor, given: Any = None, *, axes: Any = None) -> Tensor:
    dims = ints(given) if given is not None else axes
    return x.squeeze() if dims is None else x.squeeze(tuple(dims))


@operator("Unsqueeze")
def _unsqueeze(x: Tensor, given: Any = None, *, axes: Any = None) -> Tensor:
    dims = ints(given) if given is not None else axes
    x, ndim = torch.as_tensor(x), torch.as_tensor(x).ndim + len(dims)
    for dim in sorted(d % ndim for d in dims):
        x = x.unsqueeze(dim)
    return x


@operator("Expand")
def _expand(x: Any, sizes: Any) -> Tensor:
    tensor = torch.as_tensor(x)
    return tensor.expand(torch.broadcast_shapes(tensor.shape, tuple(ints(sizes))))


@operator("Tile")
def _tile(x: Tensor, repeats: Any) -> Tensor:
    if x.device.type == "cpu" and not x.is_floating_point():
        _check_count(x.numel() * math.prod(ints(repeats)), "Tile")
    return x.tile(ints(repeats))


@operator("Split")
def _split(
    x: Tensor, sizes: Any = None, *, axis: int = 0, split: Any = None, num_outputs: int | None = None, outputs: int = 1
) -> tuple[Tensor, ...]:
    parts = ints(sizes) if sizes is not None else split
    if parts is None:
        each = -(-x.shape[axis] // (num_outputs or outputs))
        return torch.split(x, each, axis)
    return torch.split(x, parts, axis)


@operator("Slice")
def _slice(
    x: Tensor, begin: Any = None, end: Any = None, dims: Any = None, steps: Any = None, *, starts: Any = None, ends: Any = None,
    axes: Any = None,
) -> Tensor:  # fmt: skip
    begins, stops = ints(begin if begin is not None else starts), ints(end if end is not None else ends)
    wanted = ints(dims) if dims is not None else axes or list(range(len(begins)))
    strides = ints(steps) if steps is not None else [1] * len(begins)
    places: list[slice] = [slice(None)] * x.ndim
    for dim, start, stop, step in zip(wanted, begins, stops, strides, strict=True):
        if step < 0:
            chosen = list(range(x.shape[dim]))[_bounded(start) : _bounded(stop) if stop > -x.shape[dim] - 1 else None : step]
            x = x.index_select(dim, torch.tensor(chosen, device=x.device))
        else:
            places[dim] = slice(start, stop, step)
    return x[tuple(places)]


def _bounded(place: int) -> int:
    return max(-(2**62), min(2**62, place))


@operator("Gather")
def _gather(data: Any, places: Any, *, axis: int = 0) -> Tensor:
    x, index = torch.as_tensor(data), torch.as_tensor(places)
    axis %= x.ndim
    if index.ndim == 0 and index.device.type == "cpu":
        return x.select(axis, int(index))
    index = index.to(x.device).long()
    chosen = x.index_select(axis, torch.where(index < 0, index + x.shape[axis], index).reshape(-1))
    return chosen.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


@operator("GatherElements")
def _gather_elements(x: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    index = index.to(x.device).long()
    return x.gather(axis, torch.where(index < 0, index + x.shape[axis], index))


@operator("Pad")
def _pad(
    x: Tensor, sides: Any = None, value: Any = None, dims: Any = None, *, pads: Any = None, mode: str = "constant", **older: Any
) -> Tensor:
    widths = ints(sides) if sides is not None else pads
    axes = [d % x.ndim for d in ints(dims)] if dims is not None else list(range(x.ndim))
    begins, ends = [0] * x.ndim, [0] * x.ndim
    for place, axis in enumerate(axes):
        begins[axis], ends[axis] = widths[place], widths[place + len(axes)]
    pairs = [side for axis in reversed(range(x.ndim)) for side in (begins[axis], ends[axis])]
    if mode == "constant":
        return F.pad(x, pairs, value=number(value) or older.get("value") or 0.0)
    while len(pairs) > 2 and pairs[-2:] == [0, 0]:
        del pairs[-2:]
    return F.pad(x, pairs, mode={"reflect": "reflect", "edge": "replicate", "wrap": "circular"}[mode])


@operator("DepthToSpace")
def _depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    if mode == "CRD":
        return F.pixel_shuffle(x, blocksize)
    n, c, h, w = x.shape
    deep = x.reshape(n, blocksize, blocksize, c // blocksize**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return deep.reshape(n, c // blocksize**2, h * blocksize, w * blocksize)


@operator("SpaceToDepth")
def _space_to_depth(x: Tensor, *, blocksize: int) -> Tensor:
    n, c, h, w = x.shape
    cut = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize).permute(0, 3, 5, 1, 2, 4)
    return cut.reshape(n, c * blocksize**2, h // blocksize, w // blocksize)


@operator("Resize", "Upsample")
def _resize(
    x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None, *, mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel", nearest_mode: str = "round_prefer_floor", opset: int = 13, **others: Any,
) -> Tensor:  # fmt: skip
    if opset < 11:  # (x, scales), sampled without shifting
        scales, coordinate_transformation_mode, nearest_mode = roi or others.get("scales"), "asymmetric", "floor"
    if sizes is not None:
        wanted = ints(sizes)[-(x.ndim - 2) :]
    else:
        factors = scales.tolist() if isinstance(scales, Tensor) else list(scales)
        wanted = [math.floor(side * factor) for side, factor in zip(x.shape[2:], factors[-(x.ndim - 2) :], strict=True)]
    if mode == "nearest" and (coordinate_transformation_mode, nearest_mode) == ("asymmetric", "floor"):
        return F.interpolate(x, wanted, mode="nearest")
    linear = {3: "linear", 4: "bilinear", 5: "trilinear"}
    corners = coordinate_transformation_mode == "align_corners"
    usual = coordinate_transformation_mode in ("half_pixel", "pytorch_half_pixel", "align_corners")
    if mode == "linear" and usual and not others.get("antialias"):
        return F.interpolate(x, wanted, mode=linear[x.ndim], align_corners=corners)
    if mode == "cubic" and usual and others.get("cubic_coeff_a", -0.75) == -0.75 and not others.get("antialias"):
        return F.interpolate(x, wanted, mode="bicubic", align_corners=corners)
    raise Unsupported(f"Resize, mode {mode}, {coordinate_transformation_mode}, {nearest_mode}")
