"""Suites of every generator at an equal number of forward passes, and their three judgements."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng, zoo
from neurotest.coverage.context import Context
from neurotest.data.source import ArraySource, Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.evaluate import judge, pixels
from neurotest.generate.differential import diff
from neurotest.generate.fuzz import Budget, Fuzzer, Settings, build_guide, choose_seeds
from neurotest.generate.gradient import AttackResult, attack
from neurotest.generate.illuminate import illuminate
from neurotest.generate.illuminate.settings import BACKWARD
from neurotest.mutate.rules import Rules95
from neurotest.oracles import court, predicted
from neurotest.target import Target
from neurotest.target.load import load

Row = dict[str, Any]
# Criteria with the settings of NSGen's section 5.3.
GUIDES = {
    "nc": "nc:0.75", "kmnc": "kmnc:100", "nbc": "nbc", "snac": "snac", "tknc": "tknc:10", "tknp": "tknp:50", "cc": "cc:10",
    "lsc": "lsc", "dsc": "dsc", "mdsc": "mdsc", "cac": "cac:8", "nlc": "nlc", "deephunter": "deephunter",
}  # fmt: skip
OTHERS = {"random": "random", "tensorfuzz": "tensorfuzz"}
EPS = {1: 0.1, 3: 8 / 255}  # by channels: what is usual for grey and for colour images
SECOND = {"fashion": "fashion-lenet1", "mnist": "mnist-lenet1"}  # what DeepXplore compares with
SEEDS = 200
TRAIN = 500
JUDGED = 90  # faults of a suite, drawn at random where there are more: evenness and KID depend on how many there are
FEATURES = {"fashion": "zoo:fashion-lenet1", "mnist": "zoo:mnist-lenet1"}  # a network nobody attacks; else the subject's own
BATCH = 64


@dataclass(frozen=True, eq=False)
class Suite:
    """Faults of a generator with their seeds, and what they cost."""

    x: NDArray[np.generic]
    seeds: NDArray[np.generic]
    expected: NDArray[np.int64]
    roots: NDArray[np.int64]
    found: int  # faults in all, where the suite is a choice among them
    spent: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Subject:
    target: Target
    source: Source
    train: Source
    name: str
    draw: int
    forwards: int


def subject(name: str, draw: int, forwards: int, odd: bool = True) -> Subject:
    """A network and 200 test images at odd places; even ones were used while illumination was designed."""
    dataset = zoo.find(name).dataset
    test = data(f"zoo:{dataset}/test")
    places = rng.stream("study.illumination", draw).permutation(len(test) // 2)[:SEEDS] * 2 + int(odd)
    return Subject(load(f"zoo:{name}"), test.take(np.sort(places)), data(f"zoo:{dataset}/train[:{TRAIN}]"), name, draw, forwards)


def fuzzed(on: Subject, guide: str) -> Suite:
    """All faults of a campaign; one batch more than the budget is not begun."""
    judges = court(on.target, "label")
    seeds = choose_seeds(on.target, on.source, judges)
    state = build_guide(guide).start(Context(target=on.target, train=on.train, seed=on.draw, cache=True), on.source)
    settings = Settings(mutations=Rules95(bilateral=False), batch=BATCH, seed=on.draw)
    began, faults = time.process_time(), []
    with Fuzzer(on.target, seeds, state, judges, settings, Budget(forwards=on.forwards)) as fuzzer:
        while fuzzer.spent() is None:
            faults += [m for m in fuzzer.step() if m.fault]
        spent = fuzzer.tally.forwards
    roots = np.array([m.root for m in faults], dtype=np.int64)
    x = np.stack([np.asarray(m.x) for m in faults]) if faults else seeds.x[:0]
    expected = np.array([m.expected for m in faults], dtype=np.int64)
    return Suite(x, seeds.x[roots], expected, roots, len(faults), spent, time.process_time() - began)


def moved(on: Subject, make: Callable[[int], AttackResult], each: int) -> Suite:
    """An attack on as many seeds as the budget pays for: `each` is what one seed costs, a backward pass counted as two."""
    began = time.process_time()
    found = make(max(1, min(SEEDS, on.forwards // each)))
    scanned = found.set_aside + len(np.unique(found.positions))
    rows = np.flatnonzero(found.fault)
    spent = found.forwards - scanned + BACKWARD * found.backwards
    return Suite(
        found.x[rows], found.seeds[rows], found.expected[rows], found.positions[rows], len(rows), spent,
        time.process_time() - began,
    )  # fmt: skip


def illuminated(on: Subject) -> Suite:
    began = time.process_time()
    found = illuminate(on.target, on.source, on.forwards, seed=on.draw, out=False)
    return Suite(found.x, found.seeds, found.expected, found.positions, found.found, found.spent, time.process_time() - began)


def generators(on: Subject) -> dict[str, Callable[[], Suite]]:
    """Every generator; what a seed costs an attack: 3 per step, and what is run again, rounded and not, and for the control."""
    eps = EPS.get(on.source.shape[0], 0.1)

    def attacked(text: str, diversity: float = 0.0) -> Callable[[int], AttackResult]:
        return lambda n: attack(on.target, on.source, text, diversity, limit=n, seed=on.draw, out=False)

    def differing(text: str, *others: str) -> Callable[[int], AttackResult]:
        return lambda n: diff([on.target, *others], on.source, text, limit=n, seed=on.draw, out=False)

    made: dict[str, Callable[[], Suite]] = {"illuminate": functools.partial(illuminated, on)}
    made |= {name: functools.partial(fuzzed, on, guide) for name, guide in {**OTHERS, **GUIDES}.items()}
    pgd = f"pgd:eps={eps:.5f},step={eps / 4:.5f},steps=10"
    made |= {
        "fgsm": lambda: moved(on, attacked(f"fgsm:{eps:.5f}"), 6),
        "pgd": lambda: moved(on, attacked(pgd), 33),
        "pgd, diversity 1": lambda: moved(on, attacked(pgd, 1.0), 33),
        "cw": lambda: moved(on, attacked("cw:steps=30,searches=3,weight=0.1"), 273),
        "dlfuzz": lambda: moved(on, differing("dlfuzz"), 30),
        "adapt": lambda: moved(on, differing("adapt"), 30),
    }
    second = SECOND.get(on.name.partition("-")[0])
    if second is not None:
        for kind in ("light", "occlusion", "blackout"):
            made[f"deepxplore {kind}"] = functools.partial(moved, on, differing(f"deepxplore:{kind}", f"zoo:{second}"), 90)
    return made


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
    if len(rows) < 2:
        return {"faults": len(rows), "cells": 0, "root label pairs": 0, "roots": 0}
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
    return judge(on.target, made, train=on.train, extractor=FEATURES.get(on.name.partition("-")[0], "target"))


def _predict(target: Target, suite: Suite) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """What the subject itself says: a difference between networks need not be its fault."""
    parts = []
    with torch.inference_mode():
        for start in range(0, len(suite.x), 250):
            parts.append(predicted(target.logits(target.prepare(np.ascontiguousarray(suite.x[start : start + 250])))))
    said = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    return said, said != suite.expected
