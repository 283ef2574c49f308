"""Images as text that stands in a page."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.audio import difference, is_audio, wav
from neurotest.errors import BadInput
from neurotest.runs import codec
from neurotest.runs.folder import RunFile
from neurotest.runs.store import Run

LARGEST = 1 << 28  # bytes of an image
SMALL = 1 << 14  # bytes of an image that stands in a page as it is
THUMBNAIL = 160  # pixels of a thumbnail
DIFFERENCE_TIMES = 10  # differences are shown so many times as large
LONGEST_AUDIO = 1 << 17  # bytes of audio that stands in a page: 4 seconds at 16 kHz


class EmbeddedImage(str):
    """An image as text. sound: the input to be played, as text too; None for what is not audio."""

    sound: str | None = None

    def heard(self, wav: bytes) -> EmbeddedImage:
        """The same image, with audio; what is too long for a page is left out."""
        if len(wav) <= LONGEST_AUDIO:
            self.sound = f"data:audio/wav;base64,{base64.b64encode(wav).decode()}"
        return self


def _embedded(content: bytes, kind: str = "png") -> EmbeddedImage:
    return EmbeddedImage(f"data:image/{kind};base64,{base64.b64encode(content).decode()}")


def of_image(image: Any, form: str = "PNG", **settings: Any) -> EmbeddedImage:
    """Of a PIL image."""
    out = io.BytesIO()
    image.save(out, format=form, **settings)
    return _embedded(out.getvalue(), form.lower())


def of_file(file: RunFile | None, *, sound: bool = True) -> EmbeddedImage | None:
    """Of an input that a run stores; None for what is no image. Large ones are made smaller, so that a page can be sent.

    sound: whether audio can be played, too.
    """
    shown = None if file is None else codec.picture(file)
    if file is None or shown is None:
        return None
    content = shown.read(LARGEST)
    try:
        drawn = _embedded(content) if len(content) <= SMALL or codec.is_wav(file) else of_input(codec.decode_picture(shown))
        return drawn.heard(file.read(LARGEST)) if drawn is not None and sound and codec.is_wav(file) else drawn
    except BadInput:  # one damaged image takes away itself and not the page
        return None


def of_input(x: NDArray[Any], bounds: tuple[float, float] = (0.0, 1.0), rate: int | None = None) -> EmbeddedImage | None:
    """Of an image or audio; `bounds` are black and white of floats. Large images are made smaller.

    rate: samples a second, with which audio can be played, too.
    """
    if not codec.viewable(x):
        return None
    image = codec.pil_image(codec.view(x, bounds))
    if is_audio(x.dtype, x.shape):
        return of_image(image) if rate is None else of_image(image).heard(wav(x, rate))
    if max(image.size) <= THUMBNAIL:
        return of_image(image)
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    return of_image(image, "JPEG", quality=85)


def small(x: NDArray[Any], bounds: tuple[float, float] = (0.0, 1.0), side: int = 48) -> EmbeddedImage | None:
    """Of an input of which there are hundreds on a page."""
    if not codec.viewable(x):
        return None
    image = codec.pil_image(codec.view(x, bounds))
    image.thumbnail((side, side))
    return of_image(image) if image.mode == "L" else of_image(image, "JPEG", quality=80)


def of_difference(x: NDArray[Any], seed: NDArray[Any], bounds: tuple[float, float] = (0.0, 1.0)) -> EmbeddedImage | None:
    """How far each value lies from the seed's, ten times; black: not changed. Of audio, decibels in each band and time."""
    if is_audio(x.dtype, x.shape) and (x.shape, x.dtype) == (seed.shape, seed.dtype):
        return of_image(codec.pil_image(difference(x, seed)))
    share = apart(x, seed, bounds)
    return None if share is None else of_input(np.minimum(DIFFERENCE_TIMES * share, 1).astype(np.float32))


def apart(x: NDArray[Any], seed: NDArray[Any], bounds: tuple[float, float]) -> NDArray[np.float64] | None:
    """How far each value of an image lies from the seed's, as a share of the range; None where they cannot be compared."""
    if x.shape != seed.shape or x.dtype != seed.dtype or x.ndim != 3:
        return None
    low, high = (0.0, 255.0) if x.dtype == np.uint8 else bounds
    return np.asarray(np.abs(x.astype(np.float64) - seed.astype(np.float64)) / ((high - low) or 1.0))


def bounds_of(run: Run) -> tuple[float, float]:
    """Black and white of the inputs of a run's target."""
    config = run["config"]
    described = config.get("description") if isinstance(config, dict) else None
    bounds = described.get("bounds") if isinstance(described, dict) else None
    return (float(bounds[0]), float(bounds[1])) if bounds else (0.0, 1.0)
