"""Pictures as text that stands in a page."""

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

LARGEST = 1 << 28  # bytes of a picture
SMALL = 1 << 14  # bytes of a picture that stands in a page as it is
SIDE = 160  # pixels of a thumbnail
TIMES = 10  # differences are shown so many times as large
LONGEST_SOUND = 1 << 17  # bytes of a sound that stands in a page: 4 seconds at 16 kHz


class Picture(str):
    """A picture as text. sound: what can be heard of the input, as text too; None for what is no sound."""

    sound: str | None = None

    def heard(self, wav: bytes) -> Picture:
        """The same picture, with a sound; one that is too long for a page is left out."""
        if len(wav) <= LONGEST_SOUND:
            self.sound = f"data:audio/wav;base64,{base64.b64encode(wav).decode()}"
        return self


def embedded(content: bytes, kind: str = "png") -> Picture:
    return Picture(f"data:image/{kind};base64,{base64.b64encode(content).decode()}")


def of_image(image: Any, form: str = "PNG", **settings: Any) -> Picture:
    """Of a PIL image."""
    out = io.BytesIO()
    image.save(out, format=form, **settings)
    return embedded(out.getvalue(), form.lower())


def of_file(file: RunFile | None, *, sound: bool = True) -> Picture | None:
    """Of an input that a run stores; None for what is no image. Large ones are made smaller, so that a page can be sent.

    sound: whether a sound can be played, too.
    """
    shown = None if file is None else codec.picture(file)
    if file is None or shown is None:
        return None
    content = shown.read(LARGEST)
    try:
        drawn = embedded(content) if len(content) <= SMALL or codec.is_wav(file) else of_input(codec.decode_picture(shown))
        return drawn.heard(file.read(LARGEST)) if drawn is not None and sound and codec.is_wav(file) else drawn
    except BadInput:  # one damaged picture takes away itself and not the page
        return None


def of_input(x: NDArray[Any], bounds: tuple[float, float] = (0.0, 1.0), rate: int | None = None) -> Picture | None:
    """Of an image or a sound; `bounds` are black and white of floats. Large images are made smaller.

    rate: samples a second, with which a sound can be played, too.
    """
    from PIL import Image

    if is_audio(x.dtype, x.shape):
        drawn = of_image(Image.fromarray(codec.view(x, bounds).transpose(1, 2, 0)))
        return drawn if rate is None else drawn.heard(wav(x, rate))
    if not codec.viewable(x):
        return None
    grey = codec.view(x, bounds)
    image = Image.fromarray(grey[0] if grey.shape[0] == 1 else grey.transpose(1, 2, 0))
    if max(image.size) <= SIDE:
        return of_image(image)
    image.thumbnail((SIDE, SIDE))
    return of_image(image, "JPEG", quality=85)


def small(x: NDArray[Any], bounds: tuple[float, float] = (0.0, 1.0), side: int = 48) -> Picture | None:
    """Of an input of which there are hundreds on a page."""
    from PIL import Image

    if not codec.viewable(x):
        return None
    grey = codec.view(x, bounds)
    image = Image.fromarray(grey[0] if grey.shape[0] == 1 else grey.transpose(1, 2, 0))
    image.thumbnail((side, side))
    return of_image(image) if grey.shape[0] == 1 else of_image(image, "JPEG", quality=80)


def of_difference(x: NDArray[Any], seed: NDArray[Any], bounds: tuple[float, float] = (0.0, 1.0)) -> Picture | None:
    """How far each value lies from the seed's, ten times; black: not changed. Of sounds, decibels in each band and time."""
    from PIL import Image

    if x.shape != seed.shape or x.dtype != seed.dtype:
        return None
    if is_audio(x.dtype, x.shape):
        return of_image(Image.fromarray(difference(x, seed).transpose(1, 2, 0)))
    low, high = (0.0, 255.0) if x.dtype == np.uint8 else bounds
    share = np.abs(x.astype(np.float64) - seed.astype(np.float64)) / ((high - low) or 1.0)
    return of_input(np.minimum(TIMES * share, 1).astype(np.float32))


def bounds_of(run: Run) -> tuple[float, float]:
    """Black and white of the inputs of a run's target."""
    config = run["config"]
    described = config.get("description") if isinstance(config, dict) else None
    bounds = described.get("bounds") if isinstance(described, dict) else None
    return (float(bounds[0]), float(bounds[1])) if bounds else (0.0, 1.0)
