"""What every generator makes of a subject at an equal number of forward passes."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neurotest import rng, zoo
from neurotest.campaign.swarm import swarm
from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.generate.differential import diff
from neurotest.generate.fuzz import Budget, Fuzzer, Seeds, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.semantic import NSGenState
from neurotest.generate.gradient import AttackResult, attack
from neurotest.generate.illuminate import illuminate
from neurotest.generate.illuminate.settings import BACKWARD
from neurotest.measure.context import Context
from neurotest.mutate.rules import Rules95
from neurotest.oracles import build_oracles
from neurotest.target import Target
from neurotest.target.load import load

# Criteria with the settings of NSGen's section 5.3.
GUIDES = {
    "nc": "nc:0.75", "kmnc": "kmnc:100", "nbc": "nbc", "snac": "snac", "tknc": "tknc:10", "tknp": "tknp:50", "cc": "cc:10",
    "lsc": "lsc", "dsc": "dsc", "mdsc": "mdsc", "cac": "cac:8", "nlc": "nlc", "deephunter": "deephunter",
}  # fmt: skip
# NSGen's threshold comes from two training images per class, not from ten: reading their paths is most of its cost.
OTHERS = {"random": "random", "tensorfuzz": "tensorfuzz", "nsgen": "nsgen:per_class=2"}
PATH = 1.5  # what a pass of a decision path counts here: half of them are backward ones, which the guide counts once
EPS = {1: 0.1, 3: 8 / 255}  # by channels: what is usual for grey and for colour images
SECOND = {"fashion": "fashion-lenet1", "mnist": "mnist-lenet1"}  # what DeepXplore compares with
SEEDS = 200
TRAIN, KNOWN = 500, 1000  # training images that guides learn from, and that suites are judged by
BATCH, SMALL = 64, 8  # mutants at a time; a decision path takes 15 passes
TOOLBOX = ("deepfool", "jsma", "autoattack")
SWARMS = ("excitability", "sensitivity")
SHARE = 5  # seeds that share a swarm's budget: one that holds out cannot take it all


@dataclass(frozen=True, eq=False)
class Suite:
    """Faults of a generator with their seeds, and what they cost."""

    x: NDArray[np.generic]
    seeds: NDArray[np.generic]
    expected: NDArray[np.int64]
    roots: NDArray[np.int64]
    found: int  # faults in all, where the suite is a choice among them
    spent: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Subject:
    target: Target
    source: Source
    train: Source
    known: Source
    name: str
    draw: int
    forwards: int


def subject(name: str, draw: int, forwards: int, odd: bool = True) -> Subject:
    """A network and 200 test images at odd places; even ones were used while illumination was designed."""
    dataset = zoo.find(name).dataset
    test = data(f"zoo:{dataset}/test")
    places = rng.stream("study.illumination", draw).permutation(len(test) // 2)[:SEEDS] * 2 + int(odd)
    known = data(f"zoo:{dataset}/train[:{KNOWN}]")
    train = known.take(np.arange(min(TRAIN, len(known))))
    return Subject(load(f"zoo:{name}"), test.take(np.sort(places)), train, known, name, draw, forwards)


def fuzzed(on: Subject, name: str) -> Suite:
    """All faults of a campaign; no batch is begun when the budget is spent."""
    judges = build_oracles(on.target, "label")
    seeds = choose_seeds(on.target, on.source, judges)
    guide = build_guide({**OTHERS, **GUIDES}[name])
    state = guide.start(Context(target=on.target, train=on.train, seed=on.draw, cache=True), on.source)
    settings = Settings(mutations=Rules95(bilateral=False), batch=SMALL if name == "nsgen" else BATCH, seed=on.draw)
    began, faults, spent = time.process_time(), [], 0
    with Fuzzer(on.target, seeds, state, judges, settings, Budget(forwards=100 * on.forwards)) as fuzzer:
        while spent < on.forwards and fuzzer.spent() is None:
            faults += [m for m in fuzzer.step() if m.fault]
            # What a guide reads of the seeds is not counted, as everywhere here: of each mutant, it is.
            own = round(PATH * state.ready.passes * state.pairs) if isinstance(state, NSGenState) else state.forwards
            spent = fuzzer.tally.forwards - state.forwards + own
    roots = np.array([m.root for m in faults], dtype=np.int64)
    x = np.stack([np.asarray(m.x) for m in faults]) if faults else seeds.x[:0]
    expected = np.array([m.expected for m in faults], dtype=np.int64)
    return Suite(x, seeds.x[roots], expected, roots, len(faults), spent, time.process_time() - began)


def moved(on: Subject, make: Callable[[int], AttackResult], each: int) -> Suite:
    """An attack on as many seeds as the budget pays for: `each` is what one seed costs, a backward pass counted as two."""
    began = time.process_time()
    found = make(max(1, min(SEEDS, on.forwards // each)))
    rows = np.flatnonzero(found.fault)
    return Suite(
        found.x[rows], found.seeds[rows], found.expected[rows], found.positions[rows], len(rows), _cost(found),
        time.process_time() - began,
    )  # fmt: skip


def _cost(found: AttackResult) -> int:
    """Passes of an attack without the one over its seeds, a backward pass counted as two."""
    return found.forwards - found.set_aside - len(np.unique(found.positions)) + BACKWARD * found.backwards


Faults = tuple[NDArray[np.generic], NDArray[np.int64], int]  # inputs, rows of their seeds among those given, cost


def paid(on: Subject, make: Callable[[Source, int], Faults], few: int) -> Suite:
    """Seeds the target gets right, `few` at a time with what is left of the budget; none are begun when it is spent."""
    began = time.process_time()
    seeds: Seeds = choose_seeds(on.target, on.source, build_oracles(on.target, "label"))
    xs, roots, spent = [], [], 0
    for start in range(0, len(seeds), few):
        if spent >= on.forwards:
            break
        x, rows, cost = make(on.source.take(seeds.positions[start : start + few]), on.forwards - spent)
        spent += cost
        xs.append(x)
        roots.append(start + rows)
    where = np.concatenate(roots).astype(np.int64)
    return Suite(
        np.concatenate(xs), seeds.x[where], seeds.roots.labels[where], where, len(where), spent, time.process_time() - began
    )


def illuminated(on: Subject) -> Suite:
    began = time.process_time()
    found = illuminate(on.target, on.source, on.forwards, seed=on.draw, out=False)
    spent, seconds = found.spent, time.process_time() - began
    return Suite(found.x, found.seeds, found.expected, found.positions, found.all_faults, spent, seconds)


def boxed(on: Subject, text: str) -> Callable[[Source, int], Faults]:
    """An attack of the toolbox; what it costs cannot be told before."""

    def make(source: Source, left: int) -> Faults:
        found = attack(on.target, source, text, seed=on.draw, out=False)
        rows = np.flatnonzero(found.fault)
        return found.x[rows], found.positions[rows], _cost(found)

    return make


def flown(on: Subject, fitness: str, eps: float) -> Callable[[Source, int], Faults]:
    """A swarm; what it found is run again, and weighing neurons takes a backward pass."""

    def make(source: Source, left: int) -> Faults:
        each = max(1, min(on.forwards // SHARE, left // len(source)))
        found = swarm(
            on.target, source, fitness, train=on.train, evaluations=each, radius=eps, seed=on.draw, beside=(), out=False
        )
        cost = max(found.tally.forwards, round(found.evaluations * found.seeds)) + len(found.x)
        return found.x, found.rows, cost

    return make


def generators(on: Subject) -> dict[str, Callable[[], Suite]]:
    """Every generator; what a seed costs an attack: 3 per step, and what is run again, rounded and not, and for the control."""
    eps = EPS.get(on.source.shape[0], 0.1)

    def attacked(text: str, diversity: float = 0.0) -> Callable[[int], AttackResult]:
        return lambda n: attack(on.target, on.source, text, diversity, limit=n, seed=on.draw, out=False)

    def differing(text: str, *others: str) -> Callable[[int], AttackResult]:
        return lambda n: diff([on.target, *others], on.source, text, limit=n, seed=on.draw, out=False)

    made: dict[str, Callable[[], Suite]] = {"illuminate": functools.partial(illuminated, on)}
    made |= {name: functools.partial(fuzzed, on, name) for name in (*OTHERS, *GUIDES)}
    pgd = f"eps={eps:.5f},step={eps / 4:.5f},steps=10"
    made |= {
        "fgsm": lambda: moved(on, attacked(f"fgsm:{eps:.5f}"), 6),
        "pgd": lambda: moved(on, attacked(f"pgd:{pgd}"), 33),
        "pgd, diversity 1": lambda: moved(on, attacked(f"pgd:{pgd}", 1.0), 33),
        "cw": lambda: moved(on, attacked("cw:steps=30,searches=3,weight=0.1"), 273),
        "deepfool": lambda: paid(on, boxed(on, "deepfool:steps=10"), 1),
        "jsma": lambda: paid(on, boxed(on, "jsma"), 1),
        "autoattack": lambda: paid(on, boxed(on, f"autoattack:{pgd},queries=50"), 1),
        "dlfuzz": lambda: moved(on, differing("dlfuzz"), 30),
        "adapt": lambda: moved(on, differing("adapt"), 30),
    }
    made |= {f"swarm, {name}": functools.partial(paid, on, flown(on, name, eps), SHARE) for name in SWARMS}
    second = SECOND.get(on.name.partition("-")[0])
    if second is not None:
        for kind in ("light", "occlusion", "blackout"):
            made[f"deepxplore {kind}"] = functools.partial(moved, on, differing(f"deepxplore:{kind}", f"zoo:{second}"), 90)
    return made
