"""Sections of a run of `describe`: how many neurons have a description, and the best of each layer with their exemplars."""

from __future__ import annotations

import functools
import io
from typing import Any

from neurotest.errors import BadInput
from neurotest.jobs.stored import described
from neurotest.report import pictures
from neurotest.report.section import Conclusion, Row, command, section
from neurotest.runs.store import Run
from neurotest.semantics.descriptions import COLUMNS, SHEETS, TABLE, plain, rows_of
from neurotest.semantics.descriptions import LARGEST as LARGEST_TABLE

COMMANDS = ("describe",)
NEURONS_PER_LAYER = 16  # neurons per layer, best score first; the sheets hold all
NOTHING = ("unknown", "(dead)")
SURE_SCORE, SHARES = 0.9, "combined"  # of a score, and the describer whose scores are shares of 1
MAX_SHEET_SIDE = 20_000  # pixels of a sheet's side


@section("descriptions", title="What neurons mean", order=0, commands=COMMANDS)
def _descriptions(run: Run) -> Row:
    layers = [{"name": _title(name), **run["summary"]["layers"][name]} for name in run["config"]["layers"]]
    summary = run["summary"]
    without = f"; for {summary['unknown']:,} no words fit" if summary["unknown"] else ""
    dead = f"; {summary['dead']:,} are dead: they never changed on this data" if summary["dead"] else ""
    sentence = f"{summary['described']:,} of {summary['neurons']:,} neurons have a description in words{without}{dead}."
    target, data = run["config"]["target"], run["config"]["data"] or "DATA"
    steps = (
        ("Inputs that break the network", command("fuzz", target, data, *described(run["config"], run.path))),
        ("Then: through which neurons they do", command("explain", "RUN")),
    )
    return {"subject": target, "layers": layers, "conclusion": Conclusion(f"{sentence}{_different(run)}", steps=steps)}


def _different(run: Run) -> str:
    """How many descriptions there are, and how many neurons have one that is sure."""
    file = run.file(TABLE)
    if not file.exists():
        return ""
    named = [row for row in rows_of(file.read(LARGEST_TABLE), str(file), COLUMNS) if plain(row["description"]) not in NOTHING]
    if not named:
        return ""
    different = len({plain(row["description"]) for row in named})
    sure = sum(float(row["score"]) >= SURE_SCORE for row in named)
    most = f"; {sure:,} neurons have a score of {SURE_SCORE} or more" if run["config"]["method"] == SHARES else ""
    return f" {different:,} of the descriptions are different{most}."


def _title(layer: str) -> str:
    return layer or "(the network)"


@section("described-neurons", title="", order=10, commands=COMMANDS, requires=("sheets",))
def _described_neurons(run: Run) -> Row:
    file = run.file(TABLE)
    table = rows_of(file.read(LARGEST_TABLE), str(file), COLUMNS)
    layers = []
    for name in run["config"]["layers"]:
        rows = [row for row in table if plain(row["layer"]) == name]
        rows.sort(key=lambda row: (plain(row["description"]) in NOTHING, -float(row["score"])))
        sheets = [sheet for sheet in run["sheets"] if isinstance(sheet, dict) and sheet["layer"] == name]
        files = [sheet["file"] for sheet in sheets]
        layers.append(
            {"name": _title(name), "neurons": len(rows), "sheets": files, "rows": _strips(run, rows[:NEURONS_PER_LAYER], sheets)}
        )
    return {"layers": layers, "shown": NEURONS_PER_LAYER}


def _strips(run: Run, rows: list[dict[str, str]], sheets: list[Row]) -> list[Row]:
    """Each neuron with its row of the contact sheet it is on."""
    opened = functools.cache(functools.partial(_open, run))
    strips = []
    for row in rows:
        neuron, picture = int(row["neuron"]), None
        sheet = next((sheet for sheet in sheets if sheet["first"] <= neuron < sheet["first"] + sheet["rows"]), None)
        if sheet is not None:
            picture = _strip(opened(str(sheet["file"])), neuron - sheet["first"], int(sheet["height"]))
        strips.append({"neuron": neuron, "text": plain(row["description"]), "score": float(row["score"]), "picture": picture})
    return strips


def _open(run: Run, file: str) -> Any:
    from PIL import Image

    sheet = run.file(f"{SHEETS}/{file}")
    try:
        image = Image.open(io.BytesIO(sheet.read(pictures.LARGEST)), formats=("PNG", "JPEG"))
        if max(image.size) > MAX_SHEET_SIDE:
            raise BadInput("too-large", "sheet", f"{sheet} is larger than {MAX_SHEET_SIDE} pixels: refused.")
        image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadInput("unreadable", "sheet", f"{sheet} cannot be read: {error}.") from error
    return image


def _strip(sheet: Any, row: int, height: int) -> str:
    from neurotest.semantics.describe.record import LEFT

    part = sheet.crop((LEFT, row * height + 3, sheet.width - 6, (row + 1) * height - 3))
    return pictures.of_image(part.convert("RGB"), "JPEG", quality=88)
