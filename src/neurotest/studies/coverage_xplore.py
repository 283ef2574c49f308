"""Section 5.1 of the coverage study: the same correlations on suites made by DeepXplore, which pushes coverage itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from neurotest import zoo
from neurotest.data.source import ArraySource
from neurotest.generate.differential import deepxplore_suite
from neurotest.generate.differential.constraints import Constraint
from neurotest.studies import coverage_cells as cells
from neurotest.studies import coverage_published as paper
from neurotest.studies import coverage_tables as told
from neurotest.studies.coverage_tables import Suite

Row = dict[str, Any]
TARGETS = ("mnist-lenet1", "mnist-lenet4", "mnist-lenet5")  # as in DeepXplore's own paper
FEATURES = "zoo:mnist-conv2d"  # attacked by nobody here
CONSTRAINTS: tuple[Constraint, ...] = ("light", "occlusion", "blackout")
WEIGHTS = (0.0, 0.1, 1.0, 10.0)  # of the uncovered neurons: what pushes coverage
IMAGES = {"quick": 100, "full": 100}
DRAWS = {"quick": 3, "full": 5}
METRICS = ("asr", "is", "fid", "kid", "oi", "oi faults", "ssim")
HOPED = {"asr": 1, "is": 1, "fid": -1, "kid": -1, "oi": 1, "oi faults": 1, "ssim": 1}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One suite of DeepXplore."""

    constraint: Constraint
    weight: float
    draw: int
    images: int

    @property
    def key(self) -> str:
        return f"deepxplore/{self.draw}/{self.constraint}/{self.weight:g}"


def plans(scale: str) -> list[Plan]:
    if any(zoo.find(name).weights is None for name in (*TARGETS, FEATURES.removeprefix("zoo:"))):
        return []
    return [
        Plan(constraint=constraint, weight=weight, draw=draw, images=IMAGES[scale])
        for draw in range(DRAWS[scale])
        for constraint in CONSTRAINTS
        for weight in WEIGHTS
    ]


def suite(plan: Plan) -> Row:
    """Make one suite and judge it on each of its targets."""
    seeds = cells.chosen(*TARGETS, draw=plan.draw, per_class=plan.images // cells.CLASSES, purpose="study.coverage.deepxplore")
    targets = [cells.subject_of(name, FEATURES) for name in TARGETS]
    found = deepxplore_suite(
        [one.target for one in targets], seeds, constraint=plan.constraint, neuron_weight=plan.weight, seed=plan.draw
    )
    labels = np.asarray(found.expected)
    rows = []
    for name, subject in zip(TARGETS, targets, strict=True):
        held = cells.Clean(ArraySource(found.seeds, labels), subject.extractor(subject.target, ArraySource(found.seeds, labels)))
        made = ArraySource(found.x, labels)
        predicted = cells.predictions(subject.target, made)
        rows.append({"target": name, **cells.measure(subject, held, made, predicted, predicted != labels)})
    return {**asdict(plan), "differ": float(np.mean(found.fault)), "outputs": len(found.x), "targets": rows}


def tables(done: dict[str, Any]) -> tuple[list[Row], list[Row]]:
    """Correlations by target, and the suites behind them.

    What is held fixed here is the constraint: light moves every pixel and a black patch a few, which moves both sides at once.
    """
    suites, shown = [], []
    for key, row in done.items():
        if not key.startswith("deepxplore/"):
            continue
        for one in row["targets"]:
            suites.append(
                Suite(
                    model=one["target"], attack="deepxplore", layer=row["constraint"], strength=0.0, draw=row["draw"],
                    weight=float(CONSTRAINTS.index(row["constraint"])), nc=tuple(one["nc"]),
                    metrics={name: one[name] for name in METRICS},
                )
            )  # fmt: skip
            about = {name: row[name] for name in ("constraint", "weight", "draw", "outputs", "differ")}
            shown.append({"target": one["target"], **about, "nc": one["nc"][1], **{name: one[name] for name in METRICS}})
    found = told.correlations(suites, METRICS, paper.THRESHOLDS, HOPED)
    fixed = [{k.replace("given lambda", "given constraint"): v for k, v in r.items() if "both" not in k} for r in found]
    return fixed, shown
