"""Adaptive selection on a network of very many classes: one photograph of each class, sorted by class.

python lab/scripts/measure_photographs.py TARGET FOLDER      Markdown: FDR at 10 and 20 %, and the processor time of a round

FOLDER holds a photograph per class, the n-th file of class n. A quarter (every fourth, from the second) stands for training data;
every fourth from the fourth, changed twice each by an `nss` mutation, is the pool. The others are left for designing.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
from prior_tables import head, row
from report_prior import scan

from neurotest.data.source import ArraySource, Source
from neurotest.jobs.opening import open_data
from neurotest.mutate.nss import nss_pool
from neurotest.select.adaptive import bank as banks
from neurotest.select.adaptive import prior as priors
from neurotest.select.adaptive.experts import PriorLoop
from neurotest.select.adaptive.features import Gather
from neurotest.select.adaptive.learning import Loop
from neurotest.stats.bootstrap import wilson
from neurotest.target.load import load

BUDGETS = (0.1, 0.2)
ROUND = 10


def some(photographs: Source, first: int) -> ArraySource:
    index = np.arange(first, len(photographs), 4)
    return ArraySource(photographs.read(index), index)


def reveal(loop: Loop, labels: np.ndarray, wanted: int) -> tuple[np.ndarray, list[float]]:
    """The order in which labels were asked for, and the processor seconds of each round."""
    order: list[int] = []
    seconds = []
    while len(order) < wanted:
        began = time.process_time()
        batch = loop.propose(min(ROUND, wanted - len(order)))
        loop.tell(batch, labels[batch])
        seconds.append(time.process_time() - began)
        order += batch.tolist()
    return np.array(order), seconds


def main(spec: str, folder: str) -> None:
    target = load(spec)
    photographs = open_data(target, f"dir:{folder}")
    train, clean = some(photographs, 1), some(photographs, 3)
    pools = [nss_pool(source=clean, seed=seed) for seed in (0, 1)]
    labels = np.concatenate([pool.labels for pool in pools if pool.labels is not None])
    pool = ArraySource(np.concatenate([one.read(np.arange(len(one))) for one in pools]), labels)
    bank, basis = banks.of_training(target, train)
    facts, own = scan(target, pool, [Gather(len(pool), basis), Gather(len(pool))])
    prior = priors.learn(bank, facts)
    loops = {"adaptive": PriorLoop(facts, prior=prior), "adaptive:prior=none": Loop(own)}
    wrong = labels != loops["adaptive"].predictions.numpy()
    wanted = round(BUDGETS[-1] * len(pool))
    orders = {"deepgini": np.argsort(-loops["adaptive"].gini.numpy(), kind="stable")}
    orders["foreseen"] = np.argsort(-loops["adaptive"].posterior.odds.numpy(), kind="stable")
    times: dict[str, list[float]] = {}
    for name, loop in loops.items():
        orders[name], times[name] = reveal(loop, labels, wanted)
    head("method", *(f"FDR at {b:.0%}" for b in BUDGETS), "longest round")
    for name, order in orders.items():
        shares = [wilson(int(wrong[order[: round(b * len(pool))]].sum()), round(b * len(pool))) for b in BUDGETS]
        cells = (f"{100 * s.value:.1f} % ({100 * s.low:.1f} .. {100 * s.high:.1f})" for s in shares)
        row(name, *cells, f"{max(times[name]):.2f} s" if name in times else "")
    row("(expected at random)", *[f"{100 * wrong.mean():.1f} %"] * len(BUDGETS), "")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    torch.set_num_threads(1)
    main(*sys.argv[1:])
