"""Repair without training data, on test images with even numbers: faults fixed and clean accuracy along the line from the old
weights to the new ones, beside what a user could know of it, to choose settings of `interpolated` and how its weight is chosen.

python lab/scripts/design_alone.py SUBJECT SEEDS PROTOCOL ...      Markdown; SEEDS is a range, `0:3`
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from typing import Any

import numpy as np
import torch

from neurotest.jobs.methods import with_options
from neurotest.repair.plan import RepairPlan
from neurotest.repair.retrain import accuracy_on, between, kept_share, retrain, score
from neurotest_lab.studies.repair.cells import planned

WEIGHTS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LABELS = 300


def line(plan: RepairPlan, protocol: str, seed: int) -> np.ndarray:
    """(weights, 5): held-out faults fixed, change of clean accuracy, deciding faults fixed, what is kept, score; in percent."""
    method = with_options("repair", protocol, {})
    parts = dataclasses.replace(method.ingredients(plan, seed), interpolate=False)
    module = retrain(plan, parts, method.recipe(plan, seed)).module
    old, new = plan.target.module.state_dict(), copy.deepcopy(module.state_dict())
    before, rows = accuracy_on(plan.target, plan.sets["clean"]), []
    for weight in WEIGHTS:
        module.load_state_dict(between(old, new, weight))
        target = plan.target.holding(module)
        assert plan.deciding_faults is not None
        rows.append([
            accuracy_on(target, plan.sets["faults-seen"]), accuracy_on(target, plan.sets["clean"]) - before,
            accuracy_on(target, plan.deciding_faults), kept_share(plan, target), score(plan, module),
        ])  # fmt: skip
    return 100 * np.array(rows)


def main() -> None:
    torch.set_num_threads(1)
    subject, seeds, *protocols = sys.argv[1:]
    first, _, last = seeds.partition(":")
    print("| subject | protocol | weight | held-out faults fixed | clean | deciding faults fixed | kept | score |")
    print("|---|---|---|---|---|---|---|---|")
    sizes: dict[str, Any] = {"train": 0, "holdout": 2500, "faults": 2 * LABELS, "unseen": 0.0, "benign": False}
    plans = {seed: planned(subject, seed, parity="even", **sizes) for seed in range(int(first), int(last))}
    for protocol in protocols:
        lines = np.stack([line(plan, protocol, seed) for seed, plan in plans.items()])  # (seeds, weights, 5)
        for weight, row in zip(WEIGHTS, lines.mean(axis=0), strict=True):
            print(f"| {subject} | {protocol} | {weight} | " + " | ".join(f"{value:.1f}" for value in row) + " |", flush=True)


if __name__ == "__main__":
    main()
