"""Rows of the illumination study, from the finished suites of one subject."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.stats.bootstrap import mean_interval
from neurotest_lab.studies.frame import Row, mean, with_ends
from neurotest_lab.studies.illumination import suites

DEFECTS = ("found", "faults", "cells", "root label pairs", "roots")
NATURAL = ("ssim", "kid", "outside", "l2", "variation", "ssim, best per cell", "l2, best per cell")
LOWER = ("kid", "outside", "l2")  # is better
Groups = dict[str, list[Row]]  # by generator, one suite for each set of seeds


def _values(sets: list[Row], name: str) -> NDArray[np.float64]:
    """NaN where a suite has none."""
    return np.array([one.get(name) for one in sets], dtype=np.float64)


def row(subject: str, generator: str, sets: list[Row]) -> Row:
    means = {name: mean(one.get(name) for one in sets) for name in (*DEFECTS, *NATURAL, "evenness", "spent")}
    ends = _interval(_values(sets, "cells"))
    row = {"subject": subject, "generator": generator, **means, "cells low": ends[0], "cells high": ends[1]}
    return {**row, "repetitions": len(sets)}


def against_best(subject: str, groups: Groups) -> tuple[list[Row], dict[str, float]]:
    """Illumination beside the coverage-guided run that fills most cells, set of seeds by set of seeds."""
    ours = groups.get("illuminate", [])
    guided = {name: sets for name, sets in groups.items() if name in suites.GUIDES and len(sets) == len(ours)}
    if not ours or not guided:
        return [], {}
    best = max(guided, key=lambda name: float(_values(guided[name], "cells").mean()))
    cells = _values(ours, "cells")
    others = {name: sets for name, sets in groups.items() if name != "illuminate"}
    compared = {
        "cells, ratio": cells / _values(guided[best], "cells"),
        "cells, ratio to the best of each set": cells / _most(guided, len(ours)),
        "cells, ratio to the best of all generators in each set": cells / _most(others, len(ours)),
    }
    for name in ("ssim", "kid", "outside", "l2", "ssim, best per cell", "evenness"):
        apart = (_values(ours, name) - _values(guided[best], name)) * (-1 if name in LOWER else 1)
        compared[f"{name}, better by"] = apart[~np.isnan(apart)]
    rows = [
        {"subject": subject, "best guided": best, "what": label, **_mean(values)}
        for label, values in compared.items()
        if len(values)
    ]
    return rows, {f"{subject}: {row['what']}": row["mean"] for row in rows}


def _most(groups: Groups, sets: int) -> NDArray[np.float64]:
    """Cells of the generator that fills most, set by set."""
    return np.asarray(np.max([_values(group, "cells") for group in groups.values() if len(group) == sets], axis=0))


def _interval(values: NDArray[np.float64]) -> tuple[Any, Any]:
    """Of the mean of several."""
    return mean_interval(values)[1:] if len(values) > 1 else (None, None)


def _mean(values: NDArray[np.float64]) -> Row:
    ends = with_ends((float(values.mean()), *_interval(values)), 4, ("mean", "low", "high"))
    return {**ends, "least": round(float(values.min()), 4)}
