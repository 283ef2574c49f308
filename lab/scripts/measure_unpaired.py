"""Does sensitivity to fresh mutations tell faults, without originals? The table of docs/notes/selector-nss+.md.

python lab/scripts/measure_unpaired.py [even|odd] [SUBJECT ...]     (prints Markdown; designed on even, reported on odd)

Every idea scores the `nss` pools of test images with even or odd index. "within DeepGini" is the mean area under the ROC curve
inside ten groups of equal DeepGini rank: 0.5 means that the idea knows nothing that DeepGini does not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from neurotest import rng, zoo
from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.levels import EIGHT
from neurotest.mutate.mild import MildMutations
from neurotest.mutate.nss import NssMutations, nss_pool
from neurotest.mutate.operators import BoxBlur, Contrast, Operator, Rotation, Shift
from neurotest.scan import batches
from neurotest.stats.bootstrap import mean_interval
from neurotest.target import Probe, Want
from neurotest.target.load import load

WANT = Want(layers="features", neuron="unit", inputs=True)
BUDGETS = (0.05, 0.10, 0.20)
MUTANTS = 14  # two of each kind
FIXED: dict[str, tuple[Operator, list[float]]] = {
    "rotation by 15 degrees": (Rotation(), [15.0, 0.0]),
    "shift by a tenth": (Shift(), [0.1, 0.1]),
    "blur 3 x 3": (BoxBlur(), [3.0, 0.0]),
    "contrast x 0.7": (Contrast(), [0.7, 0.0]),
}


def apply(operator: Operator, parameters: Sequence[float], x: Tensor) -> Tensor:
    return EIGHT.nearest(operator.apply(x, torch.tensor(parameters).expand(len(x), 2)))


def measure(subject: str, source: Source) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Scores by idea, which inputs are faults, DeepGini."""
    target, n = load(f"zoo:{subject}"), len(source)
    mutations = NssMutations(rounding="pool")
    kinds = np.stack([rng.stream("kinds", i).permutation(14) % 7 for i in range(n)])  # (n, MUTANTS), two of each kind
    draws = []
    for number in range(MUTANTS):
        drawn = mutations.draw(rng.stream("unpaired", number), n)
        parameters = np.zeros((n, 2))
        for kind, operator in enumerate(mutations.operators.values()):
            mine = np.flatnonzero(kinds[:, number] == kind)
            values = operator.draw(rng.stream("unpaired.values", number, kind), len(mine))
            parameters[mine, : values.shape[1]] = values
        draws.append(type(drawn)(drawn.names, kinds[:, number].astype(np.int8), parameters))
    columns: dict[str, list[np.ndarray]] = {}

    def note(name: str, value: Tensor) -> None:
        columns.setdefault(name, []).append(value.double().numpy())

    with Probe(target, WANT) as probe:
        for part in batches(target, source, batch=500):
            here = probe(part.x)
            (a,) = here[WANT].values()
            predicted, p = here.predictions, here.probs
            note("wrong", torch.from_numpy(np.asarray(source.labels)[part.index]) != predicted)
            note("gini", 1 - p.square().sum(dim=1))
            random = [_changes(a, predicted, p, probe(mutations.apply(part.x, d[part.index])), WANT) for d in draws]
            for key in random[0]:
                note(f"random {key}", torch.stack([r[key] for r in random], dim=1))
            for name, (change, fixed) in FIXED.items():
                changes = _changes(a, predicted, p, probe(apply(change, fixed, part.x)), WANT)
                note(f"{name} l1", changes["l1"])
                note(f"{name} cosine", changes["cosine"])
                note(f"{name} loss", changes["loss"])
            mild = [_changes(a, predicted, p, probe(x), WANT) for x in MildMutations(rounding="pool").variants(part.x)]
            for key in mild[0]:
                note(f"mild {key}", torch.stack([r[key] for r in mild], dim=1))
    raw = {name: np.concatenate(parts) for name, parts in columns.items()}
    return _ideas(raw, kinds), raw["wrong"] > 0.5, raw["gini"]


def _changes(a: Tensor, predicted: Tensor, p: Tensor, there: object, want: Want) -> dict[str, Tensor]:
    (b,) = there[want].values()  # type: ignore[index]
    q = there.probs  # type: ignore[attr-defined]
    l1 = (a - b).abs().sum(dim=1)
    return {
        "l1": l1,
        "relative": l1 / a.abs().sum(dim=1).clamp_min(1e-9),
        "cosine": 1 - torch.nn.functional.cosine_similarity(a, b, dim=1),
        "flip": (q.argmax(dim=1) != predicted).double(),
        "loss": 1 - q.gather(1, predicted[:, None]).squeeze(1),
        "moved": (p - q).abs().sum(dim=1),
    }


def _ranks(values: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    out = np.empty(len(values))
    for kind in np.unique(kinds):
        mine = np.flatnonzero(kinds == kind)
        out[mine] = np.argsort(np.argsort(values[mine])) / len(mine)
    return out


def _ideas(raw: dict[str, np.ndarray], kinds: np.ndarray) -> dict[str, np.ndarray]:
    first = {key: raw[f"random {key}"][:, 0] for key in ("l1", "relative", "cosine", "loss")}
    ranked = {
        k: np.mean([_ranks(raw[f"random {k}"][:, m], kinds[:, m]) for m in range(MUTANTS)], axis=0) for k in ("l1", "cosine")
    }
    ideas = {
        "DeepGini": raw["gini"],
        "one random mutation, L1 (NSS as printed)": first["l1"],
        "one random mutation, L1 over the layer's size": first["relative"],
        "one random mutation, cosine": first["cosine"],
        "one random mutation, L1, ranks within its kind": _ranks(first["l1"], kinds[:, 0]),
        "one random mutation, cosine, ranks within its kind": _ranks(first["cosine"], kinds[:, 0]),
        **{f"{name}, L1": raw[f"{name} l1"] for name in FIXED},
        **{f"{name}, cosine": raw[f"{name} cosine"] for name in FIXED},
        **{f"{name}, probability lost": raw[f"{name} loss"] for name in FIXED},
        "14 random mutations, mean L1": raw["random l1"].mean(axis=1),
        "14 random mutations, mean cosine": raw["random cosine"].mean(axis=1),
        "14 random mutations, mean rank within kind, L1": ranked["l1"],
        "14 random mutations, mean rank within kind, cosine": ranked["cosine"],
        "14 random mutations, decisions changed": raw["random flip"].mean(axis=1) + 1e-3 * raw["gini"],
        "14 random mutations, probability lost": raw["random loss"].mean(axis=1),
        "16 mild mutations, mean cosine": raw["mild cosine"].mean(axis=1),
        "16 mild mutations, decisions changed": raw["mild flip"].mean(axis=1) + 1e-3 * raw["gini"],
        "**16 mild mutations, probability lost (`nss+`)**": raw["mild loss"].mean(axis=1),
    }
    both = raw["gini"], raw["mild loss"].mean(axis=1)
    ideas["`nss+` and DeepGini, mean rank"] = np.sum([np.argsort(np.argsort(v)) for v in both], axis=0).astype(float)
    return ideas


def area(score: np.ndarray, wrong: np.ndarray) -> float:
    """Area under the ROC curve; ties count half."""
    from scipy.stats import rankdata

    positive = int(wrong.sum())
    if positive in (0, len(wrong)):
        return float("nan")
    return float((rankdata(score)[wrong].sum() - positive * (positive + 1) / 2) / (positive * (len(wrong) - positive)))


def within(score: np.ndarray, wrong: np.ndarray, gini: np.ndarray) -> float:
    groups = np.array_split(np.argsort(gini, kind="stable"), 10)
    return float(np.nanmean([area(score[g], wrong[g]) for g in groups if 5 <= wrong[g].sum() <= len(g) - 5]))


def main() -> None:
    half = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in ("even", "odd") else "odd"
    names = [a for a in sys.argv[1:] if a not in ("even", "odd")] or [
        "mnist-lenet1",
        "mnist-lenet5",
        "fashion-lenet1",
        "fashion-lenet5",
    ]
    torch.set_num_threads(1)
    print("| subject | idea | " + " | ".join(f"FDR at {b:.0%}" for b in BUDGETS) + " | within DeepGini |\n" + "|---" * 6 + "|")
    for name in names:
        rows: dict[str, list[list[float]]] = {}
        for seed in range(3) if half == "even" else range(100, 103):
            test = data(f"zoo:{zoo.find(name).dataset}/test")
            pool = nss_pool(source=test.take(np.arange(half == "odd", len(test), 2)), seed=seed)
            ideas, wrong, gini = measure(name, pool)
            for idea, score in ideas.items():
                order = np.argsort(-score, kind="stable")
                rates = [100 * wrong[order[: round(b * len(wrong))]].mean() for b in BUDGETS]
                rows.setdefault(idea, []).append([*rates, within(score, wrong, gini)])
            rows.setdefault("random", []).append([100 * wrong.mean()] * len(BUDGETS) + [0.5])
        for idea, pools in rows.items():
            *rates, inside = (mean_interval(column) for column in np.array(pools).T)
            cells = [f"{r.value:.1f} ({r.low:.1f} .. {r.high:.1f})" for r in rates]
            print(f"| {name} | {idea} | " + " | ".join(cells) + f" | {inside.value:.2f} |", flush=True)


if __name__ == "__main__":
    main()
