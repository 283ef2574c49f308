"""Measures how many of the first suspects are planted label errors, beside cleanlab on the same probabilities and random.

python lab/scripts/measure_suspects.py | python docs/_results.py suspects --command ... --title ...

Needs cleanlab (`make test-peers` installs it) and the complete CIFAR-10 (`neurotest data get cifar10`; --embedded does without).
The method was chosen on the even images of each test set with other seeds; what is printed is about the odd ones.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.jobs.opening import open_counted, open_target
from neurotest.measure.answers import Answers, answers
from neurotest.select.suspects import _label_mistakes, evidence
from neurotest.stats.bootstrap import t_quantile

SUBJECTS = {"mnist-lenet5": "mnist", "fashion-lenet5": "fashion-mnist", "cifar10-resnet20": "cifar10-full"}
SHARE, SEEDS = 0.03, 5
Ints = NDArray[np.int64]


def planted(labels: Ints, predicted: Ints, kind: str, seed: int) -> tuple[Ints, Ints]:
    """Labels with 3 % errors, and where they are: any other class, or the one this class is most often taken for."""
    random = rng.stream(f"measure.suspects.{kind}", seed)
    classes = int(labels.max()) + 1
    where = random.permutation(len(labels))[: round(SHARE * len(labels))]
    changed = labels.copy()
    if kind == "random":
        changed[where] = (labels[where] + random.integers(1, classes, len(where))) % classes
    else:
        confused = np.zeros((classes, classes), dtype=np.int64)
        np.add.at(confused, (labels, predicted), 1)
        np.fill_diagonal(confused, -1)
        changed[where] = confused.argmax(axis=1)[labels[where]]
    return changed, where


def orders(said: Answers, labels: Ints, seed: int) -> dict[str, Ints]:
    """Every input by each method, most suspicious first."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    probs = np.exp(said.log_probs)
    mistakes = _label_mistakes(said.log_probs, labels)
    own = evidence(said.log_probs, labels, np.arange(len(labels)), said.features, labels, mistakes).margin
    result = {"suspects": np.argsort(-own, kind="stable")}
    for measure in ("self_confidence", "normalized_margin"):
        ranked = np.argsort(get_label_quality_scores(labels, probs, method=measure), kind="stable")
        result[f"cleanlab, {measure.replace('_', ' ')}"] = ranked
        issues = find_label_issues(labels, probs, return_indices_ranked_by=measure, n_jobs=1)
        rest = ranked[~np.isin(ranked, issues)]
        result[f"cleanlab, confident learning by {measure.replace('_', ' ')}"] = np.concatenate([issues, rest])
    result["random"] = rng.stream("measure.suspects.order", seed).permutation(len(labels))
    return result


def rows(network: str, data: str, kind: str) -> list[str]:
    target = open_target(f"zoo:{network}")
    source = open_counted(target, f"zoo:{data}/test")[0]
    source = source.take(np.arange(1, len(source), 2))
    said = answers(target, source)
    assert source.labels is not None
    hits: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        labels, where = planted(source.labels, said.predicted, kind, seed)
        for name, order in orders(said, labels, seed).items():
            hits.setdefault(name, []).append(float(np.isin(order[: len(where)], where).mean()))
    ours = np.array(hits["suspects"])
    reach = t_quantile(0.975, SEEDS - 1) / np.sqrt(SEEDS)
    lines = []
    for name, values in hits.items():
        ahead = ours - np.array(values)
        beside = "" if name == "suspects" else f"{100 * ahead.mean():+.1f} ± {100 * reach * ahead.std(ddof=1):.1f}"
        mean, spread = np.mean(values), reach * np.std(values, ddof=1)
        cells = [network, kind, name, f"{100 * mean:.1f} % ± {100 * spread:.1f}", beside]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedded", action="store_true", help="the embedded part of CIFAR-10: few errors can be planted in it")
    embedded = parser.parse_args().embedded
    torch.set_num_threads(1)
    print("| network | errors | order | precision at the number planted | suspects ahead by, points |\n|---|---|---|---|---|")
    for network, data in SUBJECTS.items():
        for kind in ("random", "class-dependent"):
            print("\n".join(rows(network, data.removesuffix("-full") if embedded else data, kind)), flush=True)


if __name__ == "__main__":
    main()
