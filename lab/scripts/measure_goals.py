"""Measures the guide `goals` beside random at equal forward passes: the tables of docs/notes/guide-goals.md.

python lab/scripts/measure_goals.py reach        # families, pairs, seeds, sizes of changes; half an hour on one core
python lab/scripts/measure_goals.py hard         # seeds that no single rule breaks; needs `neurotest data get cifar10`
python lab/scripts/measure_goals.py few          # with 20 seeds
python lab/scripts/measure_goals.py left         # Chao's estimate beside longer campaigns
python lab/scripts/measure_goals.py many         # the share of planning in the time, with 100,000 seeds; also with 1,000 classes:
python lab/scripts/measure_goals.py many --target SPEC --seeds DATA    # a network and photographs for it
python lab/scripts/measure_goals.py cost         # processor time over random's at batch 256
python lab/scripts/measure_goals.py inside       # forecasts from logits, neurons, pixels, and a bonus for coverage

Prints a Markdown table. Repetition r starts from other seeds and other random numbers; settings were chosen on other repetitions,
and never on mnist-lenet1 and fashion-lenet1. Counts at so many passes are interpolated between batches. The slow bilateral blur
is left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy import stats

from neurotest import rng, zoo
from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.generate.fuzz import Budget, Fuzzer, Mutant, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.guides import Guide
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.measure.context import Context
from neurotest.mutate.base import Family, Mutations
from neurotest.mutate.rules import Rules95
from neurotest.oracles import build_oracles
from neurotest.stats.diversity import chao1
from neurotest.target import Target
from neurotest.target.load import load
from neurotest_lab.studies.frame import odd, split_of

LENETS, RESNETS = ("mnist-lenet5", "fashion-lenet5"), ("fashion-resnet20", "cifar10-resnet20")
UNTOUCHED = ("mnist-lenet1", "fashion-lenet1")
PASSES = {**dict.fromkeys((*LENETS, *UNTOUCHED), 6000), **dict.fromkeys(RESNETS, 4000)}
REPETITIONS, SEEDS, FEW = 3, 200, 10
LONG = 20000


class PixelRules(Rules95):
    """Contrast, brightness and blur only."""

    def _families(self) -> Sequence[Family]:
        return tuple(super()._families())[3:]


@dataclass
class Course:
    """One campaign: its counts after every batch, and the least change of each broken seed."""

    passes: list[int] = field(default_factory=lambda: [0])
    counts: dict[str, list[int]] = field(default_factory=dict)
    smallest: dict[int, float] = field(default_factory=dict)
    families: list[dict[tuple[int, int, str], int]] = field(default_factory=lambda: [{}])

    def at(self, name: str, passes: int) -> float:
        return float(np.interp(passes, self.passes, self.counts[name]))


def drawn(subject: str, repetition: int, count: int | None) -> Source:
    test = split_of(subject, "test")
    order = rng.stream("measure.goals", repetition).permutation(len(test))
    return test.take(np.sort(order[:count]))


def campaign(subject: str, guide: str | Guide, repetition: int, passes: int, count: int = SEEDS) -> Course:
    target = load(f"zoo:{subject}")
    source = drawn(subject, repetition, count)
    seeds = choose_seeds(target, source, build_oracles(target, "label"))
    return course_of(target, source, seeds, guide, repetition, passes, Rules95(bilateral=False))


def course_of(
    target: Target, source: Source, seeds: Seeds, guide: str | Guide, repetition: int, passes: int, mutations: Mutations
) -> Course:
    state = build_guide(guide).start(Context(target=target, train=source, seed=repetition), source)
    settings = Settings(mutations=mutations, seed=repetition)
    course = Course()
    keys: dict[str, set[Any]] = {name: set() for name in ("families", "pairs", "seeds", "seed and class")}
    course.counts = {name: [0] for name in keys}
    with Fuzzer(target, seeds, state, build_oracles(target, "label"), settings, Budget(forwards=passes)) as fuzzer:
        for outputs in fuzzer.run():
            for mutant in filter(lambda m: m.fault, outputs):
                _count(mutant, keys, course)
            course.passes.append(fuzzer.tally.forwards)
            for name, values in keys.items():
                course.counts[name].append(len(values))
            course.families.append(dict(fuzzer.tally.families))
    return course


def _count(mutant: Mutant, keys: dict[str, set[Any]], course: Course) -> None:
    keys["families"].add(mutant.family)
    keys["pairs"].add((mutant.expected, mutant.predicted))
    keys["seeds"].add(mutant.root)
    keys["seed and class"].add((mutant.root, mutant.predicted))
    course.smallest[mutant.root] = min(course.smallest.get(mutant.root, np.inf), mutant.distance[1])


# -- tables


def ratio(pairs: Iterable[tuple[float, float]]) -> str:
    """The mean of the ratios, and the least and the most of them."""
    values = [ours / theirs for ours, theirs in pairs]
    return f"{np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def interval(values: Sequence[float]) -> str:
    """The mean, and Student's interval of 95 %."""
    mean = np.mean(values)
    half = float(stats.t.ppf(0.975, len(values) - 1)) * stats.sem(values)
    return f"{mean:.2f} ({mean - half:.2f} to {mean + half:.2f})"


def smaller(ours: Course, random: Course) -> tuple[float, float]:
    """The mean least change over the seeds that both broke."""
    both = sorted(ours.smallest.keys() & random.smallest.keys())
    return float(np.mean([ours.smallest[s] for s in both])), float(np.mean([random.smallest[s] for s in both]))


def reach(subjects: Sequence[str] = (*LENETS, *RESNETS, *UNTOUCHED)) -> None:
    columns = ["subject", "passes", "families: goals, random", "families, times random's (least to most)", "at 2,000 passes",
               "pairs", "(seed, predicted)", "seeds broken at 1,000", "least change, L2"]  # fmt: skip
    rows = []
    for subject in subjects:
        passes = PASSES[subject]
        runs = [(campaign(subject, "goals", r, passes), campaign(subject, "random", r, passes)) for r in range(REPETITIONS)]

        def times(name: str, at: int, runs: list[tuple[Course, Course]] = runs) -> str:
            return ratio((ours.at(name, at), random.at(name, at)) for ours, random in runs)

        means = [np.mean([run[i].at("families", passes) for run in runs]) for i in (0, 1)]
        rows.append([
            subject + (" (not tuned on)" if subject in UNTOUCHED else ""), f"{passes:,}", f"{means[0]:.0f}, {means[1]:.0f}",
            times("families", passes), times("families", 2000), times("pairs", passes), times("seed and class", passes),
            times("seeds", 1000), ratio(smaller(ours, random) for ours, random in runs),
        ])  # fmt: skip
        say(rows[-1])
    table(columns, rows)


def hard(subjects: Sequence[str] = (*LENETS, "cifar10-resnet20")) -> None:
    """Seeds that none of contrast, brightness and blur breaks alone; how many can be broken is seen in longer campaigns."""
    rows = []
    for subject in subjects:
        runs, lasts = [], []
        for r in range(REPETITIONS):
            target, source = load(f"zoo:{subject}"), plenty(subject, r)
            seeds = choose_seeds(target, source, build_oracles(target, "label"))
            seeds = seeds.take(unbroken(target, seeds)[:SEEDS])
            passes, mutations = LONG if r == 0 else 4000, PixelRules(bilateral=False)
            runs.append([course_of(target, source, seeds, guide, r, passes, mutations) for guide in ("goals", "random")])
            lasts.append(len(seeds))
        means = [np.mean([run[i].at("seeds", 4000) for run in runs]) for i in (0, 1)]
        ends = [run.at("seeds", LONG) for run in runs[0]]
        either = len(runs[0][0].smallest.keys() | runs[0][1].smallest.keys())
        rows.append([subject, f"{np.mean(lasts):.0f}", f"{means[0]:.0f}, {means[1]:.0f}",
                     ratio((ours.at("seeds", 4000), random.at("seeds", 4000)) for ours, random in runs),
                     f"{ends[0]:.0f}, {ends[1]:.0f}; {either}"])  # fmt: skip
        say(rows[-1])
    table(["subject", "seeds", "broken at 4,000 passes: goals, random", "times random's (least to most)",
           f"at {LONG:,} passes, first repetition: goals, random; either"], rows)  # fmt: skip


def plenty(subject: str, repetition: int) -> Source:
    """Images enough for 200 that no single rule breaks: with few of them both guides come to the end of what can be broken."""
    if subject not in RESNETS:
        return drawn(subject, repetition, 900)
    test = odd(data(f"zoo:{zoo.find(subject).dataset}-full/test"))
    order = rng.stream("measure.goals", repetition).permutation(len(test))
    return test.take(np.sort(order[:2500]))


def unbroken(target: Target, seeds: Seeds) -> np.ndarray:
    """Which seeds every single rule leaves right, valid or not."""
    from neurotest.mutate.chain import Mutation, draws_of

    mutations, right = PixelRules(bilateral=False), np.arange(len(seeds))
    steps = [Mutation(family.name, rule) for family in mutations.families for rule in family.rules]
    for step in reversed(steps):  # the strongest of each family come last, and leave the fewest
        some = seeds.take(right)
        draws = draws_of(mutations, [step])[np.zeros(len(some), dtype=int)]
        with torch.inference_mode():
            mutants = mutations.apply(some.unit(some.x, target.device), draws, levels=seeds.levels)
            right = right[target.logits(target.prepare(seeds.stored(mutants))).argmax(1).numpy() == some.expected]
    return right


def few(subjects: Sequence[str] = (*LENETS, *RESNETS)) -> None:
    rows = []
    for subject in subjects:
        passes = 2000
        runs = [[campaign(subject, guide, r, passes, 20) for guide in ("goals", "random")] for r in range(FEW)]
        broken = [np.mean([run[i].at("seeds", passes) for run in runs]) for i in (0, 1)]
        rows.append([
            subject, f"{passes:,}", *(interval([a.at(name, passes) / b.at(name, passes) for a, b in runs])
                                      for name in ("families", "pairs", "seeds")), f"{broken[0]:.2f}, {broken[1]:.2f}",
        ])  # fmt: skip
        say(rows[-1])
    table(
        ["subject, 20 seeds", "passes", "families, times random's (95 %)", "pairs", "seeds", "seeds broken: goals, random"], rows
    )


def left(subjects: Sequence[str] = LENETS) -> None:
    """Chao's estimate after so many passes, and what longer campaigns found."""
    rows = []
    for subject in subjects:
        runs = {guide: campaign(subject, guide, 0, 20000) for guide in ("goals", "random")}
        every = len(set(runs["goals"].families[-1]) | set(runs["random"].families[-1]))
        for guide, run in runs.items():
            for passes in (1000, 2000, 6000, 20000):
                families = run.families[int(np.searchsorted(run.passes, passes))] if passes < run.passes[-1] else run.families[-1]
                estimate = chao1(families.values())
                rows.append([subject, guide, f"{passes:,}", str(len(families)), f"{estimate.value:.0f} ({estimate.low:.0f} to "
                             f"{estimate.high:.0f})", str(len(run.families[-1])), str(every)])  # fmt: skip
    table(
        ["subject", "guide", "passes", "families found", "Chao's estimate (95 %)", "found at 20,000", "by both at 20,000"], rows
    )


VARIANTS = {
    "logits only": "goals:features=logits", "with neurons": "goals", "with pixels (control)": "goals:features=pixels",
}  # fmt: skip
BONUS = {
    "logits, KMNC as a bonus": "goals:features=logits,coverage=kmnc:100",
    "logits, NLC as a bonus": "goals:features=logits,coverage=nlc",
}


def inside(subjects: Sequence[str] = (*LENETS, *RESNETS)) -> None:
    rows = []
    for subject in subjects:
        passes, counts = PASSES[subject], {}
        for name, guide in (VARIANTS if subject in RESNETS else VARIANTS | BONUS).items():  # which costs a ResNet minutes
            counts[name] = [campaign(subject, guide, r, passes).at("families", passes) for r in range(REPETITIONS)]
        pixels = counts["with pixels (control)"]
        for name, values in counts.items():
            rows.append([subject, name, f"{np.mean(values):.0f}", ratio(zip(values, counts["logits only"], strict=True)),
                         ratio(zip(values, pixels, strict=True))])  # fmt: skip
            say(rows[-1])
    table(["subject", "forecasts from", "families", "times logits only (least to most)", "times pixels"], rows)


def many(target: str | None = None, seeds: str | None = None, passes: int = 1500) -> None:
    """The processor time of planning and learning as a share of the campaign's; preparing is once, before the first batch."""
    from neurotest.data.source import ArraySource
    from neurotest.jobs.opening import open_data

    x = split_of("mnist-lenet5", "test").read(np.arange(1000))
    noise = rng.stream("measure.many", 0).integers(0, 40, (100, *x.shape), dtype=np.uint8)
    rows = [shares("mnist-lenet5, with noise", load("zoo:mnist-lenet5"),
                   ArraySource(np.concatenate([np.minimum(x, 215) + one for one in noise])), passes)]  # fmt: skip
    if target is not None and seeds is not None:
        network = load(target)
        rows.append(shares(type(network.module).__name__, network, open_data(network, seeds), passes))
    table(["subject", "classes", "seeds", "passes", "planning and learning, of all processor time", "preparing, beside it"], rows)


def shares(name: str, network: Target, source: Source, passes: int) -> list[str]:
    oracles = build_oracles(network, "metamorphic")
    seeds = choose_seeds(network, source, oracles)
    clocks = {"preparing": 0.0, "planning": 0.0, "learning": 0.0}
    state = build_guide("goals").start(Context(target=network), source)
    for method, clock in (("begin", "preparing"), ("plan", "planning"), ("prepare", "learning")):
        setattr(state, method, timed(getattr(state, method), clocks, clock))
    settings = Settings(mutations=Rules95(bilateral=False))
    fuzzer = Fuzzer(network, seeds, state, oracles, settings, Budget(forwards=passes))
    began = time.process_time()
    with fuzzer:
        for _ in fuzzer.run():
            pass
    total = time.process_time() - began
    share = (clocks["planning"] + clocks["learning"]) / total
    return [name, f"{seeds.classes:,}", f"{len(seeds):,}", f"{fuzzer.tally.forwards:,}", f"{100 * share:.1f} %",
            f"{100 * clocks['preparing'] / total:.1f} %"]  # fmt: skip


def cost(subjects: Sequence[str] = ("mnist-lenet5", "cifar10-resnet20")) -> None:
    """One of the pairs of `neurotest bench fuzz`, without the others."""
    from neurotest_lab.bench import fuzz
    from neurotest_lab.bench.ratio import ratio as time_over

    rows = []
    for subject in subjects:
        ours, theirs = next(pair for name, pair in fuzz.fuzz_pairs(subject) if name.startswith("goals over random"))
        times = time_over(ours, theirs, repeats=3)
        rows.append([subject, f"{times.median:.2f} ({times.low:.2f} to {times.high:.2f})"])
        say(rows[-1])
    table(["subject", "goals over random, processor time (middle half of three rounds)"], rows)


def timed(method: Callable[..., Any], clocks: dict[str, float], name: str) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        began = time.process_time()
        result = method(*args)
        clocks[name] += time.process_time() - began
        return result

    return run


def say(row: list[str]) -> None:
    print(*row, sep=" | ", file=sys.stderr, flush=True)


def table(columns: list[str], rows: list[list[str]]) -> None:
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


PARTS: dict[str, Callable[..., None]] = {"reach": reach, "hard": hard, "few": few, "left": left, "inside": inside, "cost": cost}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "many"])
    parser.add_argument("--subjects", nargs="*", help="only these, so that several processes can share the work")
    parser.add_argument("--target")
    parser.add_argument("--seeds")
    parser.add_argument("--passes", type=int, default=1500)
    torch.set_num_threads(1)
    options = parser.parse_args()
    if options.part == "many":
        many(options.target, options.seeds, options.passes)
    else:
        PARTS[options.part](*([options.subjects] if options.subjects else []))


if __name__ == "__main__":
    main()
