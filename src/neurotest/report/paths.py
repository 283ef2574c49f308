"""Decision paths as a picture: one line while seed and fault are decided by the same neurons, two where they part."""

from __future__ import annotations

from neurotest.campaign.explain import Explanation, Patterns
from neurotest.report import charts
from neurotest.report.section import Row

WIDTH = 150  # pixels of a layer
LONG = 22  # letters of a description in the picture
PATHS = (
    "Layer by layer, the neuron that decides most for the seed (above) and for the fault (below); in the middle where it is the "
    "same one. Numbers: the neuron; words: what excited it in the data it was described with."
)
PATHS_HIDE = "all other neurons, which together may decide more; the conductance of each layer's first one is in the table."
PARTS = "In which layer the path of a mutant first leaves its seed's: faults beside mutants that the network still gets right."
PARTS_HIDE = "why it does; a layer that differs as often among the others says nothing about faults."


def _path_rows(explained: Explanation) -> list[Row]:
    """A row for each layer and side, and at both ends what goes in and what comes out."""
    pair = explained.pair
    rows: list[Row] = []
    for side, above in (("seed", 1), ("fault", -1)):
        rows.append({"side": side, "place": 0, "layer": "input", "lane": 0.0, "neuron": "", "words": ""})
        for place, layer in enumerate(pair.layers, start=1):
            one = layer.seed if side == "seed" else layer.fault
            lane = 0.0 if layer.same else float(above)
            about = {"neuron": str(one.neuron), "words": one.description, "conductance": one.score}
            rows.append({"side": side, "place": place, "layer": layer.layer, "lane": lane, **about})
        answer = pair.predicted[0 if side == "seed" else 1]
        apart = 0.0 if pair.predicted[0] == pair.predicted[1] else float(above)
        rows.append(
            {"side": side, "place": len(pair.layers) + 1, "layer": "answer", "lane": apart, "neuron": answer, "words": ""}
        )
    return rows


def paths(explained: Explanation) -> charts.Chart:
    rows = _path_rows(explained)
    return charts.Chart(name=f"path-{explained.fault}", spec=_path_spec(rows), rows=rows, shows=PATHS, hides=PATHS_HIDE)


def _path_spec(rows: list[Row]) -> charts.Spec:
    layers = [row["layer"] for row in rows if row["side"] == "seed"]
    shown = [{**row, "words": _short(str(row["words"]))} for row in rows]
    x = charts.names(
        "layer", sort=layers, axis={"labelAngle": 0, "orient": "top", "domain": False, "ticks": False, "labelPadding": 12}
    )
    y = charts.number("lane", axis=None, scale={"domain": [-1.8, 1.8]})
    sides = {"domain": ["seed", "fault"], "range": [charts.COLOURS[0], charts.COLOURS[1]]}
    colour = charts.names("side", scale=sides, legend={"orient": "bottom"})
    ends = {"x": x, "y": y}
    line: charts.Spec = {
        "mark": {"type": "line", "strokeWidth": 3, "opacity": 0.8, "point": False},
        "encoding": {**ends, "color": colour},
    }
    line["encoding"]["order"] = {"field": "place", "type": "quantitative"}
    marks: list[charts.Spec] = [
        line,
        {"mark": {"type": "point", "filled": True, "size": 110, "opacity": 1}, "encoding": {**ends, "color": colour}},
    ]
    # Words stand away from the lines: above the seed's neurons and those of both, below the fault's.
    for test, near, far in (("datum.side === 'seed'", -14, -28), ("datum.lane < 0", 20, 34)):
        marks += [
            {"transform": [{"filter": test}], "mark": {"type": "text", "dy": dy, "tooltip": False, **font},
             "encoding": {**ends, "text": {"field": field}}}
            for field, dy, font in (("neuron", near, {"fontWeight": "bold"}), ("words", far, {"fontSize": 10}))
        ]  # fmt: skip
    return {"width": WIDTH * len(layers), "height": 210, "data": {"values": shown}, "layer": marks}


def _short(words: str) -> str:
    return words if len(words) <= LONG else f"{words[: LONG - 1]}…"


def partings(explained: Patterns) -> charts.Chart:
    """Where paths first differ, among faults and among others."""
    rows = [
        {"layer": layer, "of": who, "share": shares[key]}
        for layer, shares in explained.parts.items()
        for who, key in (("faults", "faults"), ("mutants still right", "others"))
    ]
    kinds = ["faults", "mutants still right"]
    encoding = {
        "y": charts.names("layer"),
        "yOffset": {"field": "of", "type": "nominal", "sort": kinds},
        "x": charts.number("share", "share whose path first differs here", axis={"format": ".0%"}),
        "color": charts.names("of", sort=kinds, scale={"domain": kinds, "range": [charts.COLOURS[1], charts.GREY]}),
    }
    spec = {"width": 460, "height": {"step": 13}, "data": {"values": rows}, "mark": "bar", "encoding": encoding}
    return charts.Chart(name="partings", spec=spec, shows=PARTS, hides=PARTS_HIDE)
