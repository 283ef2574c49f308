"""Contact sheets: one row per neuron, its exemplars side by side, dimmed where they leave it cold."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation

from neurotest.audio import is_audio, spectrogram
from neurotest.runs.folder import Folder, own
from neurotest.semantics.describe.material import Material
from neurotest.semantics.descriptions import SHEETS, Descriptions
from neurotest.semantics.exemplars import plane_of, regions

if TYPE_CHECKING:
    from PIL import Image

own(rf"{SHEETS}/[0-9]{{2,}}-[\w.-]+-[0-9]{{4,}}\.(png|jpg)", SHEETS)
ROWS = 64  # per picture: larger ones no viewer likes
LEFT = 330  # pixels for the words
SMALL, LARGE = 48, 112  # sides of a tile
DIM = 0.3
OUTLINE = (255, 196, 0)
TOUCHING = np.array([[[0, 1, 0], [1, 1, 1], [0, 1, 0]]])  # pixels beside a pixel, in the same image


@dataclass(frozen=True)
class Sheet:
    """One picture of a layer's neurons, `rows` of them from `first` on, each `height` pixels high."""

    layer: str
    first: int
    rows: int
    height: int
    file: str


def write_sheets(folder: Folder, material: Material, table: Descriptions) -> list[Sheet]:
    """Write every layer's pictures into a run's folder; of sound, spectrograms; nothing for other inputs."""
    if len(material.shape) != 3 and not is_audio(material.source.dtype, material.source.shape):
        return []
    sheets = []
    # Photographs, which are shrunk, would take hundreds of megabytes as PNG; of small images every pixel counts.
    photographs = _scale(plane_of(material.source.dtype, material.source.shape))[0] < 0
    ending, how = ("jpg", {"format": "JPEG", "quality": 90}) if photographs else ("png", {"format": "PNG"})
    for number, layer in enumerate(material.layers):
        strips = tiles(material, layer.name, np.arange(layer.neurons()))
        stem = re.sub(r"[^\w.-]+", "_", layer.name) or "output"
        for start in range(0, layer.neurons(), ROWS):
            picture, height = _picture(table, layer.name, start, list(islice(strips, ROWS)))
            name = f"{number:02d}-{stem}-{start:04d}.{ending}"
            with folder.file(f"{SHEETS}/{name}").writing() as out:
                picture.save(out, **how)
            sheets.append(Sheet(layer.name, start, min(ROWS, layer.neurons() - start), height, name))
    return sheets


def _picture(table: Descriptions, layer: str, first: int, strips: list[NDArray[np.uint8]]) -> tuple[Image.Image, int]:
    from PIL import Image, ImageDraw, ImageFont

    height = strips[0].shape[0] + 6
    sheet = Image.new("RGB", (LEFT + strips[0].shape[1] + 6, height * len(strips)), (250, 250, 250))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for row, strip in enumerate(strips):
        top, neuron = row * height + 3, first + row
        sheet.paste(Image.fromarray(strip), (LEFT, top))
        description = table[layer, neuron]
        draw.text((6, top), f"{layer} {neuron}   {description.score:.2f}", fill=(110, 110, 110), font=font)
        for line, text in enumerate((textwrap.wrap(description.text, 44) or [""])[: max(1, (height - 20) // 15)]):
            draw.text((6, top + 16 + 15 * line), text, fill=(20, 20, 20) if description.known else (170, 60, 60), font=font)
    return sheet, height


def tiles(material: Material, layer: str, neurons: NDArray[np.int64]) -> Iterator[NDArray[np.uint8]]:
    """Per neuron its exemplars as one strip (side, k * (side + 2), 3)."""
    scale, side = _scale(plane_of(material.source.dtype, material.source.shape))
    times, every = max(1, scale), max(1, -scale)
    for some in regions(material.exemplars, material.target, material.source, layer, neurons, batch=material.safe_batch()):
        for rows, masks, positions in zip(some.rows, some.masks, some.positions, strict=True):
            shown = _shown(some.inputs[rows], material.target.bounds, every).transpose(0, 2, 3, 1)  # (k, h, w, 3)
            lit = masks[:, ::every, ::every, None]
            big = _sized(np.where(lit, shown, DIM * shown + 20), times, side)
            inside = _sized(lit.astype(np.float64) * 255, times, side)[..., 0] > 127
            big[binary_dilation(inside, TOUCHING) & ~inside] = OUTLINE
            big[positions < 0] = 255
            yield np.concatenate([np.pad(one, ((0, 0), (0, 2), (0, 0)), constant_values=250) for one in big], axis=1)


def _shown(x: NDArray[Any], bounds: tuple[float, float], every: int) -> NDArray[np.float64]:
    """Inputs (m, channels, h, w) or sounds as RGB in 0 .. 255, of each line and row every so many-th pixel.

    What is neither grey nor RGB is shown as the mean of its channels.
    """
    if is_audio(x.dtype, x.shape[1:]):
        return np.stack([spectrogram(one) for one in x]).astype(np.float64)[..., ::every, ::every]
    low, high = (0.0, 255.0) if x.dtype == np.uint8 else bounds
    seen = np.clip((x[..., ::every, ::every].astype(np.float64) - low) / (high - low), 0, 1) * 255
    return seen if x.shape[1] == 3 else np.repeat(seen.mean(axis=1, keepdims=True), 3, axis=1)


def _scale(image: tuple[int, ...]) -> tuple[int, int]:
    """Small images are enlarged by an integer factor, large ones shrunk by one: the factor (negative: shrunk) and the side."""
    largest = max(image)
    if largest <= LARGE:
        factor = max(1, -(-SMALL // largest))
        return factor, largest * factor
    factor = -(-largest // LARGE)
    return -factor, largest // factor


def _sized(x: NDArray[np.float64], times: int, side: int) -> NDArray[np.uint8]:
    """(k, h, w, c) at the sheet's size, on white where it is not square."""
    x = x.repeat(times, axis=1).repeat(times, axis=2)
    out = np.full((len(x), side, side, x.shape[3]), 255, dtype=np.uint8)
    high, wide = min(side, x.shape[1]), min(side, x.shape[2])
    out[:, :high, :wide] = np.clip(np.rint(x[:, :high, :wide]), 0, 255)
    return out
