"""`neurotest study nss`: the tables and figures of the NSS paper, ours beside theirs."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurotest import zoo
from neurotest.registry import register
from neurotest.stats.bootstrap import mean_interval
from neurotest.studies import nss_cells, nss_published
from neurotest.studies.nss_published import BUDGETS, LAYERS, SHARES
from neurotest.studies.study import Cell

QUICK = ("mnist-lenet1", "fashion-lenet1")
FULL = (
    *QUICK, "mnist-lenet5", "fashion-resnet20", "cifar10-resnet20", "mnist-lenet4", "fashion-lenet5",
    "mnist-fcnet5", "mnist-fcnet10", "mnist-conv1d", "mnist-conv2d",
)  # fmt: skip
SEEDS = {"quick": 3, "full": 5}
LIMIT = {"quick": 5000, "full": None}
ONE_MUTATION = {"quick": ("mnist-lenet1",), "full": ("cifar10-resnet20", "mnist-lenet1", "fashion-lenet1")}
TIMED = ("nss", "nss, unpaired", "nss+", "nac", "kmnc", "npc", "dsa", "deepgini", "ats", "adaptive", "random")
Row = dict[str, Any]


@register(
    "study",
    "nss",
    paper="NSS: neuron sensitivity guided test case selection, tables V, VI, VII, IX, X and figures 3, 4, 5",
    cost="quick: two subjects, three pools of 5,000, under 15 minutes on two cores; full: every zoo subject whose weights are "
    "here, five pools of 10,000",
    differs="NSS compares with originals (`nss`) or with a fresh mutation (`nss, unpaired`); the two never share a row.",
)
@dataclass(frozen=True, kw_only=True)
class NssStudy:
    """Which method finds most faults, and most kinds of them, among mutated test images."""

    def cells(self, scale: str) -> list[Cell]:
        limit = LIMIT[scale]
        found = []
        for subject in _here(scale):
            for seed in range(SEEDS[scale]):
                for word in nss_cells.METHODS:
                    found.append(_cell(f"select/{subject}/{seed}/{word}", nss_cells.selection, subject, seed, word, limit))
                found.append(_cell(f"shares/{subject}/{seed}", nss_cells.shares, subject, seed, limit))
                found.append(_cell(f"layers/{subject}/{seed}", nss_cells.layers, subject, seed, limit))
            found.append(_cell(f"sensitivity/{subject}", nss_cells.sensitivity, subject, limit))
            found += [_cell(f"overhead/{subject}/{word}", nss_cells.overhead, subject, word, limit) for word in TIMED]
        for subject in ONE_MUTATION[scale]:
            if zoo.find(subject).weights is not None:
                found += [_cell(f"fixed/{subject}/{name}", nss_cells.fixed, subject, name, limit) for name in nss_cells.FIXED]
        return found

    def tables(self, scale: str, done: dict[str, Any]) -> dict[str, Any]:
        subjects, seeds = _here(scale), range(SEEDS[scale])
        picked = {(s, w): _all(done, (f"select/{s}/{seed}/{w}" for seed in seeds)) for s in subjects for w in nss_cells.METHODS}
        tables = {
            "V: fault detection rate": _fdr_rows(picked),
            "VI: one mutation for all": _fixed_rows(scale, done),
            "VII: area under the fault-type curve": _area_rows(picked),
            "IX: share of sensitive neurons": _share_rows(subjects, seeds, done),
            "X: layer": _layer_rows(subjects, seeds, done),
            "figure 3: sensitivity and strength": _figure_3(subjects, done),
            "figure 4: fault-type curves": _figure_4(picked),
            "figure 5: overhead": _figure_5(subjects, done),
            "not rerun": _absent(scale, done),
        }
        return {"tables": tables, "checks": _checks(picked, done)}


def _cell(key: str, make: Any, *arguments: Any) -> Cell:
    return Cell(key, functools.partial(make, *arguments))


def _here(scale: str) -> list[str]:
    return [name for name in (QUICK if scale == "quick" else FULL) if zoo.find(name).weights is not None]


def _all(done: dict[str, Any], keys: Iterable[str]) -> list[Any]:
    return [done[key] for key in keys if key in done and not (isinstance(done[key], dict) and "absent" in done[key])]


def _mean(values: Sequence[float]) -> Row:
    """Mean over pools with its bootstrap interval."""
    mean = mean_interval(np.asarray(values, dtype=np.float64))
    return {"value": round(mean.value, 2), "low": round(mean.low, 2), "high": round(mean.high, 2)}


def _rounded(values: Sequence[float], digits: int = 2) -> Row:
    """A value and its interval."""
    return {word: round(value, digits) for word, value in zip(("value", "low", "high"), values, strict=True)}


def _ends(values: Sequence[float]) -> Row:
    return {"low": round(min(values), 2), "high": round(max(values), 2)}


def _fdr_rows(picked: dict[tuple[str, str], list[Any]]) -> list[Row]:
    rows = []
    for (subject, word), cells in picked.items():
        for column, budget in enumerate(BUDGETS):
            if cells:
                theirs = nss_published.FDR.get(subject)
                paper = theirs[column][nss_published.METHODS.index(word)] if theirs and word in nss_published.METHODS else None
                ours = _mean([cell["fdr"][column] for cell in cells])
                rows.append({"subject": subject, "budget": f"{budget}%", "method": word, **ours, "paper": paper})
    return rows


def _area_rows(picked: dict[tuple[str, str], list[Any]]) -> list[Row]:
    """Ours is the mean coverage over budgets of 1 to 20 %; the paper does not say how it normalises."""
    return [
        {"subject": s, "method": w, **_mean([c["area"] for c in cells]), "paper": nss_published.AREA.get(s, {}).get(w)}
        for (s, w), cells in picked.items()
        if cells
    ]


def _share_rows(subjects: list[str], seeds: range, done: dict[str, Any]) -> list[Row]:
    rows = []
    for subject in subjects:
        cells = _all(done, (f"shares/{subject}/{seed}" for seed in seeds))
        paper = nss_published.BY_SHARE.get(subject, (None,) * len(SHARES))
        for column, share in enumerate(SHARES if cells else ()):
            ours = {**_mean([c["fdr"][column] for c in cells]), "random": _mean([c["random"] for c in cells])["value"]}
            rows.append({"subject": subject, "share": f"{100 * share:g}%", **ours, "paper": paper[column]})
    return rows


def _layer_rows(subjects: list[str], seeds: range, done: dict[str, Any]) -> list[Row]:
    rows = []
    for subject in subjects:
        cells = _all(done, (f"layers/{subject}/{seed}" for seed in seeds))
        paper = nss_published.BY_LAYER.get(subject, (None,) * len(LAYERS))
        for column, layer in enumerate(cells[0]["layers"] if cells else ()):
            ours = {**_mean([c["fdr"][column] for c in cells]), "random": _mean([c["random"] for c in cells])["value"]}
            word = LAYERS[column] if len(cells[0]["layers"]) == len(LAYERS) else ""  # smaller networks have fewer
            rows.append({"subject": subject, "layer": word, "ours": layer, **ours, "paper": paper[column]})
    return rows


def _fixed_rows(scale: str, done: dict[str, Any]) -> list[Row]:
    rows = []
    for subject in ONE_MUTATION[scale]:
        for name in nss_cells.FIXED:
            cell: Any = done.get(f"fixed/{subject}/{name}")
            theirs = nss_published.FIXED[name] if subject == "cifar10-resnet20" else (None,) * 5
            for column, budget in enumerate(BUDGETS if cell else ()):
                rows.append(
                    {
                        "subject": subject, "mutation": name, "budget": f"{budget}%", **_rounded(cell["fdr"][column]),
                        "random": round(cell["random"], 2), "paper": theirs[column], "paper random": theirs[4],
                    }
                )  # fmt: skip
    return rows


def _figure_3(subjects: list[str], done: dict[str, Any]) -> list[Row]:
    """`relative` is the change of the sensitive neurons over the layer's mean activation: networks differ in scale."""
    rows = []
    for subject in subjects:
        for stage, found in done.get(f"sensitivity/{subject}", {}).items():
            for neurons in ("sensitive", "random", "relative"):
                for step, values in zip(nss_cells.STRENGTHS, found[neurons], strict=True):
                    row = {"subject": subject, "stage": stage, "accuracy": round(found["accuracy"], 2), "neurons": neurons}
                    rows.append({**row, "strength": step, **_rounded(values, 4)})
    return rows


def _figure_4(picked: dict[tuple[str, str], list[Any]]) -> list[Row]:
    return [
        {"subject": s, "method": w, "budget": f"{column + 1}%", **_mean([c["curve"][column] for c in cells])}
        for (s, w), cells in picked.items()
        if cells
        for column in range(len(nss_cells.CURVE))
    ]


def _figure_5(subjects: list[str], done: dict[str, Any]) -> list[Row]:
    """Medians of the repetitions; low and high are the least and the most of them."""
    rows = []
    for subject in subjects:
        for word in TIMED:
            for cell in _all(done, [f"overhead/{subject}/{word}"]):
                times = sorted(s / max(f, 1e-9) for s, f in zip(cell["seconds"], cell["forward"], strict=True))
                row = {"subject": subject, "method": word, "seconds": round(float(np.median(cell["seconds"])), 3)}
                passes = float(np.median(times)), times[0], times[-1]
                rows.append(
                    {**row, "forward passes": round(passes[0], 2), "low": round(passes[1], 2), "high": round(passes[2], 2)}
                )
    return rows


def _absent(scale: str, done: dict[str, Any]) -> list[Row]:
    """Every row of the paper that is not in the tables, with the reason."""
    rows = [{"what": what, "why": why} for what, why in nss_published.ABSENT]
    for name in nss_published.FDR:
        if name not in _here(scale):
            why = f"its weights are not here: `neurotest zoo train {name}`" if name not in QUICK and scale == "full" else ""
            rows.append({"what": f"all tables: {name}", "why": why or "only with --scale full"})
    if "cifar10-resnet20" not in ONE_MUTATION[scale]:
        rows.append({"what": "table VI on CIFAR-10 with ResNet-20", "why": "only with --scale full; here on other subjects"})
    seen: dict[str, str] = {}
    for key, cell in done.items():
        if isinstance(cell, dict) and "absent" in cell:
            seen.setdefault(key.rsplit("/", 1)[1], cell["absent"])
    return [*rows, *({"what": f"method {word}", "why": why} for word, why in seen.items())]


def _checks(picked: dict[tuple[str, str], list[Any]], done: dict[str, Any]) -> dict[str, float]:
    """The paper's claims as numbers: differences in points, positive where the claim holds."""

    def gap(word: str, other: str, field: str, column: int | None = None) -> float | None:
        gaps = []
        for (subject, w), cells in picked.items():
            against = picked.get((subject, other), [])
            if w == word and cells and against:
                values = [[c[field] if column is None else c[field][column] for c in side] for side in (cells, against)]
                gaps.append(float(np.mean(values[0]) - np.mean(values[1])))
        return round(float(np.mean(gaps)), 2) if gaps else None

    found = {
        "nss above random at 5%": gap("nss", "random", "fdr", 0),
        "nss above deepgini at 5%": gap("nss", "deepgini", "fdr", 0),
        "nss above deepgini at 20%": gap("nss", "deepgini", "fdr", 3),
        "nss, unpaired, above random at 5%": gap("nss, unpaired", "random", "fdr", 0),
        "nss above random in fault-type area": gap("nss", "random", "area"),
        "adaptive above deepgini at 10%": gap("adaptive", "deepgini", "fdr", 1),
        "adaptive above nss at 10%": gap("adaptive", "nss", "fdr", 1),
    }
    curves = [cell for key, cell in done.items() if key.startswith("sensitivity/")]
    for kind in ("sensitive", "relative") if curves else ():
        gaps = [np.subtract(*(np.mean([v[0] for v in cell[m][kind]]) for m in ("model 1", "model 2"))) for cell in curves]
        word = "sensitivity" if kind == "sensitive" else "relative sensitivity"
        found[f"less accurate stage above the other in {word}"] = round(float(np.mean(gaps)), 4)
    return {name: value for name, value in found.items() if value is not None}
