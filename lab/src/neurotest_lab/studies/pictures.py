"""Pictures in a study's cells: PNG files as text."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

TILES = 10  # of a strip, one of each class


def png(values: NDArray[np.uint8], optimize: bool = True) -> str:
    """Of (height, width) or (height, width, 3)."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(values).save(file, format="PNG", optimize=optimize)
    return base64.b64encode(file.getvalue()).decode()


def pixels(x: NDArray[Any]) -> NDArray[np.uint8]:
    """(channels, height, width) as a picture has it."""
    return x[0] if x.shape[0] == 1 else x.transpose(1, 2, 0)


def strip(x: NDArray[np.generic], labels: NDArray[np.int64] | None) -> str:
    """The first image of each class, side by side."""
    rows = np.arange(min(TILES, len(x))) if labels is None else np.unique(labels, return_index=True)[1][:TILES]
    return png(pixels(np.concatenate([np.asarray(x[i], dtype=np.uint8) for i in rows], axis=2)))


def unit_picture(scaled: NDArray[np.float64], shape: tuple[int, ...]) -> str:
    """Units of a layer as grey values: maps side by side in a near square, other layers as one near square."""
    maps = scaled.reshape(shape) if len(shape) == 3 else scaled.reshape(-1, 1, 1)
    count, height, width = maps.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    sheet = np.zeros((rows * columns, height, width))
    sheet[:count] = maps
    grid = sheet.reshape(rows, columns, height, width).transpose(0, 2, 1, 3).reshape(rows * height, columns * width)
    times = max(1, 200 // max(grid.shape))
    return png((grid * 255).astype(np.uint8).repeat(times, axis=0).repeat(times, axis=1))
