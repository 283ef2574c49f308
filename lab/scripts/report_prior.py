"""What adaptive selection with a prior reaches, on pools of test images with odd index.

python lab/scripts/report_prior.py run FILE [KIND ...] [SUBJECT ...] [seeds=100:105] [to=0.1] [rounds=0.005,...] [permutations=1]
    measures, one line of JSON per pool and variant, appended to FILE; what stands there already is left out
python lab/scripts/report_prior.py table FILE KIND      Markdown: gain over DeepGini in points, 95 % intervals over pools
python lab/scripts/report_prior.py mean FILE [KIND ...] Markdown: mean over subjects and least subject, per kind and variant
python lab/scripts/report_prior.py left FILE [KIND ...] Markdown: faults left, estimate and truth
python lab/scripts/report_prior.py shuffled FILE        Markdown: points above random with permuted labels
python lab/scripts/report_prior.py batches FILE         Markdown: what large rounds lose, and how much of it is won back
python lab/scripts/report_prior.py compare FILE FILE    Markdown: two versions on the same pools
python lab/scripts/report_prior.py even FILE ...        as run, on even images, for designing
python lab/scripts/store_prior.py FILE [NAME ...]       measures what the stored tables need, and stores them

Kinds: nss, natural, corrupted (noise, JPEG, fog), foreign (scikit-learn's digits among MNIST), styled (CIFAR-10 photographs in
another style), shuffled (nss pools with permuted labels). Variants: train, foreseen (no labels), unsimulated (none of the pool's
changes in the bank), foreseen-unsimulated (neither), simple (as unsimulated, large batches treated as small ones), self (no
training data), none (no prior), each beside DeepGini on the same pool.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from adaptive_pools import (
    corrupted_pools,
    foreign_pools,
    natural_pools,
    nss_pools,
    shifted_pools,
    styled_pools,
)
from prior_tables import BUDGETS, Line, batches, compared, left, means, shuffled, table

from neurotest import rng, zoo
from neurotest.data.source import Source
from neurotest.jobs.opening import known_training
from neurotest.mutate.base import Mutations
from neurotest.mutate.nss import NssMutations
from neurotest.mutate.shifts import CorruptionMutations, ViewMutations
from neurotest.scan import Batch, each_batch
from neurotest.select.adaptive import bank as banks
from neurotest.select.adaptive import prior as priors
from neurotest.select.adaptive.experts import PriorLoop
from neurotest.select.adaptive.features import WANT, Facts, Gather
from neurotest.select.adaptive.learning import Loop
from neurotest.select.scorer import Pool, sample_first
from neurotest.target import Probe, Target, Trace
from neurotest.target.load import load

KINDS = ("nss", "natural", "corrupted", "foreign", "styled", "shuffled", "shifted")
VARIANTS = ("train", "foreseen", "unsimulated", "foreseen-unsimulated", "simple", "self", "none")
PARTIAL = ("unsimulated", "foreseen-unsimulated", "simple")  # with a bank that lacks what the pool was made by
TO = 0.10  # of a pool is labelled
UNLABELLED = ("foreseen", "foreseen-unsimulated")  # the order before the first label
SUBSETS: dict[str, tuple[Mutations | None, ...]] = {  # copies of the bank without those the pool was made by
    "nss": (None, ViewMutations(), CorruptionMutations()),
    "corrupted": (None, NssMutations(), NssMutations(), ViewMutations()),
    "shifted": (None, NssMutations(), NssMutations(), CorruptionMutations()),
}


@dataclass
class Settings:
    file: Path
    odd: bool = True
    kinds: list[str] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    variants: list[str] = field(default_factory=list)
    seeds: range = range(100, 105)
    to: float = TO
    rounds: tuple[float, ...] = (0.005,)
    audit: float = 0.0
    permutations: int = 1


def pools(kind: str, name: str, odd: bool, seed: int) -> Iterator[Source]:
    one = range(seed, seed + 1)
    if kind in ("nss", "shuffled"):
        return nss_pools(name, odd, one)
    if kind == "natural":
        return natural_pools(name, odd)
    if kind == "shifted":
        return shifted_pools(name, one)
    return {"corrupted": corrupted_pools, "foreign": foreign_pools, "styled": styled_pools}[kind](name, one)


def scan(target: Target, pool: Source, gathers: Sequence[Gather]) -> list[Facts]:
    """One pass, several bases."""

    def step(part: Batch, trace: Trace, probe: Probe) -> None:
        for gather in gathers:
            gather.update(part.index, trace)

    each_batch(target, pool, step, wants=[WANT], order=sample_first(Pool(target, pool, 0), {1000}))
    return [gather.value() for gather in gathers]


def reveal(loop: Loop, labels: np.ndarray, to: float, share: float) -> tuple[np.ndarray, list[Line]]:
    """The order in which labels were requested, round by round, and at each budget the faults left beside their estimate."""
    n = len(labels)
    size, wanted = max(10, round(share * n)), round(to * n)
    wrong = labels != loop.predictions.numpy()
    order: list[int] = []
    left = []
    while len(order) < wanted:
        batch = loop.propose(min(size, wanted - len(order)))
        order += batch.tolist()
        loop.tell(batch, labels[batch])
        if any(len(order) == round(b * n) for b in BUDGETS[1:]):
            rest = loop.remaining()
            chance = loop.posterior.chance[loop.left]
            truth = {
                "labels": len(order), "true": int(wrong[loop.left].sum()), "sum": float(chance.sum()),
                "mixed": float(torch.sigmoid(loop.posterior.odds[loop.left]).sum()),
                "noise": float((chance * (1 - chance)).sum()), "random": rest.random,
                "draws": [[len(d.positions), int(wrong[list(d.positions)].sum()), d.expected] for d in loop.draws],
            }  # fmt: skip
            left.append({**truth, "value": rest.value, "low": rest.low, "high": rest.high})
    return np.array(order), left


def rates(order: np.ndarray, wrong: np.ndarray) -> list[float]:
    return [100 * float(wrong[order[: round(b * len(wrong))]].mean()) for b in BUDGETS if round(b * len(wrong)) <= len(order)]


class Subject:
    """A network, its banks and bases."""

    def __init__(self, name: str) -> None:
        self.target = load(f"zoo:{name}")
        train = known_training(self.target)
        assert train is not None
        self.train = train
        self.banks: dict[str, tuple[banks.Bank, Any]] = {}

    def bank(self, kind: str) -> tuple[banks.Bank, Any]:
        if kind not in self.banks:
            self.banks[kind] = banks.of_training(self.target, self.train, copies=SUBSETS.get(kind, banks.COPIES))
        return self.banks[kind]


def measure(subject: Subject, kind: str, pool: Source, seed: int, variants: list[str], s: Settings) -> Iterator[Line]:
    """A line per variant and size of rounds."""
    places = {"own": Gather(len(pool))}
    if any(v in ("train", "foreseen") for v in variants):
        places["full"] = Gather(len(pool), subject.bank("full")[1])
    if any(v in PARTIAL for v in variants):
        places["part"] = Gather(len(pool), subject.bank(kind)[1])
    facts = dict(zip(places, scan(subject.target, pool, list(places.values())), strict=True))
    plain = Loop(facts["own"])
    learned: dict[str, priors.Prior] = {}
    left: list[Any]
    assert pool.labels is not None
    cases = itertools.product(labelings(kind, pool.labels, seed, s.permutations), variants, s.rounds)
    for (number, labels), variant, share in cases:
        wrong = labels != plain.predictions.numpy()
        deepgini = rates(np.argsort(-plain.gini.numpy(), kind="stable"), wrong)
        if variant not in UNLABELLED or share == s.rounds[0]:
            loop = make_loop(subject, kind, variant, facts, pool, learned, places, s.audit)
            if variant in UNLABELLED:
                order, left = np.argsort(-loop.posterior.odds.numpy(), kind="stable"), []
            else:
                order, left = reveal(loop, labels, s.to, share)
            line: Line = {
                "kind": kind, "seed": seed, "variant": variant, "round": share, "audit": s.audit,
                "permutation": number, "to": s.to, "n": len(wrong),
                "faults": 100 * float(wrong.mean()), "deepgini": deepgini, "rates": rates(order, wrong), "left": left,
            }  # fmt: skip
            prior = getattr(loop, "prior", None)
            if prior is not None and prior.trained:
                line |= {"promise": prior.promise, "guarded": prior.guarded, "plain": prior.shares.get("plain", 0.0)}
            yield line


def labelings(kind: str, labels: np.ndarray, seed: int, permutations: int) -> list[tuple[int, np.ndarray]]:
    """The pool's labels, or several permutations of them."""
    if kind != "shuffled":
        return [(0, labels)]
    return [(number, rng.stream("shuffle", seed, number).permutation(labels)) for number in range(permutations)]


def make_loop(
    subject: Subject, kind: str, variant: str, facts: dict[str, Facts], pool: Source, learned: dict[str, priors.Prior],
    places: dict[str, Gather], audit: float,
) -> Loop:  # fmt: skip
    if variant == "none":
        return Loop(facts["own"], audit=audit)
    if variant == "self":
        basis = places["own"].basis
        assert basis is not None
        if "self" not in learned:
            learned["self"] = priors.from_pool(banks.of_pool(subject.target, pool, facts["own"], basis))
        return PriorLoop(facts["own"], prior=learned["self"], audit=audit)
    place, bank = ("part", kind) if variant in PARTIAL else ("full", "full")
    if place not in learned:
        learned[place] = priors.learn(subject.bank(bank)[0], facts[place])
    return (Simple if variant == "simple" else PriorLoop)(facts[place], prior=learned[place], audit=audit)


class Simple(PriorLoop):
    """Large batches as small ones: the most probable faults, and experts judged by what they said before the batch."""

    @property
    def large_batches(self) -> bool:
        return False

    def _best(self, free: np.ndarray, n: int) -> np.ndarray:
        return Loop._best(self, free, n)

    def _crossed(self, labelled: np.ndarray, labels: torch.Tensor) -> dict[int, tuple[float, ...]]:
        return {}


def wanted_variants(kind: str, s: Settings) -> list[str]:
    some = s.variants or [v for v in VARIANTS if v != "simple"]
    return [v for v in some if v not in PARTIAL or kind in SUBSETS]


def fits(kind: str, name: str, seed: int, s: Settings) -> bool:
    if kind == "natural":
        return seed == s.seeds[0]
    return name.startswith({"foreign": "mnist", "styled": "cifar10"}.get(kind, ""))


def cases(s: Settings) -> Iterator[tuple[int, str, str]]:
    """Seeds outside, so that what is finished first holds all subjects."""
    subjects = s.subjects or [one.name for one in zoo.catalogue() if one.weights is not None and len(one.shape) == 3]  # pictures
    for seed, name, kind in itertools.product(s.seeds, subjects, s.kinds or ["nss"]):
        if fits(kind, name, seed, s):
            yield seed, name, kind


def keys(s: Settings, seed: int, name: str, kind: str) -> Iterator[tuple[Any, ...]]:
    """Of the lines that are measured on a pool; what needs no label knows no rounds."""
    numbers = range(s.permutations if kind == "shuffled" else 1)
    for variant in wanted_variants(kind, s):
        for share, number in itertools.product(s.rounds[:1] if variant in UNLABELLED else s.rounds, numbers):
            yield name, kind, seed, variant, share, s.audit, number, s.to


def run(s: Settings) -> None:
    done = {key(x) for x in read(s.file)}
    opened: dict[str, Subject] = {}
    for seed, name, kind in cases(s):
        missing = {one[3] for one in keys(s, seed, name, kind) if one not in done}
        if not missing:
            continue
        subject = opened.get(name) or opened.setdefault(name, Subject(name))
        for pool in pools(kind, name, s.odd, seed):
            for line in measure(subject, kind, pool, seed, [v for v in wanted_variants(kind, s) if v in missing], s):
                with open(s.file, "a") as file:
                    file.write(json.dumps({"subject": name, **line}) + "\n")


def key(x: Line) -> tuple[Any, ...]:
    return (
        *(x[name] for name in ("subject", "kind", "seed", "variant", "round", "audit")),
        x.get("permutation", 0),
        x.get("to", TO),
    )


def read(file: Path) -> list[Line]:
    """Each measurement once: a file may be several put together."""
    lines = map(json.loads, file.read_text().splitlines()) if file.is_file() else ()
    return list({key(x): x for x in lines}.values())


def settings(words: list[str], odd: bool) -> Settings:
    s = Settings(Path(words[0]), odd)
    for word in words[1:]:
        name, equal, value = word.partition("=")
        if equal and name == "seeds":
            first, last = map(int, value.split(":"))
            s.seeds = range(first, last)
        elif equal and name == "rounds":
            s.rounds = tuple(map(float, value.split(",")))
        elif equal and name == "permutations":
            s.permutations = int(value)
        elif equal and name in ("to", "audit"):
            setattr(s, name, float(value))
        else:
            (s.kinds if word in KINDS else s.variants if word in VARIANTS else s.subjects).append(word)
    return s


TABLES = {"mean": means, "left": left, "shuffled": shuffled, "batches": batches}


def main() -> None:
    if len(sys.argv) < 3 or sys.argv[1] not in ("run", "even", "table", "compare", *TABLES):
        raise SystemExit(__doc__)
    torch.set_num_threads(1)
    command, *words = sys.argv[1:]
    if command in ("run", "even"):
        run(settings(words, command == "run"))
    elif command == "table":
        table(read(Path(words[0])), words[1])
    elif command == "compare":
        compared(*(read(Path(word)) for word in words[:2]))
    else:
        TABLES[command]([x for x in read(Path(words[0])) if x["kind"] in (words[1:] or KINDS)])


if __name__ == "__main__":
    main()
