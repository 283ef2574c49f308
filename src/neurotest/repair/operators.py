"""Changes that keep the class of an input: the operator families that training images are mutated with, and judged by."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.audio import is_audio
from neurotest.data.source import ArraySource, Source
from neurotest.levels import Levels, levels_of
from neurotest.mutate.audio import AudioMutations
from neurotest.mutate.base import WIDTH, Draws, Mutations
from neurotest.mutate.nss import NssMutations
from neurotest.mutate.rules import TensorFuzzMutations
from neurotest.mutate.shifts import CorruptionMutations, ViewMutations
from neurotest.mutate.unit import from_unit, to_unit
from neurotest.mutate.weather import WeatherMutations
from neurotest.repair.broad import BroadMutations

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
