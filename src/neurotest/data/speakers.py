"""AudioMNIST by speaker: `zoo:speakers-full/SPLIT`, from recordings that are on this machine.

Sixty people say digits, and who speaks is the class. The recordings are no part of this project.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neurotest import files
from neurotest.audio import RATES
from neurotest.data.ahead import ahead
from neurotest.data.audio import LONGEST_CLIP, resampled
from neurotest.data.npz import open_npz
from neurotest.data.source import Array, ArraySource, Source, Wanted
from neurotest.errors import BadInput
from neurotest.reading import reason
from neurotest.zoo import FAMILIES

NAME = "speakers"
CLASSES, RATE, SAMPLES = FAMILIES[NAME].classes, 16_000, 16_000
DIGITS = 10
TAKES = {"train": (0, 1, 2, 3), "test": (4,)}  # of every digit: a network is tested on takes that it never heard
MATERIAL = "audiomnist-16k"
ENDINGS = (".flac", ".wav")
PEAK = 0.5  # of full scale: most recordings are so soft that volume alone would tell rooms apart
WHERE = "https://github.com/soerenab/AudioMNIST"
Progress = Callable[[int, int], None]


def read(split: str, wanted: Wanted, *, spec: str) -> Source:
    """`zoo:speakers-full/SPLIT`: what `data get` kept, else the recordings themselves in `NEUROTEST_MATERIAL`."""
    x, y = _arrays(split, wanted, spec)
    source = ArraySource(x[: wanted.first], y[: wanted.first], spec=spec, classes=CLASSES)
    source.rate = RATE
    return source


def present() -> bool:
    """Whether the recordings are on this machine."""
    return all(_kept(split).is_file() for split in TAKES) or _material() is not None


def get(folder: Path | None, progress: Progress | None = None) -> Path:
    """Keep the recordings of a folder as arrays in the data folder; what is there is left alone."""
    place = files.data_dir() / NAME
    if all(_kept(split).is_file() for split in TAKES):
        return place
    folder = folder or _material()
    if folder is None:
        message = f"{NAME} is not fetched: get AudioMNIST from {WHERE} and name its folder `data` with --from DIR."
        raise BadInput("missing", "from", message)
    for number, split in enumerate(TAKES, start=1):
        x, y = _decoded(folder, split)
        with files.atomic_write(_kept(split)) as part, open(part, "wb") as out:
            np.savez_compressed(out, x=x, y=y)
        if progress is not None:
            progress(number, len(TAKES))
    return place


def _kept(split: str) -> Path:
    return files.data_dir() / NAME / f"{split}.npz"


def _material() -> Path | None:
    place = files.material_dir()
    return place / MATERIAL if place is not None and (place / MATERIAL).is_dir() else None


def _arrays(split: str, wanted: Wanted, spec: str) -> tuple[Array, NDArray[np.int64]]:
    if _kept(split).is_file():
        source = open_npz(f"{_kept(split)}#x,y", wanted)
        assert source.labels is not None
        return source.read(np.arange(len(source))), source.labels
    folder = _material()
    if folder is None:
        message = f"{spec}: AudioMNIST is not in {_kept(split).parent}: get {WHERE}, then `neurotest data get {NAME} --from DIR`."
        raise BadInput("not-found", "data", message)
    return _decoded(folder, split)


def _decoded(folder: Path, split: str) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """(n, 1, SAMPLES) and the speakers' numbers, speaker by speaker and digit by digit."""
    if not folder.is_dir():
        message = f"--from {folder}: there is no such folder; name the one that holds the folders 01 to {CLASSES[-1]}."
        raise BadInput("not-found", "from", message)
    takes = itertools.product(enumerate(CLASSES), range(DIGITS), TAKES[split])
    names = [(label, f"{person}/{digit}_{person}_{take}") for (label, person), digit, take in takes]
    x = np.zeros((len(names), 1, SAMPLES), np.int16)
    for row, (_, decoded) in zip(x, ahead(lambda name: _take(folder, name[1]), names), strict=True):
        samples = decoded()
        row[0, : len(samples)] = samples
    return x, np.array([label for label, _ in names], np.int64)


def _take(folder: Path, name: str) -> NDArray[np.int16]:
    """One recording at our rate, brought to the same peak as all."""
    import soundfile

    file = next((folder / (name + ending) for ending in ENDINGS if (folder / (name + ending)).is_file()), None)
    if file is None:
        message = f"{folder}: {name}{ENDINGS[0]} of AudioMNIST is missing; get the whole set from {WHERE}."
        raise BadInput("not-found", "files", message)
    try:
        about = soundfile.info(file)
        if about.frames * about.channels > LONGEST_CLIP * RATES[1]:
            message = f"{file} has {about.frames:,} samples of {about.channels} channels: get it again from {WHERE}."
            raise BadInput("wrong-shape", "audio", message)
        samples, rate = soundfile.read(file, dtype="float64", always_2d=True)
    except (soundfile.SoundFileError, OSError) as error:
        raise BadInput("unreadable", "audio", f"{file} cannot be read ({reason(error)}): get it again from {WHERE}.") from error
    mono = samples.mean(axis=1) if rate == RATE else resampled(samples.mean(axis=1), rate, RATE)
    louder = PEAK * 32768 / max(float(np.abs(mono).max(initial=0.0)), 1e-9)
    return np.asarray(np.rint(mono[:SAMPLES] * louder), np.int16)
