"""Charts as Vega-Lite specifications, drawn to SVG so that a report needs no script."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

Spec = dict[str, Any]
# Distinguishable with the usual colour-vision deficiencies (Okabe and Ito); random is always grey.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
GREY = "#999999"
BLUES = {"scheme": "blues"}


def svg(spec: Spec, *, framed: bool = False) -> Markup:
    """Draw a specification; the renderer escapes every text in it. The background is the page's."""
    import vl_convert

    config = {"font": "sans-serif", "background": None, "view": {"stroke": "#dddddd" if framed else None}}
    whole = {"$schema": "https://vega.github.io/schema/vega-lite/v5.json", "config": config, **spec}
    return Markup(vl_convert.vegalite_to_svg(whole))


def number(field: str, title: str | None = None, **settings: Any) -> Spec:
    """A channel of numbers."""
    return {"field": field, "type": "quantitative", "title": title, **settings}


def names(field: str, title: str | None = None, sort: Any = None, **settings: Any) -> Spec:
    """A channel of names, by default in the order of the rows."""
    return {"field": field, "type": "nominal", "title": title, "sort": sort, **settings}


def colours(methods: Iterable[str]) -> Spec:
    """The scale that gives each method its colour, and random grey."""
    order = [*methods]
    return {"domain": order, "range": [GREY if name == "random" else COLOURS[i % len(COLOURS)] for i, name in enumerate(order)]}


def panels(rows: list[Any], by: str, spec: Spec, *, own: str = "", sort: Any = None, columns: int | None = None) -> Spec:
    """The same chart once per value of a field; the axes in `own` are each panel's own."""
    wrapped = {} if columns is None else {"columns": columns}
    scales = {"scale": dict.fromkeys(own, "independent")}
    return {"data": {"values": rows}, "facet": names(by, sort=sort), **wrapped, "resolve": scales, "spec": spec}


def line(x: Spec, y: Spec, width: int, height: int, **mark: Any) -> Spec:
    return {"width": width, "height": height, "mark": {"type": "line", "color": COLOURS[0], **mark}, "encoding": {"x": x, "y": y}}


def bars(rows: list[Any], y: Spec, x: Spec) -> Spec:
    """One horizontal bar per row."""
    return {"width": 460, "data": {"values": rows}, "mark": {"type": "bar", "color": COLOURS[0]}, "encoding": {"y": y, "x": x}}


def heat_map(rows: list[Any], by: str, x: Spec, y: Spec, value: str, width: int, height: int, columns: int | None = None) -> Spec:
    """Counts by two classes, one panel per value of `by`."""
    cells = {"x": x, "y": y, "color": {"field": value, "type": "quantitative", "scale": BLUES}}
    return panels(rows, by, {"width": width, "height": height, "mark": "rect", "encoding": cells}, columns=columns)
