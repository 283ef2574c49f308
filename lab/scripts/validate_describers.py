"""Describe output neurons and compare with the names of their classes, for every describer and every network of the zoo.

Exemplars come from every second image of the test set, those with odd positions; settings were chosen with the others.
`--planted` asks whether `attributes` names directions, frequencies and colours that were put into networks by hand.
Tables 6 and 7, exemplars and decoders: `neurotest study nsgen --only words`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from neurotest.semantics.describe.api import described
from neurotest.semantics.describe.probes import DIRECTIONS
from neurotest.semantics.descriptions import describe
from neurotest.stats.bootstrap import wilson
from neurotest.zoo import catalogue
from neurotest_lab.studies.nsgen import validate
from neurotest_lab.studies.nsgen.words import describers, sentences, work


def show(label: str, result: validate.Validation) -> None:
    row = result.to_dict()
    shown = {
        key: (None if row[key] is None else [round(float(v), 3) for v in np.atleast_1d(row[key])])
        for key in ("accuracy", "nearest", "margin")
    }
    print(json.dumps({"what": label, "known": row["known"], "chance": round(row["chance"], 3), **shown}), flush=True)


def planted() -> None:
    """Seeds 10 to 14; settings were chosen with 0 to 2."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.unit.semantics import planted as networks

    hits: dict[str, list[bool]] = {"direction": [], "frequency": [], "colour": []}
    for seed in range(10, 15):
        for channels in (1, 3):
            subject, bins, periods = networks.oriented(seed, channels)
            rows = describe(subject, None, "attributes", layers="relu", cache=False).layer("relu")
            hits["direction"] += [DIRECTIONS[b] in row.text for b, row in zip(bins, rows, strict=True)]
            hits["frequency"] += [("coarse" if p > 6 else "fine") in row.text for p, row in zip(periods, rows, strict=True)]
        subject, names = networks.coloured(seed)
        rows = describe(subject, None, "attributes", layers="colour", cache=False).layer("colour")
        hits["colour"] += [name in row.text.split() for name, row in zip(names, rows, strict=True)]
    for what, named in hits.items():
        share = [round(v, 3) for v in wilson(sum(named), len(named))]
        print(json.dumps({"what": f"planted {what}", "neurons": len(named), "named": share}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--subjects", nargs="*", default=[s.name for s in catalogue() if s.embedded and s.architecture != "conv1d"]
    )
    parser.add_argument("--planted", action="store_true")
    arguments = parser.parse_args()
    if arguments.planted:
        planted()
        return
    encode = sentences()
    for name in arguments.subjects:
        for label, describer in describers(name).items():
            here = work(name, 15)
            show(f"{name} {label}", validate.output_units(described(describer, here), here, encode))


if __name__ == "__main__":
    main()
