"""Coverage and success with the diversity regulariser, by radius, reduction and direction. The table of docs/attacks.md.

python lab/scripts/measure_diversity.py [SUBJECT LAYER [IMAGES [DRAWS]]]     (prints Markdown)

Coverage is the study's (positive parts summed over the suite, scaled within the layer, above .2) of the layer that is
regularised; images are odd test images the network gets right, ten classes alike. PGD, 40 steps, all images in one batch. Means
over the draws of images, with the bootstrap interval of the change.
"""

from __future__ import annotations

import itertools
import sys

import numpy as np

from neurotest.data.source import ArraySource
from neurotest.evaluate.bias import Sums
from neurotest.generate.gradient import PGD, Diversity, attack
from neurotest.scan import scan
from neurotest.stats.bootstrap import mean_interval
from neurotest.target import Target
from neurotest_lab.studies.coverage.cells import chosen, subject_of

RADII, WEIGHTS = (0.1, 0.3), (1.0, 10.0, 100.0)
WAYS = list(itertools.product(("suite", "batch", "instance"), ("uniform", "shares")))


def covered(target: Target, source: ArraySource, layer: str) -> float:
    sums = Sums(layer)
    scan(target, source, [sums], batch=100)
    return float(np.asarray(sums.value((0.2,)))[0])


def attacked(
    target: Target, seeds: ArraySource, layer: str, eps: float, regulariser: Diversity | float
) -> tuple[float, float, float]:
    """Coverage after the attack, its change over the clean images in percent, and the share of images that fail."""
    result = attack(target, seeds, PGD(eps=eps), regulariser, keep_wrong=True, batch=len(seeds), out=False)
    after = covered(target, ArraySource(result.x, seeds.labels), layer)
    return after, 100 * (after / covered(target, seeds, layer) - 1), float(np.mean(result.fault))


def main(subject: str = "mnist-conv2d", layer: str = "conv1", images: str = "50", draws: str = "5") -> None:
    target = subject_of(subject).target
    suites = [chosen(subject, draw=draw, per_class=int(images) // 10) for draw in range(int(draws))]
    print("| eps | reduce, direction, lambda | coverage | over the clean images, % | success |\n|---|---|---|---|---|")
    settings: list[tuple[str, str, float]] = [("none", "", 0.0), *((a, b, w) for (a, b), w in itertools.product(WAYS, WEIGHTS))]
    for eps, (reduce, direction, weight) in itertools.product(RADII, settings):
        regulariser = Diversity(weight=weight, layers=layer, reduce=reduce, direction=direction) if weight else 0.0  # type: ignore[arg-type]
        coverage, change, success = zip(*(attacked(target, seeds, layer, eps, regulariser) for seeds in suites), strict=True)
        name = f"{reduce}, {direction}, {weight:g}" if weight else "no regulariser"
        mean = mean_interval(change)
        over = f"{mean.value:+.1f} ({mean.low:+.1f} .. {mean.high:+.1f})"
        print(f"| {eps:g} | {name} | {np.mean(coverage):.3f} | {over} | {np.mean(success):.2f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
