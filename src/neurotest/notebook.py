"""Results as a notebook shows them: a sentence, pictures, a table. What comes from outside is escaped, every part is bounded."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS = 20  # of a table
PICTURES = 12
SIDE = 96  # pixels of a picture's longer side, at most
LETTERS = 300  # of a cell
STYLE = "display:inline-block;margin:2px 6px;text-align:center;vertical-align:top;max-width:160px;font-size:smaller"
Pixels = NDArray[np.uint8]
Picture = tuple[Sequence[Pixels], str]  # what stands side by side, and the words below


def view(sentences: Iterable[str], pictures: Iterable[Picture] = (), rows: Sequence[Mapping[str, Any]] = ()) -> str:
    """The whole view of a result."""
    return "".join(f"<p>{_text(one)}</p>" for one in sentences) + _gallery(pictures) + (table(rows) if rows else "")


def _text(value: Any) -> str:
    """A value as escaped text; long ones are cut."""
    if value is None:
        return ""
    words = f"{value:.4g}" if isinstance(value, float) else str(value)
    return html.escape(words if len(words) <= LETTERS else words[:LETTERS] + " ...")


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """The first rows; a column that only later ones have is left out unless `columns` names it."""
    columns = list(rows[0] if rows else ()) if columns is None else columns
    head = "".join(f"<th>{_text(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{_text(row.get(name))}</td>" for name in columns) + "</tr>" for row in rows[:ROWS])
    more = f"<p>and {len(rows) - ROWS:,} more rows</p>" if len(rows) > ROWS else ""
    return f"<table><tr>{head}</tr>{body}</table>{more}"


def small(x: NDArray[Any], bounds: tuple[float, float] | None = None) -> Pixels | None:
    """An input (channels, height, width) as a picture that is small enough to be kept; None for what is no picture.

    bounds: of values that are no 8-bit ones; by default their own range.
    """
    from PIL import Image

    if x.ndim != 3 or x.shape[0] not in (1, 3) or 0 in x.shape:
        return None
    if x.dtype != np.uint8:
        x = np.nan_to_num(x.astype(np.float64))
        low, high = bounds or (float(x.min()), float(x.max()))
        x = np.rint(255 * (x.clip(low, high) - low) / ((high - low) or 1)).astype(np.uint8)
    if max(x.shape[1:]) <= SIDE:
        return np.array(x)
    image = Image.fromarray(x[0] if len(x) == 1 else x.transpose(1, 2, 0))
    image.thumbnail((SIDE, SIDE))
    array = np.asarray(image, np.uint8)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


def beside(before: NDArray[Any] | None, after: NDArray[Any], words: Iterable[str]) -> Iterator[Picture]:
    """Faults `after` (n, ...), each beside the seed it was made from; only the first ones are looked at."""
    after, before = after[:PICTURES], None if before is None else before[:PICTURES]
    both = [array for array in (before, after) if array is not None and array.size]
    bounds = (min(float(a.min()) for a in both), max(float(a.max()) for a in both)) if both else None
    for number, caption in zip(range(len(after)), words, strict=False):
        sides = [small(array[number], bounds) for array in both]
        if all(side is not None for side in sides):
            yield [side for side in sides if side is not None], caption


def _gallery(pictures: Iterable[Picture]) -> str:
    """Pictures with their words, side by side."""
    figures = []
    for images, words in islice(pictures, PICTURES):
        shown = "".join(_image(pixels) for pixels in images)
        figures.append(f'<div style="{STYLE}">{shown}<br>{_text(words)}</div>')
    return f"<div>{''.join(figures)}</div>" if figures else ""


def _image(pixels: Pixels) -> str:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(out, format="PNG")
    height = max(48, pixels.shape[1])  # a digit of 8x8 pixels is enlarged, pixel by pixel
    content = base64.b64encode(out.getvalue()).decode()
    return f'<img src="data:image/png;base64,{content}" height="{height}" style="image-rendering:pixelated;margin:1px" alt="">'
