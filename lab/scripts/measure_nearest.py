"""How many faults the selector `nearest` finds, beside DeepGini and DSA. The table of docs/notes/selector-nearest.md.

python lab/scripts/measure_nearest.py run FILE [even|odd] [SUBJECT ...]     (adds one line per subject and pool to FILE)
python lab/scripts/measure_nearest.py table FILE                            (prints Markdown)

Pools are `nss` mutants of test images with even or odd index (designs were chosen on even, numbers are of odd), and these
images as they are (`natural`). Training data is what the zoo embeds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from neurotest import zoo
from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.mutate.nss import nss_pool
from neurotest.select import compare
from neurotest.stats import faults
from neurotest.stats.bootstrap import mean_interval

METHODS = {
    "nearest": "nearest", "nearest, every distance counts": "nearest:usual=none",
    "nearest, distance alone": "nearest:preset=plain", "DeepGini": "deepgini", "random": "random",
}  # fmt: skip
DSA = {"DSA": "dsa", "DSA, last map": "dsa:layer=encoder,neuron=unit,features=none"}  # of the LeNets' first pool
LENETS = ("mnist-lenet1", "mnist-lenet5", "fashion-lenet1", "fashion-lenet5")
OTHERS = (
    "cifar10-resnet20", "fashion-resnet20", "mnist-lenet4", "mnist-conv2d", "mnist-conv1d", "mnist-fcnet5", "mnist-fcnet10",
)  # fmt: skip
POOLS = 5
MOST = 2000  # images of a pool
BUDGETS = (0.05, 0.10, 0.20)


def images(subject: str, parity: str) -> Source:
    dataset = zoo.find(subject).dataset
    try:
        test = data(f"zoo:{dataset}-full/test")
    except BadInput:
        test = data(f"zoo:{dataset}/test")
    rows = np.arange(parity == "odd", len(test), 2)
    return test.take(rows[:MOST])


def run(file: Path, parity: str, subjects: list[str]) -> None:
    finished = {tuple(json.loads(line)[key] for key in ("subject", "pool")) for line in _lines(file)}
    for subject in subjects or [*LENETS, *OTHERS]:
        source, train = images(subject, parity), data(f"zoo:{zoo.find(subject).dataset}/train")
        for pool in ("natural", *map(str, range(POOLS))):
            if (subject, pool) in finished:
                continue
            here = source if pool == "natural" else nss_pool(source=source, seed=int(pool))
            methods = {**METHODS, **(DSA if pool == "0" and subject in LENETS else {})}
            results = compare(f"zoo:{subject}", here, list(methods.values()), "20%", train=train)
            assert here.labels is not None
            row: dict[str, object] = {"subject": subject, "pool": pool, "n": len(here)}
            for name, result in zip(methods, results.values(), strict=True):
                wrong = (here.labels != result.predictions)[result.order]
                row[name] = [100 * faults.fdr(wrong, faults.budget(budget, len(here))) for budget in BUDGETS]
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def table(file: Path) -> None:
    rows = [json.loads(line) for line in _lines(file)]
    names = [*METHODS, *DSA]
    print("| subject | pools | " + " | ".join(names) + " | nearest over DeepGini at 5 % |")
    print("|---" * (3 + len(names)) + "|")
    for subject in dict.fromkeys(row["subject"] for row in rows):
        for kind in ("nss", "natural"):
            mine = [row for row in rows if row["subject"] == subject and (row["pool"] == "natural") == (kind == "natural")]
            if not mine:
                continue
            values = [[row[name] for row in mine if name in row] for name in names]
            cells = [" / ".join(f"{v:.1f}" for v in np.mean(one, axis=0)) if one else "" for one in values]
            gains = np.array([row["nearest"][0] - row["DeepGini"][0] for row in mine])
            gain, low, high = mean_interval(gains)
            ends = f" ({low:.1f} to {high:.1f})" if len(mine) > 1 else ""
            print(f"| {subject} | {len(mine)} {kind} of {mine[0]['n']:,} | " + " | ".join(cells) + f" | {gain:+.1f}{ends} |")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", file, *rest]:
            parity = rest.pop(0) if rest and rest[0] in ("even", "odd") else "odd"
            run(Path(file), parity, rest)
        case ["table", file]:
            table(Path(file))
        case _:
            sys.exit(__doc__)
