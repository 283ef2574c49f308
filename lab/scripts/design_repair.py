"""What each ingredient of the repair protocol `default` is worth: variants of it beside mutated training images alone. Settings
are chosen on test images with even numbers; what the docs report of `default` is of the odd ones.

python lab/scripts/design_repair.py measure even|odd SUBJECT SEEDS FILE VARIANT ...   appends a line of JSON for each new one
python lab/scripts/design_repair.py table CONTROL FILE ...                             Markdown: gain over a control, in points

A variant is a protocol as it is typed (`default:epochs=3,distil=0`), `control:OPTIONS`: the control `mutated` of
`default:OPTIONS`, or `old`: the network as it is. SEEDS is a range, `0:3`. CONTROL: one, or several separated by |, one for each
subject. A seed counts where the control has it, too. Several processes may write to one file.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neurotest.jobs.methods import with_options
from neurotest.repair.evaluation import Judge
from neurotest.repair.plan import RepairPlan
from neurotest.repair.protocol import Protocol, control
from neurotest.repair.retrain import Repaired
from neurotest_lab.studies.repair.cells import paired, planned, right_answers
from neurotest_lab.studies.repair.tables import interval

SETS = ("clean", "mutated", "unseen-operators", "faults-seen", "faults-operators")
SIZES: dict[str, Any] = {"train": 2500, "holdout": 2500}
DEEP: dict[str, Any] = {"train": 1000, "holdout": 2500, "seeds": 1000}


def answers(plan: RepairPlan, judge: Judge, variant: str, seed: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Which inputs are right after a variant, by set, and what the training cost."""
    name, _, options = variant.partition(":")
    if name == "old":
        return right_answers(plan, judge, Repaired(plan.target.module)), {"seconds": 0.0, "weight": None, "rows": 0}
    method: Protocol = with_options("repair", f"{'default' if name == 'control' else name}{':' * bool(options)}{options}", {})
    began = time.process_time()
    result = control("mutated", method, plan, seed) if name == "control" else method.repair(plan, seed)
    about = {"seconds": round(time.process_time() - began, 1), "weight": result.about.get("averaging_weight")}
    return right_answers(plan, judge, result), about | {"rows": result.about.get("rows")}


def measure(parity: str, subject: str, seeds: range, file: Path, variants: list[str]) -> None:
    torch.set_num_threads(1)
    there = {(line["subject"], line["seed"], line["variant"]) for line in lines([file])}
    for seed in seeds:
        missing = [variant for variant in variants if (subject, seed, variant) not in there]
        if not missing:
            continue
        plan = planned(subject, seed, parity=parity, **(DEEP if "resnet" in subject else SIZES))
        judge = Judge(plan, {})
        for variant in missing:
            right, about = answers(plan, judge, variant, seed)
            sets = {name: [len(values), np.packbits(values).tobytes().hex()] for name, values in right.items()}
            with file.open("a") as out:
                out.write(json.dumps({"subject": subject, "seed": seed, "variant": variant, **about, "right": sets}) + "\n")


def lines(files: list[Path]) -> list[dict[str, Any]]:
    return [json.loads(text) for file in files if file.exists() for text in file.read_text().splitlines()]


def right_inputs(line: dict[str, Any], name: str) -> np.ndarray:
    count, text = line["right"][name]
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8), count=count).astype(bool)


def table(control: str, files: list[Path]) -> None:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    beside: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines(files):
        groups[line["subject"], line["variant"]].append(line)
        if line["variant"] in control.split("|"):
            beside.setdefault((line["subject"], line["seed"]), line)
    print("| subject | variant | seeds | " + " | ".join(SETS) + " | processor seconds | averaging weight |")
    print("|" + "---|" * (len(SETS) + 5))
    for (subject, variant), every in sorted(groups.items(), key=lambda one: (one[0][0], not one[0][1].startswith("control"))):
        pairs = [(line, beside[subject, line["seed"]]) for line in every if (subject, line["seed"]) in beside]
        cells = [compared(pairs, name) for name in SETS]
        if not pairs:
            continue
        seconds = np.mean([line["seconds"] for line, _ in pairs])
        weights = [line["weight"] for line, _ in pairs if line["weight"] is not None]
        weight = f"{np.mean(weights):.2f}" if weights else ""
        print(f"| {subject} | {variant} | {len(pairs)} | {' | '.join(cells)} | {seconds:.0f} | {weight} |")


def compared(pairs: list[tuple[dict[str, Any], dict[str, Any]]], name: str) -> str:
    """The control's own accuracy, or the gain of a variant over it."""
    having = [(one, other) for one, other in pairs if name in one["right"]]
    if not having:
        return ""
    if all(one is other for one, other in having):
        return f"{np.mean([100 * right_inputs(one, name).mean() for one, _ in having]):.1f}"
    gains = [paired(right_inputs(one, name), right_inputs(other, name)) for one, other in having]
    return "{:+.1f} ({:.1f} .. {:.1f})".format(*interval(gains))


def main() -> None:
    match sys.argv[1:]:
        case ["measure", "even" | "odd" as parity, subject, seeds, file, *variants] if variants:
            first, _, last = seeds.partition(":")
            measure(parity, subject, range(int(first), int(last)), Path(file), variants)
        case ["table", control, *files] if files:
            table(control, [Path(file) for file in files])
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
