"""The tables of the DeepSensor study; each takes the finished cells of one kind by the rest of their keys."""

from __future__ import annotations

import numpy as np

from neurotest.studies.deepsensor import published
from neurotest.studies.deepsensor.cells import FEW, MAIN, METHODS
from neurotest.studies.frame import Groups, Row, by, share, spread

Cells = dict[str, Row]
RATE = ("rate", "low", "high")


def reach(cells: Cells) -> list[Row]:
    rows = []
    seeds = sum(c["seeds"] for c in cells.values())
    for method in METHODS:
        sets = [c[method] for c in cells.values() if method in c]
        if not sets:
            continue
        failed = [one["failed"] for one in sets]
        row: Row = {"method": method, "failed per set": ", ".join(map(str, failed)), "median": float(np.median(failed))}
        row |= {**share(sum(failed), seeds, 4, RATE), "wrong labels per seed": round(sum(c["labels"] for c in sets) / seeds, 3)}
        rows.append(row | {"evaluations per seed": round(float(np.mean([one["evaluations"] for one in sets])), 1)})
    return rows


def _ends(count: int, of: int) -> Row:
    ends = share(count, of, 3)
    return {"low": ends["low"], "high": ends["high"]}


def balls(cells: Cells) -> list[Row]:
    return [
        {"ball": ball.replace("-", " "), "method": method, "seeds": cell["seeds"], "failed": cell[method]["failed"],
         **_ends(cell[method]["failed"], cell["seeds"]),
         "wrong labels per seed": round(cell[method]["labels"] / cell["seeds"], 3)}
        for ball, cell in cells.items()
        for method in FEW
    ]  # fmt: skip


def errors(groups: Groups) -> list[Row]:
    return [
        {"subject": name, "method": method,
         **{what: sum(c[what] for c in sets) for what in ("seeds", "errors", "of", "categories")},
         **spread([c["categories"] / c["seeds"] for c in sets], 3, ("average", "average low", "average high")),
         "paper average": published.average(name, method)}
        for (name, method), sets in groups.items()
    ]  # fmt: skip


def polluted(cells: Cells) -> list[Row]:
    """All sets of seeds of a network together."""
    rows = []
    for name, keys in by(cells, lambda key: key.rpartition("/")[0]).items():
        sets = [cells[key] for key in keys]
        sums = {what: sum(c[what] for c in sets) for what in ("seeds", "failed", "towards", "noise towards", "noise failed")}
        about = sets[0].get("about", {})
        row: Row = {"network": name, "seeds": sums["seeds"], "failed": sums["failed"], "into the class": sums["towards"]}
        row |= share(sums["towards"], sums["seeds"], 3, RATE)
        row |= {"one noise, into the class": sums["noise towards"], "one noise, failed": sums["noise failed"]}
        row |= {f"triggers: {k}": about.get("triggers", {}).get(k) for k in ("clean", "patch", "other patches", "noise")}
        rows.append({**row, "accuracy": about.get("accuracy")})
    return rows


def carriers(cells: Cells) -> list[Row]:
    rows = []
    for key, cell in cells.items():
        carried = cell.get("carriers") or {"swarm": [], "patch": []}
        ours = {(n["layer"], n["index"]) for n in carried["swarm"]}
        for n in carried["patch"]:
            row: Row = {"network": key, "neuron": f"{n['layer']}[{n['index']}]"}
            row |= {what: round(n[what], 3) for what in ("value", "low", "high")}
            row |= {"silenced: repairs of 20": n["repaired"], "also among the swarm's ten": (n["layer"], n["index"]) in ours}
            rows.append({**row, "shared of 10": carried["shared"], "by chance": round(carried["chance"], 2)})
    return rows


def incomplete(cells: Cells) -> list[Row]:
    return [
        {"network": key, "seeds": cell["seeds"], "swarm": cell["swarm"], **_ends(cell["swarm"], cell["seeds"]),
         "noise, 100 draws": cell["noise"], "pgd": cell["pgd"], "accuracy": cell.get("about", {}).get("accuracy"),
         "on training data": cell.get("about", {}).get("train_accuracy")}
        for key, cell in cells.items()
    ]  # fmt: skip


def excited(cells: Cells) -> list[Row]:
    return [
        {"network": key, "values": estimate, "pairs": len(next(iter(cell[kind][estimate].values()))), "kind": kind,
         "measure": measure, **spread(values, 3, ("mean", "low", "high")), "top ten shared": cell[kind]["shared of 10"]}
        for key, cell in cells.items()
        for estimate in ("shapley", "mask gradient")
        for kind in ("corner", "benign")
        for measure, values in cell[kind][estimate].items()
    ]  # fmt: skip


def course(cells: Cells) -> list[Row]:
    return [
        {"network": key, "swarm": preset, "iteration": i + 1, "fitness": round(value, 5)}
        for key, cell in cells.items()
        for preset in ("sensitivity-paper", "excitability-gradient")
        for i, value in enumerate(cell[preset]["fitness"])
    ]


def coverage(cells: Cells) -> list[Row]:
    return [
        {"network": key, "suite": suite, **{name: round(value, 3) for name, value in gains.items()}}
        for key, cell in cells.items()
        for suite, gains in cell.items()
        if suite != "errors"
    ]


def start(cells: Cells) -> list[Row]:
    return [
        {"network": key, "start": start, "seeds that fail": failed}
        for key, cell in cells.items()
        for start, failed in cell["errors"].items()
    ]


def sweep(cells: Cells) -> list[Row]:
    return [
        {"network": key, "parameter": name, "value": value, "seeds": cell["seeds"], "failed": failed, "beside": second,
         "number": round(number, 4)}
        for key, cell in cells.items()
        for name, second in (("lambda", "mean fitness"), ("epsilon", "evaluations per seed"))
        for value, (failed, number) in cell[name].items()
    ]  # fmt: skip


def overlap(cells: Cells) -> list[Row]:
    return [
        {"network": key, "values": estimate, "pair": pair, "shared of 10": shared, "by chance": round(cell["chance"], 2)}
        for key, cell in cells.items()
        for estimate, pairs in cell["shared"].items()
        for pair, shared in pairs.items()
    ]


def seconds(cells: Cells) -> list[Row]:
    """Of 100 examples with 100 particles and 10 iterations; below 1: quicker than the paper's GPU."""
    rows = []
    for key, cell in cells.items():
        for swarm, name in (("sensitivity-paper", "sensitivity"), ("excitability-gradient", "excitability")):
            one, theirs = cell[swarm], published.TIME[name]
            cpu, wall = (100 * one[clock] / cell["seeds"] for clock in ("cpu", "wall"))
            row: Row = {"network": key, "swarm": swarm, "examples": cell["seeds"], "threads": one["threads"]}
            row |= {"processor": round(cpu, 1), "wall": round(wall, 1), "paper, GPU": theirs}
            rows.append({**row, "processor / paper": round(cpu / theirs, 3), "wall / paper": round(wall / theirs, 3)})
    return rows


def checks(reach: list[Row], polluted: list[Row]) -> dict[str, float]:
    claims: dict[str, float] = {}
    medians = {row["method"]: row["median"] for row in reach}
    if {"excitability", "noise", "pgd"} <= medians.keys():
        claims["seeds that fail in Linf 0.1, median"] = medians["excitability"]
        claims["over noise"] = medians["excitability"] - medians["noise"]
        claims["over PGD"] = medians["excitability"] - medians["pgd"]
    networks = {row["network"]: row for row in polluted}
    if clean := networks.pop(MAIN, None):
        for name, row in networks.items():
            title = f"{name.partition('+')[2]}: into the class, low end over the clean network's high end"
            claims[title] = row["low"] - clean["high"]
    return claims
