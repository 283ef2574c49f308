"""From suites to the coverage study's tables: correlations plain, given lambda, within lambda, and what they say."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neurotest.errors import BadInput
from neurotest.stats.comparison import spearman
from neurotest.stats.correlation import Correlation, correlate, within_levels
from neurotest.studies import coverage_published as paper

Row = dict[str, Any]
SHOWN = 0.2  # the threshold the study draws its figures at
COLUMNS = {
    "asr": "attack_success_rate",
    "is": "inception_score",
    "fid": "fid_score_2048",
    "oi": "output_impartiality",
}
COVERAGE = ("neuron_coverage_000", "neuron_coverage_020", "neuron_coverage_050", "neuron_coverage_075")
KNOWN_MISSES = ("Dave_orig", "Dave_norminit")  # PGD on these: the published file and the printed tables differ


@dataclass(frozen=True, kw_only=True)
class Suite:
    """What was measured on one suite. `strength` is eps or kappa; `nc` has one value per threshold."""

    model: str
    attack: str
    layer: str
    weight: float  # lambda
    strength: float
    nc: tuple[float, ...]
    metrics: dict[str, float | None]
    draw: int = 0

    @property
    def cluster(self) -> str:
        """Suites of one layer and strength share their images and most of their work."""
        return f"{self.layer}/{self.strength:g}/{self.draw}"


def read_csv(path: str | Path) -> list[Suite]:
    """The published suites, from the file with the study's own column names."""
    path = Path(path)
    needed = ("model", "attack", "layer", "regularization_weight", "epsilon", "confidence", *COVERAGE, *COLUMNS.values())
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            lacking = [name for name in needed if name not in (reader.fieldnames or ())]
            if lacking:
                raise BadInput(f"--from-csv {path}: no column {lacking[0]!r}; expected the suites file of the coverage study.")
            rows = [_suite(row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"--from-csv {path}: not a CSV file ({error}).") from error
    except (TypeError, ValueError) as error:
        raise BadInput(f"--from-csv {path}: a value is no number ({error}).") from error
    except OSError as error:
        raise BadInput(f"--from-csv {path} cannot be read: {error.strerror}.") from error
    if len(rows) < 4:
        raise BadInput(f"--from-csv {path} holds {len(rows)} suites: correlations need at least 4.")
    return rows


def _suite(row: dict[str, str]) -> Suite:
    return Suite(
        model=row["model"], attack="cw" if row["attack"].startswith("cw") else "pgd", layer=row["layer"],
        weight=float(row["regularization_weight"]), strength=float(row["epsilon"] or row["confidence"]),
        nc=tuple(float(row[name]) for name in COVERAGE), metrics={name: float(row[c]) for name, c in COLUMNS.items()},
    )  # fmt: skip


def groups(suites: Iterable[Suite]) -> dict[tuple[str, str], list[Suite]]:
    """By model and attack, in the order met."""
    found: dict[tuple[str, str], list[Suite]] = {}
    for suite in suites:
        found.setdefault((suite.model, suite.attack), []).append(suite)
    return found


def usable(suites: Sequence[Suite], metric: str) -> list[Suite]:
    return [s for s in suites if s.metrics.get(metric) is not None]


def _sides(suites: Sequence[Suite], metric: str, column: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([s.nc[column] for s in suites]), np.array([s.metrics[metric] for s in suites], dtype=np.float64)


def correlations(
    suites: Iterable[Suite], metrics: Sequence[str], thresholds: Sequence[float], hoped: dict[str, int]
) -> list[Row]:
    """One row per metric, model, attack and threshold: plain, given lambda, given lambda and strength (`both`), each with its
    interval, Spearman, and the verdict of the plain one."""
    rows = []
    for model, attack, metric, mine in _each(suites, metrics):
        clusters = [s.cluster for s in mine]
        for column, threshold in enumerate(thresholds):
            x, y = _sides(mine, metric, column)
            plain = correlate(x, y, clusters=clusters)
            fixed = correlate(x, y, level=[s.weight for s in mine], clusters=clusters)
            both = correlate(x, y, level=[f"{s.weight} {s.strength}" for s in mine], clusters=clusters)
            rows.append(
                {
                    "model": model, "attack": attack, "metric": metric, "t": threshold, **_told(plain),
                    "given lambda": _two(fixed.r), "given low": _two(fixed.low), "given high": _two(fixed.high),
                    "given both": _two(both.r), "both low": _two(both.low), "both high": _two(both.high),
                    "spearman": _two(spearman(x, y)), "suites": len(mine), "supports": plain.supports(hoped[metric]),
                }
            )  # fmt: skip
    return rows


def _each(suites: Iterable[Suite], metrics: Sequence[str]) -> Iterator[tuple[str, str, str, list[Suite]]]:
    """Model, attack, metric, and the suites that have it, where they are enough to correlate."""
    for (model, attack), held in groups(suites).items():
        for metric in metrics:
            mine = usable(held, metric)
            if len(mine) >= 4:
                yield model, attack, metric, mine


def _told(found: Correlation) -> Row:
    return {
        "r": _two(found.r), "low": _two(found.low), "high": _two(found.high),
        "p": None if math.isnan(found.p) else float(f"{found.p:.2g}"), "strength": found.strength,
    }  # fmt: skip


def _two(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def within_lambda(suites: Iterable[Suite], metrics: Sequence[str], column: int) -> list[Row]:
    """The correlation among suites of one lambda: nothing of what lambda does to both sides is in it."""
    rows = []
    for model, attack, metric, mine in _each(suites, metrics):
        found = within_levels(*_sides(mine, metric, column), [s.weight for s in mine])
        for weight, one in found.items():
            rows.append({"model": model, "attack": attack, "metric": metric, "lambda": weight, **_told(one), "suites": one.n})
    return rows


def by_lambda(suites: Iterable[Suite], metrics: Sequence[str], column: int) -> list[Row]:
    """What lambda itself does: means at each level, and its correlation (of log lambda) with the metric."""
    rows = []
    for (model, attack), held in groups(suites).items():
        for weight in sorted({s.weight for s in held}):
            mine = [s for s in held if s.weight == weight]
            row: Row = {"model": model, "attack": attack, "lambda": weight, "suites": len(mine)}
            row["nc"] = round(float(np.mean([s.nc[column] for s in mine])), 4)
            for metric in metrics:
                values = [v for s in mine if (v := s.metrics.get(metric)) is not None]
                row[metric] = round(float(np.mean(values)), 4) if values else None
            rows.append(row)
    return rows


def lambda_confounds(suites: Iterable[Suite]) -> list[Row]:
    """Correlation of log lambda (0 as one step below 1) with coverage at .2 and with success."""
    rows = []
    for (model, attack), held in groups(suites).items():
        mine = usable(held, "asr")
        if len(mine) < 4:
            continue
        steps = [math.log10(s.weight) if s.weight > 0 else -1.0 for s in mine]
        x, y = _sides(mine, "asr", 1)
        against = {"coverage": correlate(steps, x), "success": correlate(steps, y)}
        rows.append({"model": model, "attack": attack, **{f"lambda with {k}": _two(v.r) for k, v in against.items()}})
    return rows


def cells() -> Iterator[tuple[str, str, str, int]]:
    """The 192 cells of tables 4 to 6: metric, model, attack, number of the threshold."""
    for metric in paper.METRICS:
        for model in paper.MODELS:
            if paper.printed(metric, model):
                for attack in ("cw", "pgd"):
                    for column in range(len(paper.THRESHOLDS)):
                        yield metric, model, attack, column


def against_paper(rows: Sequence[Row]) -> list[Row]:
    """Every printed cell beside ours; a printed NA is met by an undefined correlation."""
    known = {(r["metric"], r["model"], r["attack"], r["t"]): r["r"] for r in rows}
    found = []
    for metric, model, attack, column in cells():
        theirs = paper.published(metric, model, attack, column)
        ours = known.get((metric, model, attack, paper.THRESHOLDS[column]))
        away = 0.0 if ours is None and theirs is None else math.inf if ours is None or theirs is None else abs(ours - theirs)
        found.append(
            {"metric": metric, "model": model, "attack": attack, "t": paper.THRESHOLDS[column], "ours": ours, "paper": theirs,
             "away": None if math.isinf(away) else round(away, 4)}
        )  # fmt: skip
    return found


def missed(found: Sequence[Row], tolerance: float) -> list[Row]:
    # 0.05 as printed: our four digits against their two leave half a unit of rounding, nothing more.
    return [row for row in found if row["away"] is None or row["away"] > tolerance + 1e-9]


def verdicts(rows: Sequence[Row], keys: Sequence[str] = ("metric",)) -> list[Row]:
    """How many correlations support the hypothesis, how strong they are, and which way they point, plain and given lambda."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[k] for k in keys), []).append(row)
    told = []
    for key, mine in found.items():
        known = [r for r in mine if r["r"] is not None]
        sure = [r for r in known if r["low"] is not None and (r["low"] > 0 or r["high"] < 0)]
        fixed = [r for r in known if r["given low"] is not None and (r["given low"] > 0 or r["given high"] < 0)]
        told.append(
            {
                **dict(zip(keys, key, strict=True)), "correlations": len(mine), "undefined": len(mine) - len(known),
                "support": sum(r["supports"] for r in mine), "positive": sum(r["r"] > 0 for r in known),
                "negative": sum(r["r"] < 0 for r in known), "interval above 0": sum(r["low"] > 0 for r in sure),
                "interval below 0": sum(r["high"] < 0 for r in sure),
                "given lambda above 0": sum(r["given low"] > 0 for r in fixed),
                "given lambda below 0": sum(r["given high"] < 0 for r in fixed),
            }
        )  # fmt: skip
    return told


def from_csv(path: str | Path) -> dict[str, Any]:
    """The study's statistics on its own suites: tables, and how many printed cells come out again."""
    suites = read_csv(path)
    metrics = tuple(paper.METRICS)
    hoped = {name: sign for name, (_, _, sign) in paper.METRICS.items()}
    rows = [r for r in correlations(suites, metrics, paper.THRESHOLDS, hoped) if paper.printed(r["metric"], r["model"])]
    for row in rows:
        row["paper"] = paper.published(row["metric"], row["model"], row["attack"], paper.THRESHOLDS.index(row["t"]))
    beside = against_paper(rows)
    misses = missed(beside, 0.05)
    column = paper.THRESHOLDS.index(SHOWN)
    natural = [m for m in metrics if m in ("is", "fid")]
    tables: dict[str, Any] = {
        title: [r for r in rows if paper.METRICS[r["metric"]][0] == title]
        for title in dict.fromkeys(t for t, _, _ in paper.METRICS.values())
    }
    tables |= {
        "verdicts": verdicts(rows),
        "within lambda (t=.2)": within_lambda(suites, [m for m in metrics if m not in natural], column),
        "by lambda (t=.2)": by_lambda(suites, metrics, column),
        "lambda confounds": lambda_confounds(suites),
        "cells that differ by more than .05": misses,
    }
    checks = {
        "suites": len(suites),
        "cells": len(beside),
        "cells_within_0.01": len(beside) - len(missed(beside, 0.01)),
        "cells_within_0.05": len(beside) - len(misses),
        "misses that the spec does not name": sum(not (m["attack"] == "pgd" and m["model"] in KNOWN_MISSES) for m in misses),
    }
    return {"tables": tables, "checks": checks}
