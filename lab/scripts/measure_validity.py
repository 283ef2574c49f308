"""Measures whether the share of faults that a campaign believes to be valid is the share that a stronger network recognises.

python lab/scripts/measure_validity.py --judges FOLDER      # networks are trained there once; a minute or two each on one core

Prints a Markdown table. The stronger network is one of the zoo trained further on mutants of training images; beside it, where
the zoo has several networks for the data, their majority. Mutants are of three strengths: a campaign's own; up to eight mutations
on top of each other with a looser validity; and shifts by half of the image, after which often nothing is to be seen. Seeds are
test images; the learner's settings were chosen on training images of MNIST.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neurotest import rng
from neurotest.campaign import FuzzResult, fuzz
from neurotest.campaign.believed import Believed
from neurotest.campaign.driver import Watched
from neurotest.data.spec import data
from neurotest.generate.fuzz import Mutant
from neurotest.mutate.base import Family, Mutations
from neurotest.mutate.rules import Rules95
from neurotest.target import Target
from neurotest.target.load import load

FORWARDS, SEEDS, BATCH = 1000, 150, 64
USUAL = Rules95(units="image", contrast=1.0, bilateral=False)


@dataclass(frozen=True, kw_only=True)
class FarShifts(Rules95):
    """The same rules with shifts three times as far."""

    def _families(self) -> Sequence[Family]:
        first, *others = super()._families()
        return (replace(first, rules=tuple((3 * a, 3 * b) for a, b in first.rules)), *others)


STRENGTHS: dict[str, tuple[Mutations, dict[str, Any]]] = {
    "usual": (USUAL, {}),
    "eight on top of each other": (USUAL, {"max_depth": 8, "validity": "nlc-code"}),
    "shifts by half": (FarShifts(units="image", contrast=1.0, bilateral=False), {}),
}


@dataclass(frozen=True)
class Subject:
    """A network under test, the one that is trained further as its judge, on how much of the data, and others of the zoo."""

    target: str
    judge: str
    data: str
    images: int
    steps: int
    majority: tuple[str, ...] = ()


SUBJECTS = {
    "mnist": Subject(
        "mnist-lenet1", "mnist-conv2d", "mnist", 4500, 400,
        ("mnist-conv2d", "mnist-lenet4", "mnist-lenet5", "mnist-fcnet5", "mnist-fcnet10"),
    ),
    "fashion": Subject(
        "fashion-lenet5", "fashion-resnet20", "fashion-mnist", 4500, 150, ("fashion-resnet20", "fashion-lenet1"),
    ),
    "cifar10": Subject("cifar10-resnet20", "cifar10-resnet20", "cifar10", 1000, 100),
}  # fmt: skip


def stronger(subject: Subject, file: Path) -> Target:
    """The judge, trained further on images with one or two mutations; kept in a file."""
    target = load(f"zoo:{subject.judge}")
    if file.is_file():
        target.module.load_state_dict(torch.load(file, weights_only=True))
        return load(target.module.eval(), bounds=target.bounds, size=target.shape, mean=target.mean, std=target.std)
    source = data(f"zoo:{subject.data}/train@0:{subject.images}")
    assert source.labels is not None
    x, y = torch.from_numpy(source.read(np.arange(len(source)))).float() / 255, torch.from_numpy(source.labels)
    optimiser = torch.optim.Adam(target.module.train().parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, subject.steps)
    random = rng.stream("measure.validity", 0)
    for _ in range(subject.steps):
        rows = torch.from_numpy(random.integers(0, len(x), BATCH))
        images = x[rows]
        for _ in range(int(random.integers(1, 3))):
            images = USUAL.apply(images, USUAL.draw(random, BATCH))
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(target.logits(images), y[rows]).backward()
        optimiser.step()
        schedule.step()
    torch.save(target.module.eval().state_dict(), file)
    return stronger(subject, file)


def campaign(target: Target, seeds: str, mutations: Mutations, **options: Any) -> tuple[FuzzResult, Watched, list[Mutant]]:
    outputs: list[Mutant] = []
    fuzzers: list[Watched] = []

    def watch(fuzzer: Watched, batch: list[Mutant], new: list[Mutant]) -> None:
        outputs.extend(batch)
        fuzzers[:] = [fuzzer]

    result = fuzz(target, seeds, "random", forwards=FORWARDS, mutations=mutations, out=False, watch=watch, **options)
    return result, fuzzers[0], outputs


def percent(valid: dict[str, Any] | None) -> str:
    if valid is None or valid["share"] is None:
        return "cannot be told"
    low, high = valid["interval"]
    return f"{100 * valid['share']:.0f} % ({100 * low:.0f} to {100 * high:.0f})"


def majority(subject: Subject, outputs: list[Mutant]) -> str:
    """The share of the faults to which most of the zoo's other networks give their class."""
    faults = [mutant for mutant in outputs if mutant.fault]
    if not subject.majority or not faults:
        return ""
    x, expected = np.stack([fault.x for fault in faults]), np.array([fault.expected for fault in faults])
    votes = []
    for name in subject.majority:
        network = load(f"zoo:{name}")
        with torch.inference_mode():
            parts = [network.logits(network.prepare(x[i : i + 250])) for i in range(0, len(x), 250)]
        votes.append(torch.cat(parts).argmax(1).numpy() == expected)
    return f"{100 * np.mean(np.mean(votes, axis=0) > 0.5):.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judges", type=Path, required=True, help="folder of the trained judges")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    columns = (
        "subject", "mutants", "faults", "believed valid, by the learner", "by the stronger network", "which recognises",
        "the zoo's majority",
    )  # fmt: skip
    print(f"| {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|")
    for name, subject in SUBJECTS.items():
        judge = stronger(subject, arguments.judges / f"{name}.pt")
        target, seeds = load(f"zoo:{subject.target}"), f"zoo:{subject.data}/test@0:{SEEDS}"
        for words, (mutations, options) in STRENGTHS.items():
            result, fuzzer, outputs = campaign(target, seeds, mutations, **options)
            believed = Believed.of(fuzzer.seeds, judge, target, mutations)
            assert believed is not None
            believed.add(outputs)
            by_judge = believed.summary()
            recognised = "" if by_judge is None else f"{100 * by_judge['recognised']:.0f} %"
            cells = [
                f"zoo:{subject.target}", words, f"{result.faults:,}", percent(result.valid), percent(by_judge), recognised,
                majority(subject, outputs),
            ]  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
