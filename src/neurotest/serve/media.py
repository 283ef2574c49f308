"""An input as a browser shows it: a picture, or a sound with its spectrogram. `media.js` knows the same kinds."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.audio import is_audio, wav
from neurotest.data.objects import AnyData
from neurotest.data.source import Source, content_ids
from neurotest.errors import BadInput
from neurotest.jobs.opening import stored_source
from neurotest.jobs.stored import stored_data
from neurotest.runs import codec
from neurotest.runs.folder import RunFile
from neurotest.runs.store import Run

LARGEST = 1 << 28  # bytes of a picture
TIMES = (1, 2, 5, 10, 20, 50, 100)  # how many times as large differences are drawn


@dataclass(frozen=True)
class Media:
    """What a browser gets."""

    kind: str
    content: bytes


PNG, WAV = "image/png", "audio/wav"


def _kind_of(dtype: Any, shape: tuple[int, ...]) -> str:
    """How such inputs are shown; of sound there is a picture, too."""
    if is_audio(dtype, shape):
        return WAV
    if len(shape) == 3:
        return PNG
    raise BadInput(
        "unsuitable",
        "shape",
        f"inputs of shape {shape} are neither images (channels, height, width) nor audio: the page cannot show them.",
    )


def picture(x: NDArray[Any], bounds: tuple[float, float] = (0.0, 1.0)) -> Media:
    out = io.BytesIO()
    codec.pil_image(codec.view(x, bounds)).save(out, format="PNG")
    return Media(PNG, out.getvalue())


class PoolMedia:
    """The inputs of a pool as pictures: those that the run stores, the others out of the pool, if it can be read and is the
    same."""

    def __init__(self, run: Run, contents: list[str], bounds: tuple[float, float], pool: AnyData | None = None) -> None:
        self.contents, self.bounds = contents, bounds
        self.files: dict[int, RunFile] = {row.position: row.file for row in run.files("picked")}
        self.source: Source | None = None
        self.problem, self.rate = "", run.rate
        self.kind = WAV if any(codec.is_wav(file) for file in self.files.values()) else PNG
        self._reading = threading.Lock()  # sources keep files open
        try:
            self.source = stored_data(run, stored_source(run, run["config"].get("pool"), pool, "pool"))
            if len(self.source) < len(contents):
                raise BadInput("changed", "pool", f"{self.source.what} has {len(self.source)} inputs, the run {len(contents)}.")
            self.kind = _kind_of(self.source.dtype, self.source.shape)
        except BadInput as error:
            if pool is not None:
                raise
            self.problem, self.source = str(error), None

    def has(self, position: int) -> bool:
        return self.source is not None or position in self.files

    def read(self, position: int) -> NDArray[Any]:
        """The input itself, out of the pool; what is not the run's input is refused."""
        if self.source is None:
            raise BadInput("unreadable", "pool", self.problem)
        with self._reading:
            x: NDArray[Any] = self.source.read([position])
        if str(content_ids(x)[0]) != self.contents[position]:
            raise BadInput(
                "changed", "pool", f"{self.source.what} does not hold the inputs of this run any more: name the pool with --pool."
            )
        return np.asarray(x[0])

    def shown(self, position: int) -> Media:
        if (file := self.files.get(position)) is not None and (stored := codec.picture(file)) is not None:
            return Media(PNG, stored.read(LARGEST))
        return picture(self.read(position), self.bounds)

    def heard(self, position: int) -> Media | None:
        """The sound; None where inputs are something else."""
        if self.kind != WAV:
            return None
        if (file := self.files.get(position)) is not None and codec.is_wav(file):
            return Media(WAV, file.read(LARGEST))
        return None if self.rate is None else Media(WAV, wav(self.read(position), self.rate))


def times_of(share: NDArray[np.float64]) -> int:
    """How many times as large a difference is drawn: as large as it can be without becoming all white."""
    largest = float(share.max(initial=0.0))
    return max((times for times in TIMES if times * largest <= 1), default=1)


def differing(share: NDArray[np.float64]) -> Media:
    """How far each value lies from the seed's, `times_of` as large."""
    return picture(np.minimum(times_of(share) * share, 1).astype(np.float32))


def class_words(classes: list[str], count: int) -> list[str]:
    """A word for every class: its name, or its number."""
    return [classes[number] if number < len(classes) else str(number) for number in range(count)]
