"""Describe output neurons and compare with the names of their classes, for every describer.

Exemplars come from every second image of the test set, those with odd positions; settings were chosen with the others.
`--planted` asks whether `attributes` names directions, frequencies and colours that were put into networks by hand.
`--table 6` varies the exemplars shown to the trained describer, `--table 7` the sizes of its decoder.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from neurotest import registry
from neurotest.errors import BadInput
from neurotest.semantics.describe import validate
from neurotest.semantics.describe.api import described, material, output_layer
from neurotest.semantics.describe.concepts import Concepts
from neurotest.semantics.describe.milan import Milan
from neurotest.semantics.describe.probes import COLOURS, DIRECTIONS
from neurotest.semantics.descriptions import describe
from neurotest.stats.bootstrap import wilson
from neurotest.target import load
from neurotest.zoo import DATASETS, catalogue

LIMIT = 4000  # of the test set, so that a run takes minutes
SIZES = ((128, 256), (128, 128), (128, 64), (64, 128), (256, 128))


def encoder():
    try:
        from neurotest.semantics.encoders import start

        return start("minilm", [])
    except (BadInput, ImportError, AttributeError):
        return None


def work(name: str, k: int = 15):
    target = load(f"zoo:{name}")
    dataset = DATASETS[name.partition("-")[0]]
    return material(target, f"zoo:{dataset}/test[1:{LIMIT}:2]", output_layer(target).name or "", k=k)


def describers(name: str) -> dict[str, object]:
    dataset = DATASETS[name.partition("-")[0]]
    return {
        "class-profile": registry.build("describer", "class-profile"),
        "attributes": registry.build("describer", "attributes"),
        "concepts (training images)": Concepts(folder=f"zoo:{dataset}/train[:1000]"),
        "milan": Milan(),
    }


def tell(label: str, found: validate.Validation) -> None:
    row = found.to_dict()
    shown = {
        key: (None if row[key] is None else [round(float(v), 3) for v in np.atleast_1d(row[key])])
        for key in ("accuracy", "nearest", "margin")
    }
    print(json.dumps({"what": label, "known": row["known"], "chance": round(row["chance"], 3), **shown}), flush=True)


def planted() -> None:
    """Seeds 10 to 14; settings were chosen with 0 to 2."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.unit.semantics import planted as networks

    hits: dict[str, list[bool]] = {"direction": [], "frequency": [], "colour": []}
    for seed in range(10, 15):
        dice = np.random.default_rng(seed)
        bins, periods = np.tile(np.arange(8), 4), np.repeat([4.0, 10.0, 4.0, 10.0], 8)
        angles = bins * np.pi / 8 + dice.uniform(-0.08, 0.08, len(bins))
        off = periods * dice.uniform(0.9, 1.1, len(bins))
        for channels in (1, 3):
            subject = networks.target(networks.Oriented(angles.tolist(), off.tolist(), channels), (channels, 32, 32))
            rows = describe(subject, None, "attributes", layers="relu", cache=False).layer("relu")
            hits["direction"] += [DIRECTIONS[b] in row.text for b, row in zip(bins, rows, strict=True)]
            hits["frequency"] += [("coarse" if p > 6 else "fine") in row.text for p, row in zip(periods, rows, strict=True)]
        names = list(COLOURS) * 2
        colours = [tuple(np.clip(np.array(COLOURS[name]) + dice.normal(0, 0.03, 3), 0, 1)) for name in names]
        rows = describe(
            networks.target(networks.Coloured(colours), (3, 32, 32)), None, "attributes", layers="colour", cache=False
        )
        hits["colour"] += [name in row.text.split() for name, row in zip(names, rows.layer("colour"), strict=True)]
    for what, found in hits.items():
        shown = [round(v, 3) for v in wilson(sum(found), len(found))]
        print(json.dumps({"what": f"planted {what}", "neurons": len(found), "named": shown}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=int, choices=(6, 7))
    parser.add_argument(
        "--subjects", nargs="*", default=[s.name for s in catalogue() if s.embedded and s.architecture != "conv1d"]
    )
    parser.add_argument("--planted", action="store_true")
    given = parser.parse_args()
    if given.planted:
        planted()
        return
    encode = encoder()
    for name in given.subjects:
        if given.table == 6:
            for k, found in validate.by_exemplars(Milan(), work(name, 20), encode=encode).items():
                tell(f"{name} k={k}", found)
        elif given.table == 7:
            for size in SIZES:  # one by one: each is trained for minutes, and is told when it is ready
                found = validate.by_decoder(lambda e, h: Milan(embedding=e, hidden=h), work(name), [size], encode)
                tell(f"{name} embedding={size[0]} hidden={size[1]}", found[size])
        else:
            for label, describer in describers(name).items():
                here = work(name)
                tell(f"{name} {label}", validate.output_units(described(describer, here), here, encode))


if __name__ == "__main__":
    main()
