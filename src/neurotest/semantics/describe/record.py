"""Descriptions as a run: the table, the exemplars, the contact sheets, and a sheet for people to rate."""

from __future__ import annotations

import csv
from dataclasses import asdict
from typing import Any

from neurotest.jobs.life import finish
from neurotest.jobs.opening import stored_spec
from neurotest.jobs.stored import target_config
from neurotest.runs.export import cell
from neurotest.runs.folder import own
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run
from neurotest.semantics.describe.material import Describer, Material
from neurotest.semantics.describe.rating import write_rating
from neurotest.semantics.describe.sheets import write_sheets
from neurotest.semantics.descriptions import DEAD, TABLE, UNKNOWN, Descriptions

EXEMPLARS = "exemplars.csv"
own(r"descriptions\.csv|exemplars\.csv")


def config(material: Material, describer: Describer) -> dict[str, Any]:
    """What a run stores of how it was made."""
    data = material.data
    return {
        **target_config(material.target), "data": stored_spec(data), "inputs": 0 if data is None else len(data),
        "method": repr(describer), "layers": list(material.sizes),
        **{name: getattr(material, name) for name in ("k", "quantile", "seed")},
    }  # fmt: skip


def fill(run: Run, material: Material, table: Descriptions) -> None:
    run.file(TABLE).write(table.text())
    sheets = []
    if material.data is not None:
        _write_exemplars(run, material)
        sheets = write_sheets(run.folder, material, table)
        if sheets:
            write_rating(run.folder, table, sheets, seed=material.seed)
    with run.transaction():
        run["sheets"] = [asdict(sheet) for sheet in sheets]
    finish(run, summary(table))


def summary(table: Descriptions) -> dict[str, Any]:
    """How many neurons have words, and which are dead, layer by layer."""
    layers: dict[str, dict[str, Any]] = {}
    for name in table.layers:
        rows = table.layer(name)
        layers[name] = {
            "neurons": len(rows),
            "described": sum(row.known for row in rows),
            "unknown": sum(row.text == UNKNOWN for row in rows),
            "dead": [row.neuron for row in rows if row.text == DEAD],
        }
    every = {key: sum(layer[key] for layer in layers.values()) for key in ("neurons", "described", "unknown")}
    return {**every, "dead": sum(len(layer["dead"]) for layer in layers.values()), "layers": layers, "notes": list(table.notes)}


def _write_exemplars(run: Run, material: Material) -> None:
    """exemplars.csv: neuron by neuron the positions in the data, best first; the inputs themselves are rows of the run."""
    source, exemplars = material.source, material.exemplars
    used: set[int] = set()
    with run.file(EXEMPLARS).writing_text() as out:
        writer = csv.writer(out)
        writer.writerow(["layer", "neuron", "rank", "position", "value", "content"])
        ids = source.ids()
        for layer in material.sizes:
            index, values = exemplars.top(layer)
            dead = exemplars.dead(layer)
            for neuron, (places, row) in enumerate(zip(index, values, strict=True)):
                for rank, (position, value) in enumerate(zip(places.tolist(), row.tolist(), strict=True), start=1):
                    if position >= 0 and not dead[neuron]:
                        used.add(position)
                        writer.writerow([cell(layer), neuron, rank, position, f"{value:.6g}", ids[position]])
    labels = source.labels
    rows = (InputRow(p, str(ids[p]), None if labels is None else int(labels[p])) for p in sorted(used))
    run.add_inputs(rows)
