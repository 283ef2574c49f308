"""Families found by eight islands, by one and by random, at equal forward passes: a Markdown table.

    python lab/scripts/measure_islands.py CELLS.jsonl [REPETITIONS] | python docs/_results.py islands --command ... --title ...

CELLS.jsonl holds a line per finished campaign: whoever is interrupted goes on. Odd seeds are reported, even ones were for design.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

SUBJECTS = {
    "mnist-lenet5": "zoo:mnist-full/test",
    "fashion-lenet5": "zoo:fashion-mnist-full/test",
    "cifar10-resnet20": "zoo:cifar10-full/test",
}
SEEDS, INPUTS, FORWARDS, ISLANDS = (1, 3, 5, 7, 9), 100, 4000, 8
Cells = dict[tuple[str, int, str], dict[str, Any]]
WAYS = {"one island": ("goals", 1), "eight islands": ("goals", ISLANDS), "random": ("random", 1)}


def measured(subject: str, seed: int, way: str) -> dict[str, Any]:
    import neurotest

    guide, islands = WAYS[way]
    seeds = f"{SUBJECTS[subject]}[{INPUTS * seed}:{INPUTS * (seed + 1)}]"
    result = neurotest.fuzz(
        f"zoo:{subject}", seeds, guide, islands=islands, forwards=FORWARDS, seed=seed, control=False, out=False
    )
    counts = {"families": len(result.families), "roots": len(result.tally.roots), "faults": result.faults}
    return {"subject": subject, "seed": seed, "way": way, **counts, "forwards": result.tally.forwards}


def over(cells: Cells, subjects: list[str], seeds: tuple[int, ...], what: str, one: str, other: str) -> str:
    """The geometric mean of a ratio over campaigns, with a 95 % interval by Student's t."""
    pairs = [(cells[s, n, one][what], cells[s, n, other][what]) for s in subjects for n in seeds]
    logs = np.log([a / b for a, b in pairs])
    half = stats.t.ppf(0.975, len(logs) - 1) * stats.sem(logs)
    low, high = logs.mean() - half, logs.mean() + half
    return f"{np.exp(logs.mean()):.2f} ({np.exp(low):.2f} .. {np.exp(high):.2f})"


def main(place: Path, repetitions: int = len(SEEDS)) -> None:
    import torch

    seeds = SEEDS[:repetitions]

    torch.set_num_threads(1)
    lines = place.read_text().splitlines() if place.exists() else []
    cells = {(c["subject"], c["seed"], c["way"]): c for c in map(json.loads, lines)}
    for seed in seeds:
        for subject in SUBJECTS:
            for way in WAYS:
                if (subject, seed, way) not in cells:
                    cells[subject, seed, way] = cell = measured(subject, seed, way)
                    with place.open("a") as out:
                        out.write(json.dumps(cell) + "\n")
    columns = [
        "network",
        *(f"families, {way}" for way in WAYS),
        "eight over one",
        "eight over random",
        "seeds broken, eight over one",
    ]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name, subjects in {**{s: [s] for s in SUBJECTS}, "all": list(SUBJECTS)}.items():
        means = [f"{np.mean([cells[s, n, way]['families'] for s in subjects for n in seeds]):.0f}" for way in WAYS]
        ratios = [over(cells, subjects, seeds, *of) for of in (
            ("families", "eight islands", "one island"), ("families", "eight islands", "random"),
            ("roots", "eight islands", "one island"),
        )]  # fmt: skip
        print(f"| {' | '.join([name, *means, *ratios])} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
