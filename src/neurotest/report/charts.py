"""Charts as Vega-Lite specifications, drawn to SVG so that a report needs no script."""

from __future__ import annotations

from typing import Any

import numpy as np

# Distinguishable with the usual colour-vision deficiencies (Okabe and Ito); random is always grey.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
GREY = "#999999"
POINTS = 200
FRAME: dict[str, Any] = {
    "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
    "config": {"font": "sans-serif", "view": {"stroke": "#dddddd"}},
}


def svg(spec: dict[str, Any]) -> str:
    """Draw a specification; the text is safe to embed."""
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(spec)
    return drawn


def found_curves(curves: dict[str, np.ndarray], total: int, picked: int) -> dict[str, Any]:
    """Faults found per labels spent, one line per method, with the diagonal of random and the ceiling."""
    n = len(next(iter(curves.values())))
    at = np.unique(np.linspace(0, n, POINTS).round().astype(int))
    rows = [
        {"method": name, "labels": int(m), "found": int(curve[m - 1]) if m else 0} for name, curve in curves.items() for m in at
    ]
    names = list(curves)
    colours = [GREY if name == "random" else COLOURS[i % len(COLOURS)] for i, name in enumerate(names)]
    guides = [{"labels": 0, "expected": 0}, {"labels": n, "expected": total}]
    ceiling = [{"labels": 0, "best": 0}, {"labels": total, "best": total}, {"labels": n, "best": total}]
    x = {"field": "labels", "type": "quantitative", "title": "labels spent", "scale": {"domain": [0, n], "nice": False}}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": 640,
        "height": 340,
        "config": {"font": "sans-serif", "view": {"stroke": None}},
        "layer": [
            {
                "data": {"values": ceiling},
                "mark": {"type": "line", "strokeDash": [2, 3], "color": GREY},
                "encoding": {"x": x, "y": {"field": "best", "type": "quantitative"}},
            },
            {
                "data": {"values": guides},
                "mark": {"type": "line", "strokeDash": [6, 4], "color": GREY},
                "encoding": {"x": x, "y": {"field": "expected", "type": "quantitative"}},
            },
            {
                "data": {"values": [{"labels": picked}]},
                "mark": {"type": "rule", "color": "#bbbbbb"},
                "encoding": {"x": x},
            },
            {
                "data": {"values": rows},
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {
                    "x": x,
                    "y": {"field": "found", "type": "quantitative", "title": "faults found"},
                    "color": {"field": "method", "type": "nominal", "scale": {"domain": names, "range": colours}, "sort": None},
                },
            },
        ],
    }
