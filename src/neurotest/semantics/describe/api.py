"""Describing a target: the layers, the describer, the cache, the table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from neurotest import registry
from neurotest.data.objects import AnyData
from neurotest.errors import BadInput
from neurotest.files import cache_dir, write_json
from neurotest.jobs.opening import AnyTarget, open_data, open_target
from neurotest.semantics.describe.material import Describer, Material, distinct
from neurotest.semantics.descriptions import Descriptions, NeuronDescription, sizes
from neurotest.target import Layer, Target

Layers = str | Sequence[str] | None  # a preset or globs, or names
VERSION = 4  # of what describers say: raised when the same settings would say something else


def material(
    target: AnyTarget,
    data: AnyData | None,
    layers: Layers = None,
    *,
    limit: int | None = None,
    strict: bool = False,
    **settings: Any,
) -> Material:
    """A target and data ready to be described, checked against each other. settings: those of `Material`."""
    loaded = open_target(target)
    if loaded.classes is not None:
        distinct(loaded.classes)  # before labels are matched with them
    source = None if data is None else open_data(loaded, data, limit=limit, strict=strict)
    return Material(loaded, source, layers_to_describe(loaded, layers), **settings)


def layers_to_describe(target: Target, layers: Layers) -> tuple[Layer, ...]:
    """The layers to describe; by default the outputs of activations (else of convolutions and dense layers) and the output."""
    survey = target.survey()
    if isinstance(layers, str):
        return survey.find(layers)
    if layers is not None:
        return tuple(layer for layer in survey.layers if layer.name in sizes(target, layers, "layers"))
    kinds = {layer.made_by for layer in survey.layers}
    preset = "post_activation" if "activation" in kinds else "pre_activation"
    hidden = list(survey.find(preset)) if kinds & {"activation", "convolution", "dense"} else []
    last = output_layer(target)
    return tuple(hidden if any(layer.name == last.name for layer in hidden) else [*hidden, last])


def output_layer(target: Target) -> Layer:
    """The layer whose neurons are the classes: the last module that gives what the network gives."""
    layers = target.survey().layers
    whole = next(layer for layer in reversed(layers) if layer.module == "")
    same = [layer for layer in layers if layer.module != "" and layer.shape == whole.shape]
    return same[-1] if same else whole


def prepare(target: AnyTarget, data: AnyData | None, method: Any, layers: Layers, **settings: Any) -> tuple[Describer, Material]:
    """A describer, and what it works on: the settings are those of `material`."""
    describer = registry.build("describer", method)
    if not isinstance(describer, Describer):
        raise BadInput(
            "wrong-type", "method", f"{method!r} is no describer: give a name of `neurotest list describer` or a Describer."
        )
    loaded = open_target(target)
    own = getattr(describer, "own_layers", None)
    if layers is None and own is not None:  # a table speaks of certain layers
        layers = list(own(loaded))
    return describer, material(loaded, data, layers, **settings)


def described(describer: Describer, work: Material) -> Descriptions:
    """The table of one describer, from the cache where it is there."""
    key = work.key(repr((VERSION, describer.signature, work.k, work.quantile, work.seed)))
    place = cache_dir() / "descriptions" / f"{key}.json"
    if work.cache and (cached := _read(place, work.target)) is not None:
        return cached
    entries = registry.entries("describer")
    name = next((name for name, entry in entries.items() if entry.make is type(describer)), type(describer).__name__)
    rows = work.complete(describer.describe(work), name)
    table = Descriptions.of(work.target, work.sizes, rows, repr(describer), dict.fromkeys(work.notes))
    if work.cache:
        with suppress(BadInput):
            _write(place, table)
    return table


def _write(place: Path, table: Descriptions) -> None:
    rows = [list(vars(row).values()) for row in table]
    content = {"fingerprint": table.fingerprint, "layers": dict(table.layers), "method": table.method, "notes": list(table.notes)}
    write_json(place, {**content, "rows": rows})


def _read(place: Path, target: Target) -> Descriptions | None:
    """What was kept, if it is whole and this target's."""
    try:
        content = json.loads(place.read_text())
        if content["fingerprint"] != target.fingerprint:
            return None
        rows = [NeuronDescription(str(a), int(b), str(c), float(d), str(e)) for a, b, c, d, e in content["rows"]]
        layers = {str(name): int(count) for name, count in content["layers"].items()}
        return Descriptions.of(target, layers, rows, str(content["method"]), map(str, content["notes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
