"""Campaigns, and their numbers at the limit of each protocol; the study of NSGen reads its own in the same way."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from neurotest import rng
from neurotest.data.source import Source
from neurotest.generate.fuzz import Budget, Fuzzer, Mutant, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.guides import CoverageGuide, CoverageState, Guide
from neurotest.generate.outcome import spread
from neurotest.measure.context import Context
from neurotest.mutate.chain import words
from neurotest.mutate.rules import Rules95
from neurotest.oracles import build_oracles
from neurotest.target.load import load
from neurotest_lab.studies import material
from neurotest_lab.studies.frame import Row, split_of
from neurotest_lab.studies.pictures import pixels, png

# With the settings of the paper's section 5.3; cc's threshold is the number of classes there.
GUIDES = {
    "nc": "nc:0.75", "kmnc": "kmnc:100", "nbc": "nbc", "snac": "snac", "tknc": "tknc:10", "tknp": "tknp:50", "cc": "cc:10",
    "lsc": "lsc", "dsc": "dsc", "mdsc": "mdsc", "cac": "cac:8", "nlc": "nlc", "random": "random",
}  # fmt: skip
LIMITS: dict[str, dict[str, int]] = {
    "quick": {"iterations": 100, "outputs": 150, "forwards": 5_000},
    "full": {"iterations": 10_000, "outputs": 1000, "forwards": 100_000},
}
# A protocol that is not reached after so many forward passes has the numbers of the end, and `reached` says so.
MOST = {"quick": 12_500, "full": 700_000}
SLOW = {"cac": 25}  # so many times fewer for guides that cost so much more
STALLED = {"quick": 128, "full": 6400}  # forward passes without an output, after which coverage counts as full (table 12)
PHOTOGRAPHS = {"iterations": 15, "outputs": 40, "forwards": 800}  # a pass of EfficientNet costs a thousand of LeNet-1
BATCH = 64
STARTS = {"quick": 200, "full": 1000}
PROTOCOLS = ("iterations", "outputs", "forwards")
GALLERY = 6


def drawn(purpose: str, seed: int, test: Source, count: int) -> Source:
    """So many of the inputs, in their order."""
    return test.take(np.sort(rng.stream(purpose, seed).permutation(len(test))[:count]))


def fuzzer_of(
    context: Context, source: Source, guide: Guide, budget: Budget, *, batch: int = BATCH, every_fault: bool = False
) -> Fuzzer:
    """A campaign as the paper's: 95 rules, and faults by the label."""
    target = context.target
    assert target is not None
    judges = build_oracles(target, "label")
    seeds = choose_seeds(target, source, judges)
    settings = Settings(mutations=Rules95(bilateral=False), every_fault=every_fault, seed=context.seed, batch=batch)
    return Fuzzer(target, seeds, guide.start(context, source), judges, settings, budget)


class Stepped:
    """A fuzzer that is stepped: its outputs, the processor time, and the numbers at each protocol's limit.

    keep: whose images are kept; there may be too many of them.
    """

    def __init__(
        self, fuzzer: Fuzzer, limits: dict[str, int], keep: Callable[[Mutant], bool], protocols: Sequence[str] = PROTOCOLS
    ) -> None:
        self.fuzzer, self.limits, self.keep, self.protocols = fuzzer, limits, keep, protocols
        self.outputs: list[Mutant] = []
        self.seconds, self.productive = 0.0, 0  # productive: forward passes at the last output
        self.rows: Row = {}

    def run(self, after: Callable[[], None]) -> Row:
        """Step until every limit is reached or the budget is spent; `after` is called after each step."""
        while self.fuzzer.spent() is None and len(self.rows) < len(self.protocols):
            self._step()
            after()
        for name in self.protocols:
            self.rows.setdefault(name, measures(self.outputs, self.fuzzer, self.seconds, False))
        return self.rows

    def _step(self) -> None:
        clock = time.process_time()
        mutants = self.fuzzer.step()
        self.seconds += time.process_time() - clock
        for mutant in mutants:
            self.outputs.append(mutant if self.keep(mutant) else dataclasses.replace(mutant, x=mutant.x[:0]))
        if mutants:
            self.productive = self.fuzzer.tally.forwards
        for name in self.protocols:
            if name not in self.rows and self.reached(name):
                self.rows[name] = measures(within(name, self.outputs, self.limits[name]), self.fuzzer, self.seconds, True)

    def reached(self, protocol: str) -> bool:
        return reached(protocol, self.fuzzer, self.outputs, self.limits[protocol])


def reached(protocol: str, fuzzer: Fuzzer, outputs: list[Mutant], limit: int) -> bool:
    """Iterations overlap in a batch: the first so many are over when none of them is open."""
    if protocol == "outputs":
        return len(outputs) >= limit
    if protocol == "forwards":
        return fuzzer.tally.forwards >= limit
    return fuzzer.opened >= limit and all(turn.iteration >= limit for turn in fuzzer.turns)


def within(protocol: str, outputs: list[Mutant], limit: int) -> list[Mutant]:
    if protocol == "outputs":
        return outputs[:limit]
    return [m for m in outputs if m.iteration < limit] if protocol == "iterations" else outputs


def measures(outputs: list[Mutant], fuzzer: Fuzzer, seconds: float, reached: bool) -> Row:
    """The study's numbers at one moment of a campaign."""
    faults = [m for m in outputs if m.fault]
    predicted = Counter(m.predicted for m in faults)
    forwards = fuzzer.tally.forwards
    return {
        "faults": len(faults), "outputs": len(outputs), "rft": len(faults) / len(outputs) if outputs else None,
        "fre": seconds / len(faults) if faults else None, "true classes": len({m.expected for m in faults}),
        "predicted classes": len(predicted), "families": len({m.family for m in faults}),
        "oi": spread([n for k, n in predicted.items() if k >= 0], fuzzer.seeds.classes),
        "faults per 1,000 forwards": 1000 * len(faults) / forwards if forwards else None,
        "coverage": fuzzer.guide.value(), "reached": reached,
    }  # fmt: skip


def picture(mutant: Mutant) -> Row:
    image = png(pixels(np.asarray(mutant.x)), optimize=False)
    return {"change": words(mutant.chain), "label": mutant.label, "predicted": mutant.predicted, "png": image}


def campaign(subject: str, seed: int, name: str, scale: str) -> Row:
    """One campaign with its numbers at each protocol's limit."""
    context = Context(target=load(f"zoo:{subject}"), train=split_of(subject, "train[:1000]"), seed=seed, cache=True)
    source = drawn("study.fuzzing", seed, split_of(subject, "test"), STARTS[scale])
    return run(context, source, name, LIMITS[scale], MOST[scale] // SLOW.get(name, 1), STALLED[scale])


def photographs(seed: int, name: str) -> Row:
    """The same on photographs: seeds are those with odd numbers, and those with even ones set the ranges of neurons."""
    target, images = material.photographs()
    context = Context(target=target, train=images.take(np.arange(0, len(images), 2)), seed=seed)
    source = drawn("study.fuzzing.photographs", seed, images.take(np.arange(1, len(images), 2)), len(images) // 4)
    return run(context, source, name, PHOTOGRAPHS, PHOTOGRAPHS["forwards"], STALLED["quick"], batch=16)


def run(
    context: Context, source: Source, name: str, limits: dict[str, int], most: int, stalled: int, *, batch: int = BATCH
) -> Row:
    """A campaign up to its limits; table 12's may go on with empty coverage after the others."""
    resets = 0
    with fuzzer_of(context, source, build_guide(GUIDES[name]), Budget(forwards=most), batch=batch) as fuzzer:
        stepped = Stepped(fuzzer, limits, lambda _: len(stepped.outputs) < GALLERY)

        def empty() -> None:
            """Coverage as before any input, the training data included, once it is full or finds nothing more."""
            nonlocal resets
            waited = fuzzer.tally.forwards - stepped.productive >= stalled
            guide = fuzzer.guide
            bounded = isinstance(guide, CoverageState) and guide.state.value().total is not None
            if set(PROTOCOLS) - set(stepped.rows) == {"outputs"} and (waited or (bounded and guide.value() == 1.0)):
                method = build_guide(GUIDES[name])
                if isinstance(method, CoverageGuide):
                    fuzzer.guide.restore(CoverageState(method.criterion.start(context)).arrays())
                resets, stepped.productive = resets + 1, fuzzer.tally.forwards

        rows = stepped.run(empty)
    rows = {protocol: {**row, "resets": resets if protocol == "outputs" else 0} for protocol, row in rows.items()}
    return {**rows, "gallery": [picture(mutant) for mutant in stepped.outputs[:GALLERY]]}
