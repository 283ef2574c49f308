"""The tables of the NSS study, from its finished cells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from neurotest_lab.studies.frame import Groups, Row, below, mean, spread, with_ends
from neurotest_lab.studies.nss import published
from neurotest_lab.studies.nss.cells import CURVE, STRENGTHS
from neurotest_lab.studies.nss.published import BUDGETS, LAYERS, SHARES


def rates(picked: Groups) -> list[Row]:
    return [
        {"subject": subject, "budget": f"{budget}%", "method": word, **spread([pool["fdr"][column] for pool in pools], 2),
         "paper": published.rate(subject, word, column)}
        for (subject, word), pools in picked.items()
        for column, budget in enumerate(BUDGETS)
    ]  # fmt: skip


def areas(picked: Groups) -> list[Row]:
    """Ours is the mean coverage over budgets of 1 to 20 %; the paper does not say how it normalises."""
    return [
        {"subject": s, "method": w, **spread([p["area"] for p in pools], 2), "paper": published.AREA.get(s, {}).get(w)}
        for (s, w), pools in picked.items()
    ]


def curves(picked: Groups) -> list[Row]:
    return [
        {"subject": s, "method": w, "budget": f"{column + 1}%", **spread([pool["curve"][column] for pool in pools], 2)}
        for (s, w), pools in picked.items()
        for column in range(len(CURVE))
    ]


def by_share(cells: dict[str, list[Row]]) -> list[Row]:
    columns = [{"share": f"{100 * share:g}%"} for share in SHARES]
    return [row for subject, pools in cells.items() for row in _at_20(subject, pools, columns, published.BY_SHARE)]


def by_layer(cells: dict[str, list[Row]]) -> list[Row]:
    rows = []
    for subject, pools in cells.items():
        names = pools[0]["layers"]
        words = LAYERS if len(names) == len(LAYERS) else ("",) * len(names)  # smaller networks have fewer
        columns = [{"layer": word, "ours": name} for word, name in zip(words, names, strict=True)]
        rows += _at_20(subject, pools, columns, published.BY_LAYER)
    return rows


def _at_20(subject: str, pools: list[Row], columns: Iterable[Row], paper: dict[str, tuple[float, ...]]) -> list[Row]:
    """Fault detection rates at 20 %, one row per setting."""
    random, theirs = mean([pool["random"] for pool in pools], 2), paper.get(subject)
    return [
        {"subject": subject, **labels, **spread([pool["fdr"][i] for pool in pools], 2), "random": random,
         "paper": theirs and theirs[i]}
        for i, labels in enumerate(columns)
    ]  # fmt: skip


def one_mutation(done: dict[str, Any]) -> list[Row]:
    rows = []
    for key, cell in below(done, "fixed/").items():
        subject, name = key.split("/")
        theirs = published.FIXED[name] if subject == "cifar10-resnet20" else (None,) * 5
        for column, budget in enumerate(BUDGETS):
            row = {"subject": subject, "mutation": name, "budget": f"{budget}%", **with_ends(cell["fdr"][column], 2)}
            rows.append({**row, "random": round(cell["random"], 2), "paper": theirs[column], "paper random": theirs[4]})
    return rows


def sensitivity(done: dict[str, Any]) -> list[Row]:
    """`relative` is the change of the sensitive neurons over the layer's mean activation: networks differ in scale."""
    return [
        {"subject": subject, "stage": stage, "accuracy": round(measured["accuracy"], 2), "neurons": neurons, "strength": step,
         **with_ends(values, 4)}
        for subject, stages in below(done, "sensitivity/").items()
        for stage, measured in stages.items()
        for neurons in ("sensitive", "random", "relative")
        for step, values in zip(STRENGTHS, measured[neurons], strict=True)
    ]  # fmt: skip


def overhead(done: dict[str, Any]) -> list[Row]:
    """Medians of the repetitions; low and high are the least and the most of them."""
    rows = []
    for key, cell in below(done, "overhead/").items():
        subject, word = key.split("/")
        times = sorted(s / max(f, 1e-9) for s, f in zip(cell["seconds"], cell["forward"], strict=True))
        row = {"subject": subject, "method": word, "seconds": round(float(np.median(cell["seconds"])), 3)}
        rows.append(row | with_ends((float(np.median(times)), times[0], times[-1]), 2, ("forward passes", "low", "high")))
    return rows


def checks(picked: Groups, done: dict[str, Any]) -> dict[str, float]:
    """The paper's claims as numbers: differences in points, positive where the claim holds."""

    def gap(word: str, other: str, field: str, column: int | None = None) -> float | None:
        def middle(pools: list[Row]) -> float:
            return float(np.mean([pool[field] if column is None else pool[field][column] for pool in pools]))

        return mean(
            (middle(pools) - middle(picked[s, other]) for (s, w), pools in picked.items() if w == word and (s, other) in picked),
            2,
        )

    claims = {
        "nss above random at 5%": gap("nss", "random", "fdr", 0),
        "nss above deepgini at 5%": gap("nss", "deepgini", "fdr", 0),
        "nss above deepgini at 20%": gap("nss", "deepgini", "fdr", 3),
        "nss, unpaired, above random at 5%": gap("nss, unpaired", "random", "fdr", 0),
        "nss above random in fault-type area": gap("nss", "random", "area"),
        "adaptive above deepgini at 10%": gap("adaptive", "deepgini", "fdr", 1),
        "adaptive above nss at 10%": gap("adaptive", "nss", "fdr", 1),
    }
    for kind, word in (("sensitive", "sensitivity"), ("relative", "relative sensitivity")):
        gaps = [
            float(np.subtract(*(np.mean([values[0] for values in cell[stage][kind]]) for stage in ("model 1", "model 2"))))
            for cell in below(done, "sensitivity/").values()
        ]
        claims[f"less accurate stage above the other in {word}"] = mean(gaps)
    return {name: value for name, value in claims.items() if value is not None}
