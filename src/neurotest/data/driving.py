"""Road frames: 936 images of a drive, 0.3 s apart, with how far the car turns until the next one.

The angle that comes with the frames is not used: it is uniform noise, without any relation between neighbouring frames (its
correlation with the next one is -0.01) or to what they show. What the car did shows in the frames themselves: if it turns to the
right, everything far away moves to the left. `turns` measures by how many of the 100 pixels.

Neighbouring frames are alike, so that a random split would test on what was trained on. Blocks of `BLOCK` frames are taken for
tests, and frames within `GAP` of them are used for nothing.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neurotest import files
from neurotest.arrays import read_npz
from neurotest.data.npz import open_npz
from neurotest.data.source import Array, Source, Wanted
from neurotest.errors import BadInput
from neurotest.reading import reading

NAME, FILE = "driving", "frames.npz"
SHA256 = "ae2aa5279d44aca56eb3dede4d1979c6ea457e905792bbbe517a5f3b1da39ccb"  # of the frames, row by row
SPAN = (-20.0, 20.0)  # pixels of 100
SIDE = 100
LARGEST_FRAMES = 1 << 28  # bytes
BLOCK, EVERY, GAP = 78, 3, 7  # frames: every third block of 23 s is for tests, 2 s beside it are left out
FAR = slice(10, 50)  # rows that show what is far away
REACH = 30  # pixels that anything may move
SHARPEN = 0.7  # 1 is phase correlation, 0 plain correlation
Floats = NDArray[np.float64]


def read(split: str, wanted: Wanted, *, spec: str) -> Source:
    """`zoo:driving/SPLIT` from the user's data folder."""
    file = files.data_dir() / NAME / f"{split}.npz"
    if not file.is_file():
        message = (
            f"{spec}: the frames are not in {file.parent}, and they may not be passed on: bring {FILE} yourself and run "
            f"`neurotest data get {NAME} --from DIR` (zoo:lanes/{split} needs nothing)."
        )
        raise BadInput("not-found", "data", message)
    source = open_npz(f"{file}#x,turn,nhwc", wanted)
    source.spec = spec
    return source


def get(folder: Path | None) -> Path:
    """Measure the turns of the frames in a folder, and keep both splits in the data folder."""
    place = files.data_dir() / NAME
    if all((place / f"{split}.npz").is_file() for split in ("train", "test")):
        return place
    if folder is None:
        message = f"{NAME}: there is no address to fetch the frames from: bring {FILE} yourself and pass --from DIR."
        raise BadInput("missing", "from", message)
    x = _frames(next((one for one in (folder / FILE, folder / NAME / FILE) if one.is_file()), folder / FILE))
    turn = turns(x.mean(axis=3))
    for split, rows in splits(len(turn)).items():
        with files.atomic_write(place / f"{split}.npz") as part, open(part, "wb") as out:
            np.savez(out, x=x[rows], turn=turn[rows], frame=rows)
    return place


def _frames(file: Path) -> Array:
    with (
        reading(f"--from: {file}", "frames", hint=f"Name the folder that holds {FILE} with the array x."),
        open(file, "rb") as stream,
    ):
        x = np.ascontiguousarray(read_npz(stream, str(file), largest=LARGEST_FRAMES, names=("x",))["x"])
    digest = hashlib.sha256(x.tobytes()).hexdigest()
    if digest != SHA256:
        message = f"{file}: its frames have SHA-256 {digest}, expected {SHA256}: damaged, or other frames."
        raise BadInput("damaged", "digest", message)
    return x


def splits(count: int) -> dict[str, NDArray[np.int64]]:
    """Which frames are for training and which for tests."""
    block = np.arange(count) // BLOCK
    held = block % EVERY == EVERY - 1
    near = np.convolve(held, np.ones(2 * GAP + 1), "same") > 0
    return {"train": np.flatnonzero(~near), "test": np.flatnonzero(held)}


def turns(grey: Array) -> Floats:
    """(n - 1,) of frames (n, height, width): pixels that the far parts move to the left until the next frame, and so to the right
    the car turns. The median of three neighbouring measurements, since one of them may take a passing car for the world."""
    moved = -_shifts(grey[:-1, FAR], grey[1:, FAR])
    padded = np.concatenate([moved[:1], moved, moved[-1:]])
    return np.asarray(np.median(np.stack([padded[:-2], padded[1:-1], padded[2:]]), axis=0))


def _shifts(before: Array, after: Array) -> Floats:
    """(n,) columns by which images (n, height, width) moved to the right: the peak of their correlation, between pixels."""
    _, height, width = before.shape
    window = np.hanning(height + 2)[1:-1, None] * np.hanning(width)
    size = (2 * height, 2 * (width + REACH))
    spectra = [np.fft.rfft2((x - x.mean(axis=(1, 2), keepdims=True)) * window, size) for x in (before, after)]
    product = spectra[1] * np.conj(spectra[0])
    correlation = np.fft.irfft2(product / (np.abs(product) ** SHARPEN + 1e-6), size)
    correlation = np.concatenate([correlation[:, -3:], correlation[:, :4]], axis=1).max(axis=1)  # up to 3 rows up or down
    row = np.concatenate([correlation[:, -REACH - 1 :], correlation[:, : REACH + 2]], axis=1)
    peak = row[:, 1:-1].argmax(axis=1) + 1
    left, top, right = (row[np.arange(len(row)), peak + step] for step in (-1, 0, 1))
    curve = left - 2 * top + right
    between = np.where(curve < 0, 0.5 * (left - right) / np.where(curve < 0, curve, 1), 0.0)
    return np.asarray(peak - (REACH + 1) + np.clip(between, -0.5, 0.5))
