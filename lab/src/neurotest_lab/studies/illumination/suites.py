"""What every generator makes of a subject at an equal number of forward passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.campaign.swarm import swarm
from neurotest.data.source import Source
from neurotest.generate.differential import diff
from neurotest.generate.fuzz import Budget, build_guide, choose_seeds
from neurotest.generate.fuzz.semantic import NSGenState
from neurotest.generate.gradient import AttackResult, attack
from neurotest.generate.illuminate import illuminate
from neurotest.generate.illuminate.settings import BACKWARD
from neurotest.measure.context import Context
from neurotest.oracles import build_oracles
from neurotest.target import Target
from neurotest.target.load import load
from neurotest_lab.studies.frame import split_of
from neurotest_lab.studies.fuzzing.cells import BATCH, fuzzer_of
from neurotest_lab.studies.fuzzing.cells import GUIDES as CRITERIA

# NSGen's threshold comes from two training images per class, not from ten: reading their paths is most of its cost.
OTHERS = {"random": "random", "tensorfuzz": "tensorfuzz", "nsgen": "nsgen:per_class=2"}
GUIDES = {**{name: text for name, text in CRITERIA.items() if name != "random"}, "deephunter": "deephunter"}
PATH = 1.5  # what a pass of a decision path counts here: half of them are backward ones, which the guide counts once
EPS = {1: 0.1, 3: 8 / 255}  # by channels: what is usual for grey and for colour images
PGD = "eps={eps:.5f},step={step:.5f},steps=10"
SECOND = {"fashion": "fashion-lenet1", "mnist": "mnist-lenet1"}  # what DeepXplore compares with
SEEDS = 200
TRAIN, REFERENCE = 500, 1000  # training images that guides learn from, and that suites are judged by
SMALL = 8  # mutants at a time where a decision path of each is read: it takes 15 passes
SHARE = 5  # seeds that share a swarm's budget: one that does not fail cannot take it all


@dataclass(frozen=True, eq=False)
class Suite:
    """Faults of a generator with their seeds, and what they cost."""

    x: NDArray[np.generic]
    seeds: NDArray[np.generic]
    expected: NDArray[np.int64]
    roots: NDArray[np.int64]
    faults: int  # in all, where the suite is a choice among them
    spent: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Subject:
    target: Target
    source: Source
    train: Source
    reference: Source
    name: str
    draw: int
    forwards: int

    @property
    def eps(self) -> float:
        return EPS.get(self.source.shape[0], 0.1)

    def method(self, text: str) -> str:
        """The text of a method with the radius of the subject."""
        return text.format(eps=self.eps, step=self.eps / 4)


def subject(name: str, draw: int, forwards: int, odd: bool = True) -> Subject:
    """A network and 200 test images at odd places; even ones were used while illumination was designed."""
    test, reference = split_of(name, "test"), split_of(name, f"train[:{REFERENCE}]")
    places = rng.stream("study.illumination", draw).permutation(len(test) // 2)[:SEEDS] * 2 + int(odd)
    train = reference.take(np.arange(min(TRAIN, len(reference))))
    return Subject(load(f"zoo:{name}"), test.take(np.sort(places)), train, reference, name, draw, forwards)


def fuzzed(on: Subject, name: str) -> Suite:
    """All faults of a campaign; no batch is begun when the budget is spent."""
    context = Context(target=on.target, train=on.train, seed=on.draw, cache=True)
    guide, budget = build_guide({**OTHERS, **GUIDES}[name]), Budget(forwards=100 * on.forwards)
    with fuzzer_of(context, on.source, guide, budget, batch=SMALL if name == "nsgen" else BATCH, every_fault=True) as fuzzer:
        began, faults, spent, state = time.process_time(), [], 0, fuzzer.guide
        while spent < on.forwards and fuzzer.spent() is None:
            faults += [m for m in fuzzer.step() if m.fault]
            # What a guide reads of the seeds is not counted, as everywhere here: of each mutant, it is.
            own = round(PATH * state.ready.passes * state.pairs) if isinstance(state, NSGenState) else state.forwards
            spent = fuzzer.tally.forwards - state.forwards + own
    seeds = fuzzer.seeds
    roots = np.array([m.root for m in faults], dtype=np.int64)
    x = np.stack([np.asarray(m.x) for m in faults]) if faults else seeds.x[:0]
    expected = np.array([m.expected for m in faults], dtype=np.int64)
    return Suite(x, seeds.x[roots], expected, roots, len(faults), spent, time.process_time() - began)


def illuminated(on: Subject) -> Suite:
    began = time.process_time()
    result = illuminate(on.target, on.source, on.forwards, seed=on.draw, out=False)
    seconds = time.process_time() - began
    return Suite(result.x, result.seeds, result.expected, result.positions, result.all_faults, result.spent, seconds)


def _cost(result: AttackResult) -> int:
    """Passes of an attack without the one over its seeds, a backward pass counted as two."""
    return result.forwards - result.set_aside - len(np.unique(result.positions)) + BACKWARD * result.backwards


def _affordable(on: Subject, run: Callable[[int], AttackResult], each: int) -> Suite:
    """An attack on as many seeds as the budget pays for: `each` is what one seed costs, a backward pass counted as two."""
    began = time.process_time()
    result = run(max(1, min(SEEDS, on.forwards // each)))
    rows = np.flatnonzero(result.fault)
    x, seeds, expected, roots = result.x[rows], result.seeds[rows], result.expected[rows], result.positions[rows]
    return Suite(x, seeds, expected, roots, len(rows), _cost(result), time.process_time() - began)


def attacked(on: Subject, text: str, each: int, diversity: float = 0.0) -> Suite:
    method = on.method(text)
    return _affordable(on, lambda n: attack(on.target, on.source, method, diversity, limit=n, seed=on.draw, out=False), each)


def differing(on: Subject, text: str, each: int, second: bool = False) -> Suite:
    """second: beside another network of the same data."""
    others = [f"zoo:{SECOND[on.name.partition('-')[0]]}"] if second else []
    return _affordable(on, lambda n: diff([on.target, *others], on.source, text, limit=n, seed=on.draw, out=False), each)


Faults = tuple[NDArray[np.generic], NDArray[np.int64], int]  # inputs, rows of their seeds among those given, cost


def _while_paid(on: Subject, run: Callable[[Source, int], Faults], few: int) -> Suite:
    """Seeds the target gets right, `few` at a time with what is left of the budget; none are begun when it is spent."""
    began = time.process_time()
    seeds = choose_seeds(on.target, on.source, build_oracles(on.target, "label"))
    xs, roots, spent = [], [], 0
    for start in range(0, len(seeds), few):
        if spent >= on.forwards:
            break
        x, rows, cost = run(on.source.take(seeds.positions[start : start + few]), on.forwards - spent)
        spent += cost
        xs.append(x)
        roots.append(start + rows)
    where = np.concatenate(roots).astype(np.int64)
    seconds = time.process_time() - began
    return Suite(np.concatenate(xs), seeds.x[where], seeds.roots.labels[where], where, len(where), spent, seconds)


def one_by_one(on: Subject, text: str) -> Suite:
    """An attack of the toolbox, whose cost is not known before."""

    def run(source: Source, left: int) -> Faults:
        result = attack(on.target, source, on.method(text), seed=on.draw, out=False)
        rows = np.flatnonzero(result.fault)
        return result.x[rows], result.positions[rows], _cost(result)

    return _while_paid(on, run, 1)


def swarmed(on: Subject, fitness: str) -> Suite:
    """A swarm; its faults are run again, and weighing neurons takes a backward pass."""

    def run(source: Source, left: int) -> Faults:
        each = max(1, min(on.forwards // SHARE, left // len(source)))
        result = swarm(
            on.target, source, fitness, train=on.train, evaluations=each, radius=on.eps, seed=on.draw, beside=(), out=False
        )
        return result.x, result.rows, max(result.tally.forwards, round(result.evaluations * result.seeds)) + len(result.x)

    return _while_paid(on, run, SHARE)


Make = Callable[[Subject], Suite]
DEEPXPLORE: dict[str, Make] = {
    f"deepxplore {kind}": partial(differing, text=f"deepxplore:{kind}", each=90, second=True)
    for kind in ("light", "occlusion", "blackout")
}
# What a seed costs an attack: 3 per step, and what is run again, rounded and not, and for the control.
GENERATORS: dict[str, Make] = {
    "illuminate": illuminated,
    **{name: partial(fuzzed, name=name) for name in (*OTHERS, *GUIDES)},
    "fgsm": partial(attacked, text="fgsm:{eps:.5f}", each=6),
    "pgd": partial(attacked, text=f"pgd:{PGD}", each=33),
    "pgd, diversity 1": partial(attacked, text=f"pgd:{PGD}", each=33, diversity=1.0),
    "cw": partial(attacked, text="cw:steps=30,searches=3,weight=0.1", each=273),
    "deepfool": partial(one_by_one, text="deepfool:steps=10"),
    "jsma": partial(one_by_one, text="jsma"),
    "autoattack": partial(one_by_one, text=f"autoattack:{PGD},queries=50"),
    "dlfuzz": partial(differing, text="dlfuzz", each=30),
    "adapt": partial(differing, text="adapt", each=30),
    **{f"swarm, {fitness}": partial(swarmed, fitness=fitness) for fitness in ("excitability", "sensitivity")},
    **DEEPXPLORE,
}
