"""Spoken digits out of a small formant synthesiser: sound that needs no file, no licence and no recording.

A digit is a row of phones; a phone says how long it lasts, where the first three resonances of the mouth lie and how much voice
and how much noise there is. A speaker has a pitch, a length of the vocal tract, a pace and a breath; a take varies all of them
a little and adds the noise of a room. Many clips are made together, sample by sample: time runs in a loop, clips in numpy.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurotest import rng

NAME, RATE, SAMPLES = "spoken-digits", 8000, 4800
Floats = NDArray[np.float64]


class _Phone(NamedTuple):
    """Milliseconds, three formants (Hz), voice, noise, and the middle of the noise (Hz)."""

    ms: float
    formants: tuple[float, float, float]
    voice: float = 1.0
    noise: float = 0.0
    hiss: float = 3000.0


# Formants of vowels as usually given for men; a speaker scales them.
PHONES = {
    "iy": _Phone(110, (270, 2290, 3010)), "ih": _Phone(80, (390, 1990, 2550)), "eh": _Phone(100, (530, 1840, 2480)),
    "ah": _Phone(90, (640, 1190, 2390)), "aa": _Phone(100, (730, 1090, 2440)), "ao": _Phone(120, (570, 840, 2410)),
    "uw": _Phone(130, (300, 870, 2240)), "r": _Phone(60, (310, 1060, 1380), 0.7), "w": _Phone(60, (290, 610, 2150), 0.6),
    "n": _Phone(80, (250, 1700, 2600), 0.35), "v": _Phone(60, (220, 1100, 2080), 0.4, 0.08, 3000),
    "z": _Phone(80, (240, 1390, 2530), 0.3, 0.25, 3500), "s": _Phone(100, (320, 1390, 2530), 0.0, 0.5, 3500),
    "f": _Phone(90, (340, 1100, 2080), 0.0, 0.16, 2600), "th": _Phone(80, (320, 1290, 2540), 0.0, 0.10, 3200),
    "closed": _Phone(45, (300, 1500, 2500), 0.0), "t": _Phone(25, (350, 1800, 2600), 0.0, 0.5, 3300),
    "k": _Phone(25, (350, 1600, 2200), 0.0, 0.5, 1800),
}  # fmt: skip
WORDS = {
    "zero": "z ih r ao uw", "one": "w ah n", "two": "t uw", "three": "th r iy", "four": "f ao r", "five": "f aa iy v",
    "six": "s ih closed k s", "seven": "s eh v ah n", "eight": "eh iy closed t", "nine": "n aa iy n",
}  # fmt: skip
CLASSES = tuple(WORDS)
CORDS = 100.0  # Hz above which the voice falls by 12 decibels an octave, before the lips
WIDTHS = (70.0, 100.0, 160.0, 250.0)  # of the resonances, Hz; the fourth stands still
GLIDE = 30.0  # milliseconds from one phone to the next


GROUP = 5  # speakers that are rendered together: what they need fits into a processor's cache


class _SpokenSplit(NamedTuple):
    """How many clips: speakers x digits x takes; speakers of two splits are different people."""

    first: int
    speakers: int
    takes: int

    @property
    def clips(self) -> int:
        return self.speakers * len(CLASSES) * self.takes


SPLITS = {"train": _SpokenSplit(0, 40, 6), "test": _SpokenSplit(1000, 20, 5)}
Clips = tuple[NDArray[np.int16], NDArray[np.int64], NDArray[np.int64]]


def load(split: str, first: int | None = None) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Clips (n, 1, SAMPLES) and digits (n,), or the first so many: only what is asked for is rendered."""
    form = SPLITS[split]
    wanted = form.clips if first is None else min(first, form.clips)
    each = GROUP * len(CLASSES) * form.takes
    groups = [clips(form.first + GROUP * number, form.takes) for number in range(-(-wanted // each))]
    x, y = (np.concatenate(parts)[:wanted] for parts in list(zip(*groups, strict=True))[:2])
    return x, y


@functools.lru_cache(maxsize=16)
def clips(first: int, takes: int) -> Clips:
    """Of a group of speakers: clips (n, 1, SAMPLES), digits (n,) and speakers (n,), in a shuffled order."""
    tracks, labels, levels = [], [], []
    for speaker in range(first, first + GROUP):
        random = rng.stream("zoo.speech", speaker)
        voice = _voice(random)
        for digit in np.repeat(np.arange(len(CLASSES)), takes).tolist():
            tracks.append(_tracks(digit, _take(voice, random), random))
            labels.append((digit, speaker))
            levels.append((random.uniform(-15, -3), random.uniform(12, 40)))
    stacked = {name: np.stack([one[name] for one in tracks]) for name in tracks[0]}
    sound = _rendered(stacked, rng.stream("zoo.speech.noise", first))
    x = _recorded(sound, np.array(levels), rng.stream("zoo.speech.room", first))
    order = rng.stream("zoo.speech.order", first).permutation(len(x))
    digits, speakers = np.array(labels)[order].T
    return x[order, None], digits, speakers


def _voice(random: np.random.Generator) -> dict[str, float]:
    """A speaker: pitch (Hz), scale of the formants, pace and breath."""
    high = random.random() < 0.5
    return {
        "pitch": random.uniform(170, 260) if high else random.uniform(85, 150),
        "tract": random.uniform(1.02, 1.22) if high else random.uniform(0.88, 1.04),
        "pace": random.uniform(0.85, 1.25),
        "breath": random.uniform(0.0, 0.06),
    }


def _take(voice: dict[str, float], random: np.random.Generator) -> dict[str, float]:
    """The speaker at one time: nobody says a word twice in the same way."""
    spread = {"pitch": 0.08, "tract": 0.04, "pace": 0.12, "breath": 0.3}
    return {name: value * float(np.exp(spread[name] * random.standard_normal())) for name, value in voice.items()}


def _tracks(digit: int, take: dict[str, float], random: np.random.Generator) -> dict[str, Floats]:
    """Formants, voice, noise and pitch at every sample of one clip."""
    phones = [PHONES[name] for name in WORDS[CLASSES[digit]].split()]
    lengths = np.array([phone.ms * np.exp(0.15 * random.standard_normal()) for phone in phones]) * RATE / 1000 / take["pace"]
    start = random.uniform(0.0, 1.0) * max(0.0, SAMPLES - lengths.sum() - 400)
    edges = start + np.concatenate([[0.0], np.cumsum(lengths)])
    glide = GLIDE * RATE / 1000
    at = np.sort(
        np.concatenate([np.maximum(edges[:-1] + glide / 2, edges[:-1] + 1), np.maximum(edges[1:] - glide / 2, edges[:-1] + 2)])
    )
    time = np.arange(SAMPLES)

    def track(values: list[float], *, silent: bool = False) -> Floats:
        """Held within a phone, straight lines between; what is heard starts and ends in silence."""
        held = np.repeat(np.array(values), 2)
        if not silent:
            return np.asarray(np.interp(time, at, held))
        return np.asarray(np.interp(time, [edges[0] - 40, *at, edges[-1] + 120], [0.0, *held, 0.0]))

    bend = np.exp(0.05 * random.standard_normal((len(phones), 3)))  # nobody hits a vowel exactly
    tracks = {f"f{k}": take["tract"] * track([p.formants[k] * bend[i, k] for i, p in enumerate(phones)]) for k in range(3)}
    voice = track([phone.voice for phone in phones], silent=True)
    fall = 1.1 - 0.25 * np.clip((time - start) / max(1.0, lengths.sum()), 0, 1)
    return tracks | {
        "f3": np.full(SAMPLES, 3450.0), "voice": voice, "breath": take["breath"] * voice,
        "noise": track([phone.noise for phone in phones], silent=True), "hiss": track([phone.hiss for phone in phones]),
        "pitch": take["pitch"] * fall,
    }  # fmt: skip


def _rendered(tracks: dict[str, Floats], random: np.random.Generator) -> Floats:
    """(n, SAMPLES) of tracks (n, SAMPLES): pulses and breath through four resonances in a row, hiss through one of its own."""
    n = len(tracks["voice"])
    turns = np.cumsum(tracks["pitch"] / RATE, axis=1)
    pulses = np.diff(np.floor(turns), axis=1, prepend=0.0) * tracks["voice"] * np.sqrt(RATE / tracks["pitch"])
    # Vocal cords open and close smoothly: of high tones there is little.
    voiced = _resonance(pulses, np.zeros_like(pulses), CORDS) + 0.02 * tracks["breath"] * random.standard_normal((n, SAMPLES))
    for number, width in enumerate(WIDTHS):
        voiced = _resonance(voiced, np.minimum(tracks[f"f{number}"], 3700.0), width)
    voiced = np.diff(voiced, axis=1, prepend=0.0)  # lips radiate the difference of what reaches them
    hissed = _resonance(tracks["noise"] * random.standard_normal((n, SAMPLES)), np.minimum(tracks["hiss"], 3700.0), 900.0)
    loud, noisy = _loudness(voiced), _loudness(hissed) / _loudness(tracks["noise"])
    return np.asarray(voiced / loud + 0.4 * hissed / noisy)


def _loudness(x: Floats) -> Floats:
    """(n, 1) root mean square, where there is any."""
    return np.asarray(np.sqrt((x**2).mean(axis=1, keepdims=True)) + 1e-9)


def _resonance(x: Floats, frequency: Floats, width: float) -> Floats:
    """A resonator of gain 1 at frequency 0 whose place moves with time: y = a x + b y' + c y''."""
    c = -np.exp(-2 * np.pi * width / RATE)
    b = (2 * np.exp(-np.pi * width / RATE) * np.cos(2 * np.pi * frequency / RATE)).T.copy()
    driven = (x.T * (1 - b - c)).copy()  # (SAMPLES, n): a sample of all clips lies together
    before = last = np.zeros(len(x))
    for now, coefficient in zip(driven, b, strict=True):
        now += coefficient * last
        now += c * before
        before, last = last, now
    return np.asarray(driven.T)


def _recorded(sound: Floats, levels: Floats, random: np.random.Generator) -> NDArray[np.int16]:
    """As 16 bits: peaks at a level in decibels, the noise of a room below the voice by others."""
    room = np.cumsum(random.standard_normal(sound.shape), axis=1)
    room = 0.3 * (room - _smooth(room)) + random.standard_normal(sound.shape)  # more of the low tones
    room *= _loudness(sound) / _loudness(room) * 10 ** (-levels[:, 1:] / 20)
    mixed = sound + room
    mixed *= 10 ** (levels[:, :1] / 20) / np.abs(mixed).max(axis=1, keepdims=True)
    return np.asarray(np.rint(mixed * 32767), np.int16)


def _smooth(x: Floats, window: int = 400) -> Floats:
    """The mean of the last samples, to take away what drifts."""
    total: Any = np.cumsum(x, axis=1)
    total[:, window:] = total[:, window:] - total[:, :-window]
    return np.asarray(total / np.minimum(np.arange(1, x.shape[1] + 1), window))
