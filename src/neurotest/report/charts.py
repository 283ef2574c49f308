"""Charts as Vega-Lite specifications, drawn to SVG so that a page needs no script; each says what it shows and gives its data."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from neurotest.errors import spelled
from neurotest.report.rendering import render
from neurotest.runs.export import cell

Spec = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
# Distinguishable with the usual colour-vision deficiencies (Okabe and Ito); random is always grey.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
GREY = "#999999"
BLUES = {"scheme": "blues"}


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart as it stands on a page.

    name: of the file its data are saved as. shows, hides: what can be read from it, and what cannot. rows: its data, by default
    those of the specification. live: whether it answers to the pointer where scripts run.
    """

    name: str
    spec: Spec
    shows: str
    hides: str = ""
    rows: Rows | None = None
    framed: bool = False
    live: bool = True

    def __html__(self) -> str:
        whole = _styled(self.spec, framed=self.framed)
        rows = self.spec["data"]["values"] if self.rows is None else self.rows
        spec = _hoverable(whole) if self.live else None
        return render("figure.html.j2", chart=self, drawing=svg(self.spec, framed=self.framed), spec=spec, csv=csv_link(rows))


def csv_link(rows: Rows) -> str:
    """Rows as an address that a browser saves without asking anybody; no cell of it is taken for a formula."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([cell(column) for column in columns])
    writer.writerows([cell(row.get(column)) for column in columns] for row in rows)
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(text.getvalue().encode('utf-8', 'backslashreplace')).decode()}"


def _styled(spec: Spec, *, framed: bool = False) -> Spec:
    """A specification in the type and on the ground of the page."""
    config = {"font": "sans-serif", "background": None, "view": {"stroke": "#dddddd" if framed else None}}
    whole: Spec = spelled({"config": config, **spec})  # the renderer takes UTF-8 only
    return whole


def svg(spec: Spec, *, framed: bool = False) -> Markup:
    """Draw a specification; the renderer escapes every text in it. The background is the page's."""
    import vl_convert

    return Markup(vl_convert.vegalite_to_svg(_styled(spec, framed=framed)))


def _hoverable(spec: Spec) -> Spec:
    """The same chart with the numbers of each mark under the pointer; a line gets points to hover over that nobody sees."""
    changed = {key: _hoverable(value) if key == "spec" else value for key, value in spec.items()}
    for key in ("layer", "hconcat", "vconcat", "concat"):
        if key in spec:
            changed[key] = [_hoverable(part) for part in spec[key]]
    if "mark" in spec:
        mark = {"type": spec["mark"]} if isinstance(spec["mark"], str) else dict(spec["mark"])
        if mark["type"] == "line" and "point" not in mark:
            mark["point"] = {"opacity": 0, "size": 60, "filled": True}
        changed["mark"] = {"tooltip": True, **mark}
    return changed


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
