"""What an exported graph may call: a list of aten operators that only compute, and arithmetic on sizes with bounds.

An operator is looked up by its exact name, in torch.ops.aten only. None of these opens files, runs code, or reads memory
by addresses it is given.

torch checks most arguments with an error. Its kernels trust the rest: a scale of 1e-12 or a hidden state that is not there ends
the process. So numbers are bounded by what they mean, far beyond what networks use, and some operators have a check of their own.
`tests/fuzz/operators.py` looks for more.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from neurotest.target.archive import Malformed, Refused

Function = Callable[..., Any]
Check = Callable[[dict[str, Any]], None]
Bound = tuple[str, float, float]  # name, smallest and largest number
LARGEST_SIZE = 2**62  # no size is larger

_POOLS = {f"{kind}_pool{d}d" for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for d in (1, 2, 3)}
_PADS = {f"{kind}_pad{d}d" for kind in ("reflection", "replication") for d in (1, 2, 3)}
_RESIZES = {
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "pixel_shuffle",
    "pixel_unshuffle", "channel_shuffle", "grid_sampler", "grid_sampler_2d", "affine_grid_generator", "im2col", "col2im",
}  # fmt: skip
_LAYERS = {
    "conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "linear",
    "addmm", "mm", "bmm", "baddbmm", "matmul", "mv", "dot", "einsum", "bilinear", "embedding",
    "scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu", "batch_norm", "native_batch_norm",
    "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "layer_norm", "native_layer_norm", "group_norm",
    "native_group_norm", "instance_norm", "rms_norm", "_fused_rms_norm", "local_response_norm", "dropout", "native_dropout",
    "feature_dropout", "alpha_dropout", "max_pool2d_with_indices", "max_pool3d_with_indices", "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d", "cosine_similarity", "pairwise_distance",
}  # fmt: skip
_ACTIVATIONS = {
    "relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "elu", "selu", "celu", "hardtanh", "hardswish",
    "hardsigmoid", "hardshrink", "softshrink", "tanhshrink", "mish", "softplus", "softsign", "prelu", "_prelu_kernel",
    "rrelu", "threshold", "glu", "log_sigmoid", "log_sigmoid_forward", "softmax", "_softmax", "log_softmax", "_log_softmax",
    "_safe_softmax", "logit",
}  # fmt: skip
_ELEMENTWISE = {
    "abs", "neg", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "square", "reciprocal", "sin",
    "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv",
    "floor", "ceil", "round", "trunc", "frac", "sign", "sgn", "clamp", "clamp_min", "clamp_max", "clip", "nan_to_num",
    "isnan", "isinf", "isfinite", "add", "sub", "rsub", "mul", "div", "true_divide", "floor_divide", "multiply", "divide",
    "subtract", "pow", "float_power", "fmod", "remainder", "maximum", "minimum", "fmax", "fmin", "hypot", "lerp", "addcmul",
    "addcdiv", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "logical_xor", "bitwise_and",
    "bitwise_or", "bitwise_not", "bitwise_xor", "where", "masked_fill", "real", "imag", "angle", "conj", "conj_physical",
    "resolve_conj", "view_as_real", "view_as_complex", "complex", "polar", "logaddexp", "xlogy", "special_expit", "__and__",
    "__or__", "__xor__",
}  # fmt: skip
_REDUCTIONS = {
    "sum", "mean", "prod", "amax", "amin", "aminmax", "max", "min", "argmax", "argmin", "std", "var", "std_mean",
    "var_mean", "norm", "linalg_vector_norm", "logsumexp", "cumsum", "cumprod", "any", "all", "topk", "sort", "argsort",
    "median", "count_nonzero", "nanmean", "nansum", "frobenius_norm", "linalg_norm",
}  # fmt: skip
_SHAPES = {
    "view", "_unsafe_view", "reshape", "view_as", "reshape_as", "flatten", "unflatten", "squeeze", "unsqueeze", "expand",
    "expand_as", "permute", "transpose", "t", "numpy_T", "mT", "swapaxes", "swapdims", "movedim", "moveaxis", "select",
    "slice", "narrow", "cat", "concat", "stack", "hstack", "vstack", "split", "split_with_sizes", "chunk", "tensor_split",
    "unbind", "unfold", "repeat", "repeat_interleave", "tile", "roll", "flip", "rot90", "tril", "triu", "diagonal",
    "diag_embed", "gather", "index", "index_select", "take_along_dim", "scatter", "scatter_add", "select_scatter",
    "slice_scatter", "index_put", "index_fill", "index_add", "index_copy", "pad", "constant_pad_nd", "broadcast_to",
    "broadcast_tensors", "meshgrid", "atleast_1d", "atleast_2d", "atleast_3d", "ravel", "contiguous", "clone", "alias",
    "detach", "lift_fresh", "lift_fresh_copy", "copy", "fill", "zero", "to", "_to_copy", "type_as", "one_hot", "bucketize",
}  # fmt: skip
_MAKERS = {
    "zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones",
    "new_full", "new_empty", "arange", "linspace", "eye", "scalar_tensor", "hann_window", "hamming_window", "tril_indices",
    "triu_indices", "rand", "randn", "rand_like", "randn_like", "bernoulli", "stft", "_fft_r2c", "_fft_c2c", "_fft_c2r",
    "fft_rfft", "fft_irfft", "fft_fft", "fft_ifft", "fft_fft2", "fft_ifft2", "fft_rfft2", "fft_irfft2", "fft_fftshift",
    "fft_ifftshift",
}  # fmt: skip
_CHECKS = {"sym_size", "sym_numel", "sym_stride", "_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range",
           "sym_constrain_range_for_size"}  # fmt: skip
OPERATORS = frozenset(
    _POOLS | _PADS | _RESIZES | _LAYERS | _ACTIVATIONS | _ELEMENTWISE | _REDUCTIONS | _SHAPES | _MAKERS | _CHECKS
)

_ATEN = re.compile(r"torch\.ops\.aten\.([A-Za-z0-9_]{1,80})\.([A-Za-z0-9_]{1,80})")


def lookup(target: str) -> Function:
    """The function that a node calls, or a refusal that names it."""
    if target in ARITHMETIC:
        return ARITHMETIC[target]
    match = _ATEN.fullmatch(target)
    name = match[1] if match else ""
    if match is None or (name not in OPERATORS and (name.startswith("__") or name.removesuffix("_") not in OPERATORS)):
        raise Refused(f"its graph calls {target[:120]!r}, which is not among the operators that neurotest runs by itself")
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or match[2] not in packet.overloads():
        raise Malformed(f"torch {torch.__version__} has no operator {target[:120]!r}")
    function: Function = getattr(packet, match[2])
    if any(argument.is_out for argument in function._schema.arguments):  # type: ignore[attr-defined]
        raise Refused(f"its graph calls {target[:120]!r}, which writes into tensors that it is given")
    check, bounds = CHECKS.get(name.removesuffix("_")), _bounds(function._schema)  # type: ignore[attr-defined]
    return _Checked(function, check, bounds) if check or bounds else function


def exportable(function: Function) -> bool:
    """Whether an export may write it. TorchScript has overloads of the same names, for numbers without a tensor and for types
    by their number; recurrent layers have one whose tensor of lengths says where to read."""
    schema = function._schema  # type: ignore[attr-defined]
    kinds = [str(one.real_type) for one in (*schema.arguments, *schema.returns)]
    script = schema.overload_name.startswith("prim_") or schema.overload_name == "data"
    return schema.name.removeprefix("aten::") in _CHECKS or (not script and any("Tensor" in kind for kind in kinds))


class _Checked:
    """An operator that refuses what would make it end the process, or read and write beyond its tensors."""

    def __init__(self, function: Function, check: Check | None, bounds: list[Bound]) -> None:
        self.function, self.check, self.bounds = function, check, bounds
        self._schema = function._schema  # type: ignore[attr-defined]
        self.names = [argument.name for argument in self._schema.arguments]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:  # an argument may be called self
        given = dict(zip(self.names, args, strict=False)) | kwargs
        check_bounds(self._schema.name, self.bounds, given)
        if self.check is not None:
            self.check(given)
        return self.function(*args, **kwargs)

    def __str__(self) -> str:
        return str(self.function)


# -- sizes: Python's own numbers, bounded before they are computed


def _numbers(function: Function) -> Function:
    def bounded(*values: Any) -> Any:
        for value in values:
            if type(value) not in (int, float, bool) or abs(value) > LARGEST_SIZE:
                raise Malformed(f"{str(value)[:40]!r} is no size to calculate with")
        result = function(*values)
        if type(result) is int and abs(result) > LARGEST_SIZE:
            raise Malformed("a size is too large")
        return result

    return bounded


def _power(base: float, exponent: float) -> Any:
    if abs(exponent) > 64 or abs(base) > 2**31:
        raise Malformed("a size is too large")
    return base**exponent


def _item(values: Any, place: Any) -> Any:
    if type(values) not in (tuple, list) or type(place) is not int:
        raise Malformed("getitem on something that is no list")
    return values[place]


_WORDS = "add sub mul truediv floordiv mod neg pos eq ne lt le gt ge and_ or_ not_"
ARITHMETIC: dict[str, Function] = {
    **{f"_operator.{word}": _numbers(getattr(operator, word)) for word in _WORDS.split()},
    **{f"math.{word}": _numbers(getattr(math, word)) for word in ("ceil", "floor", "trunc", "sqrt")},
    "_operator.pow": _numbers(_power), "_operator.getitem": _item,
    "torch.sym_int": _numbers(int), "torch.sym_float": _numbers(float), "torch.sym_max": _numbers(max),
    "torch.sym_min": _numbers(min), "torch.sym_not": _numbers(operator.not_),
    "torch.sym_ite": _numbers(lambda condition, one, other: one if condition else other),
    "torch.sym_sqrt": _numbers(math.sqrt), "torch.sym_sum": lambda values: _numbers(lambda *v: sum(v))(*values),
    "torch._sym_sqrt": _numbers(math.sqrt),
}  # fmt: skip


# -- limits of arguments

WINDOW, SIZE, SCALE = 2**20, 2**31 - 1, 2**12  # a scale is at least 1 / SCALE
_WINDOWS = {"kernel_size", "stride", "padding", "dilation", "output_padding", "pad", "groups", "hop_length", "win_length"}
_SCALES = {"scales", "scales_d", "scales_h", "scales_w", "scale_factors"}
_MODES = {"interpolation_mode", "padding_mode", "normalization"}  # a place in a list of three
_ANY = {"start", "end"}  # the end of a slice is the largest integer if there is none


def _bounds(schema: Any) -> list[Bound]:
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
}
