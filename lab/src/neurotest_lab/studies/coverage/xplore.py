"""Section 5.1 of the coverage study: the same correlations on suites made by DeepXplore, which pushes coverage itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from neurotest import zoo
from neurotest.data.source import ArraySource
from neurotest.generate.differential import deepxplore_suite
from neurotest.generate.differential.deepxplore import Constraint
from neurotest.scan import predictions
from neurotest_lab.studies.coverage import cells
from neurotest_lab.studies.coverage import published as paper
from neurotest_lab.studies.coverage.correlations import HOPED, METRICS, SHOWN, Suite, correlations
from neurotest_lab.studies.frame import Row, below

TARGETS = ("mnist-lenet1", "mnist-lenet4", "mnist-lenet5")  # as in DeepXplore's own paper
FEATURES = "zoo:mnist-conv2d"  # attacked by nobody here
CONSTRAINTS: tuple[Constraint, ...] = ("light", "occlusion", "blackout")
WEIGHTS = (0.0, 0.1, 1.0, 10.0)  # of the uncovered neurons: what pushes coverage
IMAGES = {"quick": 100, "full": 100}
DRAWS = {"quick": 3, "full": 5}


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
    subjects = [cells.subject_of(name, FEATURES) for name in TARGETS]
    result = deepxplore_suite(
        [one.target for one in subjects], seeds, constraint=plan.constraint, neuron_weight=plan.weight, seed=plan.draw
    )
    labels = np.asarray(result.expected)
    before, after = ArraySource(result.seeds, labels), ArraySource(result.x, labels)
    rows = []
    for name, subject in zip(TARGETS, subjects, strict=True):
        clean = cells.Clean(before, subject.extractor(subject.target, before))
        predicted = predictions(subject.target, after)
        rows.append({"target": name, **cells.measure(subject, clean, after, predicted, predicted != labels)})
    return {**asdict(plan), "differ": float(np.mean(result.fault)), "outputs": len(result.x), "targets": rows}


def tables(done: dict[str, Any]) -> tuple[list[Row], list[Row]]:
    """Correlations by target, and the suites behind them.

    What is held fixed here is the constraint: light moves every pixel and a black patch a few, which moves both sides at once.
    """
    suites, rows = [], []
    for cell in below(done, "deepxplore/").values():
        about = {name: cell[name] for name in ("constraint", "weight", "draw", "outputs", "differ")}
        for one in cell["targets"]:
            metrics = {name: one[name] for name in METRICS}
            level = float(CONSTRAINTS.index(cell["constraint"]))
            suites.append(
                Suite(
                    model=one["target"], attack="deepxplore", layer=cell["constraint"], strength=0.0, draw=cell["draw"],
                    weight=level, nc=tuple(one["nc"]), metrics=metrics,
                )
            )  # fmt: skip
            rows.append({"target": one["target"], **about, "nc": one["nc"][SHOWN], **metrics})
    fixed = [
        {name.replace("given lambda", "given constraint"): value for name, value in row.items() if "both" not in name}
        for row in correlations(suites, METRICS, paper.THRESHOLDS, HOPED)
    ]
    return fixed, rows
