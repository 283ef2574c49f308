"""The table on the docs page of nss: FDR at 5, 10, 15 and 20 % on `nss` pools, paired and unpaired, beside DeepGini and random.

Each cell is the mean over three pools and the lowest and highest of them.

python lab/scripts/measure_nss.py [SUBJECT ...]      (default: every embedded subject; prints Markdown)
"""

from __future__ import annotations

import sys

import numpy as np

import neurotest
from neurotest import zoo
from neurotest.select import compare
from neurotest.stats.faults import budget, fdr

POOLS = (0, 1, 2)
BUDGETS = ("5%", "10%", "15%", "20%")
METHODS = {
    "nss": "NSS, original",
    "nss:distance=cosine": "NSS, original, cosine",
    "nss:reference=remutate": "NSS, remutate",
    "deepgini": "DeepGini",
    "random": "random",
}


STAGE = {"nss:layer=stage3": "NSS, original, maps before the pooling"}  # the layer the paper names, on a ResNet


def methods(name: str) -> dict[str, str]:
    return METHODS | STAGE if "resnet" in name else METHODS


def rates(name: str) -> tuple[dict[str, np.ndarray], float]:
    """Per method FDR in percent, (pools, budgets), and the mean share of faults in the pools."""
    target = neurotest.load(f"zoo:{name}")
    by_method: dict[str, list[list[float]]] = {method: [] for method in methods(name)}
    wrong_share = []
    for seed in POOLS:
        pool = neurotest.data(f"zoo:{zoo.find(name).dataset}/nss-pool@{seed}")
        for method, selection in compare(target, pool, list(methods(name)), "5%", seed=seed).items():
            wrong = np.asarray(pool.labels) != selection.predictions
            by_method[method].append([100 * fdr(wrong[selection.order], budget(b, len(pool))) for b in BUDGETS])
        wrong_share.append(100 * float(wrong.mean()))
    return {method: np.array(rows) for method, rows in by_method.items()}, float(np.mean(wrong_share))


def main() -> None:
    names = sys.argv[1:] or [s.name for s in zoo.catalogue() if s.embedded]
    print("| subject | clean accuracy | faults in the pool | method | " + " | ".join(BUDGETS) + " |\n" + "|---" * 8 + "|")
    for name in names:
        by_method, share = rates(name)
        for method, rows in by_method.items():
            cells = [f"{column.mean():.1f} ({column.min():.1f} .. {column.max():.1f})" for column in rows.T]
            accuracy = 100 * zoo.find(name).about["accuracy"]
            print(f"| {name} | {accuracy:.1f} % | {share:.1f} % | {methods(name)[method]} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
