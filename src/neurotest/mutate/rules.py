"""Mutation spaces of fuzzers: families of rules, drawn from uniform numbers, so that every mutant can be made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import registry
from neurotest.errors import BadInput
from neurotest.mutate.affine import Paste, Rotation, Slant, Translation, warp_all
from neurotest.mutate.operators import _Affine
from neurotest.mutate.pixel import BILATERAL, Add, Blur, Gain, Noise, PixelChange, WhiteNoise
from neurotest.mutate.space import Draws
from neurotest.mutate.style import AdaIN, Style, StyleImages, StyleTransfer

UNIFORMS = 3  # per draw: which family or rule, which value, which noise
WIDTH = 3  # columns of a parameter row
# A value halfway between two of 8 bits is rounded up though the arithmetic may fall just below it: how a batch is put together
# changes the last bits of a blur, and a mutant must come out the same when it is made again alone.
NUDGE = 2e-3


@dataclass(frozen=True)
class Family:
    """One family: an operator and the parameter rows it may take, its rules.

    neutral: the row that changes nothing. once: allowed once per lineage; the reference image moves with it. seeded: a last
    column numbers the noise. exempt: not subject to validity.
    """

    name: str
    operator: Any
    rules: tuple[tuple[float, ...], ...]
    neutral: tuple[float, ...]
    once: bool = False
    seeded: bool = False
    exempt: bool = False

    @property
    def columns(self) -> int:
        return len(self.neutral) + self.seeded

    def pick(self, value: NDArray[np.float64], noise: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Parameter rows (n, columns) out of two uniform numbers each, and which rules they are."""
        rule = np.minimum((value * len(self.rules)).astype(np.int64), len(self.rules) - 1)
        rows = np.asarray(self.rules)[rule]
        return (np.column_stack([rows, np.floor(noise * 2**53)]) if self.seeded else rows), rule


@dataclass(frozen=True, kw_only=True)
class Space:
    """Base of the spaces. choice: `family` draws families equally often, `rule` rules (then rotation is most of rules95)."""

    choice: Literal["family", "rule"] = "family"

    def __post_init__(self) -> None:
        if self.choice not in ("family", "rule"):
            raise BadInput(f"choice={self.choice!r}: expected family or rule.")

    def _families(self) -> Sequence[Family]:
        raise NotImplementedError

    @cached_property
    def families(self) -> tuple[Family, ...]:
        return tuple(self._families())

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(family.name for family in self.families)

    @cached_property
    def once(self) -> NDArray[np.bool_]:
        return np.array([family.once for family in self.families])

    @property
    def needs_root(self) -> bool:
        """Whether `settle` looks at the seed."""
        return type(self).settle is not Space.settle

    @cached_property
    def idle(self) -> NDArray[np.bool_]:
        """(rules + 1,) which change nothing; the last stands for those with noise of their own, which are not numbered."""
        same = [not family.seeded and rule == family.neutral for family in self.families for rule in family.rules]
        return np.array([*same, False])

    @cached_property
    def _named(self) -> dict[str, Family]:
        return {family.name: family for family in self.families}

    def find(self, name: str) -> Family:
        if name in self._named:
            return self._named[name]
        raise BadInput(f"the mutation {name!r} is not in this space: it has {', '.join(self.names)}.")

    def draw(self, uniforms: NDArray[np.float64], used: NDArray[np.bool_] | None = None) -> Draws:
        """One mutation per row of uniform numbers (n, 3); where `used`, the lineage has had its once-only one."""
        used = np.zeros(len(uniforms), dtype=bool) if used is None else used
        kind, value = np.zeros(len(uniforms), dtype=np.int8), uniforms[:, 1].copy()
        for state in (False, True):
            rows = np.flatnonzero(used == state)
            if len(rows):
                kind[rows], value[rows] = self._choose(uniforms[rows], state)
        parameters, rules, first = np.zeros((len(uniforms), WIDTH)), np.full(len(uniforms), -1, dtype=np.int64), 0
        for number, family in enumerate(self.families):
            mine = np.flatnonzero(kind == number)
            if len(mine):
                parameters[mine, : family.columns], rule = family.pick(value[mine], uniforms[mine, 2])
                rules[mine] = -1 if family.seeded else first + rule
            first += len(family.rules)
        return Draws(self.names, kind, parameters, rules)

    def _choose(self, uniforms: NDArray[np.float64], used: bool) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
        open_ = np.flatnonzero(~self.once) if used else np.arange(len(self.families))
        if not len(open_):
            raise BadInput("every mutation of this space is allowed once per lineage: set max_depth to 1.")
        weights = np.array([len(self.families[i].rules) if self.choice == "rule" else 1 for i in open_], dtype=float)
        edges = np.cumsum(weights) / weights.sum()
        place = np.minimum(np.searchsorted(edges, uniforms[:, 0], side="right"), len(open_) - 1)
        return open_[place].astype(np.int8), uniforms[:, 1]

    def apply(self, x: Tensor, draws: Draws, *, root: Tensor | None = None, eight_bit: bool = True) -> Tensor:
        """Apply each item's draw to a batch in [0, 1], clipped and, for 8-bit data, rounded to 1/255."""
        self.check(tuple(x.shape[1:]))
        out = x.clone()
        parameters = torch.from_numpy(draws.parameters)
        matrices, moved = [], []
        for number, family in enumerate(self.families):
            mine = torch.from_numpy(np.flatnonzero(draws.kind == number)).to(x.device)
            if not len(mine):
                continue
            if isinstance(family.operator, _Affine) and not isinstance(family.operator, Paste):
                moved.append(mine)  # matrices in double precision: their last bits must not depend on the batch
                matrices.append(family.operator.matrix(parameters[mine.cpu()], x.shape[2], x.shape[3]))
            else:
                out[mine] = family.operator.apply(x[mine], parameters[mine.cpu()])
        if moved:
            index = torch.cat(moved)
            out[index] = warp_all(x[index], torch.cat(matrices))
        return self.settle(out, root, eight_bit)

    def settle(self, x: Tensor, root: Tensor | None, eight_bit: bool) -> Tensor:
        """Clip and round, in place: x belongs to `apply`."""
        x = x.nan_to_num_()
        return x.mul_(255).add_(0.5 + NUDGE).clamp_(0, 255).floor_().div_(255) if eight_bit else x.clamp_(0, 1)

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs this space cannot change."""
        if len(shape) != 3:
            raise BadInput(
                f"these mutations need images (channels, height, width), not inputs of shape {shape}: use --mutations tensorfuzz."
            )


def _single(values: Sequence[float]) -> tuple[tuple[float, ...], ...]:
    return tuple((float(v),) for v in values)


MOVES = ((-5, -5), (-5, 0), (0, -5), (0, 0), (5, 0), (0, 5), (5, 5))


@registry.register(
    "mutation space",
    "rules95",
    paper="NeuraL-Coverage, ICSE 2023; NSGen, section 5.2",
    cost="about a third of a LeNet-5 forward pass per mutant, the bilateral blur several times that",
    differs="71 affine and 24 pixel rules, three of which change nothing. NSGen's text counts style among the 95; its code does "
    "not: that is `rules98`. The code draws rules equally often, so that 63 % are rotations (`choice=rule`); here families "
    "are. Smaller images are placed on white, as published; `white=false` is kinder to data with a black background. Warps "
    "and blurs are kornia's, which differ from OpenCV's in the last digits.",
)
@dataclass(frozen=True, kw_only=True)
class Rules95(Space):
    """Translation (7), scale (4), rotation (60), each once per lineage; contrast (7), brightness (7), blur (10).

    white: what surrounds a shrunk image. bilateral: whether the tenth blur, the slow one, is among the rules.
    """

    white: bool = True
    bilateral: bool = True

    def _families(self) -> Sequence[Family]:
        return (
            Family("translation", Translation(), tuple((float(a), float(b)) for a, b in MOVES), (0.0, 0.0), once=True),
            Family("scale", Paste(white=self.white), _single((0.8, 0.85, 0.9, 0.95)), (1.0,), once=True),
            Family("rotation", Rotation(), _single(range(-30, 30)), (0.0,), once=True),
            Family("contrast", Gain(), _single([0.8 + 0.2 * i for i in range(7)]), (1.0,)),
            Family("brightness", Add(), _single(range(10, 80, 10)), (0.0,)),
            Family("blur", Blur(), _single(range(1, 11 if self.bilateral else BILATERAL)), (0.0,)),
        )


@registry.register(
    "mutation space",
    "rules98",
    paper="NSGen, section 5.2",
    cost="as rules95; style costs about as much as a blur",
    differs="The paper transfers style with AdaIN and 5,935 paintings, which need downloaded weights. Ours are weight-free (Lab "
    "colour statistics, Fourier amplitudes, procedural textures, drawn equally often) with style images made from numbers; "
    "in Python `Rules98(transfers=(AdaIN(encoder, decoder),))` uses the real one.",
)
@dataclass(frozen=True, kw_only=True)
class Rules98(Rules95):
    """rules95 and style transfer at strengths 0.4, 0.6 and 0.8.

    styles: a folder of style pictures (default: made ones). transfers: other transfers, for example AdaIN.
    """

    styles: str | None = None
    transfers: tuple[StyleTransfer | AdaIN, ...] | None = field(default=None, compare=False)

    def _families(self) -> Sequence[Family]:
        transfers = self.transfers or tuple(entry.make for entry in registry.entries("style transfer").values())
        images = StyleImages() if self.styles is None else StyleImages.of(self.styles)
        style = Family("style", Style(transfers, images), _single((0.4, 0.6, 0.8)), (0.0,), seeded=True, exempt=True)
        return (*super()._families(), style)


def _tenths(first: int, last: int) -> tuple[tuple[float, ...], ...]:
    return _single([i / 10 for i in range(first, last + 1)])


@registry.register(
    "mutation space",
    "deephunter",
    paper="Xie et al., DeepHunter, ISSTA 2019",
    cost="as rules95 without its bilateral blur",
    differs="The amplitudes of the three kinds of noise are ours. As in the released code everything but pixel changes and noise "
    "is allowed once per lineage and not checked.",
)
@dataclass(frozen=True, kw_only=True)
class DeepHunterSpace(Space):
    """Translation, scale, shear, rotation, contrast, brightness, blur (once per lineage), pixel change and noise."""

    def _families(self) -> Sequence[Family]:
        return (
            Family("translation", Translation(), tuple((float(t), float(t)) for t in range(-3, 3)), (0.0, 0.0), once=True),
            Family("scale", Paste(white=False), _tenths(7, 11), (1.0,), once=True),
            Family("shear", Slant(), _tenths(-6, 5), (0.0,), once=True),
            Family("rotation", Rotation(), _single(range(-50, 50)), (0.0,), once=True),
            Family("contrast", Gain(), _tenths(5, 12), (1.0,), once=True),
            Family("brightness", Add(), _single(range(-20, 20)), (0.0,), once=True),
            Family("blur", Blur(), _single(range(1, 10)), (0.0,), once=True),
            Family("pixels", PixelChange(), _single(range(1, 10)), (0.0,), seeded=True),
            Family("noise", Noise(), _single((1, 2, 3)), (0.0,), seeded=True),
        )


@registry.register(
    "mutation space", "tensorfuzz", paper="Odena et al., TensorFuzz, ICML 2019", cost="one normal number per value", main="sigma"
)
@dataclass(frozen=True, kw_only=True)
class TensorFuzzSpace(Space):
    """White noise of spread `sigma`, clipped; `constraint` keeps every value that close to the seed. Takes any shape of input."""

    sigma: float = 0.2
    constraint: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sigma > 0:
            raise BadInput(f"sigma={self.sigma!r}: expected a number above 0 (TensorFuzz uses 0.2).")
        if self.constraint is not None and not self.constraint > 0:
            raise BadInput(f"constraint={self.constraint!r}: expected a number above 0, or none.")

    def _families(self) -> Sequence[Family]:
        return (Family("noise", WhiteNoise(), ((self.sigma,),), (0.0,), seeded=True, exempt=True),)

    def settle(self, x: Tensor, root: Tensor | None, eight_bit: bool) -> Tensor:
        if self.constraint is not None and root is not None:
            x = torch.minimum(torch.maximum(x, root - self.constraint), root + self.constraint)
        return super().settle(x, root, eight_bit)

    def check(self, shape: tuple[int, ...]) -> None:
        return None
