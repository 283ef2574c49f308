"""`neurotest study fuzzing`: NSGen's tables 3, 4 and 12 for the twelve baseline criteria, random beside each."""

from __future__ import annotations

import base64
import dataclasses
import functools
import io
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurotest import rng, zoo
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.generate.fuzz import Budget, Fuzzer, Mutant, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.guides import CoverageGuide, CoverageState, GuideState
from neurotest.generate.outcome import spread
from neurotest.measure.context import Context
from neurotest.mutate.chain import words
from neurotest.mutate.rules import Rules95
from neurotest.oracles import build_oracles
from neurotest.registry import register
from neurotest.stats.bootstrap import mean_interval
from neurotest.studies import fuzzing_published
from neurotest.studies.study import Cell
from neurotest.target.load import load

# With the settings of the paper's section 5.3; cc's threshold is the number of classes there.
GUIDES = {
    "nc": "nc:0.75", "kmnc": "kmnc:100", "nbc": "nbc", "snac": "snac", "tknc": "tknc:10", "tknp": "tknp:50", "cc": "cc:10",
    "lsc": "lsc", "dsc": "dsc", "mdsc": "mdsc", "cac": "cac:8", "nlc": "nlc", "random": "random",
}  # fmt: skip
QUICK = ("mnist-lenet1", "fashion-lenet1")
FULL = (*QUICK, "mnist-lenet5", "fashion-lenet5", "fashion-resnet20", "cifar10-resnet20")
PAPER = {"cifar10-resnet20": 0}  # column of the published tables
SEEDS = {"quick": 3, "full": 5}
LIMITS: dict[str, dict[str, int]] = {
    "quick": {"iterations": 100, "outputs": 150, "forwards": 5_000},
    "full": {"iterations": 10_000, "outputs": 1000, "forwards": 100_000},
}
# A protocol that is not reached after so many forward passes is read off where the campaign stands, and `reached` says so.
MOST = {"quick": 12_500, "full": 700_000}
SLOW = {"cac": 25}  # so many times fewer for guides that cost so much more
STALLED = {"quick": 128, "full": 6400}  # forward passes without an output, after which coverage counts as full (table 12)
BATCH = 64
STARTS = {"quick": 200, "full": 1000}
PROTOCOLS = ("iterations", "outputs", "forwards")
GALLERY = 6
Row = dict[str, Any]

ABSENT = [
    {"what": "NSGen itself", "why": "has a study of its own: `neurotest study nsgen`"},
    {"what": "CIFAR-100, Oxford 102 Flower, ImageNet", "why": "not available here, and the networks need a GPU"},
    {"what": "ResNet50, VGG16_BN, MobileNet_v2", "why": "too large for two cores; cifar10-resnet20 stands in for CIFAR-10"},
    {
        "what": "style transfer among the mutations",
        "why": "the published code's 95 rules have none; `rules98` adds a weight-free one",
    },
]


@register(
    "study",
    "fuzzing",
    paper="NSGen, tables 3, 4 and 12",
    cost="quick: two subjects, three sets of seeds, four minutes of processor time; full: every zoo subject whose weights are "
    "here, five sets of 1,000 seeds, 10,000 iterations, days",
    differs="Seeds the target gets wrong are set aside and faults do not become seeds, which lowers every count against the "
    "paper. Only faults that the guide keeps count, as there. One campaign per guide serves all three protocols: its counts "
    "are read off where it has spent the iterations, the outputs and the forward passes. Only then, and only if it "
    "has output too little for table 12, it goes on with coverage emptied whenever it is full or nothing was output for 128 "
    "forward passes (full scale: 6,400); `resets` says how often. Random runs as a guide of its own, to the same limits.",
)
@dataclass(frozen=True, kw_only=True)
class FuzzingStudy:
    """Which guide finds most faults at equal iterations, equal outputs and equal forward passes, and whether any beats random."""

    def cells(self, scale: str) -> Sequence[Cell]:
        return [
            Cell(f"{subject}/{seed}/{guide}", functools.partial(campaign, subject, seed, guide, scale))
            for subject in _here(scale)
            for seed in range(SEEDS[scale])
            for guide in GUIDES
        ]

    def tables(self, scale: str, done: dict[str, Any]) -> dict[str, Any]:
        groups = {
            (s, g): [c for seed in range(SEEDS[scale]) if (c := done.get(f"{s}/{seed}/{g}")) and "absent" not in c]
            for s in _here(scale)
            for g in GUIDES
        }
        tables: dict[str, Any] = {
            "3: equal iterations": _rows(groups, "iterations"),
            "4: diversity": _diversity(groups),
            "12: equal outputs": _rows(groups, "outputs"),
            "equal forward passes": _rows(groups, "forwards"),
            "published": fuzzing_published.rows(),
            "gallery": [
                {"subject": s, "guide": g, **one}
                for (s, g), cells in groups.items()
                for one in (cells[0]["gallery"] if cells else ())
            ],
            "budgets": [
                {"protocol": f"equal {name}", "limit": limit, "most forwards": MOST[scale], "repetitions": SEEDS[scale]}
                for name, limit in LIMITS[scale].items()
            ],
            "not rerun": [
                *ABSENT,
                *({"what": key, "why": c["absent"]} for key, c in done.items() if "absent" in c),
                *_unseen(scale),
            ],
        }
        return {"tables": tables, "checks": _checks(groups)}


def _here(scale: str) -> list[str]:
    return [name for name in (QUICK if scale == "quick" else FULL) if zoo.find(name).weights is not None]


def _unseen(scale: str) -> list[Row]:
    lacking = [name for name in FULL if name not in _here(scale)]
    why = "not part of the quick scale" if scale == "quick" else "its weights are not here: `neurotest zoo train NAME`"
    return [{"what": name, "why": why} for name in lacking]


def campaign(subject: str, seed: int, guide: str, scale: str) -> Row:
    """One campaign, read off at each protocol's limit."""
    target = load(f"zoo:{subject}")
    dataset = zoo.find(subject).dataset
    test, train = data(f"zoo:{dataset}/test"), data(f"zoo:{dataset}/train[:1000]")
    chosen = np.sort(rng.stream("study.fuzzing", seed).permutation(len(test))[: STARTS[scale]])
    judges = build_oracles(target, "label")
    source = test.take(chosen)
    try:
        seeds = choose_seeds(target, source, judges)
        context = Context(target=target, train=train, seed=seed, cache=True)
        state = build_guide(GUIDES[guide]).start(context, source)
    except BadInput as error:
        return {"absent": str(error)}
    settings = Settings(mutations=Rules95(bilateral=False), every_fault=False, seed=seed, batch=BATCH)
    budget = Budget(forwards=MOST[scale] // SLOW.get(guide, 1))
    with Fuzzer(target, seeds, state, judges, settings, budget) as fuzzer:
        return _read_off(_Watch(fuzzer), LIMITS[scale], STALLED[scale], functools.partial(_empty, GUIDES[guide], context, state))


class _Watch:
    """A fuzzer that is stepped: what it has output, and the processor time."""

    def __init__(self, fuzzer: Fuzzer) -> None:
        self.fuzzer = fuzzer
        self.outputs: list[Mutant] = []
        self.seconds, self.resets, self.fruitful = 0.0, 0, 0

    def step(self) -> None:
        clock, known = time.process_time(), len(self.outputs)
        found = self.fuzzer.step()
        self.seconds += time.process_time() - clock
        self.outputs += [dataclasses.replace(m, x=m.x if n < GALLERY else m.x[:0]) for n, m in enumerate(found, known)]
        if found:
            self.fruitful = self.fuzzer.tally.forwards

    def measures(self, protocol: str, limit: int, done: bool) -> Row:
        counted = within(protocol, self.outputs, limit) if done else self.outputs
        return {**measures(counted, self.fuzzer, self.seconds, done), "resets": self.resets}


def _read_off(watch: _Watch, limits: dict[str, int], stalled: int, empty: Callable[[], None]) -> Row:
    """The protocols as they are reached; table 12's may go on with coverage emptied once the others are."""
    fuzzer = watch.fuzzer
    found: Row = {}
    while fuzzer.spent() is None and len(found) < len(PROTOCOLS):
        watch.step()
        for name in PROTOCOLS:
            if name not in found and reached(name, fuzzer, watch.outputs, limits[name]):
                found[name] = watch.measures(name, limits[name], True)
        value = fuzzer.guide.value()
        full = isinstance(fuzzer.guide, CoverageState) and fuzzer.guide.state.value().total is not None and value == 1.0
        waited = fuzzer.tally.forwards - watch.fruitful >= stalled
        if set(PROTOCOLS) - set(found) == {"outputs"} and (full or waited):
            empty()
            watch.resets, watch.fruitful = watch.resets + 1, fuzzer.tally.forwards
    for name in PROTOCOLS:
        found.setdefault(name, watch.measures(name, limits[name], False))
    return {**found, "gallery": [picture(mutant) for mutant in watch.outputs[:GALLERY]]}


def _empty(guide: str, context: Context, state: GuideState) -> None:
    """Coverage as before any input, the training data included."""
    made = build_guide(guide)
    if isinstance(made, CoverageGuide):
        state.restore(CoverageState(made.criterion.start(context)).arrays())


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


def measures(outputs: list[Mutant], fuzzer: Fuzzer, seconds: float, done: bool) -> Row:
    """The study's numbers at one moment of a campaign."""
    faults = [m for m in outputs if m.fault]
    predicted = Counter(m.predicted for m in faults)
    forwards = fuzzer.tally.forwards
    return {
        "faults": len(faults),
        "outputs": len(outputs),
        "rft": len(faults) / len(outputs) if outputs else None,
        "fre": seconds / len(faults) if faults else None,
        "true classes": len({m.expected for m in faults}),
        "predicted classes": len(predicted),
        "oi": spread([n for k, n in predicted.items() if k >= 0], fuzzer.seeds.classes),
        "families": len({m.family for m in faults}),
        "faults per 1,000 forwards": 1000 * len(faults) / forwards if forwards else None,
        "coverage": fuzzer.guide.value(),
        "reached": done,
    }


def picture(mutant: Mutant) -> Row:
    from PIL import Image

    x, out = np.asarray(mutant.x), io.BytesIO()
    Image.fromarray(x[0] if x.shape[0] == 1 else x.transpose(1, 2, 0)).save(out, format="PNG")
    return {
        "change": words(mutant.chain),
        "label": mutant.label,
        "predicted": mutant.predicted,
        "png": base64.b64encode(out.getvalue()).decode(),
    }


def a12(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Vargha and Delaney: how likely one of ours is larger than one of theirs, ties counting half.

    >>> a12([2, 3], [1, 2])
    0.875
    """
    apart = np.subtract.outer(np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float))
    return float(((apart > 0) + 0.5 * (apart == 0)).mean())


def _mean(cells: list[Row], protocol: str, name: str) -> float | None:
    values = [c[protocol][name] for c in cells if c[protocol][name] is not None]
    return round(float(np.mean(values)), 4) if values else None


def _rows(groups: dict[tuple[str, str], list[Row]], protocol: str) -> list[Row]:
    rows = []
    for (subject, guide), cells in groups.items():
        if not cells:
            continue
        random = groups.get((subject, "random"), [])
        faults = [c[protocol]["faults"] for c in cells]
        interval = mean_interval(np.asarray(faults, dtype=np.float64))
        row: Row = {"subject": subject, "guide": guide}
        names = ("faults", "outputs", "rft", "fre", "families", "faults per 1,000 forwards", "coverage")
        row |= {name: _mean(cells, protocol, name) for name in names}
        row |= {"faults low": round(interval.low, 2), "faults high": round(interval.high, 2)}
        row["a12 over random"] = _effect(cells, random, protocol) if guide != "random" else None
        row["reached"] = sum(c[protocol]["reached"] for c in cells)
        if protocol == "outputs":
            row["resets"] = _mean(cells, protocol, "resets")
        row["repetitions"] = len(cells)
        row |= _paper(subject, guide, protocol)
        rows.append(row)
    return rows


def _effect(cells: list[Row], random: list[Row], protocol: str) -> float | None:
    """A12 of the faults; None where a campaign ended before the limit, because then they are not equal in anything."""
    if not cells or not random or not all(c[protocol]["reached"] for c in (*cells, *random)):
        return None
    return a12([c[protocol]["faults"] for c in cells], [c[protocol]["faults"] for c in random])


def _paper(subject: str, guide: str, protocol: str) -> Row:
    column = PAPER.get(subject)
    if column is None or guide == "random":
        return {"paper faults": None, "paper outputs": None}
    if protocol == "iterations" and (told := fuzzing_published.TABLE_3[guide][column]):
        return {"paper faults": told[0], "paper outputs": told[1]}
    if protocol == "outputs" and (known := fuzzing_published.TABLE_12[guide][column]):
        return {"paper faults": known[0], "paper outputs": 1 if guide == "tknp" else 1000}
    return {"paper faults": None, "paper outputs": None}


def _diversity(groups: dict[tuple[str, str], list[Row]]) -> list[Row]:
    rows = []
    for (subject, guide), cells in groups.items():
        if cells:
            row: Row = {"subject": subject, "guide": guide}
            row |= {name: _mean(cells, "iterations", name) for name in ("true classes", "predicted classes", "oi", "families")}
            column = PAPER.get(subject)
            told = fuzzing_published.TABLE_4[guide][column] if column is not None and guide != "random" else None
            rows.append({**row, "paper classes": told and told[0], "paper oi": told and told[1]})
    return rows


def _checks(groups: dict[tuple[str, str], list[Row]]) -> dict[str, float]:
    """How likely each guide finds more faults than random with the same number of forward passes, over all subjects."""
    checks = {}
    for guide in GUIDES:
        pairs = [(groups[s, guide], groups[s, "random"]) for s, g in groups if g == guide and guide != "random"]
        for protocol in PROTOCOLS:
            values = [value for ours, random in pairs if (value := _effect(ours, random, protocol)) is not None]
            if values:
                checks[f"a12 of {guide} over random, equal {protocol}"] = round(float(np.mean(values)), 3)
    return checks
