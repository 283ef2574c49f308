"""The three judgements of a generator's suite."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.evaluate import judge, pixels
from neurotest.oracles import predicted
from neurotest.studies.illumination_suites import Subject, Suite, generators, subject
from neurotest.target import Target

Row = dict[str, Any]
JUDGED = 90  # faults of a suite, drawn at random where there are more: evenness and KID depend on how many there are
FEATURES = {"fashion": "zoo:fashion-lenet1", "mnist": "zoo:mnist-lenet1"}  # a network nobody attacks; else the subject's own


def cell(name: str, draw: int, generator: str, forwards: int) -> Row:
    """One suite, made and judged."""
    on = subject(name, draw, forwards)
    try:
        suite = generators(on)[generator]()
    except BadInput as error:
        return {"absent": str(error)}
    return {"spent": suite.spent, "seconds": suite.seconds, "found": suite.found, **judged(on, suite)}


def judged(on: Subject, suite: Suite) -> Row:
    """Defects of all faults; naturalness and impartiality of 90 of them; naturalness of the smallest of each pair of classes."""
    said, wrong = _predict(on.target, suite)
    rows = np.flatnonzero(wrong)
    if len(rows) < 2:  # one fault is no suite to be judged by more than its number
        return dict.fromkeys(("faults", "cells", "root label pairs", "roots"), len(rows))
    pairs = list(zip(suite.expected[rows].tolist(), said[rows].tolist(), strict=True))
    roots = suite.roots[rows].tolist()
    drawn = np.sort(rng.stream("study.illumination.judged", on.draw).permutation(len(rows))[:JUDGED])
    told = _natural(on, suite, rows[drawn])
    best = rows[_smallest(suite, rows, pairs)]
    x, original = (torch.from_numpy(side[best].astype(np.float32) / 255) for side in (suite.x, suite.seeds))
    natural, fair = told.naturalness, told.impartiality
    return {
        "faults": len(rows),
        "cells": len(set(pairs)),
        "root label pairs": len(set(zip(roots, said[rows].tolist(), strict=True))),
        "roots": len(set(roots)),
        "ssim": natural["ssim"],
        "kid": natural["kid"],
        "outside": natural.get("outside"),
        "l2": natural["l2"],
        "variation": natural["total_variation_ratio"],
        "evenness": fair["faults"],
        "ssim, best per cell": float(pixels.ssim(x, original).mean()),
        "l2, best per cell": float(pixels.distances(x, original)["l2"].mean()),
        "extractor": told.extractor,
    }


def _smallest(suite: Suite, rows: NDArray[np.int64], pairs: list[tuple[int, int]]) -> NDArray[np.int64]:
    """Of each pair of classes the fault with the smallest L2: places in `rows`."""
    apart = np.subtract(suite.x[rows], suite.seeds[rows], dtype=np.float64).reshape(len(rows), -1)
    best: dict[tuple[int, int], int] = {}
    for place in np.argsort(np.square(apart).sum(1), kind="stable").tolist():
        best.setdefault(pairs[place], place)
    return np.array(sorted(best.values()), dtype=np.int64)


def _natural(on: Subject, suite: Suite, rows: NDArray[np.int64]) -> Any:
    labels = suite.expected[rows]
    originals = ArraySource(suite.seeds[rows], labels)
    made = ArraySource(suite.x[rows], labels).with_originals(originals)
    return judge(on.target, made, train=on.known, extractor=_features(on))


def _features(on: Subject) -> str:
    return FEATURES.get(on.name.partition("-")[0], "target")


def control(name: str) -> Row:
    """What counts as outside the training manifold among clean test images and among images of pure noise."""
    on = subject(name, 0, 1)
    clean = on.source.read(np.arange(len(on.source)))
    noise = rng.stream("study.illumination.noise", 0).integers(0, 256, size=clean.shape).astype(np.uint8)
    told: Row = {"training images": len(on.known)}
    for word, x in (("clean", clean), ("noise", noise)):
        found = judge(on.target, ArraySource(x, on.source.labels), train=on.known, extractor=_features(on))
        told |= {word: found.naturalness["outside"], "extractor": found.extractor}
    return told


def _predict(target: Target, suite: Suite) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """What the subject itself says: a difference between networks need not be its fault."""
    parts = []
    with torch.inference_mode():
        for start in range(0, len(suite.x), 250):
            parts.append(predicted(target.logits(target.prepare(np.ascontiguousarray(suite.x[start : start + 250])))))
    said = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    return said, said != suite.expected
