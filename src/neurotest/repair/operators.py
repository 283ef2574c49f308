"""Changes that keep the class of an input: the operator families that training images are mutated with, and judged by.

Broad changes are for training alone: random curves of brightness, filters, warps and pasted parts. Nothing is judged by them.
They are there because a network that has learned thirteen neat operators has not learned the next one.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from neurotest import rng
from neurotest.audio import is_audio
from neurotest.data.source import ArraySource, Source
from neurotest.levels import Levels, levels_of
from neurotest.mutate.audio import AudioMutations
from neurotest.mutate.base import WIDTH, Draws, Family, Mutations
from neurotest.mutate.nss import NssMutations
from neurotest.mutate.operators import Floats, RangeOperator
from neurotest.mutate.rules import TensorFuzzMutations
from neurotest.mutate.shifts import CorruptionMutations, ViewMutations
from neurotest.mutate.unit import from_unit, to_unit
from neurotest.mutate.weather import WeatherMutations

NUMBERS = 2.0**53
GOLDEN = 0x9E3779B97F4A7C15


def _uniforms(numbers: NDArray[np.float64], count: int) -> Floats:
    """(n, count) numbers in [0, 1) that follow from a whole number each: splitmix64 counted on from it, scrambled."""
    with np.errstate(over="ignore"):
        z = _scrambled(numbers.astype(np.uint64))[:, None] + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN)
        return np.asarray((_scrambled(z) >> np.uint64(11)) / NUMBERS)


def _scrambled(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


@dataclass(frozen=True, kw_only=True)
class _Broad(RangeOperator):
    """Parameters: how strong (0: unchanged), and the number from which everything else follows."""

    low: float
    high: float
    values: ClassVar[int]  # uniform numbers that one change takes
    neutral: ClassVar[tuple[float, ...]] = (0.0,)

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        return self.at(random.random((n, 2)))

    def at(self, uniforms: Floats) -> Floats:
        return np.column_stack([self.low + (self.high - self.low) * uniforms[:, 0], np.floor(uniforms[:, 1] * NUMBERS)])

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        drawn = _uniforms(parameters[:, 1].cpu().double().numpy(), self.values)
        strength = parameters[:, 0].to(x).view(-1, 1)
        return self.changed(x, strength, torch.from_numpy(drawn).to(x))

    @abstractmethod
    def changed(self, x: Tensor, strength: Tensor, drawn: Tensor) -> Tensor:
        """x (n, c, h, w), strength (n, 1), drawn (n, values)."""


@dataclass(frozen=True, kw_only=True)
class _Tone(_Broad):
    """Brightness through a rising curve: straight pieces between five heights, drawn and sorted."""

    low: float = 0.4
    high: float = 1.0
    values: ClassVar[int] = 5

    def changed(self, x: Tensor, strength: Tensor, drawn: Tensor) -> Tensor:
        pieces = self.values - 1
        heights = torch.lerp(torch.linspace(0, 1, self.values).to(x).expand_as(drawn), drawn.sort(1).values, strength)
        place = x.clamp(0, 1).flatten(1) * pieces
        below = place.floor().clamp_max(pieces - 1)
        left = heights.gather(1, below.long())
        right = heights.gather(1, below.long() + 1)
        return torch.lerp(left, right, place - below).view_as(x)


@dataclass(frozen=True, kw_only=True)
class _Filter(_Broad):
    """A mean of the neighbours within two pixels, weights drawn, mixed in or, for a third of the draws, taken away."""

    low: float = 0.4
    high: float = 1.0
    values: ClassVar[int] = 26

    def changed(self, x: Tensor, strength: Tensor, drawn: Tensor) -> Tensor:
        n, channels, height, width = x.shape
        weights = -torch.log1p(-drawn[:, :25])
        weights = (weights.square() / weights.square().sum(1, keepdim=True)).view(n, 1, 5, 5)
        kernels = weights.repeat_interleave(channels, 0)
        padded = functional.pad(x, [2] * 4, mode="replicate").view(1, n * channels, height + 4, width + 4)
        mean = functional.conv2d(padded, kernels, groups=n * channels).view_as(x)
        share = torch.where(drawn[:, 25:] < 1 / 3, -1.5 * strength, strength).view(n, 1, 1, 1)
        return torch.lerp(x, mean, share)


@dataclass(frozen=True, kw_only=True)
class _Warp(_Broad):
    """Every point is moved, neighbours alike: by offsets drawn on a grid of 4 x 4, strength in tenths of the width."""

    low: float = 0.5
    high: float = 1.5
    values: ClassVar[int] = 32

    def changed(self, x: Tensor, strength: Tensor, drawn: Tensor) -> Tensor:
        n, _, height, width = x.shape
        offsets = (2 * drawn - 1).view(n, 2, 4, 4) * (0.2 * strength).view(n, 1, 1, 1)
        field = functional.interpolate(offsets, size=(height, width), mode="bicubic", align_corners=True)
        rows, columns = torch.meshgrid(*(torch.linspace(-1, 1, size) for size in (height, width)), indexing="ij")
        grid = torch.stack([columns, rows], dim=2).to(x) + field.permute(0, 2, 3, 1)
        return functional.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=True)


@dataclass(frozen=True, kw_only=True)
class _Paste(_Broad):
    """Three squares of a sixth to a third of the side are covered by another part of the same image."""

    low: float = 1.0
    high: float = 2.0
    values: ClassVar[int] = 12

    def changed(self, x: Tensor, strength: Tensor, drawn: Tensor) -> Tensor:
        out, side = x.clone(), min(x.shape[2:])
        for i, (share, row) in enumerate(zip(strength[:, 0].tolist(), drawn.tolist(), strict=True)):
            size = round(share * side / 6)
            if not size:
                continue
            for down, right, other_down, other_right in (row[0:4], row[4:8], row[8:12]):
                top, left = int(down * (x.shape[2] - size + 1)), int(right * (x.shape[3] - size + 1))
                a, b = int(other_down * (x.shape[2] - size + 1)), int(other_right * (x.shape[3] - size + 1))
                out[i, :, top : top + size, left : left + size] = x[i, :, a : a + size, b : b + size]
        return out


@dataclass(frozen=True, kw_only=True)
class BroadMutations(Mutations):
    """Tone, filter, warp and paste, each equally often."""

    def _families(self) -> Sequence[Family]:
        operators = {"tone": _Tone(), "filter": _Filter(), "warp": _Warp(), "paste": _Paste()}
        return [Family(name, one, (), one.neutral, seeded=True) for name, one in operators.items()]


# Names that campaigns have for what is the same change here.
SAME = {"translation": "shift", "pixels": "noise", "white noise": "noise"}
CHUNK = 500
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Changes:
    """One change per item: the number of its operator in `Operators.names`, and its parameters (n, WIDTH)."""

    kind: Ints
    parameters: NDArray[np.float64]

    def __getitem__(self, rows: Ints) -> Changes:
        return Changes(self.kind[rows], self.parameters[rows])


@dataclass(frozen=True)
class Operators:
    """Operator families by name, out of sets of mutations."""

    names: tuple[str, ...]
    sets: tuple[Mutations, ...]

    @classmethod
    def of_source(cls, source: Source) -> Operators:
        """All that its inputs can be changed by."""
        if is_audio(source.dtype, source.shape):
            return cls(AudioMutations().names, (AudioMutations(),))
        if source.quantities is not None and len(source.shape) == 3:  # a turned or shifted picture has another quantity
            return cls(WeatherMutations().names, (WeatherMutations(),))
        return cls.of_shape(source.shape)

    @classmethod
    def of_shape(cls, shape: tuple[int, ...]) -> Operators:
        """Of what is no sound: 13 for images, noise for everything else."""
        if len(shape) != 3:
            return cls(("noise",), (TensorFuzzMutations(sigma=0.1),))
        sets = (NssMutations(), ViewMutations(), CorruptionMutations())
        names = [name for one in sets for name in one.names]
        return cls(tuple(name for name in names if name != "jpeg" or shape[0] in (1, 3)), sets)

    def broader(self) -> Operators:
        """These, and changes of no particular kind, which nothing is judged by; images of classes only."""
        if any(one.audio or isinstance(one, TensorFuzzMutations | WeatherMutations) for one in self.sets):
            return self
        broad = BroadMutations()
        return Operators((*self.names, *broad.names), (*self.sets, broad))

    def __len__(self) -> int:
        return len(self.names)

    def without(self, names: Iterable[str]) -> Operators:
        left = set(names)
        return dataclasses.replace(self, names=tuple(name for name in self.names if name not in left))

    def only(self, names: Iterable[str]) -> Operators:
        return dataclasses.replace(self, names=tuple(name for name in self.names if name in set(names)))

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """Of each name its set, and its number there."""
        return [next((s, one.names.index(name)) for s, one in enumerate(self.sets) if name in one.names) for name in self.names]

    def draw(self, random: np.random.Generator, kind: Ints) -> Changes:
        """Parameters for operators that are chosen already."""
        uniforms = random.random((len(kind), 2))
        parameters = np.zeros((len(kind), WIDTH))
        for number, (place, family) in enumerate(self._places):
            mine = np.flatnonzero(kind == number)
            if len(mine):
                rows, _ = self.sets[place].families[family].pick(uniforms[mine, 0], uniforms[mine, 1])
                parameters[mine, : rows.shape[1]] = rows
        return Changes(kind, parameters)

    def draw_any(self, random: np.random.Generator, n: int) -> Changes:
        """Each operator equally often."""
        return self.draw(random, random.integers(0, len(self.names), n))

    def milder(self, changes: Changes, strength: float) -> Changes:
        """So much of each change: parameters that far from those that change nothing."""
        parameters = changes.parameters.copy()
        for number, (place, family) in enumerate(self._places):
            one, mine = self.sets[place].families[family], changes.kind == number
            neutral = np.asarray(one.neutral)
            row = neutral + strength * (parameters[mine, : len(neutral)] - neutral)
            parameters[mine, : len(neutral)] = np.round(row) if one.operator.integers else row
        return Changes(changes.kind, parameters)

    def apply(self, x: Tensor, changes: Changes, *, levels: Levels | None) -> Tensor:
        """A batch in [0, 1], each item changed as it was drawn."""
        out = x.clone()
        places = np.array(self._places)[changes.kind]  # (n, 2)
        for number, one in enumerate(self.sets):
            mine = np.flatnonzero(places[:, 0] == number)
            if len(mine):
                draws = Draws(one.names, places[mine, 1].astype(np.int8), changes.parameters[mine])
                rows = torch.from_numpy(mine).to(x.device)
                out[rows] = one.apply(x[rows], draws, root=x[rows], levels=levels)
        return out

    def changed(self, source: Source, changes: Changes, bounds: tuple[float, float]) -> Source:
        """The whole source changed, item by item; it remembers its originals and what was drawn."""
        x = np.empty((len(source), *source.shape), source.dtype)
        for start in range(0, len(source), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(source)))
            x[rows] = stored(self.apply(unit(source.read(rows), bounds), changes[rows], levels=levels_of(x.dtype)), x, bounds)
        result = ArraySource(x, source.labels, classes=source.classes, spec=source.spec, originals=source)
        result.quantities = source.quantities  # beside the parts that stand for them as labels
        return result

    def pool(self, source: Source, seed: int, bounds: tuple[float, float], purpose: str) -> tuple[Source, Changes]:
        """Every input of a source changed once, each operator equally often."""
        changes = self.draw_any(rng.stream(f"repair.pool.{purpose}", seed), len(source))
        return self.changed(source, changes, bounds), changes


def unit(x: NDArray[np.generic], bounds: tuple[float, float]) -> Tensor:
    """Inputs as a source gives them, in [0, 1]."""
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    levels = levels_of(x.dtype)
    return levels.unit(tensor) if levels else to_unit(tensor, bounds).clamp(0, 1)


def stored(x: Tensor, like: NDArray[np.generic], bounds: tuple[float, float]) -> NDArray[np.generic]:
    """The inverse, in the number format of `like`."""
    if (levels := levels_of(like.dtype)) is not None:
        return levels.stored(x)
    return np.asarray(from_unit(x, bounds).clamp(*bounds).float().cpu().numpy())


def family_of(operator: str) -> str:
    """The operator's name here."""
    return SAME.get(operator, operator)
