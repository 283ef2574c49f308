"""Explanations for people: Markdown, and one HTML page with the activation maps laid over the images."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.campaign.explain import Explanation, Patterns
from neurotest.errors import BadInput
from neurotest.files import write_json, write_text

SHOWN = 60  # substitutions
HEAT = np.array([213, 94, 0], dtype=np.float32)  # vermilion
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
STRENGTH = 0.8


def write_explanation(found: Explanation | Patterns, path: Path | str) -> Path:
    """As JSON, Markdown or HTML, by the ending of the name."""
    place = Path(path)
    match place.suffix.lower():
        case ".json":
            write_json(place, found.to_dict())
        case ".md":
            write_text(place, markdown(found))
        case ".html" | ".htm":
            write_text(place, page(found))
        case other:
            raise BadInput(f"--out {path}: the ending {other or '(none)'!r} is not known; expected .html, .md or .json.")
    return place


def headline(found: Explanation) -> str:
    pair = found.pair
    seed, fault = pair.predicted
    sure = [f"{100 * c:.0f} %" for c in pair.confidence]
    return f"Fault {found.fault}: {found.true}, seen as {seed} ({sure[0]}), is seen as {fault} ({sure[1]}) after {found.change}."


def parting(found: Explanation) -> str:
    pair = found.pair
    where = "The paths are the same" if pair.parts is None else f"The paths part at layer {pair.parts}"
    limit = "" if pair.tau is None else f" (another path below {pair.tau:.3f})"
    return f"{where}; their similarity is {pair.similarity:.3f}{limit}. Conductance is for {pair.attributed} in both."


def markdown(found: Explanation | Patterns) -> str:
    rows = found.table()
    if isinstance(found, Explanation):
        title, text = f"# Fault {found.fault}", f"{headline(found)}\n\n{parting(found)}"
    else:
        title, text = "# What faults have in common", _about(found)
        rows = rows[:SHOWN]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([str(v) for v in row.values()] for row in rows)] if rows else []
    table = "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    return f"{title}\n\n{text}\n\n{table}\n"


def _about(found: Patterns) -> str:
    parts = "; ".join(f"{name} {100 * p['faults']:.0f} % / {100 * p['others']:.0f} %" for name, p in found.parts.items())
    return (
        f"Paths of {found.faults:,} faults beside {found.others:,} mutants that are none. Where they leave their seed's path "
        f"first (faults / others): {parts}."
    )


def _cell(text: str) -> str:
    for sign in ("\\", "|", "`", "*", "_", "<", "[", "]"):
        text = text.replace(sign, f"\\{sign}" if sign != "<" else "&lt;")
    return " ".join(text.split())


def page(found: Explanation | Patterns) -> str:
    from jinja2 import Environment, PackageLoader

    environment = Environment(loader=PackageLoader("neurotest.report"), autoescape=True)
    template = environment.get_template("explain.html.j2")
    if isinstance(found, Patterns):
        return template.render(
            title="What faults have in common", text=_about(found), rest="", layers=[], images=[], rows=found.table()[:SHOWN]
        )
    images = [_embed(_colours(x)) for x in found.images]
    return template.render(
        title=f"Fault {found.fault}", text=headline(found), rest=parting(found), images=images, layers=_layers(found), rows=[]
    )


def _layers(found: Explanation) -> list[dict[str, Any]]:
    rows = []
    for pair in found.pair.layers:
        maps = [pair.seed.map, pair.fault.map]
        shown = [
            None if m is None or (picture := _colours(x)) is None else _embed(overlay(picture, m))
            for x, m in zip(found.images, maps, strict=True)
        ]
        rows.append(
            {
                "layer": pair.layer,
                "same": pair.same,
                "seed": pair.seed,
                "fault": pair.fault,
                "maps": shown,
                "complete": pair.completeness,
            }
        )
    return rows


def _colours(x: NDArray[Any]) -> NDArray[np.float32] | None:
    """An image (height, width, 3) in 0..255, where the input is one."""
    if x.ndim != 3 or x.shape[0] not in (1, 3):
        return None
    values = x.astype(np.float32)
    if x.dtype != np.uint8:
        low, high = float(values.min()), float(values.max())
        values = (values - low) / (high - low or 1) * 255
    return np.asarray(np.repeat(values, 3 // x.shape[0], axis=0).transpose(1, 2, 0))


def overlay(picture: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[np.float32]:
    """A map over an image: what is active is coloured, all else grey, so that no colour of a photograph is taken for it."""
    positive = np.clip(np.nan_to_num(values), 0, None)
    heat = (positive / (positive.max() or 1))[:, :, None] * STRENGTH
    return np.asarray((picture @ LUMA)[:, :, None] * (1 - heat) + HEAT * heat)


def _embed(picture: NDArray[np.float32] | None) -> str | None:
    from PIL import Image

    if picture is None:
        return None
    out = io.BytesIO()
    Image.fromarray(picture.round().clip(0, 255).astype(np.uint8)).save(out, format="PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
