"""What each ingredient of the repair protocol `default` is worth: variants of it beside mutated training images alone, on test
images with even numbers. The stored table of `docs/repair.md` is of the odd ones.

python scripts/design_repair.py measure SUBJECT SEEDS FILE VARIANT ...   appends a line of JSON each, but for those there
python scripts/design_repair.py table FILE ...                            Markdown: gain over the control, in points

A variant is a protocol as it is typed (`default:epochs=3,distil=0`), or `control:OPTIONS`: the control `mutated` of
`default:OPTIONS`. Gains are over the first one. SEEDS is a range, `0:3`.
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
from neurotest.repair.plan import Plan
from neurotest.repair.protocol import Protocol, control
from neurotest.studies.repair.cells import paired, planned, right_answers
from neurotest.studies.repair.tables import interval

SETS = ("clean", "mutated", "unseen-operators", "faults-seen", "faults-operators")
SIZES: dict[str, Any] = {"train": 2500, "holdout": 2500}
DEEP: dict[str, Any] = {"train": 1000, "holdout": 800, "test": 1600, "faults": 800}


def answers(plan: Plan, judge: Judge, variant: str, seed: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Which inputs are right after a variant, by set, and what the training cost."""
    name, _, options = variant.partition(":")
    method: Protocol = with_options("repair", f"{'default' if name == 'control' else name}{':' * bool(options)}{options}", {})
    began = time.process_time()
    result = control("mutated", method, plan, seed) if name == "control" else method.repair(plan, seed)
    about = {"seconds": round(time.process_time() - began, 1), "weight": result.about.get("averaging_weight")}
    return right_answers(plan, judge, result), about | {"rows": result.about.get("rows")}


def measure(subject: str, seeds: range, file: Path, variants: list[str]) -> None:
    torch.set_num_threads(1)
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    there = {(line["subject"], line["seed"], line["variant"]) for line in lines}
    for seed in seeds:
        missing = [variant for variant in variants if (subject, seed, variant) not in there]
        if not missing:
            continue
        plan = planned(subject, seed, parity="even", **(DEEP if "resnet" in subject else SIZES))
        judge = Judge(plan, {})
        beside, cost = answers(plan, judge, variants[0], seed)
        for variant in missing:
            right, about = (beside, cost) if variant == variants[0] else answers(plan, judge, variant, seed)
            sets = {name: [100 * float(values.mean()), *paired(values, beside[name])] for name, values in right.items()}
            line = {"subject": subject, "seed": seed, "variant": variant, "beside": variants[0], "sets": sets, **about}
            with file.open("a") as out:
                out.write(json.dumps(line) + "\n")


def table(files: list[Path]) -> None:
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for file in files:
        for text in file.read_text().splitlines():
            line = json.loads(text)
            groups[line["subject"], line["beside"], line["variant"]].append(line)
    print("| subject | variant | beside | seeds | " + " | ".join(SETS) + " | processor seconds | averaging weight |")
    print("|" + "---|" * (len(SETS) + 6))
    for (subject, beside, variant), lines in groups.items():
        cells = []
        for name in SETS:
            having = [line["sets"][name] for line in lines if name in line["sets"]]
            if variant == beside:
                cells.append(f"{np.mean([one[0] for one in having]):.1f}")
            else:
                cells.append("{:+.1f} ({:.1f} .. {:.1f})".format(*interval([one[1:] for one in having])))
        seconds = np.mean([line["seconds"] for line in lines])
        weights = [line["weight"] for line in lines if line["weight"] is not None]
        weight = f"{np.mean(weights):.2f}" if weights else ""
        print(f"| {subject} | {variant} | {beside} | {len(lines)} | {' | '.join(cells)} | {seconds:.0f} | {weight} |")


def main() -> None:
    match sys.argv[1:]:
        case ["measure", subject, seeds, file, *variants] if variants:
            first, _, last = seeds.partition(":")
            measure(subject, range(int(first), int(last)), Path(file), variants)
        case ["table", *files] if files:
            table([Path(file) for file in files])
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
