"""How adaptive selection was designed and what it reaches: the tables of docs/notes/selector-adaptive.md.

On pools of test images with even index:
python lab/scripts/design_adaptive.py design [SUBJECT ...]      several designs (boosting: a minute per pool)
python lab/scripts/design_adaptive.py settings [SUBJECT ...]    what is shipped, one setting changed at a time
python lab/scripts/design_adaptive.py rest [SUBJECT ...]        the estimate of the faults left
On pools of test images with odd index:
python lab/scripts/design_adaptive.py report [nss|natural|corrupted ...] [audit] [SUBJECT ...]    what is shipped
python lab/scripts/design_adaptive.py shuffled [SUBJECT ...]    how far it is above random when labels say nothing
python lab/scripts/design_adaptive.py audits [SUBJECT ...]      the estimate of the faults left by random labels

Prints Markdown. Default subjects: three for the first two, else every one whose weights are here. About three seconds per pool
and order.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from adaptive_pools import corrupted_pools, natural_pools, nss_pools, shifted_pools

from neurotest import rng, zoo
from neurotest.data.source import Source
from neurotest.select.adaptive import learner
from neurotest.select.adaptive import learning as looping
from neurotest.select.adaptive import loop as scan
from neurotest.select.adaptive.learning import Loop
from neurotest.select.adaptive.remaining import Draw, Remaining, sampled
from neurotest.stats.bootstrap import Interval, mean_interval

BUDGETS = (0.01, 0.05, 0.10, 0.15, 0.20)
ROUND = 0.005
KINDS = ("nss", "natural", "corrupted")
MORE = ("audit",)  # a row of the report that costs another order
DESIGNED = ("mnist-lenet1", "fashion-lenet5", "cifar10-resnet20")
Score = Callable[[Loop], np.ndarray]  # odds or anything that rises with them


def faults(loop: Loop) -> tuple[np.ndarray, np.ndarray]:
    labelled = loop.labelled
    return labelled, np.array([loop.labels[p] != int(loop.predictions[p]) for p in labelled.tolist()], dtype=bool)


# -- designs: what to score the pool by, given the labels so far


def deepgini(loop: Loop) -> np.ndarray:
    return loop.gini.numpy()


def logistic(loop: Loop) -> np.ndarray:
    labelled, wrong = faults(loop)
    return (loop.x @ learner.fault_regression(loop.x[labelled], torch.from_numpy(wrong).double(), loop.ridge)).numpy()


def neighbours(loop: Loop, k: int = 10) -> np.ndarray:
    labelled, wrong = faults(loop)
    unit = torch.nn.functional.normalize(loop.x[:, :-1], dim=1)
    near = (unit @ unit[labelled].T).topk(min(k, len(labelled)), dim=1).indices.numpy()
    return np.asarray(wrong[near].mean(axis=1) + 1e-3 * torch.sigmoid(loop.gini).numpy())


def gaussian_process(loop: Loop, noise: float = 0.3) -> np.ndarray:
    labelled, wrong = faults(loop)
    x = torch.cat([loop.x[:, :-1], 3 * loop.gini[:, None].clamp(-5, 5)], dim=1)
    width = float(torch.pdist(x[loop.anchors]).median()) / 1.5

    def kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.exp(-torch.cdist(a, b).square() / (2 * width**2))

    inner = kernel(x[labelled], x[labelled]) + noise * torch.eye(len(labelled), dtype=torch.float64)
    middle = float(wrong.mean())
    return np.asarray(kernel(x, x[labelled]) @ torch.linalg.solve(inner, torch.from_numpy(wrong).double() - middle))


def boosting(loop: Loop) -> np.ndarray:
    from sklearn.ensemble import HistGradientBoostingClassifier

    labelled, wrong = faults(loop)
    if wrong.all() or not wrong.any():
        return deepgini(loop)
    x = torch.cat([loop.x[:, :40], loop.gini[:, None], loop.outputs.values], dim=1).numpy()
    trees = HistGradientBoostingClassifier(
        max_iter=40, max_leaf_nodes=8, min_samples_leaf=5, early_stopping=False, random_state=0
    )
    return np.asarray(trees.fit(x[labelled], wrong).decision_function(x))


def head(loop: Loop) -> np.ndarray:
    labelled = loop.labelled
    return learner.log_odds(loop._head(labelled, torch.tensor([loop.labels[p] for p in labelled.tolist()]))).numpy()


def bagged_head(loop: Loop, members: int = 5, optimism: float = 1.0) -> np.ndarray:
    """Explores: where heads trained on resampled labels disagree, a fault counts as more probable."""
    labelled = loop.labelled
    labels = torch.tensor([loop.labels[p] for p in labelled.tolist()])
    outputs = loop.outputs[labelled]
    odds = []
    for member in range(members):
        weights = torch.from_numpy(rng.stream("bag", len(labelled), member).poisson(1.0, len(labelled))).double()
        added = learner.corrected_head(loop.x[labelled], outputs, outputs.aims(labels), weights, loop.ridge)
        odds.append(loop.outputs.corrected(loop.x, added).fault_odds(loop.predictions))
    stacked = torch.stack(odds)
    return (stacked.mean(dim=0) + optimism * stacked.std(dim=0)).numpy()


def head_and_logistic(loop: Loop) -> np.ndarray:
    return 2 / 3 * head(loop) + 1 / 3 * logistic(loop)


def hedged(loop: Loop) -> np.ndarray:
    return loop.posterior.odds.numpy()


DESIGNS: dict[str, Score] = {
    "DeepGini": deepgini,
    "neighbours (10 labelled ones)": neighbours,
    "logistic, is it a fault?": logistic,
    "gradient boosting, is it a fault?": boosting,
    "Gaussian process, is it a fault?": gaussian_process,
    "corrected head": head,
    "five bagged heads, optimistic": bagged_head,
    "head + logistic, 2 : 1": head_and_logistic,
    "**the same, weighed against DeepGini (shipped)**": hedged,
}


# One setting of what is shipped changed at a time.
CHANGES: dict[str, dict[str, float]] = {
    "as shipped": {},
    "ridge 10": {"ridge": 10.0},
    "ridge 100": {"ridge": 100.0},
    "anchors count nothing": {"ANCHOR": 1e-9},
    "anchors count 0.3 each": {"ANCHOR": 0.3},
    "head alone": {"HEAD": 1.0, "REGRESSION": 0.0},
    "head and regression 1 : 1": {"HEAD": 0.5, "REGRESSION": 0.5},
    "no doubt, no floor": {"DOUBT": 0.0, "LEAST": 0.0},
    "doubt 6, no floor": {"LEAST": 0.0},
    "doubt 3": {"DOUBT": 3.0},
    "doubt 12": {"DOUBT": 12.0},
}


@contextmanager
def changed(values: dict[str, float]) -> Iterator[float]:
    """With other constants for a while; gives the ridge, which is no constant."""
    homes = {name: learner if hasattr(learner, name) else looping for name in values if name != "ridge"}
    before = {name: getattr(home, name) for name, home in homes.items()}
    for name, home in homes.items():
        setattr(home, name, values[name])
    try:
        yield values.get("ridge", 30.0)
    finally:
        for name, home in homes.items():
            setattr(home, name, before[name])


@dataclass
class Run:
    """The order in which labels were requested and, at each budget, faults left beside their estimate and interval."""

    order: np.ndarray
    left: list[tuple[int, Remaining]]


def run(facts: Loop, labels: np.ndarray, score: Score, *, audit: float = 0.0, ridge: float = 30.0) -> Run:
    """Reveal labels round by round until a fifth of the pool has one."""
    loop = Loop(facts.facts, audit=audit, ridge=ridge)
    n = len(labels)
    size, wanted = max(10, round(ROUND * n)), round(BUDGETS[-1] * n)
    order: list[int] = []
    left = []
    wrong = labels != loop.predictions.numpy()
    while len(order) < wanted:
        if not order or score is hedged:
            batch = loop.propose(min(size, wanted - len(order)))
        else:
            free = loop.left
            batch = free[np.argsort(-score(loop)[free], kind="stable")[:size]]
        order += batch.tolist()
        loop.tell(batch, labels[batch])
        if score is hedged and any(len(order) == round(b * n) for b in BUDGETS[1:]):
            left.append((int(wrong[loop.left].sum()), loop.remaining()))
    return Run(np.array(order), left)


def rates(order: np.ndarray, wrong: np.ndarray) -> list[float]:
    return [100 * float(wrong[order[: round(b * len(wrong))]].mean()) for b in BUDGETS]


def gap(ours: np.ndarray, theirs: np.ndarray, wrong: np.ndarray, m: int) -> Interval:
    """Difference of two orders of one pool at m picks, in points; 95 % over inputs like those that only one of them picks."""
    only = [np.setdiff1d(a[:m], b[:m]) for a, b in ((ours, theirs), (theirs, ours))]
    spread = 100 / m * math.sqrt(sum(len(one) * wrong[one].var() for one in only if len(one)))
    value = 100 / m * float(wrong[only[0]].sum() - wrong[only[1]].sum())
    return Interval(value, value - 1.96 * spread, value + 1.96 * spread)


# -- tables


def row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def head_line(*words: str) -> None:
    row(*words, *(f"FDR at {b:.0%}" for b in BUDGETS))
    row(*["---"] * (len(words) + len(BUDGETS)))


def scanned(name: str, pools: Iterator[Source]) -> list[tuple[Loop, np.ndarray]]:
    scans = []
    for pool in pools:
        assert pool.labels is not None
        scans.append((scan(f"zoo:{name}", pool), pool.labels))
    return scans


def design(names: list[str]) -> None:
    head_line("subject", "pools", "design")
    for name in names:
        scans = scanned(name, nss_pools(name, False, range(1)))
        for title, score in DESIGNS.items():
            fault_rates = [rates(run(facts, y, score).order, y != facts.predictions.numpy()) for facts, y in scans]
            row(name, "nss", title, *(f"{v:.1f}" for v in np.mean(fault_rates, axis=0)))


def settings(names: list[str]) -> None:
    head_line("subject", "pools", "gain over DeepGini")
    for name in names:
        for kind, pools in (("nss", nss_pools(name, False, range(1))), ("natural", natural_pools(name, False))):
            scans = scanned(name, pools)
            for title, values in CHANGES.items():
                gains = []
                for facts, y in scans:
                    wrong = y != facts.predictions.numpy()
                    with changed(values) as ridge:
                        order = run(facts, y, hedged, ridge=ridge).order
                    plain = np.argsort(-deepgini(facts), kind="stable")
                    gains.append(np.subtract(rates(order, wrong), rates(plain, wrong)))
                row(name, kind, title, *(f"{v:+.1f}" for v in np.mean(gains, axis=0)))


LEFT = ("subject", "pools", "estimate / truth", "median", "intervals with the truth", "median width / truth")


def rest(names: list[str]) -> None:
    """How good `remaining()` is on even images: where its constants were set."""
    row(*LEFT)
    row(*["---"] * len(LEFT))
    for name in names:
        kinds = {"nss": nss_pools(name, False, range(2)), "natural": natural_pools(name, False)}
        for kind, pools in {**kinds, "shifted": shifted_pools(name, range(2))}.items():
            scans = scanned(name, pools)
            estimates(name, kind, [run(facts, y, hedged) for facts, y in scans])


def estimates(name: str, kind: str, runs: list[Run]) -> None:
    left = [pair for one in runs for pair in one.left]
    inside = sum(estimate.low <= true <= estimate.high for true, estimate in left)
    ratios = sorted(estimate.value / max(true, 1) for true, estimate in left)
    widths = sorted((estimate.high - estimate.low) / max(true, 1) for true, estimate in left)
    middle = len(left) // 2
    cells = f"{ratios[0]:.2f} .. {ratios[-1]:.2f}", f"{ratios[middle]:.2f}", f"{inside} of {len(left)}", f"{widths[middle]:.1f}"
    row(name, kind, *cells)


def audits(names: list[str], seeds: int = 40) -> None:
    """Random labels on odd images: of each round of 25 two are drawn, the others are DeepGini's (no learner: many seeds)."""
    row("subject", "pools", "labels", "mean of estimate / truth", "intervals with the truth", "median width / truth")
    row(*["---"] * 6)
    for name in names:
        for kind, pools in {"nss": nss_pools(name, True, range(100, 101)), "natural": natural_pools(name, True),
                            "corrupted": corrupted_pools(name, range(1))}.items():  # fmt: skip
            ((facts, y),) = scanned(name, pools)
            repetitions = [audited(facts, y, seed) for seed in range(seeds)]
            for column, share in enumerate(("5 %", "10 %", "20 %")):
                pairs = [one[column] for one in repetitions]
                inside = np.mean([rest.low <= true <= rest.high for true, rest in pairs])
                ratio = np.mean([rest.value for _, rest in pairs]) / np.mean([true for true, _ in pairs])
                width = np.median([(rest.high - rest.low) / max(true, 1) for true, rest in pairs])
                row(name, kind, share, f"{ratio:.2f}", f"{100 * inside:.0f} % of {seeds}", f"{width:.1f}")


def audited(facts: Loop, y: np.ndarray, seed: int) -> list[tuple[int, Remaining]]:
    """Faults left beside their estimate at 5, 10 and 20 %."""
    wrong = y != facts.predictions.numpy()
    order, n = np.argsort(-deepgini(facts), kind="stable"), len(y)
    faulty: dict[int, bool] = {}
    draws: list[Draw] = []
    pairs = []
    while len(faulty) < n // 5:
        free = order[~np.isin(order, list(faulty))]
        drawn = rng.stream("audit", seed, len(draws)).permutation(free)[:2]
        draws.append(Draw(tuple(drawn.tolist()), frozenset(faulty)))
        for p in (*free[~np.isin(free, drawn)][:23].tolist(), *drawn.tolist()):
            faulty[p] = bool(wrong[p])
        if len(faulty) in (n // 20, n // 10, n // 5):
            rest = sampled(draws, faulty, n, n - len(faulty))
            assert rest is not None
            pairs.append((int(wrong.sum()) - sum(faulty.values()), rest))
    return pairs


def report(names: list[str], wanted: list[str]) -> None:
    head_line("subject", "pools", "faults", "method")
    for name in names:
        kinds = {"nss": nss_pools(name, True, range(100, 105)), "natural": natural_pools(name, True)}
        for kind, pools in {**kinds, "corrupted": corrupted_pools(name, range(3))}.items():
            if kind in wanted:
                reported(name, kind, scanned(name, pools), wanted)


def reported(name: str, kind: str, scans: list[tuple[Loop, np.ndarray]], wanted: list[str]) -> None:
    wrongs = [y != facts.predictions.numpy() for facts, y in scans]
    runs = [run(facts, y, hedged) for facts, y in scans]
    plain = [np.argsort(-deepgini(facts), kind="stable") for facts, _ in scans]
    ours, theirs = ([rates(order, wrong) for order, wrong in zip(orders, wrongs, strict=True)]
                    for orders in ([one.order for one in runs], plain))  # fmt: skip
    share = f"{100 * np.mean(wrongs):.1f} %"
    best = [[100 * min(1.0, wrong.sum() / round(b * len(wrong))) for b in BUDGETS] for wrong in wrongs]
    row(name, kind, share, "DeepGini", *(f"{v:.1f}" for v in np.mean(theirs, axis=0)))
    row(name, kind, share, "adaptive", *(f"{v:.1f}" for v in np.mean(ours, axis=0)))
    if len(scans) > 1:
        gains = [mean_interval(column) for column in (np.array(ours) - np.array(theirs)).T]
    else:
        gains = [gap(runs[0].order, plain[0], wrongs[0], round(b * len(wrongs[0]))) for b in BUDGETS]
    row(name, kind, share, "gain", *(f"{g.value:+.1f} ({g.low:+.1f} .. {g.high:+.1f})" for g in gains))
    row(name, kind, share, "ceiling", *(f"{v:.1f}" for v in np.mean(best, axis=0)))
    if "audit" in wanted:
        audited = rates(run(*scans[0], hedged, audit=0.1).order, wrongs[0])
        row(name, kind, share, "a tenth at random, first pool", *(f"{v:.1f}" for v in audited))
    row(*LEFT)
    estimates(name, kind, runs)


def shuffled(names: list[str]) -> None:
    """Each of the nss pools with its labels permuted: there is nothing to learn, so the gain over random should vanish."""
    head_line("subject", "pools", "above random")
    for name in names:
        above = []
        for seed, (facts, y) in enumerate(scanned(name, nss_pools(name, True, range(100, 105)))):
            mixed = rng.stream("shuffle", seed).permutation(y)
            wrong = mixed != facts.predictions.numpy()
            above.append(np.subtract(rates(run(facts, mixed, hedged).order, wrong), 100 * wrong.mean()))
        gains = [mean_interval(column) for column in np.transpose(above)]
        row(name, "nss", "shuffled labels", *(f"{g.value:+.1f} ({g.low:+.1f} .. {g.high:+.1f})" for g in gains))


TABLES = {"design": design, "settings": settings, "rest": rest, "audits": audits, "shuffled": shuffled}


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in (*TABLES, "report"):
        raise SystemExit(__doc__)
    torch.set_num_threads(1)
    wanted = [word for word in sys.argv[2:] if word in KINDS] or list(KINDS)
    wanted += [word for word in sys.argv[2:] if word in MORE]
    names = [word for word in sys.argv[2:] if word not in (*KINDS, *MORE)]
    few = (
        DESIGNED
        if sys.argv[1] in ("design", "settings", "audits")
        else [s.name for s in zoo.catalogue() if s.weights is not None and len(s.shape) == 3]
    )
    if sys.argv[1] == "report":
        report(names or list(few), wanted)
    else:
        TABLES[sys.argv[1]](names or list(few))


if __name__ == "__main__":
    main()
