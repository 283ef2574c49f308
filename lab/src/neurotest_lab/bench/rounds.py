"""A round of adaptive selection by itself: labels taken, learned from, the next batch proposed, in a large pool."""

from __future__ import annotations

import time

import numpy as np
import torch

from neurotest import rng
from neurotest.select.adaptive.experts import PriorLoop
from neurotest.select.adaptive.features import FEATURES, Facts
from neurotest.select.adaptive.outputs import MANY, class_embedding, shortened
from neurotest.select.adaptive.prior import Prior

POOL, ROUND, LABELS = 100_000, 500, 5000
CLASSES = (10, 1000)
SAMPLE, BLOCK = 1000, 5000


def facts_of(pool: int, classes: int) -> Facts:
    """What a scan would give, from random numbers: what a round costs does not depend on what it learns."""
    random = rng.torch_stream("bench.rounds", 0, classes)
    features = torch.randn(pool, FEATURES, generator=random).numpy()
    parts = [3 * torch.randn(min(BLOCK, pool - i), classes, generator=random) for i in range(0, pool, BLOCK)]
    if classes <= MANY:
        return Facts(features, torch.cat(parts).numpy())
    values, names = (np.concatenate(arrays) for arrays in zip(*map(shortened, parts), strict=True))
    return Facts(features, values, names, class_embedding(parts[0][:SAMPLE]))


def begun(pool: int, classes: int, labels: int, batch: int) -> PriorLoop:
    """A loop to which so many labels were told in batches; half of them say that the network is wrong."""
    facts = facts_of(pool, classes)
    head = torch.zeros(FEATURES + 1, facts.outputs.rank, dtype=torch.float64)
    loop = PriorLoop(facts, prior=Prior(head, (0.0, 0.5, 0.5), {"plain": 1.0}, 10.0, guarded=False))
    random = rng.stream("bench.rounds.labels", 0, classes)
    chosen = random.permutation(pool)[:labels]
    for positions in np.split(chosen, range(batch, labels, batch)):
        loop.record_odds(positions)  # nothing was learned in between: these are the odds of the start
        loop.labels.update(zip(positions.tolist(), _answers(loop, positions, random).tolist(), strict=True))
    loop.restore(loop.labels, loop.evidence, batches=loop.batches)
    return loop


def _answers(loop: PriorLoop, positions: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The prediction, or as often any class."""
    predicted = loop.predictions[positions].numpy()
    return np.where(random.random(len(positions)) < 0.5, predicted, random.integers(0, loop.outputs.count, len(positions)))


def measure(pool: int = POOL, batch: int = ROUND, labels: int = LABELS) -> dict[str, dict[str, float]]:
    """Processor seconds of the round in which the last batch of `labels` comes, by the number of classes."""
    seconds = {}
    for classes in CLASSES:
        loop = begun(pool, classes, labels - batch, batch)
        proposed = loop.propose(batch)
        answers = _answers(loop, proposed, rng.stream("bench.rounds.last", 0, classes))
        began = time.process_time()
        loop.tell(proposed, answers)
        loop.propose(batch)
        loop.remaining()
        spent = time.process_time() - began
        seconds[f"{classes} classes"] = {"pool": pool, "labels": labels, "batch": batch, "seconds": spent}
    return seconds
