"""Tables and figures of the coverage study besides its correlations, from the finished cells."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np

from neurotest_lab.studies.coverage import published as paper
from neurotest_lab.studies.coverage.correlations import METRICS, SHOWN, Suite
from neurotest_lab.studies.frame import Row, by, mean, spread


def as_suite(row: Row, *, exists: bool = False) -> Suite:
    return Suite(
        model=row["subject"], attack=row["attack"], layer=str(row["layer"]), weight=row["weight"], strength=row["strength"],
        nc=(row["exists"],) if exists else tuple(row["nc"]), metrics={name: row[name] for name in METRICS}, draw=row["draw"],
    )  # fmt: skip


def beside_paper(rows: list[Row]) -> list[Row]:
    """Correlations with the printed ones."""
    for row in rows:
        printed = row["metric"] in paper.METRICS and row["attack"] in ("cw", "pgd")
        column = paper.THRESHOLDS.index(row["t"])
        row["paper"] = paper.published(row["metric"], paper.OURS[row["model"]], row["attack"], column) if printed else None
    return rows


def gains(done: dict[str, Any], suites: list[Row]) -> list[Row]:
    """Table 2: coverage of the clean suite, and by how many per cent regularised suites raise it; random noise beside. Intervals
    are over clusters of layer, strength and draw, whose suites share their images."""
    rows = []
    for subject, group in by(suites, itemgetter("subject")).items():
        clean: dict[int, Any] = {draw: done.get(f"clean/{subject}/{draw}") for draw in {r["draw"] for r in group}}
        regularised = [r for r in group if r["weight"] > 0 and r["attack"] != "pgd-first" and clean[r["draw"]] is not None]
        for column, threshold in enumerate(paper.THRESHOLDS if regularised else ()):
            before = np.array([clean[r["draw"]]["nc"][column] for r in regularised])
            if not before.all():
                continue
            ours, noise = (100 * (np.array([r[k][column] for r in regularised]) / before - 1) for k in ("nc", "random nc"))
            theirs = paper.GAINS[paper.OURS[subject]][column]
            names = [as_suite(r).cluster for r in regularised]
            clusters = list(by(range(len(ours)), names.__getitem__).values())
            row: Row = {"subject": subject, "t": threshold, "clean %": round(100 * float(before.mean()), 2)}
            row |= spread([float(ours[one].mean()) for one in clusters], 2, ("mean gain %", "gain low", "gain high"))
            row["greatest gain %"] = round(float(ours.max()), 2)
            row |= spread([float(noise[one].mean()) for one in clusters], 2, ("random, mean gain %", "random low", "random high"))
            row |= {"paper clean %": theirs[0], "paper mean gain %": theirs[1], "paper greatest gain %": theirs[2]}
            rows.append(row)
    return rows


def beside_random(suites: list[Row]) -> list[Row]:
    """Success and coverage at .2 of each attack and lambda beside the same changes at random places with random signs."""
    rows = []
    for key, group in by(suites, itemgetter("subject", "attack", "weight")).items():
        row: Row = dict(zip(("subject", "attack", "lambda"), key, strict=True))
        for name in ("asr", "random asr", "nc", "random nc"):
            values = [r[name] if name.endswith("asr") else r[name][SHOWN] for r in group]
            row |= spread(values, 4, (name, f"{name} low", f"{name} high"))
        rows.append({**row, "suites": len(group)})
    return rows


def class_tables(cell: Row | None) -> dict[str, list[Row]]:
    """Table 7, and figure 8 as its histogram and its heat map."""
    if cell is None:
        return {}
    ranks = [
        {"class": int(c), "mean rank": round(cell["ranks"][c], 2), "paper": paper.RANKS[int(c)],
         "coverage": round(cell["coverage"][c], 4)}
        for c in np.argsort(cell["ranks"], kind="stable")
    ]  # fmt: skip
    numbers, heat = [], []
    for attack in cell["attacks"]:
        counts = np.array(attack["heat"]).sum(0)
        numbers.append(
            {
                "lambda": attack["lambda"], "success": round(attack["asr"], 4), "coverage before": round(cell["nc before"], 4),
                "coverage": round(attack["nc"], 4), "favoured class": int(counts.argmax()),
                "its share": round(float(counts.max() / counts.sum()), 4), "evenness": attack["oi"],
                "evenness of faults": attack["oi faults"], "spearman with coverage rank": attack["spearman"], "p": attack["p"],
                "of faults only": attack["spearman faults"], "p of faults": attack["p faults"],
            }
        )  # fmt: skip
        heat += [
            {"lambda": attack["lambda"], "true": true, "predicted": predicted, "inputs": n}
            for true, line in enumerate(attack["heat"])
            for predicted, n in enumerate(line)
            if n
        ]
    return {
        "7: classes by the coverage of their inputs": ranks,
        "figure 8: classes favoured": numbers,
        "figure 8: from where to where": heat,
    }


def point(row: Row) -> Row:
    """One suite in figures 3, 4 and 7."""
    names = ("subject", "attack", "layer", "weight", "strength", "draw", *METRICS)
    return {**{("lambda" if n == "weight" else n): row[n] for n in names}, "nc": row["nc"][SHOWN], "exists": row["exists"]}


def samples(done: dict[str, Any], suites: list[Row]) -> list[Row]:
    """Of each subject the clean suite and the suites of lowest and highest coverage at .2, one image per class."""
    rows = []
    for subject, group in by(suites, itemgetter("subject")).items():
        ordered = sorted(group, key=lambda r: r["nc"][SHOWN])
        chosen = {"clean": done.get(f"clean/{subject}/0"), "lowest coverage": ordered[0], "highest coverage": ordered[-1]}
        rows += [
            {"subject": subject, "which": word, "nc": round(row["nc"][SHOWN], 4), "fid": row.get("fid"), "is": row.get("is"),
             "success": row.get("asr"), "attack": row.get("attack"), "lambda": row.get("weight"), "png": row["png"]}
            for word, row in chosen.items()
            if row is not None
        ]  # fmt: skip
    return rows


def checks(correlations: list[Row], between: list[Row], favoured: list[Row]) -> dict[str, float]:
    """The study's claims as numbers."""
    claims: dict[str, float | None] = {}
    for name, metrics in (("defects", ("asr",)), ("naturalness", ("is", "fid")), ("impartiality", ("oi",))):
        rows = [r for r in correlations if r["metric"] in metrics and r["attack"] in ("pgd", "cw")]
        if rows:
            claims[f"correlations that support {name}"] = sum(r["supports"] for r in rows)
            claims[f"correlations with {name}"] = len(rows)
    shown = [r for r in correlations if r["metric"] == "asr" and r["attack"] == "pgd" and r["t"] == paper.THRESHOLDS[SHOWN]]
    plain, partial = (mean(r[k] for r in shown) for k in ("r", "given lambda"))
    if plain is not None and partial is not None:
        claims |= {"mean correlation of coverage (.2) and success, pgd": plain, "the same given lambda": partial}
    if between:
        claims["DeepXplore's correlations that support a claim"] = sum(r["supports"] for r in between)
        claims["DeepXplore's correlations"] = len(between)
    for row in favoured:
        if (value := row["spearman with coverage rank"]) is not None:
            claims[f"classes favoured and their coverage, lambda {row['lambda']:g}"] = round(value, 4)
    return {name: value for name, value in claims.items() if value is not None}
