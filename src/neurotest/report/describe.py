"""The page of a run of `describe`: layer by layer the neurons that were described best, with their exemplars."""

from __future__ import annotations

import base64
import io
from typing import Any

from neurotest.errors import BadInput
from neurotest.files import inside
from neurotest.runs.store import Run
from neurotest.semantics.descriptions import COLUMNS, plain, read_rows

SHOWN = 16  # neurons per layer, best score first; the sheets hold all
LARGEST = 20_000  # pixels of a sheet's side


def render(run: Run) -> str:
    from jinja2 import Environment, PackageLoader

    rows = read_rows(run.path / "descriptions.csv", COLUMNS)
    sheets = [sheet for sheet in run["sheets"] if isinstance(sheet, dict)]
    summary = run["summary"]
    layers = []
    for name in run["config"]["layers"]:
        about = summary["layers"][name]
        known = [row for row in rows if plain(row["layer"]) == name]
        known.sort(key=lambda row: (plain(row["description"]) in ("unknown", "(dead)"), -float(row["score"])))
        files = [sheet["file"] for sheet in sheets if sheet["layer"] == name]
        layers.append(
            {"name": name or "(the network)", **about, "sheets": files, "rows": _strips(run, name, known[:SHOWN], sheets)}
        )
    environment = Environment(loader=PackageLoader("neurotest.report"), autoescape=True)
    return environment.get_template("describe.html.j2").render(
        config=run["config"], created=run["created"], version=run["version"], summary=summary, layers=layers, shown=SHOWN
    )


def _strips(run: Run, layer: str, rows: list[dict[str, str]], sheets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from PIL import Image

    found: list[dict[str, Any]] = []
    opened: dict[str, Image.Image] = {}
    for row in rows:
        neuron = int(row["neuron"])
        of = (s for s in sheets if s["layer"] == layer and s["first"] <= neuron < s["first"] + s["rows"])
        sheet = next(of, None)
        picture = None
        if sheet is not None:
            if sheet["file"] not in opened:
                opened[sheet["file"]] = _open(run, str(sheet["file"]))
            picture = _row(opened[sheet["file"]], neuron - sheet["first"], int(sheet["height"]))
        found.append({"neuron": neuron, "text": plain(row["description"]), "score": float(row["score"]), "picture": picture})
    return found


def _open(run: Run, file: str) -> Any:
    from PIL import Image

    path = inside(run.path, f"sheets/{file}")
    try:
        image = Image.open(path, formats=("PNG",))
        if max(image.size) > LARGEST:
            raise BadInput(f"{path} is larger than {LARGEST} pixels: refused.")
        image.load()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error}.") from error
    return image


def _row(sheet: Any, row: int, height: int) -> str:
    from neurotest.semantics.describe.sheets import LEFT

    part = sheet.crop((LEFT, row * height + 3, sheet.width - 6, (row + 1) * height - 3))
    out = io.BytesIO()
    part.convert("RGB").save(out, format="JPEG", quality=88)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()
