"""How much coverage and success the diversity regulariser gives, by reduction and direction. The table of docs/attacks.md.

python scripts/measure_diversity.py [SUBJECT LAYER [IMAGES]]     (prints Markdown)

Coverage is the study's (positive parts summed over the suite, scaled within the layer, above .2) of the layer that is
regularised; images are odd test images the network gets right, ten classes alike. PGD eps .1, 40 steps, all images in one batch.
"""

from __future__ import annotations

import itertools
import sys

import numpy as np

from neurotest.data.source import ArraySource
from neurotest.evaluate.bias import Sums
from neurotest.generate.gradient import PGD, Diversity, attack
from neurotest.scan import scan
from neurotest.studies.coverage.cells import chosen, subject_of
from neurotest.target import Target

WEIGHTS = (1.0, 10.0, 100.0)
WAYS = list(itertools.product(("suite", "batch", "instance"), ("uniform", "shares")))


def covered(target: Target, source: ArraySource, layer: str) -> float:
    sums = Sums(layer)
    scan(target, source, [sums], batch=100)
    return float(np.asarray(sums.value((0.2,)))[0])


def main(subject: str = "mnist-conv2d", layer: str = "conv1", images: str = "100") -> None:
    target, seeds = subject_of(subject).target, chosen(subject, draw=0, per_class=int(images) // 10)
    before = covered(target, seeds, layer)
    print("| reduce, direction, lambda | coverage | over the clean images, % | success |\n|---|---|---|---|")
    settings: list[tuple[str, str, float]] = [("none", "", 0.0), *((a, b, w) for (a, b), w in itertools.product(WAYS, WEIGHTS))]
    for reduce, direction, weight in settings:
        regulariser = Diversity(weight=weight, layers=layer, reduce=reduce, direction=direction) if weight else 0.0  # type: ignore[arg-type]
        result = attack(target, seeds, PGD(eps=0.1), regulariser, keep_wrong=True, batch=len(seeds), out=False)
        after = covered(target, ArraySource(result.x, seeds.labels), layer)
        change = 100 * (after / before - 1)
        name = f"{reduce}, {direction}, {weight:g}" if weight else "no regulariser"
        print(f"| {name} | {after:.3f} | {change:+.1f} | {float(np.mean(result.fault)):.2f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
