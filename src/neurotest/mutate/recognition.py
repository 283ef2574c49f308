"""A small learner that says which class a mutant still looks like: patches of the data as filters, and ridge regression.

It is learned from mutants of the seeds themselves, in two halves, so that no mutant is judged by a learner that knows its seed.
It is weaker than a network, but has nothing to do with the one under test, which has just failed on the mutant. Moves (shifts,
turns, scales) are undone first: a digit that stands elsewhere is still that digit, and what has left the image stays lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from neurotest import rng
from neurotest.devices import exact
from neurotest.levels import EIGHT, Levels
from neurotest.mutate.base import UNIFORMS, Draws, Mutations
from neurotest.mutate.chain import Chain, draws_of
from neurotest.mutate.operators import Affine, warp

SIDE, PATCH, GRID = 20, 5, 4  # pixels that images are looked at, of a patch, and parts of an image in either direction
FILTERS = 40
LEAST_ANSWER = 0.5  # below which an answer is none
RIDGE = 0.3  # of the mean variance of a feature
MUTANTS, EACH = 2000, 32  # learned from, of a half and of each of few seeds, at most
IMAGES_AT_ONCE, VALUES_AT_ONCE = 500, 1 << 24  # images that are handled at once, and values they may hold: of photographs fewer
MOST_STEPS = 2  # mutations on top of each other, at most


@dataclass(frozen=True, eq=False)
class _Recogniser:
    """Fitted filters and weights."""

    filters: Tensor  # (filters, channels, patch, patch)
    mean: Tensor  # (features,)
    weights: Tensor  # (features, classes)
    offset: Tensor  # (classes,)

    @classmethod
    def fit(cls, looked: Tensor, classes: NDArray[Any], count: int, random: np.random.Generator) -> _Recogniser:
        """From images as they are looked at, and their classes, of `count`."""
        filters = _patches(looked[:IMAGES_AT_ONCE], random)
        features = _features(looked, filters)
        mean = features.mean(0)
        centred = features - mean
        y = functional.one_hot(torch.from_numpy(np.asarray(classes, dtype=np.int64)), count).to(centred)
        gram = exact(centred.T @ centred)
        gram.diagonal().add_(RIDGE * float(gram.diagonal().mean()) + 1e-9)
        weights = torch.linalg.solve(gram, exact(centred.T @ (y - y.mean(0))))
        return cls(filters, mean, weights.to(centred), y.mean(0))

    def classes(self, x: Tensor) -> NDArray[np.int64]:
        """(n,) the class that each image looks most like."""
        looked = torch.cat([_looked_at(part) for part in x.split(at_once(x))])
        scores = (_features(looked, self.filters) - self.mean) @ self.weights + self.offset
        return np.asarray(scores.argmax(1).numpy())


def at_once(x: Tensor) -> int:
    """How many images like these are handled together."""
    return max(1, min(IMAGES_AT_ONCE, VALUES_AT_ONCE // max(1, x[:1].numel())))


def _looked_at(x: Tensor) -> Tensor:
    small = functional.interpolate(x.float(), (SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False)
    flat = small.flatten(1)
    spread = flat.std(1, keepdim=True).clamp_min(0.02)
    return ((flat - flat.mean(1, keepdim=True)) / spread).view_as(small)


def _patches(x: Tensor, random: np.random.Generator) -> Tensor:
    """Patches of the images as filters, each with mean 0 and length 1; the most even of many are left out."""
    patches = functional.unfold(x, PATCH).transpose(1, 2).flatten(0, 1)  # (all, channels * patch * patch)
    patches = patches[torch.from_numpy(random.permutation(len(patches))[: 4 * FILTERS])]
    patches = patches - patches.mean(1, keepdim=True)
    lengths = patches.norm(dim=1)
    chosen = lengths.argsort(descending=True)[: 2 * FILTERS][::2]
    filters: Tensor = patches[chosen] / lengths[chosen, None].clamp_min(1e-6)
    return filters.view(-1, x.shape[1], PATCH, PATCH)


def _features(looked: Tensor, filters: Tensor) -> Tensor:
    """(n, 2 * filters * grid * grid) how strongly each filter answers, positively and negatively, in each part."""
    rows = []
    for part in looked.split(IMAGES_AT_ONCE):
        answers = functional.conv2d(part, filters)
        parts = [functional.adaptive_avg_pool2d((sign - LEAST_ANSWER).clamp_min(0), GRID) for sign in (answers, -answers)]
        rows.append(torch.cat(parts, dim=1).flatten(1))
    return torch.cat(rows)


@dataclass(frozen=True, eq=False)
class Recognition:
    """Two recognisers: the one learned from every other seed judges the mutants of the seeds between."""

    halves: tuple[_Recogniser, _Recogniser]
    mutations: Mutations

    @classmethod
    def of(
        cls,
        seeds: Tensor,
        classes: NDArray[Any],
        count: int,
        mutations: Mutations,
        *,
        levels: Levels | None = EIGHT,
        seed: int = 0,
    ) -> Recognition:
        """Learned from mutants of images (n, c, h, w), 8-bit or in [0, 1], with these classes, of `count`."""
        halves = []
        for half in (0, 1):
            random = rng.stream("mutate.recognition", seed, half)
            rows = np.arange(1 - half, len(seeds), 2)
            rows = rows if len(rows) else np.arange(len(seeds))
            drawn = np.resize(rows, max(min(MUTANTS, EACH * len(rows)), len(rows)))
            looked = []
            for rows_of_part in np.split(drawn, range(at_once(seeds), len(drawn), at_once(seeds))):
                part = _unit(seeds[torch.from_numpy(rows_of_part)])
                looked.append(_looked_at(_mutated(part, mutations, random, levels=levels)))
            halves.append(_Recogniser.fit(torch.cat(looked), np.asarray(classes)[drawn], count, random))
        return cls((halves[0], halves[1]), mutations)

    def classes(self, mutants: Tensor, chains: Sequence[Chain], roots: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) what mutants of these seeds look like after their moves are undone."""
        looked = np.zeros(len(mutants), dtype=np.int64)
        still = _undone(mutants, _moves(self.mutations, chains, *mutants.shape[-2:]))
        for half, recogniser in enumerate(self.halves):
            mine = np.flatnonzero(roots % 2 == half)
            if len(mine):
                looked[mine] = recogniser.classes(still[torch.from_numpy(mine)])
        return looked


def _moves(mutations: Mutations, chains: Sequence[Chain], height: int, width: int) -> Tensor:
    """(n, 3, 3) where the affine steps of each chain took a pixel."""
    total = torch.eye(3, dtype=torch.float64).repeat(len(chains), 1, 1)
    for depth in range(max(map(len, chains), default=0)):
        mine = [i for i, chain in enumerate(chains) if len(chain) > depth and chain[depth].operator in mutations.names]
        draws = draws_of(mutations, [chains[i][depth] for i in mine])
        index = torch.tensor(mine, dtype=torch.int64)
        total[index] = _step_moves(mutations, draws, height, width) @ total[index]
    return total


def _step_moves(mutations: Mutations, draws: Draws, height: int, width: int) -> Tensor:
    """(n, 3, 3) where one step took a pixel; those that are not affine left it."""
    matrices = torch.eye(3, dtype=torch.float64).repeat(len(draws), 1, 1)
    parameters = torch.from_numpy(draws.parameters)
    for number, family in enumerate(mutations.families):
        mine = torch.from_numpy(np.flatnonzero(draws.kind == number))
        if len(mine) and isinstance(family.operator, Affine):
            matrices[mine, :2] = family.operator.matrix(parameters[mine], height, width)
    return matrices


def _undone(x: Tensor, moved: Tensor) -> Tensor:
    """Images with every pixel back where it came from; what had left the image stays black."""
    out, changed = x.clone(), (moved != torch.eye(3, dtype=moved.dtype)).flatten(1).any(1).nonzero()[:, 0]
    if len(changed):
        out[changed] = warp(x[changed], torch.linalg.inv(moved[changed])[:, :2].to(x))
    return out


def _unit(x: Tensor) -> Tensor:
    return x.float().div_(255) if x.dtype == torch.uint8 else x


def _mutated(x: Tensor, mutations: Mutations, random: np.random.Generator, *, levels: Levels | None) -> Tensor:
    """Images with none to STEPS mutations, drawn at random.

    Moves are left out: they are undone before a mutant is looked at, and a learner that had seen halves of images would know a
    class by less than people do.
    """
    roots = x
    steps, used = random.integers(0, MOST_STEPS + 1, len(x)), np.full(len(x), not mutations.once.all())
    for step in range(MOST_STEPS):
        draws = mutations.draw_from(random.random((len(x), UNIFORMS)), used)
        changed = mutations.apply(x, draws, root=roots, levels=levels)
        x = torch.where(torch.from_numpy(steps > step).view(-1, 1, 1, 1), changed, x)
    return x
