"""Which faults lie outside the training manifold, on test images at even places: what docs/illumination.md says of that measure.

python lab/scripts/illumination_outside.py [SUBJECT] [SETS]
"""

from __future__ import annotations

import sys

import numpy as np

from neurotest import rng
from neurotest.data.source import ArraySource
from neurotest.evaluate.features import Extractor
from neurotest.evaluate.metrics import Manifold
from neurotest_lab.studies.illumination import cells, suites


def main(name: str = "cifar10-resnet20", sets: str = "3") -> None:
    for draw in range(int(sets)):
        on = suites.subject(name, draw, 1000, odd=False)
        extractor = Extractor.of(cells.FEATURES.get(name.partition("-")[0], "target"), on.target)
        reference = extractor(on.target, on.reference).values
        bounds = {n: Manifold.of(reference[:n]) for n in (suites.TRAIN, suites.REFERENCE)}
        ours, theirs = suites.illuminated(on), suites.fuzzed(on, "kmnc")
        seeds = ours.seeds.astype(np.float64)
        apart = ours.x.astype(np.float64) - seeds
        shown = {
            "illumination": ours.x,
            "its seeds": ours.seeds,
            "its changes, three times as large": np.clip(seeds + 3 * apart, 0, 255).round().astype(np.uint8),
            "kmnc": theirs.x,
            "pure noise": rng.stream("script.outside", draw).integers(0, 256, size=ours.x.shape).astype(np.uint8),
        }
        for word, x in shown.items():
            features = extractor(on.target, ArraySource(x)).values
            shares = ", ".join(f"{(m.distance(features) > 1).mean():.3f} of {n} images" for n, m in bounds.items())
            print(f"set {draw}, {word} ({len(x)}): outside the manifold {shares}")


if __name__ == "__main__":
    main(*sys.argv[1:])
