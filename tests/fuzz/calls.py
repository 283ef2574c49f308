"""Arguments for operators of torch: mostly of sizes that fit, with one or two that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from neurotest.target import operators, program
from neurotest.target.archive import DTYPES

Rng = np.random.Generator
SMALL = (0, 1, 1, 2, 2, 3, 4, 5, 8, -1)
ODD = (2**20, 2**24, 2**31 - 1, 2**31, 2**32 + 1, 2**62, 2**63 - 1, -(2**31), -(2**62), -(2**63), -2, -3, 7, 16, 100)
FLOATS = (0.0, 1.0, 0.5, 2.0, -1.0, 1e-12, 1e12, 1e-300, 1e300, -0.0, 3.7, float("inf"), float("-inf"), float("nan"), 1e-4, 100.0)
TEXTS = (
    "mean", "sum", "none", "tanh", "floor", "trunc", "same", "valid", "constant", "reflect", "replicate", "circular", "ij", "xy",
    "forward", "backward", "ortho", "fro", "nuc", "add", "multiply", "ab,bc->ac", "...a,...b->...ab", "aa->a", "", "x",
)  # fmt: skip


class Arguments:
    """Arguments for one call, mostly of sizes that fit each other."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng
        self.base = tuple(
            int(rng.choice((0, 1, 2, 3, 4, 5, 8, 9), p=(0.03, 0.1, 0.2, 0.2, 0.2, 0.1, 0.1, 0.07))) for _ in range(self.rank())
        )
        self.dtype = self.pick((torch.float32,) * 6 + tuple(DTYPES.values()))

    def pick(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def rank(self) -> int:
        return int(self.pick((0, 1, 2, 3, 3, 4, 4, 4, 5, 5, 6)))

    def shape(self) -> tuple[int, ...]:
        base, way = self.base, int(self.rng.integers(12))
        if way < 6 or not base:
            return base
        if way == 6:
            place = int(self.rng.integers(len(base)))
            return (*base[:place], int(self.pick(SMALL[:-1])), *base[place + 1 :])
        if way == 7:
            return (base[min(1, len(base) - 1)],)
        if way == 8:  # of a convolution
            return (int(self.pick((1, 2, 4))), base[min(1, len(base) - 1)], *(int(self.pick((1, 2, 3))) for _ in base[2:]))
        if way == 9:
            return (base[-1], base[0])
        if way == 10:
            return ()
        return tuple(int(self.pick(SMALL[:-1])) for _ in range(self.rank()))

    def tensor(self) -> torch.Tensor:
        dtype = self.dtype if self.chance(0.75) else self.pick(list(DTYPES.values()))
        shape = self.shape()
        values = self.values(shape, dtype)
        match int(self.rng.integers(8)):
            case 0 if len(shape) > 1:
                values = values.transpose(0, -1)
            case 1 if len(shape) == 4:
                values = values.contiguous(memory_format=torch.channels_last)
            case 2 if shape:
                values = values[..., :1].expand(shape)
            case 3 if shape:
                values = values.flip(0)[::2]
        return values

    def values(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        seed = torch.Generator().manual_seed(int(self.rng.integers(2**31)))
        if dtype.is_floating_point or dtype.is_complex:
            values = torch.randn(shape, generator=seed, dtype=torch.float64)
            values = values * float(self.pick((1, 1, 1, 100, 1e6, 1e38)))
            if self.chance(0.1) and values.numel():
                values.view(-1)[int(self.rng.integers(values.numel()))] = float(self.pick(FLOATS))
            return values.to(dtype)
        if dtype is torch.bool:
            return torch.rand(shape, generator=seed) < 0.5
        if self.chance(0.7):
            return torch.randint(0, 4, shape, generator=seed).to(dtype)
        about = torch.iinfo(dtype)
        values = torch.randint(max(about.min, -5), 6, shape, generator=seed).to(dtype)
        if values.numel():
            values.view(-1)[int(self.rng.integers(values.numel()))] = int(
                self.pick((about.min, about.max, -1, 0)) if about.min else about.max
            )
        return values

    def int(self) -> int:
        return int(self.pick(SMALL if self.chance(0.85) else ODD))

    def number(self) -> Any:
        return self.int() if self.chance(0.5) else self.float() if self.chance(0.9) else self.chance(0.5)

    def float(self) -> float:
        return float(self.pick(FLOATS)) if self.chance(0.5) else float(self.rng.normal())

    def one(self, kind: str) -> Any:
        """A value of a type, by torch's name for it."""
        if kind.startswith("Optional["):
            return None if self.chance(0.4) else self.one(kind[9:-1])
        if kind.startswith("List["):
            sides = max(0, len(self.base) - 2)  # what poolings and resizes take
            return [self.one(kind[5:-1]) for _ in range(int(self.pick((sides, sides, sides, 0, 1, 1, 2, 2, 3, 4))))]
        make: dict[str, Callable[[], Any]] = {
            "Tensor": self.tensor, "int": self.int, "number": self.number, "float": self.float,
            "bool": lambda: self.chance(0.5), "complex": lambda: complex(self.float(), self.float()),
            "str": lambda: self.pick(TEXTS), "ScalarType": lambda: self.pick(list(DTYPES.values())),
            "Layout": lambda: torch.strided, "MemoryFormat": lambda: self.pick(list(program._MEMORY.values())),
            "Device": program.Device, "Generator": lambda: None,
        }  # fmt: skip
        return make[kind]() if kind in make else None


# -- calls that fit, by the names of their arguments: kernels are reached only with sizes that belong together


def _images(make: Arguments, dims: int) -> torch.Tensor:
    return make.values((2, 4, *(int(make.pick((3, 6, 8))) for _ in range(dims))), torch.float32)


def _windows(make: Arguments, dims: int) -> dict[str, Any]:
    sides = {"kernel_size": (1, 2, 3), "stride": (1, 2, 3), "padding": (0, 1), "dilation": (1, 2), "output_padding": (0,)}
    return {name: [int(make.pick(values)) for _ in range(dims)] for name, values in sides.items()}


def _images_call(make: Arguments, dims: int) -> dict[str, Any]:
    """Convolutions, poolings, resizes, paddings."""
    x = _images(make, dims)
    size = [int(make.pick((1, 2, 5, 12))) for _ in range(dims)]
    scales = [float(make.pick((0.5, 2.0, 1.3))) if make.chance(0.7) else make.float() for _ in range(3)]
    scales = scales[:1] * 3 if make.chance(0.5) else scales
    named = dict(zip(("scales_d", "scales_h", "scales_w"), scales, strict=True)) | {"scales": scales[0]}
    weight = make.values((4, 4, *(int(make.pick((1, 2, 3))) for _ in range(dims))), torch.float32)
    given = {"self": x, "input": x, "weight": weight, "bias": make.values((4,), torch.float32), "output_size": size, "groups": 1}
    return given | named | _windows(make, dims) | {"scale_factors": scales[:dims] if make.chance(0.5) else None}


def _recurrent_call(make: Arguments, gates: int) -> dict[str, Any]:
    layers, two, bias = int(make.pick((1, 2))), make.chance(0.5), make.chance(0.5)
    ways, shapes = 2 if two else 1, []
    for layer in range(layers):
        inner = 3 if layer == 0 else 4 * ways
        shapes += [(4 * gates, inner), (4 * gates, 4), *([(4 * gates,)] * 2 if bias else [])] * ways
    state = make.values((layers * ways, 2, 4), torch.float32)
    given = {"input": make.values((2, 5, 3), torch.float32), "hx": [state, state] if gates == 4 else state, "dropout": 0.0}
    given |= {"params": [make.values(shape, torch.float32) for shape in shapes], "num_layers": layers, "batch_first": True}
    return given | {"has_biases": bias, "bidirectional": two, "train": make.chance(0.3)}


def _norm_call(make: Arguments) -> dict[str, Any]:
    x, four = _images(make, 2), lambda: make.values((4,), torch.float32).abs()
    given = {"input": x, "weight": four(), "bias": four(), "running_mean": four(), "running_var": four(), "num_groups": 2}
    sizes = {"N": 2, "C": 4, "HxW": x[0, 0].numel(), "group": 2, "normalized_shape": list(x.shape[1:])}
    return given | sizes | ({"weight": None, "bias": None} if make.chance(0.5) else {})


def _attention_call(make: Arguments) -> dict[str, Any]:
    query, key, value = (make.values((2, 4, 5, 8), torch.float32) for _ in range(3))
    return {"query": query, "key": key, "value": value, "attn_mask": None, "dropout_p": 0.0, "scale": None}


def _indices_call(make: Arguments) -> dict[str, Any]:
    x = _images(make, 1)
    index = make.values(tuple(x.shape), torch.int64)
    given = {
        "self": x,
        "index": index,
        "indices": [index[0, 0]] if make.chance(0.5) else index,
        "src": x,
        "weight": x[0],
        "dim": 1,
    }
    return given | {"values": x[:1], "source": x}


def _signals_call(make: Arguments) -> dict[str, Any]:
    x = make.values((2, 32), torch.float32)
    given = {
        "self": x if make.chance(0.5) else x.to(torch.complex64),
        "n_fft": 8,
        "hop_length": 4,
        "win_length": 8,
        "window": None,
    }
    return given | {"dim": [1], "n": 16, "normalization": 0, "last_dim_size": 32, "return_complex": True, "norm": None}


def _pairs_call(make: Arguments) -> dict[str, Any]:
    """Arithmetic on integers, with the smallest and with 0 and -1."""
    dtype = make.pick((torch.int8, torch.int32, torch.int64))
    values = torch.tensor([torch.iinfo(dtype).min, -1, 0, 1, 7], dtype=dtype)
    return {"self": values, "other": make.pick((values.flip(0), values[1:2], -1, values[3:4], 0)), "exponent": values.flip(0)}


def template(name: str, make: Arguments) -> dict[str, Any]:
    """Arguments that fit an operator, by name; none if it needs no more than any."""
    if name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        return _recurrent_call(make, {"lstm": 4, "gru": 3}.get(name, 1))
    if "attention" in name:
        return _attention_call(make)
    if "norm" in name and "linalg" not in name:
        return _norm_call(make)
    if "fft" in name or name == "stft":
        return _signals_call(make)
    if any(word in name for word in ("index", "gather", "scatter", "take", "embedding")):
        return _indices_call(make)
    if any(word in name for word in ("div", "remainder", "fmod", "pow")):
        return _pairs_call(make)
    if any(word in name for word in ("conv", "pool", "upsample", "pad", "grid", "im2col", "col2im")):
        return _images_call(make, next((int(sign) for sign in reversed(name) if sign in "123"), 2))
    return {}


def generated(target: str, rng: Rng) -> tuple[list[Any], dict[str, Any]]:
    """Arguments for one call. Two of three calls begin with some that fit, of which a few are changed."""
    schema = operators.lookup(target)._schema  # type: ignore[attr-defined]
    make = Arguments(rng)
    fitting = template(schema.name.removeprefix("aten::").strip("_"), make) if make.chance(0.67) else {}
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in schema.arguments:
        if argument.name in fitting and make.chance(0.92):
            value = fitting[argument.name]
        elif argument.has_default_value() and make.chance(0.8 if fitting else 0.3):
            value = argument.default_value
        else:
            value = make.one(str(argument.real_type))
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return args, kwargs
