"""Fuzzing: the time of a guided campaign over that of the bare forward passes it makes, over random, and over the published loop.

The published loop tests one mutant after the other; it is rebuilt here with our mutations and criteria, so that only the way
of looping differs. The bilateral blur, which costs more than everything else, is left out and timed beside.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from neurotest import rng
from neurotest.generate.fuzz import Budget, Fuzzer, Seeds, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.guides import Guide, GuideState, RandomGuide
from neurotest.generate.fuzz.mutants import Tally
from neurotest.measure.context import Context
from neurotest.mutate.operators import BILATERAL, Blur
from neurotest.mutate.rules import Rules95
from neurotest.oracles import Oracles, build_oracles
from neurotest.target import Probe
from neurotest_lab.bench.ratio import Pair, counted, subject_of

SUBJECTS = ("mnist-lenet5", "cifar10-resnet20")
GUIDE = "kmnc:1000"
FORWARDS = {"mnist-lenet5": 12000}  # of one campaign; other subjects make fewer
BATCH = 256
IMAGES = 500


class _Bench:
    """One subject, ready to be fuzzed again and again from the same start."""

    def __init__(self, name: str) -> None:
        self.target, self.source = subject_of(name, IMAGES)
        self.judges: Oracles = build_oracles(self.target, "metamorphic")
        self.seeds: Seeds = choose_seeds(self.target, self.source, self.judges)
        self.settings = Settings(mutations=Rules95(bilateral=False), batch=BATCH)
        self.state: GuideState = build_guide(GUIDE).start(Context(target=self.target, train=self.source), self.source)
        self.arrays = self.state.arrays()

    def fuzzer(self, budget: Budget) -> Fuzzer:
        self.state.restore(self.arrays)  # starting anew would pass over the training data again
        return Fuzzer(self.target, self.seeds, self.state, self.judges, self.settings, budget)


def fuzz_pairs(name: str) -> Iterator[tuple[str, Pair]]:
    """A campaign over its bare passes; goals over random; the published loop over ours; the bilateral blur over a pass."""
    bench = _Bench(name)
    budget = Budget(forwards=FORWARDS.get(name, 1500))
    forwards = _campaign(bench, budget).forwards
    yield f"{GUIDE}/batch{BATCH}", (lambda: _campaign(bench, budget), lambda: _bare(bench, forwards))
    random, goals = RandomGuide(), build_guide("goals")
    yield f"goals over random/batch{BATCH}", (lambda: _anew(bench, goals, budget), lambda: _anew(bench, random, budget))
    both = _controlled(bench, budget)
    yield f"{GUIDE}/batch{BATCH}, with its control", (lambda: _controlled(bench, budget), lambda: _bare(bench, both))
    few = Budget(forwards=4 * BATCH)
    tested = _campaign(bench, few).tested
    yield f"published loop over ours, {tested} mutants", (lambda: _one_by_one(bench, tested), lambda: _campaign(bench, few))
    images = bench.seeds.unit(bench.seeds.x[:64])
    bilateral = torch.full((len(images), 1), float(BILATERAL))
    yield "bilateral blur/64 images", (lambda: Blur().apply(images, bilateral), lambda: _bare(bench, len(images)))


def _campaign(bench: _Bench, budget: Budget) -> Tally:
    with bench.fuzzer(budget) as fuzzer:
        for _ in fuzzer.run():
            pass
        return fuzzer.tally


def _anew(bench: _Bench, guide: Guide, budget: Budget) -> Tally:
    """A campaign with a guide that learns nothing before it."""
    state = guide.start(Context(target=bench.target), bench.source)
    with Fuzzer(bench.target, bench.seeds, state, bench.judges, bench.settings, budget) as fuzzer:
        for _ in fuzzer.run():
            pass
        return fuzzer.tally


def _controlled(bench: _Bench, budget: Budget) -> int:
    """The same beside its control; the forward passes of both."""
    with bench.fuzzer(budget).controlled() as fuzzer:
        assert fuzzer.control is not None
        for _ in fuzzer.run():
            fuzzer.control.follow(fuzzer.tally.forwards)
        return fuzzer.tally.forwards + fuzzer.control.tally.forwards


def _bare(bench: _Bench, forwards: int) -> None:
    x = bench.target.prepare(bench.seeds.x[np.arange(BATCH) % len(bench.seeds)])
    counted(bench.target, x, forwards)()


def _one_by_one(bench: _Bench, mutants: int) -> None:
    """Draw, mutate, check, run and judge a single mutant at a time."""
    bench.state.restore(bench.arrays)
    space, validity, guide, seeds = bench.settings.mutations, bench.settings.validity, bench.state, bench.seeds
    random, tested = rng.stream("bench.fuzz", 0), 0
    assert guide.want is not None
    with Probe(bench.target, guide.want) as probe, torch.inference_mode():
        while tested < mutants:
            root = int(random.integers(len(seeds)))
            parent = seeds.unit(seeds.x[root : root + 1])
            for _ in range(bench.settings.tries):
                draws = space.draw(random, 1)
                mutant = space.apply(parent, draws)
                once = bool(space.once[draws.kind[0]])
                if bool((mutant == parent).all()) or not (once or bool(validity.check(mutant, parent)[0])):
                    continue
                x = bench.target.prepare(seeds.stored(mutant))
                trace = probe(x)
                bench.judges(x, trace.logits, seeds.roots[np.array([root])])
                tested += 1
                if guide.gain(trace)[0] > 0:
                    guide.keep(trace)
                    break
                if tested >= mutants:
                    break
