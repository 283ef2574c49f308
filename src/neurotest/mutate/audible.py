"""How far changed audio may be from its reference: in decibels, and to the ear."""

from __future__ import annotations

import torch
from torch import Tensor

from neurotest import registry
from neurotest.audio import NOMINAL
from neurotest.checks import setting
from neurotest.devices import exact
from neurotest.mutate.validity import ValidityRule
from neurotest.zoo.audio import LogMel

WINDOW, BANDS = 256, 32
HEARD = 40.0  # decibels below the loudest place that still count
LEAST_POWER = 1e-12
QUIETEST = 0.05  # audio in which there is less of the reference is other audio, not softer


def _scale(audio: Tensor, reference: Tensor) -> Tensor:
    """(n, 1) how much of the reference is in the audio."""
    return (audio * reference).sum(1, keepdim=True) / reference.square().sum(1, keepdim=True).clamp_min(LEAST_POWER)


def _ratio(audio: Tensor, reference: Tensor) -> Tensor:
    """(n,) decibels of the reference over what was added to it, waveforms (n, samples); another volume adds nothing."""
    audio, reference = exact(audio), exact(reference)
    present = _scale(audio, reference) * reference
    return 10 * torch.log10((present.square().sum(1) + LEAST_POWER) / ((audio - present).square().sum(1) + LEAST_POWER))


def _heard(audio: Tensor, reference: Tensor) -> Tensor:
    """(n,) decibels by which the mel bands differ, root mean square over places where one of the two is to be heard.

    What lies 40 dB under the loudest place of the reference is silence; a change of volume as a whole does not count.
    """
    audio, reference = exact(audio), exact(reference)
    audio = audio / _scale(audio, reference).clamp_min(QUIETEST)
    window = min(WINDOW, 1 << (audio.shape[1].bit_length() - 1))
    front = LogMel(NOMINAL, window=window, hop=max(1, window // 2), bands=min(BANDS, window // 4), mean=0.0, spread=1.0)
    ours, theirs = (front.to(x.device, x.dtype)(x).flatten(1) for x in (audio, reference))  # (n, places) in decibels
    floor = theirs.amax(1, keepdim=True) - HEARD
    ours, theirs = torch.maximum(ours, floor), torch.maximum(theirs, floor)
    counts = ((ours > floor) | (theirs > floor)).sum(1).clamp_min(1)
    squares: Tensor = (ours - theirs).square().sum(1) / counts
    return squares.sqrt()


@registry.register("validity", "audible", paper="", cost="two short-time spectra per mutant")
class Audible(ValidityRule):
    """Audio is valid if the reference is at least `ratio` decibels above what was added to it, or if the two differ in mel
    bands by at most `distance` decibels (root mean square).

    Neither counts another volume. check_once: check shifts in time and speed too, which are beyond both measures.
    """

    ratio: float = setting(8.0, "decibels, 8 by default", least=-20, most=120)
    distance: float = setting(10.0, "decibels, 10 by default", least=0, most=120)
    check_once: bool = False
    style_exempt: bool = True

    def check(self, mutants: Tensor, references: Tensor) -> Tensor:
        """(n,) bool, from waveforms (n, ..., samples) in [0, 1]."""
        clips, theirs = (exact(x.flatten(1)) * 2 - 1 for x in (mutants, references))
        near = _ratio(clips, theirs) >= self.ratio
        far = ~near
        if bool(far.any()):
            near[far] = _heard(clips[far], theirs[far]) <= self.distance
        return near
