"""The tables of what adaptive selection with a prior reaches; `report_prior.py` measures it and prints them."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from neurotest import rng
from neurotest.stats.bootstrap import Interval, mean_interval

BUDGETS = (0.02, 0.05, 0.10, 0.20)
Line = dict[str, Any]


def row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |")


def head(*words: str) -> None:
    row(*words)
    row(*["---"] * len(words))


def gains_of(lines: list[Line]) -> dict[tuple[str, str, str, float], list[list[float]]]:
    """By subject, kind, variant and size of rounds: gain over DeepGini per pool and budget, without random labels."""
    gains = defaultdict(list)
    for x in (x for x in lines if not x["audit"]):
        gains[x["subject"], x["kind"], x["variant"], x["round"]].append(
            [a - b for a, b in zip(x["rates"], x["deepgini"], strict=False)]
        )
    return gains


def cell(values: Sequence[float] | np.ndarray) -> str:
    interval = mean_interval(np.array(values))
    return f"{interval.value:+.1f}" if len(values) < 2 else f"{interval.value:+.1f} ({interval.low:+.1f} .. {interval.high:+.1f})"


def columns(values: list[list[float]]) -> list[list[float]]:
    shortest = min(map(len, values))
    return [[one[i] for one in values] for i in range(shortest)]


def padded(cells: list[str], budgets: int = len(BUDGETS)) -> list[str]:
    return [*cells, *[""] * (budgets - len(cells))]


def table(lines: list[Line], kind: str) -> None:
    head("subject", "variant", "round", "pools", *(f"{b:.0%}" for b in BUDGETS))
    for (subject, of, variant, share), values in gains_of(lines).items():
        if of == kind:
            row(subject, variant, f"{share:.1%}", str(len(values)), *padded([cell(c) for c in columns(values)]))


def means(lines: list[Line]) -> None:
    """Subjects count equally; intervals over subjects."""
    head("pools", "variant", "round", "subjects", "pools each", "", *(f"{b:.0%}" for b in BUDGETS))
    groups: dict[tuple[str, str, float], dict[str, list[float]]] = defaultdict(dict)
    counts: dict[tuple[str, str, float], set[int]] = defaultdict(set)
    for (subject, kind, variant, share), values in gains_of(lines).items():
        groups[kind, variant, share][subject] = [float(np.mean(c)) for c in columns(values)]
        counts[kind, variant, share].add(len(values))
    for (kind, variant, share), by_subject in sorted(groups.items()):
        sets = columns(list(by_subject.values()))
        pools = " to ".join(map(str, sorted({min(some := counts[kind, variant, share]), max(some)})))
        about = kind, variant, f"{share:.1%}", str(len(by_subject)), pools
        row(*about, "mean", *padded([cell(c) for c in sets]))
        names = list(by_subject)
        row(*about, "least", *padded([f"{min(c):+.1f} ({names[int(np.argmin(c))]})" for c in sets]))


def left(lines: list[Line]) -> None:
    """Faults left, estimate and truth, by kind of pool and over all kinds; subjects with intervals that miss the truth."""
    words = "pools", "variant", "audit", "cases", "intervals with the truth", "mean width / pool"
    head(*words, "median width / truth", "median estimate / truth", "misses")
    groups: dict[Any, list[Any]] = defaultdict(list)
    for x in lines:
        if x["round"] != 0.005:
            continue
        for kind in (x["kind"], *(["all three"] if x["kind"] in ("nss", "natural", "corrupted") else [])):
            groups[kind, x["variant"], x["audit"]] += [{**one, "n": x["n"], "subject": x["subject"]} for one in x["left"]]
    for (kind, variant, audit), cases in sorted(groups.items(), key=lambda item: (item[0][0] != "all three", item[0])):
        if cases and variant != "simple":
            row(kind, variant, f"{audit:g}", *_held(cases))


def _held(cases: list[Any]) -> Iterable[str]:
    low, high, true, value, n = (np.array([c[word] for c in cases]) for word in ("low", "high", "true", "value", "n"))
    inside, some = (low <= true) & (true <= high), np.maximum(true, 1)
    misses = Counter(c["subject"] for c, held in zip(cases, inside, strict=True) if not held)
    yield from (str(len(cases)), f"{100 * np.mean(inside):.1f} %", f"{np.mean((high - low) / n):.3f}")
    yield from (f"{np.median((high - low) / some):.2f}", f"{np.median(value / some):.2f}")
    yield ", ".join(f"{count} {name}" for name, count in misses.items())


def shuffled(lines: list[Line]) -> None:
    """Points above random where labels are permuted, so that there is nothing to learn."""
    head("subject", "variant", "pools", "permutations", *(f"{b:.0%}" for b in BUDGETS))
    groups: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    pools: dict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)
    for x in lines:
        if x["kind"] == "shuffled":
            for subject in (x["subject"], "all"):
                groups[subject, x["variant"]].append([rate - x["faults"] for rate in x["rates"]])
                pools[subject, x["variant"]].add((x["subject"], x["seed"]))
    for (subject, variant), values in sorted(groups.items(), key=lambda item: item[0][0] == "all"):
        about = subject, variant, str(len(pools[subject, variant])), str(len(values))
        row(*about, *padded([cell(c) for c in columns(values)]))


def compared(before: list[Line], after: list[Line]) -> None:
    """Gain over DeepGini in points of two versions on the same pools, and the mean difference with its interval over pools."""
    head("pools", "variant", "number", "", *(f"{b:.0%}" for b in BUDGETS))
    places = "subject", "kind", "seed", "variant", "round", "audit"
    theirs = {tuple(x[place] for place in places): x for x in before}
    groups: dict[tuple[str, str], list[tuple[list[float], list[float]]]] = defaultdict(list)
    for x in after:
        if (same := theirs.get(tuple(x[place] for place in places))) is not None:
            old, new = ([a - b for a, b in zip(one["rates"], one["deepgini"], strict=False)] for one in (same, x))
            groups[x["kind"], x["variant"]].append((old, new))
    for (kind, variant), pairs in sorted(groups.items()):
        sets = [columns([pair[side] for pair in pairs]) for side in (0, 1)]
        apart = [[b - a for a, b in zip(*both, strict=True)] for both in zip(*sets, strict=True)]
        for word, cells in (("before", sets[0]), ("after", sets[1]), ("difference", apart)):
            row(kind, variant, str(len(pairs)), word, *padded([cell(c) for c in cells]))


def batches(lines: list[Line]) -> None:
    """Gain over DeepGini by the size of rounds, large ones as they are and as if small, and how far the gap is closed."""
    head("subject", "round", "pools", "budget", "as small ones", "as they are", "rounds of 0.5%", "gap closed")
    gains = gains_of([x for x in lines if x["kind"] == "nss"])
    for share in sorted({r for _, _, v, r in gains if v == "simple" and r > 0.005}):
        subjects = sorted({s for s, _, v, r in gains if (v, r) == ("simple", share)})
        kinds = ("simple", share), ("unsimulated", share), ("unsimulated", 0.005)
        for some, place in itertools.product([*([one] for one in subjects), *([subjects] if len(subjects) > 1 else [])], (1, 2)):
            sets = [np.array([columns(gains[s, "nss", v, r])[place] for v, r in kinds]) for s in some]  # (3, pools) each
            about = some[0] if len(some) == 1 else "all", f"{share:.0%}", str(sum(one.shape[1] for one in sets))
            cells = [cell(np.concatenate([one[row] for one in sets])) for row in range(len(kinds))]
            row(*about, f"{BUDGETS[place]:.0%}", *cells, percent(closed(sets)))


def closed(sets: list[np.ndarray], draws: int = 4000) -> Interval:
    """Share of the gap between the first and the last row that the second wins back, with a 95 % bootstrap interval.

    One array (3, pools) per subject: the pools of each are drawn anew, all three rows together, for they were measured on the
    same pools; subjects count equally.
    """
    random = rng.stream("prior.closed", 0)
    places = [random.integers(0, one.shape[1], (draws, one.shape[1])) for one in sets]
    drawn = np.mean([one[:, where].mean(axis=2) for one, where in zip(sets, places, strict=True)], axis=0)  # (3, draws)
    simple, ours, small = np.mean([one.mean(axis=1) for one in sets], axis=0)
    low, high = np.quantile((drawn[1] - drawn[0]) / (drawn[2] - drawn[0]), [0.025, 0.975])
    return Interval(float((ours - simple) / (small - simple)), float(low), float(high))


def percent(interval: Interval) -> str:
    return f"{interval.value:.0%} ({interval.low:.0%} .. {interval.high:.0%})"
