"""How adaptive selection was designed and what it reaches: the tables of docs/notes/selector-adaptive.md.

python scripts/design_adaptive.py design [SUBJECT ...]    several designs on `nss` pools of test images with even index
python scripts/design_adaptive.py report [nss|natural|corrupted ...] [SUBJECT ...]    what is shipped, on images with odd index

Prints Markdown. Default subjects: every one whose weights are here. About two seconds per pool and design (boosting: a minute).
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator

import numpy as np
import torch
from PIL import Image

from neurotest import rng, zoo
from neurotest.data.source import ArraySource, Source
from neurotest.data.spec import data
from neurotest.select import learner
from neurotest.select import loop as looping
from neurotest.select.adaptive import loop as scan
from neurotest.select.loop import Loop
from neurotest.stats.bootstrap import mean_interval

BUDGETS = (0.05, 0.10, 0.15, 0.20)
ROUND = 0.005
KINDS = ("nss", "natural", "corrupted")
SMALL = (
    "mnist-lenet1",
    "mnist-lenet4",
    "mnist-lenet5",
    "fashion-lenet1",
    "fashion-lenet5",
    "fashion-resnet20",
    "cifar10-resnet20",
)
Score = Callable[[Loop], np.ndarray]  # odds or anything that rises with them


def faults(loop: Loop) -> tuple[np.ndarray, np.ndarray]:
    known = loop.known
    return known, np.array([loop.labels[p] != int(loop.predictions[p]) for p in known.tolist()], dtype=bool)


# -- designs: what to score the pool by, given the labels so far


def deepgini(loop: Loop) -> np.ndarray:
    return loop.gini.numpy()


def logistic(loop: Loop) -> np.ndarray:
    known, wrong = faults(loop)
    return (loop.x @ learner.fault_regression(loop.x[known], torch.from_numpy(wrong).double(), loop.ridge)).numpy()


def neighbours(loop: Loop, k: int = 10) -> np.ndarray:
    known, wrong = faults(loop)
    unit = torch.nn.functional.normalize(loop.x[:, :-1], dim=1)
    near = (unit @ unit[known].T).topk(min(k, len(known)), dim=1).indices.numpy()
    return wrong[near].mean(axis=1) + 1e-3 * torch.sigmoid(loop.gini).numpy()


def gaussian_process(loop: Loop, noise: float = 0.3) -> np.ndarray:
    known, wrong = faults(loop)
    x = torch.cat([loop.x[:, :-1], 3 * loop.gini[:, None].clamp(-5, 5)], dim=1)
    width = float(torch.pdist(x[loop.anchors]).median()) / 1.5

    def kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.exp(-torch.cdist(a, b).square() / (2 * width**2))

    inner = kernel(x[known], x[known]) + noise * torch.eye(len(known), dtype=torch.float64)
    middle = float(wrong.mean())
    return (kernel(x, x[known]) @ torch.linalg.solve(inner, torch.from_numpy(wrong).double() - middle)).numpy()


def boosting(loop: Loop) -> np.ndarray:
    from sklearn.ensemble import HistGradientBoostingClassifier

    known, wrong = faults(loop)
    if wrong.all() or not wrong.any():
        return deepgini(loop)
    x = torch.cat([loop.x[:, :40], loop.gini[:, None], loop.logits], dim=1).numpy()
    trees = HistGradientBoostingClassifier(
        max_iter=40, max_leaf_nodes=8, min_samples_leaf=5, early_stopping=False, random_state=0
    )
    return trees.fit(x[known], wrong).decision_function(x)


def head(loop: Loop) -> np.ndarray:
    known = loop.known
    return learner.log_odds(loop._head(known, torch.tensor([loop.labels[p] for p in known.tolist()]))).numpy()


def bagged_head(loop: Loop, members: int = 5, optimism: float = 1.0) -> np.ndarray:
    """Explores: where heads trained on resampled labels disagree, a fault counts as more probable."""
    known = loop.known
    said = torch.tensor([loop.labels[p] for p in known.tolist()])
    aims = torch.nn.functional.one_hot(said, loop.logits.shape[1]).double()
    odds = []
    for member in range(members):
        weights = torch.from_numpy(rng.stream("bag", len(known), member).poisson(1.0, len(known))).double()
        added = learner.corrected_head(loop.x[known], loop.logits[known], aims, weights, loop.ridge)
        probs = (loop.logits + loop.x @ added).softmax(dim=1)
        odds.append(learner.log_odds(1 - probs.gather(1, loop.predictions[:, None]).squeeze(1)))
    stacked = torch.stack(odds)
    return (stacked.mean(dim=0) + optimism * stacked.std(dim=0)).numpy()


def head_and_logistic(loop: Loop) -> np.ndarray:
    return 2 / 3 * head(loop) + 1 / 3 * logistic(loop)


def hedged(loop: Loop) -> np.ndarray:
    return loop.belief.odds.numpy()


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


def run(
    facts: Loop, labels: np.ndarray, score: Score, share: float = 0.2
) -> tuple[np.ndarray, list[tuple[int, float, float, float]]]:
    """Reveal labels round by round; gives the order and, at each budget, faults left beside their estimate and interval."""
    loop = Loop(facts.facts)
    n = len(labels)
    size, wanted = max(10, round(ROUND * n)), round(share * n)
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
        if score is hedged and any(len(order) == round(b * n) for b in BUDGETS):
            rest = loop.remaining()
            left.append((int(wrong[loop.left].sum()), rest.value, rest.low, rest.high))
    return np.array(order), left


def rates(order: np.ndarray, wrong: np.ndarray) -> list[float]:
    return [100 * float(wrong[order[: round(b * len(wrong))]].mean()) for b in BUDGETS]


# -- pools


def part(source: Source, odd: bool) -> Source:
    return source.take(np.arange(int(odd), len(source), 2))


def test_set(name: str) -> str:
    """The complete test set: of CIFAR-10 only a tenth is embedded."""
    dataset = zoo.find(name).dataset
    return f"zoo:{dataset}-full/test" if dataset == "cifar10" else f"zoo:{dataset}/test"


def nss_pools(name: str, odd: bool, seeds: range) -> Iterator[Source]:
    from neurotest.mutate.pools import nss_pool

    for seed in seeds:
        yield nss_pool(source=part(data(test_set(name)), odd), seed=seed)


def natural_pools(name: str) -> Iterator[Source]:
    """Five overlapping samples of four fifths of the odd half: there is only one test set."""
    source = part(data(test_set(name)), True)
    for seed in range(5):
        yield source.take(np.sort(rng.stream("natural", seed).permutation(len(source))[: 4 * len(source) // 5]))


def corrupted_pools(name: str) -> Iterator[Source]:
    """Noise, JPEG and a fog-like loss of contrast, one of them per image; none was looked at while designing."""
    source = part(data(test_set(name)), True)
    clean = source.read(np.arange(len(source)))
    for seed in range(5):
        random = rng.stream("corrupt", seed)
        out = np.empty_like(clean)
        for i, kind in enumerate(random.integers(0, 3, len(clean))):
            x = clean[i].astype(np.float64)
            if kind == 0:
                x = x + random.normal(0, 255 * random.uniform(0.1, 0.3), x.shape)
            elif kind == 1:
                x = jpeg(clean[i], int(random.integers(5, 25)))
            else:
                x = x * (a := random.uniform(0.15, 0.5)) + 255 * (1 - a) * random.uniform(0.3, 0.8)
            out[i] = np.clip(np.round(x), 0, 255)
        yield ArraySource(out, source.labels, classes=source.classes)


def jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    """(c, h, w) through a JPEG file and back."""
    picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    back = np.asarray(Image.open(file), dtype=np.float64)
    return back[None] if back.ndim == 2 else back.transpose(2, 0, 1)


# -- tables


def row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def design(names: list[str]) -> None:
    row("subject", "design", *(f"FDR at {b:.0%}" for b in BUDGETS))
    row(*["---"] * 6)
    for name in names:
        held = [(scan(f"zoo:{name}", pool), pool.labels) for pool in nss_pools(name, False, range(3))]
        for title, score in DESIGNS.items():
            found = [rates(run(facts, y, score)[0], y != facts.predictions.numpy()) for facts, y in held]
            row(name, title, *(f"{v:.1f}" for v in np.mean(found, axis=0)))
        estimates(name, [run(facts, y, hedged)[1] for facts, y in held])


def estimates(name: str, rows: list[list[tuple[int, float, float, float]]]) -> None:
    inside = [low <= true <= high for one in rows for true, _, low, high in one]
    ratios = sorted(value / max(true, 1) for one in rows for true, value, _, _ in one)
    print(
        f"<!-- {name}: faults left, estimate / truth {ratios[0]:.2f} .. {ratios[-1]:.2f} "
        f"(median {ratios[len(ratios) // 2]:.2f}), "
        f"{sum(inside)} of {len(inside)} intervals hold the truth -->",
        flush=True,
    )


def report(names: list[str], wanted: list[str]) -> None:
    row("subject", "pools", "faults", "method", *(f"FDR at {b:.0%}" for b in BUDGETS))
    row(*["---"] * 8)
    kinds = {"nss": lambda n: nss_pools(n, True, range(100, 105)), "natural": natural_pools, "corrupted": corrupted_pools}
    for name in names:
        for kind, make in kinds.items():
            if kind not in wanted:
                continue
            ours, theirs, best, left, shuffled = [], [], [], [], []
            for seed, pool in enumerate(make(name)):
                facts = scan(f"zoo:{name}", pool)
                wrong = pool.labels != facts.predictions.numpy()
                order, estimate = run(facts, pool.labels, hedged)
                ours.append(rates(order, wrong))
                left.append(estimate)
                theirs.append(rates(np.argsort(-deepgini(facts), kind="stable"), wrong))
                best.append([100 * min(1.0, wrong.sum() / round(b * len(wrong))) for b in BUDGETS])
                if kind == "nss" and seed < 2:
                    mixed = rng.stream("shuffle", seed).permutation(pool.labels)
                    fake = mixed != facts.predictions.numpy()
                    shuffled.append(np.subtract(rates(run(facts, mixed, hedged)[0], fake), 100 * fake.mean()))
            share = f"{100 * wrong.mean():.1f} %"
            row(name, kind, share, "DeepGini", *(f"{v:.1f}" for v in np.mean(theirs, axis=0)))
            row(name, kind, share, "adaptive", *(f"{v:.1f}" for v in np.mean(ours, axis=0)))
            gains = [mean_interval(column) for column in (np.array(ours) - np.array(theirs)).T]
            row(name, kind, share, "gain", *(f"{g.value:+.1f} ({g.low:+.1f} .. {g.high:+.1f})" for g in gains))
            row(name, kind, share, "ceiling", *(f"{v:.1f}" for v in np.mean(best, axis=0)))
            if shuffled:
                row(name, kind, share, "shuffled labels, above random", *(f"{v:+.1f}" for v in np.mean(shuffled, axis=0)))
            estimates(f"{name} {kind}", left)


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in ("design", "report"):
        raise SystemExit(__doc__)
    torch.set_num_threads(1)
    assert looping.HEAD + looping.REGRESSION == 1
    wanted = [word for word in sys.argv[2:] if word in KINDS] or list(KINDS)
    names = [word for word in sys.argv[2:] if word not in KINDS]
    names = names or [name for name in SMALL if zoo.find(name).weights is not None]
    if sys.argv[1] == "design":
        design(names)
    else:
        report(names, wanted)


if __name__ == "__main__":
    main()
