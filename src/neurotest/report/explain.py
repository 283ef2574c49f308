"""Explanations for people: Markdown, and one HTML page with the activation maps laid over the images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import __version__
from neurotest.audio import is_audio, spectrogram
from neurotest.campaign.explain import READ_FOR_EXEMPLARS, Explanation, Patterns
from neurotest.errors import BadInput, visible
from neurotest.files import write_json, write_text
from neurotest.report import charts, pictures
from neurotest.report.rendering import render
from neurotest.report.section import Block, Conclusion, Row, assemble, command

SUBSTITUTIONS_SHOWN = 60  # substitutions
HEAT = np.array([213, 94, 0], dtype=np.float32)  # vermilion
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
STRENGTH = 0.8


def write_explanation(explained: Explanation | Patterns, path: Path | str) -> Path:
    """As JSON, Markdown or HTML, by the ending of the name."""
    path = Path(path)
    match path.suffix.lower():
        case ".json":
            write_json(path, explained.to_dict())
        case ".md":
            write_text(path, _markdown(explained))
        case ".html" | ".htm":
            write_text(path, page(explained))
        case other:
            raise BadInput(
                "out-of-range",
                "out",
                f"--out {path}: the ending {other or '(none)'!r} cannot be written; expected .html, .md or .json.",
            )
    return path


def headline(explained: Explanation) -> str:
    pair = explained.pair
    seed, fault = pair.predicted
    sure = [f"{100 * c:.0f} %" for c in pair.confidence]
    changed = f"is seen as {fault} ({sure[1]}) after {explained.change}"
    of = f" of seed {explained.seed}" if explained.seed else ""
    return f"Fault {explained.fault}{of}: {explained.true}, seen as {seed} ({sure[0]}), {changed}."


def parting(explained: Explanation) -> str:
    pair = explained.pair
    where = "The paths are the same" if pair.parts is None else f"The paths part at layer {pair.parts}"
    limit = "" if pair.tau is None else f" (another path below {pair.tau:.3f})"
    return f"{where}; their similarity is {pair.similarity:.3f}{limit}. Conductance is for {pair.attributed} in both."


def _markdown(explained: Explanation | Patterns) -> str:
    rows = explained.table()
    if isinstance(explained, Explanation):
        title, text = f"# Fault {explained.fault}", f"{_cell(headline(explained))}\n\n{_cell(parting(explained))}"
    else:
        title, text = "# What faults have in common", _cell(_about(explained))
        rows = rows[:SUBSTITUTIONS_SHOWN]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([str(v) for v in row.values()] for row in rows)] if rows else []
    table = "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    return f"{title}\n\n{text}\n\n{table}\n"


def _about(explained: Patterns) -> str:
    parts = "; ".join(f"{name} {100 * p['faults']:.0f} % / {100 * p['others']:.0f} %" for name, p in explained.parts.items())
    return (
        f"Paths of {explained.faults:,} faults beside {explained.others:,} mutants that are none. Where they leave their seed's "
        f"path first (faults / others): {parts}."
    )


def _cell(text: str) -> str:
    """Text as Markdown that means nothing but this text, on one line."""
    text = visible(" ".join(text.split())).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|`*_\[\]!#>~])", r"\\\1", text)


def page(explained: Explanation | Patterns) -> str:
    if isinstance(explained, Patterns):
        title, template = "What faults have in common", "patterns.html.j2"
        rows = explained.table()[:SUBSTITUTIONS_SHOWN]
        content: dict[str, Any] = {
            "text": _about(explained), "parts": _parting_chart(explained), "sure": [row for row in rows if row["sure"]],
            "unsure": [row for row in rows if not row["sure"]],
        }  # fmt: skip
        conclusion = _common(explained)
    else:
        title, template = f"Fault {explained.fault}", "explanation.html.j2"
        images = [
            pictures.of_input(x, rate=explained.rate) if is_audio(x.dtype, x.shape) else _embed(_colours(x))
            for x in explained.images
        ]
        changed = pictures.of_difference(explained.images[1], explained.images[0])
        content = {
            "parting": parting(explained), "images": images, "difference": changed, "layers": _layers(explained),
            "heard": explained.rate is not None,
            "path": _path_chart(explained), "read": READ_FOR_EXEMPLARS,
        }  # fmt: skip
        conclusion = _why(explained)
    block = Block("explain", title, render(template, **content), explained.run.name, conclusion)
    return assemble([block], command="explain", version=__version__)


def _why(explained: Explanation) -> Conclusion:
    """What happened, where the paths part, and how sure that is."""
    pair = explained.pair
    others = [layer.layer for layer in pair.layers if not layer.same]
    where = (
        f"Another neuron decides in {', '.join(others)}"
        if others
        else "The same neurons decide in every layer: the answer changes by degrees, not by another path"
    )
    steps = (
        ("Is that so for all faults?", command("explain", explained.run.name)),
        ("The smallest change that still fails", command("shrink", explained.run.name)),
    )
    return Conclusion(f"{headline(explained)} {where}.", bad=True, steps=steps)


def _common(explained: Patterns) -> Conclusion:
    """How many substitutions are more than chance."""
    sure = [one for one in explained.substitutions if one.sure]
    faults = f"{explained.faults:,} faults beside {explained.others:,} mutants that the network still gets right"
    if not sure:
        sentence = f"Nothing sure: in {faults}, no neuron takes another's place more often than chance allows."
    else:
        first = max(sure, key=lambda one: one.low)
        sentence = (
            f"{len(sure)} substitutions of deciding neurons are typical of faults ({faults}); the strongest: in {first.layer}, "
            f"neuron {first.after} ({first.words[1]}) instead of {first.before} ({first.words[0]}), {first.lift:.1f} times as "
            "often as without a fault."
        )
    return Conclusion(sentence, steps=(("One fault, neuron by neuron", command("explain", explained.run.name, "FAULT")),))


def _layers(explained: Explanation) -> list[dict[str, Any]]:
    rows, images = [], [_colours(x) for x in explained.images]
    for pair in explained.pair.layers:
        sides = [
            (side, None if side.map is None or image is None else _embed(_overlay(image, side.map)))
            for image, side in zip(images, (pair.seed, pair.fault), strict=True)
        ]
        best = [
            [drawn for x in explained.exemplars.get((pair.layer, side.neuron), ()) if (drawn := _embed(_colours(x)))]
            for side, _ in sides
        ]
        rows.append({"layer": pair.layer, "same": pair.same, "sides": sides, "exemplars": best, "complete": pair.completeness})
    return rows


def _colours(x: NDArray[Any]) -> NDArray[np.float32] | None:
    """An image (height, width, 3) in 0..255, where the input is one or a sound."""
    if is_audio(x.dtype, x.shape):
        return np.asarray(spectrogram(x), np.float32).transpose(1, 2, 0)
    if x.ndim != 3 or x.shape[0] not in (1, 3):
        return None
    values = x.astype(np.float32)
    if x.dtype != np.uint8:
        low, high = float(values.min()), float(values.max())
        values = (values - low) / (high - low or 1) * 255
    return np.asarray(np.repeat(values, 3 // x.shape[0], axis=0).transpose(1, 2, 0))


def _overlay(picture: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[np.float32]:
    """A map over an image: what is active is coloured, all else grey, so that no colour of a photograph is taken for it."""
    positive = np.clip(np.nan_to_num(values), 0, None)
    heat = (positive / (positive.max() or 1))[:, :, None] * STRENGTH
    return np.asarray((picture @ LUMA)[:, :, None] * (1 - heat) + HEAT * heat)


def _embed(picture: NDArray[np.float32] | None) -> str | None:
    return None if picture is None else pictures.of_input(picture.round().clip(0, 255).astype(np.uint8).transpose(2, 0, 1))


WIDTH = 150  # pixels of a layer
LONGEST_DESCRIPTION = 22  # letters of a description in the picture
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


def _path_chart(explained: Explanation) -> charts.Chart:
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
    return words if len(words) <= LONGEST_DESCRIPTION else f"{words[: LONGEST_DESCRIPTION - 1]}…"


def _parting_chart(explained: Patterns) -> charts.Chart:
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
