"""Descriptions as a run: the table, the exemplars, the contact sheets, and a sheet for people to rate, with decoys on it."""

from __future__ import annotations

import csv
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation

from neurotest import rng
from neurotest.audio import is_audio, spectrogram
from neurotest.errors import BadInput
from neurotest.jobs.methods import stored_method
from neurotest.jobs.opening import digests, stored_spec
from neurotest.jobs.stored import target_config
from neurotest.runs.export import cell
from neurotest.runs.folder import Folder, declare
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run
from neurotest.semantics.describe.material import Describer, Material
from neurotest.semantics.descriptions import DEAD, SHEETS, TABLE, UNKNOWN, Descriptions, NeuronDescription, read_rows
from neurotest.semantics.exemplars import plane_of, regions
from neurotest.stats.bootstrap import mean_interval

if TYPE_CHECKING:
    from PIL import Image

declare(r"descriptions\.csv|exemplars\.csv|rating\.csv|rating-key\.json")
declare(rf"{SHEETS}/[0-9]{{2,}}-[\w.-]+-[0-9]{{4,}}\.(png|jpg)", SHEETS)
ROWS = 64  # per image: larger ones no viewer likes
LEFT = 330  # pixels for the words
SMALL, LARGE = 48, 112  # sides of a tile
DIM = 0.3
OUTLINE = (255, 196, 0)
TOUCHING = np.array([[[0, 1, 0], [1, 1, 1], [0, 1, 0]]])  # pixels beside a pixel, in the same image
EXEMPLARS, RATING, KEY = "exemplars.csv", "rating.csv", "rating-key.json"
PAIRS = 100
ANSWERS = {"yes": 1.0, "maybe": 0.5, "no": 0.0}
COLUMNS = ("item", "layer", "neuron", "description", "sheet", "rater", "answer")


@dataclass(frozen=True)
class _Sheet:
    """One image of a layer's neurons, `rows` of them from `first` on, each `height` pixels high."""

    layer: str
    first: int
    rows: int
    height: int
    file: str


def _write_sheets(folder: Folder, material: Material, table: Descriptions) -> list[_Sheet]:
    """Write every layer's images into a run's folder; of audio, spectrograms; nothing for other inputs."""
    if len(material.shape) != 3 and not is_audio(material.source.dtype, material.source.shape):
        return []
    sheets = []
    # Photographs, which are shrunk, would take hundreds of megabytes as PNG; of small images every pixel counts.
    photographs = _scale(plane_of(material.source.dtype, material.source.shape))[0] < 0
    ending, how = ("jpg", {"format": "JPEG", "quality": 90}) if photographs else ("png", {"format": "PNG"})
    for number, layer in enumerate(material.layers):
        strips = _tiles(material, layer.name, np.arange(layer.neurons()))
        stem = re.sub(r"[^\w.-]+", "_", layer.name) or "output"
        for start in range(0, layer.neurons(), ROWS):
            image, height = _image(table, layer.name, start, list(islice(strips, ROWS)))
            name = f"{number:02d}-{stem}-{start:04d}.{ending}"
            with folder.file(f"{SHEETS}/{name}").writing() as out:
                image.save(out, **how)
            sheets.append(_Sheet(layer.name, start, min(ROWS, layer.neurons() - start), height, name))
    return sheets


def _image(table: Descriptions, layer: str, first: int, strips: list[NDArray[np.uint8]]) -> tuple[Image.Image, int]:
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


def _tiles(material: Material, layer: str, neurons: NDArray[np.int64]) -> Iterator[NDArray[np.uint8]]:
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
    """Inputs (m, channels, h, w) or audio as RGB in 0 .. 255, of each line and row every so many-th pixel.

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


@dataclass(frozen=True)
class Rated:
    """The mean answer (yes 1, maybe .5, no 0) to the neurons' own descriptions and to decoys, each with a 95 % interval."""

    own: tuple[float, float, float]
    decoys: tuple[float, float, float]
    answers: int
    raters: int

    def to_dict(self) -> dict[str, Any]:
        return {"own": list(self.own), "decoys": list(self.decoys), "answers": self.answers, "raters": self.raters}


def _write_rating(
    folder: Folder, table: Descriptions, sheets: Sequence[_Sheet], *, pairs: int = PAIRS, seed: int = 0
) -> Path | None:
    """Write rating.csv, to be copied per rater and filled in, and rating-key.json, which says which rows are decoys.

    Half of the rows carry the description of another neuron: without them nobody knows what an average of answers is worth.
    """
    described = [row for row in table if row.known]
    if len({row.text for row in described}) < 2:
        return None
    random = rng.stream("semantics.rating", seed)
    some = [described[i] for i in random.permutation(len(described))[:pairs]]
    rows: list[tuple[NeuronDescription, str, bool]] = [(row, row.text, True) for row in some]
    for row in some:
        others = [other.text for other in described if other.text != row.text]
        rows.append((row, others[int(random.integers(len(others)))], False))
    order = random.permutation(len(rows))
    where = {(s.layer, n): s.file for s in sheets for n in range(s.first, s.first + s.rows)}
    with folder.file(RATING).writing_text() as out:
        writer = csv.writer(out)
        writer.writerow(COLUMNS)
        for item, number in enumerate(order):
            row, text, _ = rows[number]
            sheet = where.get((row.layer, row.neuron), "")
            writer.writerow([item, cell(row.layer), row.neuron, cell(text), f"sheets/{sheet}" if sheet else "", "", ""])
    key = {"own": [item for item, number in enumerate(order) if rows[number][2]]}
    folder.file(KEY).write(json.dumps(key, indent=1) + "\n")
    return folder.file(RATING).path


def read_rating(files: Iterable[str | Path], key: str | Path, *, seed: int = 0) -> Rated:
    """The answers of raters: filled-in copies of rating.csv and the key that was written with it."""
    try:
        own = set(json.loads(Path(key).read_text())["own"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            "unreadable", "key", f"cannot read the key {key}: {error}. It is the rating-key.json beside rating.csv."
        ) from error
    answers: dict[bool, dict[int, list[float]]] = {True: {}, False: {}}
    raters = set()
    for file in files:
        for line, row in enumerate(read_rows(file, ("item", "answer")), start=2):
            answer = row["answer"].strip().lower()
            if not answer:
                continue
            if answer not in ANSWERS or not row["item"].strip().isdecimal():
                raise BadInput(
                    "out-of-range",
                    "answer",
                    f"{file}, line {line}: answer {row['answer']!r}: expected yes, maybe or no (or nothing).",
                )
            item = int(row["item"])
            answers[item in own].setdefault(item, []).append(ANSWERS[answer])
            raters.add(row.get("rater") or str(file))
    total = sum(len(some) for group in answers.values() for some in group.values())
    if not answers[True]:
        raise BadInput(
            "empty",
            "answers",
            "no row with a neuron's own description was answered: fill in the column answer with yes, maybe or no.",
        )
    return Rated(_interval(answers[True], seed), _interval(answers[False], seed), total, len(raters))


def _interval(items: dict[int, list[float]], seed: int) -> tuple[float, float, float]:
    """Mean over items with a bootstrap over items: answers of several raters to one item are not independent."""
    if not items:
        return (float("nan"),) * 3
    interval = mean_interval([float(np.mean(some)) for some in items.values()], seed=seed)
    return interval.value, interval.low, interval.high


def config(material: Material, describer: Describer) -> dict[str, Any]:
    """What a run stores of how it was made."""
    data = material.data
    return {
        **target_config(material.target), "data": stored_spec(data), "inputs": 0 if data is None else len(data),
        "method": stored_method(describer), "layers": list(material.sizes), "digests": digests(data=data),
    }  # fmt: skip


def fill(run: Run, material: Material, table: Descriptions) -> None:
    """Everything but the summary; written anew where a crash came between this and the end."""
    run.file(TABLE).write(table.text())
    sheets = []
    if material.data is not None:
        _write_exemplars(run, material)
        sheets = _write_sheets(run.folder, material, table)
        if sheets:
            _write_rating(run.folder, table, sheets, seed=material.seed)
    with run.transaction():
        run["sheets"] = [asdict(sheet) for sheet in sheets]


def summary(table: Descriptions) -> dict[str, Any]:
    """How many neurons have words, and which are dead, layer by layer."""
    layers: dict[str, dict[str, Any]] = {}
    for name in table.layers:
        rows = table.layer(name)
        layers[name] = {
            "neurons": len(rows),
            "described": sum(row.known for row in rows),
            "unknown": sum(row.text == UNKNOWN for row in rows),
            "dead": [row.neuron for row in rows if row.text == DEAD],
        }
    every = {key: sum(layer[key] for layer in layers.values()) for key in ("neurons", "described", "unknown")}
    return {**every, "dead": sum(len(layer["dead"]) for layer in layers.values()), "layers": layers, "notes": list(table.notes)}


def _write_exemplars(run: Run, material: Material) -> None:
    """exemplars.csv: neuron by neuron the positions in the data, best first; the inputs themselves are rows of the run."""
    source, exemplars = material.source, material.exemplars
    used: set[int] = set()
    with run.file(EXEMPLARS).writing_text() as out:
        writer = csv.writer(out)
        named = () if source.names is None else ("file",)
        writer.writerow(["layer", "neuron", "rank", "position", "value", "content", *named])
        ids = source.ids()
        for layer in material.sizes:
            index, values = exemplars.top(layer)
            dead = exemplars.dead(layer)
            for neuron, (places, row) in enumerate(zip(index, values, strict=True)):
                for rank, (position, value) in enumerate(zip(places.tolist(), row.tolist(), strict=True), start=1):
                    if position >= 0 and not dead[neuron]:
                        used.add(position)
                        file = () if source.names is None else (cell(str(source.names[position])),)
                        writer.writerow([cell(layer), neuron, rank, position, f"{value:.6g}", ids[position], *file])
    labels = source.labels
    rows = (
        InputRow(
            p,
            str(ids[p]),
            None if labels is None else int(labels[p]),
            extra={} if source.names is None else {"name": str(source.names[p])},
        )
        for p in sorted(used)
    )
    with run.transaction():
        run.clear_inputs()
        run.add_inputs(rows)
