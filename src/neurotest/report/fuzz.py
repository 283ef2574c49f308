"""The page of a campaign: what it found beside random, the families with their images, and what shrinking left of them."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np

from neurotest.campaign.families import families
from neurotest.campaign.shrink import shrunk_of
from neurotest.campaign.status import tally_of
from neurotest.campaign.store import Store
from neurotest.report import charts
from neurotest.runs import codec
from neurotest.runs.store import Run

SHOWN = 60  # families with pictures


def render(run: Run) -> str:
    from jinja2 import Environment, PackageLoader

    found = families(run.path)
    tally = tally_of(run)
    environment = Environment(loader=PackageLoader("neurotest.report"), autoescape=True)
    return environment.get_template("fuzz.html.j2").render(
        config=run["config"],
        created=run["created"],
        version=run["version"],
        summary=run["summary"],
        random=None if run["config"].get("guide") == "random" else run["summary"].get("random"),
        families=_rows(run, found),
        total=len(found.families),
        operators=charts.svg(bars(tally.operators, tally.tried)) if tally.tried else "",
        growth=charts.svg(growth(_found(run))) if tally.faults else "",
    )


def _rows(run: Run, found: Any) -> list[dict[str, Any]]:
    x, places = Store(run).seeds()
    shrunk = shrunk_of(run)
    rows = []
    for family, told in list(zip(found.families, found.table(), strict=True))[:SHOWN]:
        best = family.representative
        small = shrunk.get(family.key)
        seed = places.get(best.root)
        rows.append(
            {
                **told,
                "picture": _picture(best.file),
                "seed": None if seed is None else _pixels(np.array(x[seed])),
                "shrunk": small and {**small, "picture": _picture(small["file"])},
            }
        )
    return rows


def _picture(file: Path | None) -> str | None:
    shown = None if file is None else codec.picture(file)
    return None if shown is None else "data:image/png;base64," + base64.b64encode(shown.read_bytes()).decode()


def _pixels(x: np.ndarray) -> str | None:
    from PIL import Image

    if x.dtype != np.uint8 or x.ndim != 3 or x.shape[0] not in (1, 3):
        return None
    out = io.BytesIO()
    Image.fromarray(x[0] if x.shape[0] == 1 else x.transpose(1, 2, 0)).save(out, format="PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def _found(run: Run) -> list[tuple[int, int, int]]:
    """(outputs, faults, families) along the campaign, at most 200 points."""
    seen: set[tuple[int, int, str]] = set()
    points, faults = [], 0
    rows = run.rows("SELECT expected, predicted, operator, oracle FROM mutant ORDER BY number")
    for n, (expected, predicted, operator, oracle) in enumerate(rows, start=1):
        if oracle is not None:
            faults += 1
            seen.add((expected, predicted, operator))
        points.append((n, faults, len(seen)))
    return [points[i] for i in np.unique(np.linspace(0, len(points) - 1, 200).round().astype(int))]


def growth(points: list[tuple[int, int, int]]) -> dict[str, Any]:
    rows = [{"outputs": n, "what": what, "count": c} for n, f, k in points for what, c in (("faults", f), ("families", k))]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "config": {"font": "sans-serif", "view": {"stroke": None}},
        "data": {"values": rows},
        "facet": {"field": "what", "type": "nominal", "title": None, "sort": None},
        "resolve": {"scale": {"y": "independent"}},
        "spec": {
            "width": 300,
            "height": 150,
            "mark": {"type": "line", "color": charts.COLOURS[0]},
            "encoding": {
                "x": {"field": "outputs", "type": "quantitative"},
                "y": {"field": "count", "type": "quantitative", "title": None},
            },
        },
    }


def bars(faults: dict[str, int], tried: dict[str, int]) -> dict[str, Any]:
    """What share of each mutation's mutants failed."""
    rows = [{"operator": name, "share": faults.get(name, 0) / n} for name, n in tried.items() if n]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "config": {"font": "sans-serif", "view": {"stroke": None}},
        "width": 460,
        "data": {"values": rows},
        "mark": {"type": "bar", "color": charts.COLOURS[0]},
        "encoding": {
            "y": {"field": "operator", "type": "nominal", "title": None, "sort": "-x"},
            "x": {"field": "share", "type": "quantitative", "title": "faults per tested mutant"},
        },
    }
