"""Pictures as text that stands in a page."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.runs import codec
from neurotest.runs.folder import RunFile

LARGEST = 1 << 28  # bytes of a picture


def embedded(content: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def of_image(image: Any, form: str = "PNG", **settings: Any) -> str:
    """Of a PIL image."""
    out = io.BytesIO()
    image.save(out, format=form, **settings)
    return embedded(out.getvalue(), form.lower())


def of_file(file: RunFile | None) -> str | None:
    """Of an input that a run stores; None for what is no image."""
    shown = None if file is None else codec.picture(file)
    return None if shown is None else embedded(shown.read(LARGEST))


def of_input(x: NDArray[Any]) -> str | None:
    """Of an 8-bit input with one or three channels."""
    from PIL import Image

    if x.dtype != np.uint8 or x.ndim != 3 or x.shape[0] not in (1, 3):
        return None
    return of_image(Image.fromarray(x[0] if x.shape[0] == 1 else x.transpose(1, 2, 0)))
