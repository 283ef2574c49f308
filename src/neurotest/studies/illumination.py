"""`neurotest study illumination`: every generator at an equal number of forward passes, by defects, naturalness, impartiality."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurotest import zoo
from neurotest.registry import register
from neurotest.stats.bootstrap import mean_interval
from neurotest.studies import illumination_cells as cells
from neurotest.studies import illumination_suites as suites
from neurotest.studies.study import Cell

Row = dict[str, Any]
QUICK = ("fashion-lenet5", "cifar10-resnet20")
FULL = (*QUICK, "mnist-lenet5", "fashion-resnet20")
DRAWS = {"quick": 3, "full": 10}
GUIDES = ("nc", "kmnc", "nbc", "tknc", "dsc", "nlc", "deephunter")  # of the quick scale
FORWARDS = {"quick": (1000,), "full": (500, 1000, 2000)}
DEFECTS = ("found", "faults", "cells", "root label pairs", "roots")
NATURAL = ("ssim", "kid", "outside", "l2", "variation", "ssim, best per cell", "l2, best per cell")
HIGHER = {"ssim": 1, "kid": -1, "outside": -1}  # what is more natural
ABSENT = [
    {"what": "DeepXplore on CIFAR-10", "why": "it compares networks, and one CIFAR-10 network is embedded"},
    {"what": "LPIPS, FID on InceptionV3, human ratings", "why": "no such weights, and nobody to ask, here"},
]


@register(
    "study",
    "illumination",
    paper="ours; the three judgements are those of Harel-Canada et al., FSE 2020",
    cost="quick: two subjects, three sets of 200 seeds, 25 generators with 1,000 forward passes each, 8 minutes of one core; "
    "full: four subjects, ten sets, all guides, 500 to 2,000 passes",
    differs="A backward pass is counted as two forward passes; those over the seeds and training data are not counted. Where "
    "the cost of a seed is not known before, seeds are taken until the budget is spent.",
)
@dataclass(frozen=True, kw_only=True)
class IlluminationStudy:
    """How many (true, predicted) pairs each generator fills, how natural its faults are, and whether they favour classes."""

    def cells(self, scale: str) -> Sequence[Cell]:
        controls = [Cell(f"{name}/control", functools.partial(cells.control, name)) for name in _here(scale)]
        return controls + [
            Cell(f"{name}/{forwards}/{draw}/{generator}", functools.partial(cells.cell, name, draw, generator, forwards))
            for name in _here(scale)
            for forwards in FORWARDS[scale]
            for draw in range(DRAWS[scale])
            for generator in names(name, scale)
        ]

    def tables(self, scale: str, done: dict[str, Any]) -> dict[str, Any]:
        tables: dict[str, Any] = {}
        checks: dict[str, float] = {}
        for forwards in FORWARDS[scale]:
            rows, extra = [], []
            for name in _here(scale):
                groups = {g: found for g in names(name, scale) if (found := _cells(done, name, forwards, g, scale))}
                rows += [_row(name, generator, found) for generator, found in groups.items()]
                compared, numbers = against_best(name, groups)
                extra += compared
                checks |= {f"{key}, {forwards} forwards": value for key, value in numbers.items()}
            tables[f"all generators, {forwards} forwards"] = rows
            tables[f"illumination against the best coverage-guided run, {forwards} forwards"] = extra
        tables["what counts as outside the training manifold, whatever the generator"] = [
            {"subject": key.removesuffix("/control"), **found} for key, found in done.items() if key.endswith("/control")
        ]
        left = [
            {"what": g, "why": "a guide of the full scale only"} for g in suites.GUIDES if scale == "quick" and g not in GUIDES
        ]
        tables["not run"] = [*ABSENT, *left, *({"what": key, "why": c["absent"]} for key, c in done.items() if "absent" in c)]
        return {"tables": tables, "checks": checks}


def names(subject: str, scale: str) -> list[str]:
    """The generators of a subject, illumination first."""
    guides = [guide for guide in suites.GUIDES if scale == "full" or guide in GUIDES]
    found = ["illuminate", *suites.OTHERS, *guides, "fgsm", "pgd", "pgd, diversity 1", "cw", *suites.TOOLBOX, "dlfuzz", "adapt"]
    found += [f"swarm, {fitness}" for fitness in suites.SWARMS]
    if subject.partition("-")[0] in suites.SECOND:
        found += [f"deepxplore {kind}" for kind in ("light", "occlusion", "blackout")]
    return found


def _here(scale: str) -> list[str]:
    return [name for name in (QUICK if scale == "quick" else FULL) if zoo.find(name).weights is not None]


def _cells(done: dict[str, Any], name: str, forwards: int, generator: str, scale: str) -> list[Row]:
    found = (done.get(f"{name}/{forwards}/{draw}/{generator}") for draw in range(DRAWS[scale]))
    return [one for one in found if one and "absent" not in one]


def _values(found: list[Row], what: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([one[what] for one in found if one.get(what) is not None], dtype=np.float64)


def _row(name: str, generator: str, found: list[Row]) -> Row:
    row: Row = {"subject": name, "generator": generator}
    for what in (*DEFECTS, *NATURAL, "evenness", "spent"):
        values = _values(found, what)
        row[what] = round(float(values.mean()), 4) if len(values) else None
    counts = _values(found, "cells")
    spread = mean_interval(counts) if len(counts) > 1 else None
    row |= {"cells low": None if spread is None else spread.low, "cells high": None if spread is None else spread.high}
    return {**row, "repetitions": len(found)}


def against_best(name: str, groups: dict[str, list[Row]]) -> tuple[list[Row], dict[str, float]]:
    """Illumination beside the coverage-guided run that fills most cells, set of seeds by set of seeds."""
    ours = groups.get("illuminate")
    guided = {g: found for g, found in groups.items() if g in suites.GUIDES and ours and len(found) == len(ours)}
    if not ours or not guided:
        return [], {}
    best = max(guided, key=lambda g: float(_values(guided[g], "cells").mean()))
    theirs = guided[best]
    rows: list[Row] = []
    checks: dict[str, float] = {}
    ratios = _values(ours, "cells") / _values(theirs, "cells")
    every = _values(ours, "cells") / _most(guided, len(ours))
    others = _values(ours, "cells") / _most({g: found for g, found in groups.items() if g != "illuminate"}, len(ours))
    for label, values in (
        ("cells, ratio", ratios), ("cells, ratio to the best of each set", every),
        ("cells, ratio to the best of all generators in each set", others),
    ):  # fmt: skip
        rows.append({"subject": name, "best guided": best, "what": label, **_mean(values)})
        checks[f"{name}: {label}"] = round(float(values.mean()), 4)
    for what in ("ssim", "kid", "outside", "l2", "ssim, best per cell", "evenness"):
        mine, other = (np.array([c[what] if c.get(what) is not None else np.nan for c in side]) for side in (ours, theirs))
        apart = (mine - other) * HIGHER.get(what, -1 if what == "l2" else 1)
        apart = apart[~np.isnan(apart)]
        if len(apart):
            label = f"{what}, better by"
            rows.append({"subject": name, "best guided": best, "what": label, **_mean(apart)})
            checks[f"{name}: {label}"] = round(float(apart.mean()), 4)
    return rows, checks


def _most(groups: dict[str, list[Row]], sets: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Cells of the generator that fills most, set by set."""
    whole = [_values(found, "cells") for found in groups.values() if len(found) == sets]
    return np.asarray(np.max(whole, axis=0))


def _mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> Row:
    spread = mean_interval(values) if len(values) > 1 else None
    return {
        "mean": round(float(values.mean()), 4),
        "low": None if spread is None else round(spread.low, 4),
        "high": None if spread is None else round(spread.high, 4),
        "least": round(float(values.min()), 4),
    }
