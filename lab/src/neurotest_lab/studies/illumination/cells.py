"""The three judgements of a generator's suite."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.data.source import ArraySource
from neurotest.evaluate import judge
from neurotest.evaluate.judge import predict
from neurotest.evaluate.metrics import distances, ssim
from neurotest_lab.studies.frame import Row
from neurotest_lab.studies.illumination.suites import GENERATORS, Subject, Suite, subject

JUDGED = 90  # faults of a suite, drawn at random where there are more: evenness and KID depend on how many there are
FEATURES = {"fashion": "zoo:fashion-lenet1", "mnist": "zoo:mnist-lenet1"}  # a network nobody attacks; else the subject's own


def judged(name: str, draw: int, generator: str, forwards: int) -> Row:
    """One suite, made and judged."""
    on = subject(name, draw, forwards)
    suite = GENERATORS[generator](on)
    return {"spent": suite.spent, "seconds": suite.seconds, "found": suite.faults, **judgements(on, suite)}


def judgements(on: Subject, suite: Suite) -> Row:
    """Defects of all faults; naturalness and impartiality of 90 of them; naturalness of the smallest of each pair of classes."""
    labels = predict(on.target, ArraySource(suite.x))  # of the subject itself: what networks differ in need not be its fault
    rows = np.flatnonzero(labels != suite.expected)
    if len(rows) < 2:  # one fault is no suite to be judged by more than its number
        return dict.fromkeys(("faults", "cells", "root label pairs", "roots"), len(rows))
    pairs = list(zip(suite.expected[rows].tolist(), labels[rows].tolist(), strict=True))
    roots = suite.roots[rows].tolist()
    drawn = np.sort(rng.stream("study.illumination.judged", on.draw).permutation(len(rows))[:JUDGED])
    seeds, faults = (ArraySource(side[rows[drawn]], suite.expected[rows[drawn]]) for side in (suite.seeds, suite.x))
    result = judge(on.target, faults.with_originals(seeds), train=on.reference, extractor=_features(on))
    best = rows[_smallest(suite, rows, pairs)]
    x, original = (torch.from_numpy(side[best].astype(np.float32) / 255) for side in (suite.x, suite.seeds))
    natural = result.naturalness
    return {
        "faults": len(rows), "cells": len(set(pairs)), "roots": len(set(roots)),
        "root label pairs": len(set(zip(roots, labels[rows].tolist(), strict=True))),
        **{name: natural[name] for name in ("ssim", "kid", "l2")}, "outside": natural.get("outside"),
        "variation": natural["total_variation_ratio"], "evenness": result.impartiality["faults"],
        "ssim, best per cell": float(ssim(x, original).mean()),
        "l2, best per cell": float(distances(x, original)["l2"].mean()), "extractor": result.extractor,
    }  # fmt: skip


def _smallest(suite: Suite, rows: NDArray[np.int64], pairs: list[tuple[int, int]]) -> NDArray[np.int64]:
    """Of each pair of classes the fault with the smallest L2: places in `rows`."""
    apart = np.subtract(suite.x[rows], suite.seeds[rows], dtype=np.float64).reshape(len(rows), -1)
    best: dict[tuple[int, int], int] = {}
    for place in np.argsort(np.square(apart).sum(1), kind="stable").tolist():
        best.setdefault(pairs[place], place)
    return np.array(sorted(best.values()), dtype=np.int64)


def _features(on: Subject) -> str:
    return FEATURES.get(on.name.partition("-")[0], "target")


def control(name: str) -> Row:
    """What counts as outside the training manifold among clean test images and among images of pure noise."""
    on = subject(name, 0, 1)
    clean = on.source.read(np.arange(len(on.source)))
    noise = rng.stream("study.illumination.noise", 0).integers(0, 256, size=clean.shape).astype(np.uint8)
    row: Row = {"training images": len(on.reference)}
    for word, x in (("clean", clean), ("noise", noise)):
        result = judge(on.target, ArraySource(x, on.source.labels), train=on.reference, extractor=_features(on))
        row |= {word: result.naturalness["outside"], "extractor": result.extractor}
    return row
