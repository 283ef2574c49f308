"""Mutation sets: which operators may be drawn, and the record of what was drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurotest import registry
from neurotest.errors import BadInput
from neurotest.mutate.operators import BoxBlur, Brightness, Contrast, Operator, Rotation, Scale, Shear, Shift, _Affine, warp


@dataclass(frozen=True)
class Draws:
    """What was drawn for each item: `kind[i]` numbers the operator in `names`, `parameters[i]` are its values."""

    names: tuple[str, ...]
    kind: np.ndarray  # (n,) int8
    parameters: np.ndarray  # (n, 2) float64, unused columns are 0
    rule: np.ndarray | None = None  # (n,) which rule of a fuzzer's space; -1: one with noise of its own

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, index: Any) -> Draws:
        return Draws(self.names, self.kind[index], self.parameters[index], None if self.rule is None else self.rule[index])

    def describe(self, i: int) -> dict[str, Any]:
        """Item i's draw as plain data, enough to replay it."""
        return {"operator": self.names[self.kind[i]], "parameters": [float(v) for v in self.parameters[i]]}

    @classmethod
    def of(cls, names: tuple[str, ...], described: list[dict[str, Any]]) -> Draws:
        """The inverse of `describe`."""
        known = {name: number for number, name in enumerate(names)}
        try:
            kind = np.array([known[d["operator"]] for d in described], dtype=np.int8)
            return cls(names, kind, np.array([d["parameters"] for d in described], dtype=np.float64).reshape(len(described), 2))
        except (KeyError, ValueError, TypeError) as error:
            raise BadInput(f"cannot replay the mutation record: {error}. Operators of this set: {', '.join(names)}.") from error


@registry.register(
    "mutation set",
    "nss",
    paper="NSS, table III",
    cost="about a tenth of a LeNet-5 forward pass per input",
    differs="The paper gives ranges only. Shift draws sign and size per axis, rotation and shear draw a sign; "
    "brightness adds (b - 1) / 2, because adding b itself makes every image white; "
    "results are rounded to 1/255, so that what is tested is what a PNG holds.",
)
@dataclass(frozen=True, kw_only=True)
class NssMutations:
    """Seven benign mutations, one drawn uniformly per input: shift, rotation, scale, shear, contrast, brightness, blur."""

    operators: Mapping[str, Operator] = field(
        default_factory=lambda: {
            "shift": Shift(), "rotation": Rotation(), "scale": Scale(), "shear": Shear(),
            "contrast": Contrast(), "brightness": Brightness(), "blur": BoxBlur(),
        }
    )  # fmt: skip

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.operators)

    def draw(self, random: np.random.Generator, n: int) -> Draws:
        """One operator and its parameters for each of n items."""
        kind = random.integers(0, len(self.operators), n).astype(np.int8)
        parameters = np.zeros((n, 2))
        for number, operator in enumerate(self.operators.values()):
            mine = np.flatnonzero(kind == number)
            values = operator.draw(random, len(mine))
            parameters[mine, : values.shape[1]] = values
        return Draws(self.names, kind, parameters)

    def apply(self, x: Tensor, draws: Draws) -> Tensor:
        """Apply each item's draw to a batch (n, c, h, w) in [0, 1]; clipped and rounded to 1/255."""
        if x.ndim != 4:
            raise BadInput(f"mutations need images (n, channels, height, width), not inputs of shape {tuple(x.shape[1:])}.")
        if len(draws) != len(x) or draws.names != self.names:
            raise BadInput(
                f"{len(draws)} draws of {', '.join(draws.names)} do not fit {len(x)} images and {', '.join(self.names)}."
            )
        out = torch.empty_like(x)
        parameters = torch.from_numpy(draws.parameters).to(x)
        matrices, affine = [], []
        for number, operator in enumerate(self.operators.values()):
            mine = torch.from_numpy(np.flatnonzero(draws.kind == number)).to(x.device)
            if not len(mine):
                continue
            if isinstance(operator, _Affine):
                affine.append(mine)
                matrices.append(operator.matrix(parameters[mine], x.shape[2], x.shape[3]))
            else:
                out[mine] = operator.apply(x[mine], parameters[mine])
        if affine:
            moved = torch.cat(affine)
            out[moved] = warp(x[moved], torch.cat(matrices))
        return round8(out)


def round8(x: Tensor) -> Tensor:
    """Clip to [0, 1] and round to what 8 bits hold: u / 255 in float32, exactly as reading the saved image gives it."""
    return x.clamp(0, 1).mul(255).round_().div_(255)


def to_unit(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """From a target's bounds to [0, 1], where mutations work."""
    low, high = bounds
    return x if bounds == (0.0, 1.0) else (x - low) / (high - low)


def from_unit(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """And back."""
    low, high = bounds
    return x if bounds == (0.0, 1.0) else x * (high - low) + low
