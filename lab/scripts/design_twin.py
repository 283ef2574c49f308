"""Would a fine-tuned twin help adaptive selection? A copy of the network, trained briefly on changed training images, as one more
expert: its odds that what the network predicts is wrong.

python lab/scripts/design_twin.py SUBJECT ...      Markdown: gain over DeepGini in points with and without it, even test images

The twin learns from every other image of the bank; the rest says what it is worth before the first label.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from prior_tables import head, row
from report_prior import SUBSETS, Subject, pools, rates, reveal, scan
from torch import Tensor, nn

from neurotest.data.source import ArraySource, Source
from neurotest.mutate.base import Mutations
from neurotest.select.adaptive import bank as banks
from neurotest.select.adaptive import learner
from neurotest.select.adaptive import prior as priors
from neurotest.select.adaptive.experts import PriorLoop
from neurotest.select.adaptive.features import Facts, Gather
from neurotest.select.adaptive.outputs import Outputs
from neurotest.train import train
from neurotest.zoo.recipes import Recipe

RECIPE = Recipe(epochs=2, rate=5e-4, batch=128)
CASES = (("full", "nss"), ("full", "natural"), ("nss", "nss"))  # bank ("nss": none of the pool's changes in it) and pool


@dataclass
class TwinLoop(PriorLoop):
    """As `PriorLoop`, with a sixth expert."""

    twin: Tensor | None = None
    weight: float = 0.0

    @property
    def middle(self) -> Tensor:
        return torch.cat([super().middle, torch.tensor([self.weight], dtype=torch.float64)])

    def _experts(self, labelled: np.ndarray, labels: Tensor, of: np.ndarray | None = None) -> Tensor:
        assert self.twin is not None
        rows = slice(None) if of is None else of
        return torch.cat([super()._experts(labelled, labels, of), self.twin[rows, None]], dim=1)


def images(subject: Subject, copies: Sequence[Mutations | None]) -> np.ndarray:
    """The changed images of a bank in the order of its rows, 8 bits."""
    source = banks._sample_of(subject.train, 0)
    changed = banks._Copies(subject.target, source, 0, copies)
    parts = [x for number in range(len(copies)) for x in changed.each(number, np.arange(len(source)))]
    low, high = subject.target.bounds
    return np.asarray(((torch.cat(parts) - low) / (high - low) * 255).round().clamp(0, 255).to(torch.uint8).numpy())


def odds(module: nn.Module, x: np.ndarray, predicted: Tensor) -> Tensor:
    """The twin's odds that the class which the network predicted is wrong."""
    with torch.inference_mode():
        logits = torch.cat([module(part.float().div_(255)) for part in torch.from_numpy(x).split(500)])
    return Outputs(logits.double()).fault_odds(predicted)


def with_twin(bank: banks.Bank, prior: priors.Prior, twin: Tensor, judged: np.ndarray) -> tuple[priors.Prior, float]:
    """The stack of DeepGini, head and twin on images that the twin has not seen; a pool that looks natural keeps its start."""
    if prior.guarded:
        return prior, 0.0
    shares = np.array([prior.shares[name] for name in bank.names])[bank.operators]
    portion = shares / np.bincount(bank.operators, minlength=len(bank.names))[bank.operators]
    weights = torch.from_numpy((1 - priors.EVERYWHERE) * portion * len(bank) + priors.EVERYWHERE)
    _, oof = priors._crossfit(bank, weights, 30.0)
    outputs = bank.facts.outputs
    faults = (torch.from_numpy(bank.labels) != outputs.predicted).double()
    scores = torch.stack([outputs.gini_odds()[judged], oof[judged], twin], dim=1)
    constant, plain, slope, weight = learner.stacked(scores, faults[judged], weights[judged])
    return replace(prior, stack=(constant, plain, slope)), weight


def compare(facts: Facts, pool: Source, loops: Sequence[PriorLoop]) -> list[list[float]]:
    assert pool.labels is not None
    wrong = pool.labels != loops[0].predictions.numpy()
    deepgini = rates(np.argsort(-loops[0].gini.numpy(), kind="stable"), wrong)
    return [
        [a - b for a, b in zip(rates(reveal(loop, pool.labels, 0.1, 0.005)[0], wrong), deepgini, strict=False)] for loop in loops
    ]


def main(names: list[str]) -> None:
    head("subject", "bank", "pool", "twin trained for", "", "2%", "5%", "10%")
    for name in names:
        subject, modules = Subject(name), {}
        for kind, of in CASES:
            bank, basis = subject.bank(kind)
            judged = bank.images % 2 == 1
            if kind not in modules:
                x = images(subject, SUBSETS.get(kind, banks.COPIES))
                began = time.process_time()
                module = copy.deepcopy(subject.target.module).requires_grad_(True)
                module = train(module, ArraySource(x[~judged], bank.labels[~judged]), RECIPE)
                predicted = bank.facts.outputs.predicted[judged]
                modules[kind] = module, time.process_time() - began, odds(module, x[judged], predicted)
            module, seconds, twin = modules[kind]
            (pool,) = pools(of, name, False, 0)
            (facts,) = scan(subject.target, pool, [Gather(len(pool), basis)])
            prior = priors.learn(bank, facts)
            stacked, weight = with_twin(bank, prior, twin, judged)
            there = odds(module, pool.read(np.arange(len(pool))), facts.outputs.predicted)
            loops = PriorLoop(facts, prior=prior), TwinLoop(facts, prior=stacked, twin=there, weight=weight)
            for word, gains in zip(("without", "with"), compare(facts, pool, loops), strict=True):
                about = name, "unsimulated" if kind == "nss" else "train", of, f"{seconds:.0f} s"
                row(*about, f"{word} twin", *(f"{gain:+.1f}" for gain in gains))
                sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    torch.set_num_threads(1)
    main(sys.argv[1:])
