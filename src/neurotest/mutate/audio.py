"""Operators on audio: waveforms (n, 1, samples) or (n, samples) in [0, 1], silence at 1/2, one parameter row per item.

All of them compute in double precision and item by item, so that a mutant is the same, bit for bit, when it is made again alone.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from neurotest import registry
from neurotest.checks import setting
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.levels import Levels
from neurotest.mutate.base import Family, RuleMutations, single
from neurotest.mutate.chain import Mutation, apply_to_all
from neurotest.mutate.operators import Operator, normal_noise

QUIET = 1e-12  # power of what counts as silence
MU = 255.0  # of the companding that telephones use


class _AudioOperator(Operator):
    """Base: a subclass changes waveforms (n, samples) in -1 .. 1 by the first parameter of each, (n, 1)."""

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        waves = x.flatten(1) * 2 - 1
        changed = self.changed(waves, parameters[:, :1].to(waves), parameters)
        return (changed.view_as(x) + 1) / 2

    @abstractmethod
    def changed(self, waves: Tensor, value: Tensor, parameters: Tensor) -> Tensor: ...


class _Gain(_AudioOperator):
    """Louder or softer by decibels; what leaves full scale is clipped."""

    def changed(self, waves: Tensor, value: Tensor, parameters: Tensor) -> Tensor:
        return waves * 10 ** (value / 20)


def _taken(waves: Tensor, places: Tensor) -> Tensor:
    """Waves at places between samples, (n, samples) each: a cubic through the four around; silence beyond the ends."""
    first = places.floor()
    share = places - first
    base = first.long()
    last = waves.shape[1] - 1
    around = []
    for step in (-1, 0, 1, 2):
        at = base + step
        around.append(waves.gather(1, at.clamp(0, last)) * ((at >= 0) & (at <= last)))
    a, b, c, d = around
    inner = (b - c) * 3 + d - a
    return b + 0.5 * share * (c - a + share * (2 * a - 5 * b + 4 * c - d + share * inner))


class _TimeShift(_AudioOperator):
    """Earlier or later by a share of the length, rounded to samples; silence comes in."""

    def changed(self, waves: Tensor, value: Tensor, parameters: Tensor) -> Tensor:
        steps = (value * waves.shape[1]).round()
        return _taken(waves, torch.arange(waves.shape[1], device=waves.device) - steps)


class _Speed(_AudioOperator):
    """Faster (above 1) or slower about the middle, as a tape is: the pitch moves along."""

    def changed(self, waves: Tensor, value: Tensor, parameters: Tensor) -> Tensor:
        middle = (waves.shape[1] - 1) / 2
        return _taken(waves, middle + (torch.arange(waves.shape[1], device=waves.device) - middle) * value)


@dataclass(frozen=True)
class _Background(_AudioOperator):
    """Noise under the audio at a signal-to-noise ratio in decibels; parameters: ratio, number of the noise.

    slope: how the noise falls with frequency, 0 white and 1 pink.
    """

    slope: float = 0.0

    def changed(self, waves: Tensor, value: Tensor, parameters: Tensor) -> Tensor:
        noise = normal_noise("mutate.sound", parameters, waves, np.float64)
        if self.slope:
            bins = torch.arange(waves.shape[1] // 2 + 1, dtype=waves.dtype, device=waves.device).clamp_min(1)
            noise = torch.fft.irfft(torch.fft.rfft(noise) * bins ** (-self.slope / 2), waves.shape[1])
        power = noise.square().mean(1, keepdim=True).clamp_min(QUIET)
        return waves + noise * (waves.square().mean(1, keepdim=True) / power).sqrt() * 10 ** (-value / 20)


@dataclass(frozen=True)
class _Band(_AudioOperator):
    """Lets pass what lies below (or, with `above`, above) a share of the highest frequency; 24 decibels an octave, no delay."""

    above: bool = False

    def changed(self, waves: Tensor, value: Tensor, parameters: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(waves)
        bins = torch.linspace(0, 1, spectrum.shape[1], dtype=waves.dtype, device=waves.device)
        ratio = value / bins.clamp_min(1e-9) if self.above else bins / value
        open_ = value <= 0 if self.above else value >= 1  # all of it passes
        weight = (1 + ratio**8).rsqrt()
        passed: Tensor = torch.fft.irfft(spectrum * torch.where(open_, torch.ones_like(weight), weight), waves.shape[1])
        return passed


@dataclass(frozen=True)
class _Reverberation(_AudioOperator):
    """A room: the audio and a decaying noise of its echoes; parameters: echoes beside it, number of the room.

    decay: the share of the clip after which echoes have fallen by 60 decibels.
    """

    decay: float = 0.3

    def changed(self, waves: Tensor, value: Tensor, parameters: Tensor) -> Tensor:
        count = waves.shape[1]
        fall = 10 ** (-3 * torch.arange(count, dtype=waves.dtype, device=waves.device) / max(1.0, self.decay * count))
        room = normal_noise("mutate.room", parameters, waves, np.float64) * fall
        room[:, 0] = 0
        room = room * value / room.square().sum(1, keepdim=True).sqrt().clamp_min(QUIET)
        wet: Tensor = torch.fft.irfft(torch.fft.rfft(waves, 2 * count) * torch.fft.rfft(room, 2 * count), 2 * count)[:, :count]
        return waves + wet


class _Clip(_AudioOperator):
    """Cut off what is louder than a share of the loudest sample."""

    def changed(self, waves: Tensor, value: Tensor, parameters: Tensor) -> Tensor:
        most = waves.abs().amax(1, keepdim=True) * value
        return torch.minimum(torch.maximum(waves, -most), most)


class _Companding(_AudioOperator):
    """So many bits on the logarithmic scale of telephones (mu-law)."""

    integers = True

    def changed(self, waves: Tensor, value: Tensor, parameters: Tensor) -> Tensor:
        steps = 2 ** (value - 1)
        small = torch.log1p(MU * waves.abs()) / math.log1p(MU)
        coded: Tensor = (small * steps).round() / steps
        return waves.sign() * torch.expm1(coded * math.log1p(MU)) / MU


RATIOS = (30.0, 25.0, 20.0, 15.0, 10.0)
CLEAN = 100.0  # decibels at which nothing of 16 bits is changed


# In turn, so that the first few already are of several kinds; noises and rooms have numbers.
MILD = (
    Mutation("noise", (25.0, 1.0)), Mutation("time-shift", (0.02,)), Mutation("low-pass", (0.8,)), Mutation("gain", (-6.0,)),
    Mutation("speed", (1.05,)), Mutation("reverberation", (0.2, 1.0)), Mutation("pink-noise", (25.0, 1.0)),
    Mutation("high-pass", (0.03,)),
    Mutation("clipping", (0.7,)), Mutation("companding", (8.0,)), Mutation("time-shift", (-0.02,)), Mutation("speed", (0.95,)),
    Mutation("noise", (20.0, 2.0)), Mutation("low-pass", (0.6,)), Mutation("gain", (3.0,)), Mutation("reverberation", (0.2, 2.0)),
)  # fmt: skip


@registry.register(
    "mutation",
    "audio",
    paper="",
    cost="a few transforms of the clip; about as much as a small network on it",
    differs="The excitability paper changes features of speech, not the audio itself, and names no operators for it: these are "
    "ours. Strengths are those at which a listener still understands: noise down to 10 dB, speed within 15 %, 5 bits.",
)
class AudioMutations(RuleMutations):
    """Gain (6), time shift (6) and speed (6), one of them once per lineage; white (5) and pink (5) noise, low (4) and high (3)
    pass, reverberation (3), clipping (4), companding (4): what keeps a word the same word and a voice the same voice.

    decay: of reverberation, the share of a clip after which echoes have fallen by 60 decibels.
    """

    audio: ClassVar[bool] = True
    decay: float = setting(0.3, "a share of the clip, 0.3 by default", above=0, most=10)

    def _families(self) -> Sequence[Family]:
        shares = (-0.1, -0.05, -0.02, 0.02, 0.05, 0.1)
        return (
            Family("gain", _Gain(), single((-12, -9, -6, -3, 3, 6)), (0.0,), once=True),
            Family("time-shift", _TimeShift(), single(shares), (0.0,), once=True),
            Family("speed", _Speed(), single((0.85, 0.9, 0.95, 1.05, 1.1, 1.15)), (1.0,), once=True),
            Family("noise", _Background(), single(RATIOS), (CLEAN,), seeded=True),
            Family("pink-noise", _Background(1.0), single(RATIOS), (CLEAN,), seeded=True),
            Family("low-pass", _Band(), single((0.8, 0.6, 0.45, 0.35)), (1.0,)),
            Family("high-pass", _Band(above=True), single((0.03, 0.06, 0.12)), (0.0,)),
            Family("reverberation", _Reverberation(self.decay), single((0.2, 0.4, 0.7)), (0.0,), seeded=True),
            Family("clipping", _Clip(), single((0.7, 0.5, 0.3, 0.2)), (1.0,)),
            Family("companding", _Companding(), single((8, 7, 6, 5)), (16.0,)),
        )

    def _working(self, x: Tensor, levels: Levels | None) -> Tensor:
        return exact(x)

    def check(self, shape: tuple[int, ...]) -> None:
        if not (len(shape) == 1 or (len(shape) == 2 and shape[0] == 1)) or shape[-1] < 16:
            raise BadInput(
                "unsuitable",
                "shape",
                f"mutations of audio need waveforms (samples,) or (1, samples), not inputs of shape {shape}.",
            )

    def mild_variants(self, x: Tensor, levels: Levels | None) -> Iterator[Tensor]:
        """Sixteen mild changes of a batch in [0, 1], the same for every clip, each of the batch's shape."""
        return (apply_to_all(self, x, change, levels=levels) for change in MILD)
