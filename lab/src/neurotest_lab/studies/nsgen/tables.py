"""Tables of the study of NSGen, out of its finished cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest_lab.studies.frame import ABSENT, Groups, Row, rounded, spread, with_ends
from neurotest_lab.studies.fuzzing import published
from neurotest_lab.studies.fuzzing.tables import gallery as every_gallery
from neurotest_lab.studies.fuzzing.tables import last_columns, means
from neurotest_lab.studies.nsgen.pool import OWN, SOFT, WAYS

DRAWS = 2000
RIVALS = ("kmnc", "dsc", "nlc")
ON_MAP = ("nsgen", *RIVALS, "random")
NEIGHBOURS = 10


def column(subject: str, guide: str) -> tuple[str, int | None]:
    """ResNet50's numbers stand beside those of our ResNet; the paper's NSGen has the label in its path."""
    name = "nsgen" if guide == "nsgen with-label" else guide
    return name, 0 if subject == "cifar10-resnet20" and guide != "nsgen" else None


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
    if not whole[1]:
        return None
    ratios = []
    for _ in range(DRAWS):
        rates = []
        for side in sides:
            chosen = [side[i] for i in stream.integers(0, len(side), len(side))]
            rates.append(_rate([c[stream.integers(0, len(c), len(c))] for c in chosen]))
        ratios.append(rates[0] / rates[1] if rates[1] else np.inf)
    low, high = np.quantile(ratios, [0.025, 0.975], method="nearest")
    return float(whole[0] / whole[1]), float(low), float(high)


def _by_root(pairs: list[list[int]]) -> NDArray[np.int64]:
    """(roots, 2): outputs and faults of every seed."""
    if not pairs:
        return np.empty((0, 2), dtype=np.int64)
    roots, faults = np.array(pairs).T
    _, where = np.unique(roots, return_inverse=True)
    return np.stack([np.bincount(where), np.bincount(where, weights=faults).astype(np.int64)], 1)


def _rate(parts: list[NDArray[np.int64]]) -> float:
    outputs, faults = np.concatenate(parts).sum(0)
    return float(faults / outputs)


def equal(groups: Groups, protocol: str) -> list[Row]:
    """One row per subject and guide at one protocol's limit, random beside."""
    rows = []
    for (subject, guide), cells in groups.items():
        row: Row = {"subject": subject, "guide": guide, **means(cells, protocol, ("faults", "outputs", "rft"))}
        ends = spread([cell[protocol]["faults"] for cell in cells], 2)
        row |= {"faults low": ends["low"], "faults high": ends["high"]}
        if protocol == "outputs":
            ratio = lift(cells, groups.get((subject, "random"), [])) if guide != "random" else None
            row |= with_ends(ratio, 3, ("x random", "low", "high"))
        row |= means(cells, protocol, ("families", "faults per 1,000 forwards", "fre", "coverage"))
        row |= last_columns(groups, (subject, guide), protocol)
        rows.append(row | published.counts(protocol, *column(subject, guide)))
    return rows


def some(groups: Groups, beginnings: Sequence[str]) -> list[Row]:
    """The rows of some variants at equal outputs, random first."""
    chosen = {
        key: cells
        for key, cells in groups.items()
        if key[1] == "random"
        or any(key[1] == b or (b != "nsgen" and (key[1].startswith(b) or key[1].endswith(b))) for b in beginnings)
    }
    columns = ("subject", "guide", "faults", "outputs", "rft", "x random", "low", "high", "families", "reached", "repetitions")
    rows = [{name: row[name] for name in columns} for row in equal(chosen, "outputs")]
    subjects = {row["subject"] for row in rows if row["guide"] != "random"}
    return [row for row in rows if row["subject"] in subjects]


def stability(cells: dict[str, Row]) -> list[Row]:
    return [
        {"subject": subject, "mode": mode, "images per class": step["per class"], "pairs": step["pairs"],
         "tau": round(step["value"], 4), **{name: round(step[name], 4) for name in ("low", "high", "below")}}
        for subject, modes in cells.items()
        for mode, steps in modes.items()
        for step in steps
    ]  # fmt: skip


def similarities(pools: dict[str, Row]) -> list[Row]:
    """Every way of comparing the same paths."""
    return [
        {"subject": subject, "path": name, "table": WAYS[name][0] if name in WAYS else "", "mutants": cell["mutants"],
         "faults": cell["faults"], **{key: None if value is None else float(f"{value:.4g}") for key, value in way.items()}}
        for subject, cell in pools.items()
        for name in (*WAYS, OWN, *SOFT)
        if (way := cell["ways"].get(name)) and ABSENT not in way
    ]  # fmt: skip


def validated(described: dict[str, Row], part: str, column: str) -> list[Row]:
    """How often the description of an output neuron names its class, and how much nearer it is to that name than to others."""
    rows = []
    for subject, cell in described.items():
        for name in sorted(cell[part], key=lambda text: [int(n) if n.isdigit() else n for n in text.split(", ")]):
            result = cell[part][name]
            row: Row = {"subject": subject, column: name, "neurons": result["units"], "known": result["known"]}
            row |= {**with_ends(result["accuracy"], 3, ("right", "low", "high")), "chance": round(result["chance"], 3)}
            row["low above chance"] = round(result["accuracy"][1] - result["chance"], 3)
            rows.append(row | with_ends(result["margin"], 3, ("cosine above others", "cosine low", "cosine high")))
    return rows


def agreement(cells: dict[str, Row]) -> list[Row]:
    return [
        {"subject": subject, "images": cell["images"], "steps": cell["steps"],
         **{name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}}
        for subject, cell in cells.items()
        for row in cell["layers"]
    ]  # fmt: skip


def kinds(groups: Groups) -> list[Row]:
    """(true, predicted) pairs of faults at equal outputs: how many only this guide found, beside KMNC, DSC and NLC."""
    rows = []
    for (subject, guide), cells in groups.items():
        if guide in ON_MAP:
            own, others = _kinds(cells), _kinds_of_rivals(groups, subject, guide)
            purity, chance = _purity(groups, subject, guide) or (None, None)
            row = {"subject": subject, "guide": guide, "kinds": len(own), "only here": len(own - others)}
            rows.append({**row, "purity of the map": rounded(purity, 3), "by chance": rounded(chance, 3)})
    return rows


def _kinds(cells: list[Row]) -> set[tuple[int, int]]:
    return {(int(a), int(b)) for cell in cells for a, b in cell["kinds"]}


def _kinds_of_rivals(groups: Groups, subject: str, but: str = "") -> set[tuple[int, int]]:
    return {kind for rival in RIVALS if rival != but for kind in _kinds(groups.get((subject, rival), []))}


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
    own = np.array([row["guide"] == guide for row in rows], dtype=bool)
    if len(values) <= NEIGHBOURS or not own.any():
        return None
    apart = ((values[:, None] - values[None]) ** 2).sum(2)
    np.fill_diagonal(apart, np.inf)
    near = np.argsort(apart, axis=1)[:, :NEIGHBOURS]
    return float(own[near[own]].mean()), float((own.sum() - 1) / (len(own) - 1))


def fault_map(groups: Groups) -> list[Row]:
    """Faults in the plane: t-SNE of the last hidden layer; `only` marks kinds that KMNC, DSC and NLC did not find."""
    from sklearn.manifold import TSNE

    points = []
    for subject in dict.fromkeys(subject for subject, _ in groups):
        values, rows = _points(groups, subject)
        if len(rows) < 3 * NEIGHBOURS:
            continue
        others = _kinds_of_rivals(groups, subject)
        near = min(30, (len(rows) - 1) // 3)
        places = TSNE(perplexity=near, init="pca", random_state=0).fit_transform(values.astype(np.float32))
        for (x, y), row in zip(places, rows, strict=True):
            only = row["guide"] == "nsgen" and (row["true"], row["predicted"]) not in others
            points.append({"subject": subject, **row, "only": bool(only), "x": round(float(x), 2), "y": round(float(y), 2)})
    return points


def gallery(groups: Groups) -> list[Row]:
    return every_gallery({key: cells for key, cells in groups.items() if key[1] in (*ON_MAP, "nsgen with-label")})


def checks(groups: Groups) -> dict[str, float]:
    """Fault rates at equal outputs over random's, and the lower end of their intervals."""
    claims = {}
    for (subject, guide), cells in groups.items():
        if guide.startswith(("nsgen", "w/o", *SOFT)) and (value := lift(cells, groups.get((subject, "random"), []))):
            claims[f"{guide} on {subject}, fault rate over random's"] = round(value[0], 3)
            claims[f"{guide} on {subject}, lower end"] = round(value[1], 3)
    return claims
