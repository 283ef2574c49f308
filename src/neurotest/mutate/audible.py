"""How far a changed sound may be from its reference: in decibels, and to the ear."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neurotest import checks, registry
from neurotest.audio import NOMINAL
from neurotest.devices import exact
from neurotest.mutate.validity import ValidityRule
from neurotest.zoo.audio import LogMel

WINDOW, BANDS = 256, 32
HEARD = 40.0  # decibels below the loudest place that still count
LEAST = 1e-12
QUIETEST = 0.05  # a sound in which there is less of the reference is another one, not a softer one


def scale(sound: Tensor, reference: Tensor) -> Tensor:
    """(n, 1) how much of the reference is in a sound."""
    return (sound * reference).sum(1, keepdim=True) / reference.square().sum(1, keepdim=True).clamp_min(LEAST)


def ratio(sound: Tensor, reference: Tensor) -> Tensor:
    """(n,) decibels of the reference over what was added to it, waveforms (n, samples); another volume adds nothing."""
    sound, reference = exact(sound), exact(reference)
    present = scale(sound, reference) * reference
    return 10 * torch.log10((present.square().sum(1) + LEAST) / ((sound - present).square().sum(1) + LEAST))


def heard(sound: Tensor, reference: Tensor) -> Tensor:
    """(n,) decibels by which the mel bands differ, root mean square over places where one of the two is to be heard.

    What lies 40 dB under the loudest place of the reference is silence; a change of volume as a whole does not count.
    """
    sound, reference = exact(sound), exact(reference)
    sound = sound / scale(sound, reference).clamp_min(QUIETEST)
    window = min(WINDOW, 1 << (sound.shape[1].bit_length() - 1))
    front = LogMel(NOMINAL, window=window, hop=max(1, window // 2), bands=min(BANDS, window // 4), mean=0.0, spread=1.0)
    ours, theirs = (front.to(x.device, x.dtype)(x).flatten(1) for x in (sound, reference))  # (n, places) in decibels
    floor = theirs.amax(1, keepdim=True) - HEARD
    ours, theirs = torch.maximum(ours, floor), torch.maximum(theirs, floor)
    counts = ((ours > floor) | (theirs > floor)).sum(1).clamp_min(1)
    squares: Tensor = (ours - theirs).square().sum(1) / counts
    return squares.sqrt()


@registry.register("validity", "audible", paper="", cost="two short-time spectra per mutant")
@dataclass(frozen=True, kw_only=True)
class Audible(ValidityRule):
    """A sound is valid if the reference is at least `ratio` decibels above what was added to it, or if the two differ in mel
    bands by at most `distance` decibels (root mean square).

    Neither counts another volume. check_once: check shifts in time and speed too, which are beyond both measures.
    """

    ratio: float = 8.0
    distance: float = 10.0
    check_once: bool = False
    style_exempt: bool = True

    def __post_init__(self) -> None:
        checks.number("ratio", self.ratio, "decibels, 8 by default", least=-20, most=120)
        checks.number("distance", self.distance, "decibels, 10 by default", least=0, most=120)

    def check(self, mutants: Tensor, references: Tensor) -> Tensor:
        """(n,) bool, from waveforms (n, ..., samples) in [0, 1]."""
        sounds, theirs = (exact(x.flatten(1)) * 2 - 1 for x in (mutants, references))
        near = ratio(sounds, theirs) >= self.ratio
        far = ~near
        if bool(far.any()):
            near[far] = heard(sounds[far], theirs[far]) <= self.distance
        return near
