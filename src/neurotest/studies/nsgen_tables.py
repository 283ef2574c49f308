"""Tables of the study of NSGen, out of its finished cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.studies import fuzzing_published as published
from neurotest.studies.fuzzing import a12
from neurotest.studies.nsgen_pool import OWN, WAYS

Row = dict[str, Any]
Groups = dict[tuple[str, str], list[Row]]
DRAWS = 2000
RIVALS = ("kmnc", "dsc", "nlc")
ON_MAP = ("nsgen", *RIVALS, "random")
NEIGHBOURS = 10


def _mean(cells: list[Row], protocol: str, name: str) -> float | None:
    values = [c[protocol][name] for c in cells if c[protocol][name] is not None]
    return round(float(np.mean(values)), 4) if values else None


def lift(ours: list[Row], random: list[Row]) -> tuple[float, float, float] | None:
    """The fault rate over random's at equal outputs, with a 95 % interval: campaigns and, within them, seeds are drawn again,
    because outputs of one seed fail together. Where ours ended early, random's outputs count up to there."""
    if not ours or not random:
        return None
    stream = rng.stream("study.nsgen.lift", 0)
    counts = [len(cell["pairs"]) for cell in ours]
    first = [cell["pairs"][: counts[i % len(counts)]] for i, cell in enumerate(random)]
    sides = [[_by_root(pairs) for pairs in side] for side in ([cell["pairs"] for cell in ours], first)]
    if any(not len(c) for side in sides for c in side):
        return None
    whole = [_rate(list(side)) for side in sides]
    drawn = []
    for _ in range(DRAWS):
        rates = []
        for side in sides:
            chosen = [side[i] for i in stream.integers(0, len(side), len(side))]
            rates.append(_rate([c[stream.integers(0, len(c), len(c))] for c in chosen]))
        drawn.append(rates[0] / rates[1] if rates[1] else np.inf)
    if not whole[1]:
        return None
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    return float(whole[0] / whole[1]), float(low), float(high)


def _by_root(pairs: list[list[int]]) -> NDArray[np.int64]:
    """(roots, 2): outputs and faults of every seed."""
    if not pairs:
        return np.empty((0, 2), dtype=np.int64)
    given = np.array(pairs)
    _, where = np.unique(given[:, 0], return_inverse=True)
    return np.stack([np.bincount(where), np.bincount(where, weights=given[:, 1]).astype(np.int64)], 1)


def _rate(parts: list[NDArray[np.int64]]) -> float:
    total = np.concatenate(parts).sum(0)
    return float(total[1] / total[0])


def equal(groups: Groups, protocol: str) -> list[Row]:
    """One row per subject and guide at one protocol's limit, random beside."""
    rows = []
    for (subject, guide), cells in groups.items():
        if not cells:
            continue
        random = groups.get((subject, "random"), [])
        row: Row = {"subject": subject, "guide": guide}
        row |= {name: _mean(cells, protocol, name) for name in ("faults", "outputs", "rft")}
        if protocol == "outputs":
            found = lift(cells, random) if guide != "random" else None
            ends = (None, None, None) if found is None else (round(v, 3) for v in found)
            row |= dict(zip(("x random", "low", "high"), ends, strict=True))
        row |= {name: _mean(cells, protocol, name) for name in ("families", "faults per 1,000 forwards", "fre", "coverage")}
        # None where a campaign ended before the limit, because then they are not equal in anything
        fair = guide != "random" and random and all(c[protocol]["reached"] for c in (*cells, *random))
        faults, theirs = ([c[protocol]["faults"] for c in side] for side in (cells, random))
        row["a12 over random"] = a12(faults, theirs) if fair else None
        row["reached"] = sum(c[protocol]["reached"] for c in cells)
        row["repetitions"] = len(cells)
        rows.append({**row, **_paper(subject, guide, protocol)})
    return rows


def _paper(subject: str, guide: str, protocol: str) -> Row:
    """ResNet50's numbers beside those of our ResNet; the paper's NSGen has the label in its path."""
    name = "nsgen" if guide == "nsgen with-label" else guide
    told: tuple[Any, ...] | None = None
    if subject == "cifar10-resnet20" and guide != "nsgen":
        if protocol == "iterations" and name in published.TABLE_3:
            told = published.TABLE_3[name][0]
        elif protocol == "outputs" and name in published.TABLE_12 and (known := published.TABLE_12[name][0]):
            told = (known[0], 1000)
    return {"paper faults": told and told[0], "paper outputs": told and told[1]}


def some(groups: Groups, beginnings: Sequence[str]) -> list[Row]:
    """The rows of some variants at equal outputs, random first."""
    chosen = {
        key: cells
        for key, cells in groups.items()
        if key[1] == "random"
        or any(key[1] == b or (b != "nsgen" and (key[1].startswith(b) or key[1].endswith(b))) for b in beginnings)
    }
    kept = ("subject", "guide", "faults", "outputs", "rft", "x random", "low", "high", "families", "reached", "repetitions")
    rows = [{name: row[name] for name in kept} for row in equal(chosen, "outputs")]
    subjects = {row["subject"] for row in rows if row["guide"] != "random"}
    return [row for row in rows if row["subject"] in subjects]


def diversity(groups: Groups) -> list[Row]:
    rows = []
    for (subject, guide), cells in groups.items():
        if cells:
            row: Row = {"subject": subject, "guide": guide}
            row |= {name: _mean(cells, "iterations", name) for name in ("true classes", "predicted classes", "oi", "families")}
            name = "nsgen" if guide == "nsgen with-label" else guide
            known = published.TABLE_4.get(name) if subject == "cifar10-resnet20" and guide != "nsgen" else None
            first = known[0] if known else None
            rows.append({**row, "paper classes": first and first[0], "paper oi": first and first[1]})
    return rows


def stability(subjects: Sequence[str], done: dict[str, Any]) -> list[Row]:
    rows = []
    for subject in subjects:
        for mode, steps in (done.get(f"tau/{subject}") or {}).items():
            for step in steps:
                row = {"subject": subject, "mode": mode, "images per class": step["per class"], "pairs": step["pairs"]}
                row |= {"tau": round(step["value"], 4), "low": round(step["low"], 4), "high": round(step["high"], 4)}
                rows.append({**row, "below": round(step["below"], 4)})
    return rows


def similarities(subjects: Sequence[str], done: dict[str, Any]) -> list[Row]:
    """Every way of comparing the same paths."""
    rows = []
    for subject in subjects:
        cell: Row = done.get(f"pool/{subject}") or {"ways": {}}
        for name in (*WAYS, OWN):
            if (found := cell["ways"].get(name)) and "absent" not in found:
                values = {what: None if value is None else float(f"{value:.4g}") for what, value in found.items()}
                row = {
                    "subject": subject,
                    "path": name,
                    "table": WAYS[name][0] if name in WAYS else "",
                    "mutants": cell["mutants"],
                }
                rows.append({**row, "faults": cell["faults"], **values})
    return rows


def validated(done: dict[str, Any], part: str, column: str) -> list[Row]:
    """How often the description of an output neuron names its class, and how much nearer it is to that name than to others."""
    rows = []
    for subject, cell in ((key.removeprefix("words/"), cell) for key, cell in done.items() if key.startswith("words/")):
        for name, found in sorted(
            cell[part].items(), key=lambda item: [int(n) if n.isdigit() else n for n in item[0].split(", ")]
        ):
            share, margin = found["accuracy"], found["margin"] or (None, None, None)
            row: Row = {"subject": subject, column: name, "neurons": found["units"], "known": found["known"]}
            row |= dict(zip(("right", "low", "high"), (round(v, 3) for v in share), strict=True))
            row |= {"chance": round(found["chance"], 3), "low above chance": round(share[1] - found["chance"], 3)}
            ends = (None if v is None else round(v, 3) for v in margin)
            rows.append(row | dict(zip(("cosine above others", "cosine low", "cosine high"), ends, strict=True)))
    return rows


def _by_number(item: tuple[str, Any]) -> list[tuple[int, str]]:
    """Names that are numbers in the order of numbers."""
    return [(int(part) if part.isdigit() else 0, part) for part in item[0].split(", ")]


def agreement(subjects: Sequence[str], done: dict[str, Any]) -> list[Row]:
    return [
        {
            "subject": s,
            "images": cell["images"],
            "steps": cell["steps"],
            **{k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()},
        }
        for s in subjects
        if (cell := done.get(f"conductance/{s}"))
        for row in cell["layers"]
    ]


def kinds(groups: Groups) -> list[Row]:
    """(true, predicted) pairs of faults at equal outputs: how many only this guide found, beside KMNC, DSC and NLC."""
    rows = []
    for (subject, guide), cells in groups.items():
        if guide not in ON_MAP or not cells:
            continue
        mine = _kinds(cells)
        others = set().union(*(_kinds(groups.get((subject, rival), [])) for rival in RIVALS if rival != guide))
        rows.append(
            {"subject": subject, "guide": guide, "kinds": len(mine), "only here": len(mine - others), "purity of the map": None}
        )
        purity = _purity(groups, subject, guide)
        rows[-1]["purity of the map"] = None if purity is None else round(purity[0], 3)
        rows[-1]["by chance"] = None if purity is None else round(purity[1], 3)
    return rows


def _kinds(cells: list[Row]) -> set[tuple[int, int]]:
    return {(int(a), int(b)) for cell in cells for a, b in cell["kinds"]}


def _points(groups: Groups, subject: str) -> tuple[NDArray[np.float64], list[Row]]:
    rows = [
        {"guide": guide, "true": one["true"], "predicted": one["predicted"], "values": one["values"]}
        for guide in ON_MAP
        for cell in groups.get((subject, guide), [])
        for one in cell["map"]
    ]
    return np.array([row.pop("values") for row in rows], dtype=np.float64), rows


def _purity(groups: Groups, subject: str, guide: str) -> tuple[float, float] | None:
    """The share of a fault's nearest faults that the same guide found, and what it would be if guides were all alike."""
    values, rows = _points(groups, subject)
    mine = np.array([row["guide"] == guide for row in rows], dtype=bool)
    if len(values) <= NEIGHBOURS or not mine.any():
        return None
    apart = ((values[:, None] - values[None]) ** 2).sum(2)
    np.fill_diagonal(apart, np.inf)
    near = np.argsort(apart, axis=1)[:, :NEIGHBOURS]
    return float(mine[near[mine]].mean()), float((mine.sum() - 1) / (len(mine) - 1))


def fault_map(groups: Groups) -> list[Row]:
    """Faults in the plane: t-SNE of the last hidden layer; `only` marks kinds that KMNC, DSC and NLC did not find."""
    from sklearn.manifold import TSNE

    found = []
    for subject in dict.fromkeys(s for s, _ in groups):
        values, rows = _points(groups, subject)
        if len(rows) < 3 * NEIGHBOURS:
            continue
        others = set().union(*(_kinds(groups.get((subject, rival), [])) for rival in RIVALS))
        near = min(30, (len(rows) - 1) // 3)
        placed = TSNE(perplexity=near, init="pca", random_state=0).fit_transform(values.astype(np.float32))
        for (x, y), row in zip(placed, rows, strict=True):
            only = row["guide"] == "nsgen" and (row["true"], row["predicted"]) not in others
            found.append({"subject": subject, **row, "only": bool(only), "x": round(float(x), 2), "y": round(float(y), 2)})
    return found


def gallery(groups: Groups) -> list[Row]:
    return [
        {"subject": subject, "guide": guide, **one}
        for (subject, guide), cells in groups.items()
        if guide in (*ON_MAP, "nsgen with-label")
        for one in (cells[0]["gallery"] if cells else ())
    ]


def checks(groups: Groups) -> dict[str, float]:
    """Fault rates at equal outputs over random's, and the lower end of their intervals."""
    found = {}
    for (subject, guide), cells in groups.items():
        if guide.startswith(("nsgen", "w/o")) and cells and (value := lift(cells, groups.get((subject, "random"), []))):
            found[f"{guide} on {subject}, fault rate over random's"] = round(value[0], 3)
            found[f"{guide} on {subject}, lower end"] = round(value[1], 3)
    return found
