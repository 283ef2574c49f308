"""The tables of the DeepSensor study; each takes the finished cells of one kind by the rest of their keys."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from neurotest_lab.studies.deepsensor import published
from neurotest_lab.studies.deepsensor.cells import CRITERIA, FEW, MAIN, METHODS
from neurotest_lab.studies.frame import Groups, Row, by, rounded, share, spread
from neurotest_lab.studies.suites import BASELINES, PAPERS

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
         "paper errors of 20,000": published.errors(name, method), "paper average": published.average(name, method),
         "L2": round(float(np.mean([c["l2"] for c in sets])), 2)}
        for (name, method), sets in groups.items()
    ]  # fmt: skip


def gains(groups: Groups) -> list[Row]:
    """Figure 3: points of coverage over the seeds', of suites in the papers' ball."""
    rows = []
    for (name, method), sets in groups.items():
        row: Row = {"subject": name, "suite": method}
        for criterion in CRITERIA:
            values = [c["coverage"][criterion] for c in sets]
            row |= spread(values, 2, (criterion, f"{criterion} low", f"{criterion} high"))
        rows.append(row)
    return rows


def faulty(cells: Cells, kinds: tuple[str, ...], what: str, paper: Callable[[str, str], float | None]) -> list[Row]:
    """`NETWORK/METHOD` of the networks trained in one of these ways; what: which test inputs count."""
    rows = []
    for key, cell in cells.items():
        name, _, method = key.partition("/")
        if not (name.partition("+")[2] or "well trained").startswith(kinds):
            continue
        seeds, count = cell["seeds"], cell[what]
        row: Row = {"network": name, "method": method, "seeds": seeds, "errors": count, **share(count, seeds, 3, RATE)}
        row |= {"paper, share": paper(name, method), "L2": round(cell["l2"], 2)}
        about = cell.get("about", {})
        rows.append(row | {"accuracy": about.get("accuracy"), "on training data": about.get("train_accuracy")})
    return rows


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


def training(cells: Cells) -> list[Row]:
    """Every network trained wrongly; seconds: of the processor, next to none where it was trained before."""
    return [
        {"network": name, "accuracy": cell["accuracy"], "on training data": cell["train_accuracy"],
         "patch triggers": cell.get("triggers", {}).get("patch"), "seconds": round(cell["seconds"], 1)}
        for name, cell in cells.items()
    ]  # fmt: skip


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


def start(cells: Cells) -> list[Row]:
    """Cells of sets of seeds by network and swarm: `NETWORK/SWARM/SET`."""
    rows = []
    for (name, preset), keys in by(cells, _network_and_swarm).items():
        sets = [cells[key] for key in keys]
        for begin in ("random", "fixed"):
            failed, seeds = sum(c[begin]["failed"] for c in sets), sum(c["seeds"] for c in sets)
            row: Row = {"network": name, "swarm": preset, "start": begin, "seeds": seeds, "failed": failed}
            row |= _ends(failed, seeds)
            for criterion in CRITERIA:
                values = [c[begin]["coverage"][criterion] for c in sets]
                row |= spread(values, 2, (criterion, f"{criterion} low", f"{criterion} high"))
            rows.append(row)
    return rows


def _network_and_swarm(key: str) -> tuple[str, str]:
    name, preset, _ = key.split("/", 2)
    return name, preset


def sweep(cells: Cells) -> list[Row]:
    """`NETWORK/SWARM`: seeds that fail by parameter."""
    return [
        {"network": key.partition("/")[0], "swarm": key.partition("/")[2], "parameter": parameter, "value": value,
         "seeds": cell["seeds"], "failed": one["failed"], **_ends(one["failed"], cell["seeds"]),
         "mean fitness": rounded(one.get("fitness")), "mean evaluations": rounded(one.get("evaluations"), 1)}
        for key, cell in cells.items()
        for parameter in ("lambda", "epsilon")
        for value, one in cell[parameter].items()
    ]  # fmt: skip


def overlap(cells: Cells) -> list[Row]:
    return [
        {"network": key, "values": estimate, "pair": pair, "seeds": len(shared),
         **spread(shared, 2, ("shared of 10", "low", "high")), "by chance": round(cell["chance"], 2)}
        for key, cell in cells.items()
        for estimate, pairs in cell["shared"].items()
        for pair, shared in pairs.items()
    ]  # fmt: skip


def seconds(course: Cells, groups: Groups) -> list[Row]:
    """Of 100 examples, swarms with 100 particles and 10 iterations; below 1: quicker than the paper's GPU."""
    rows = []
    for key, cell in course.items():
        for swarm, name in zip(PAPERS, ("sensitivity", "excitability"), strict=True):
            one = cell[swarm]
            rows.append(_seconds(key, swarm, cell["seeds"], 100 * one["cpu"] / cell["seeds"], published.TIME[name]))
    for (name, method), sets in groups.items():
        if name == MAIN and method in BASELINES:
            seeds = sum(c["seeds"] for c in sets)
            rows.append(_seconds(name, method, seeds, 100 * sum(c["cpu"] for c in sets) / seeds, published.TIME[method]))
    return rows


def _seconds(network: str, method: str, examples: int, cpu: float, theirs: float) -> Row:
    row: Row = {"network": network, "method": method, "examples": examples, "processor": round(cpu, 1)}
    return {**row, "paper, GPU": theirs, "processor / paper": round(cpu / theirs, 3)}


def among(cells: Cells) -> list[Row]:
    """How many test inputs lie nearest to a benign input of their seeds' class."""
    return [
        {"network": name, "seeds of class": cell["first"], "other class": cell["second"], "method": method,
         "seeds": one["seeds"], "faults": one["faults"], "taken for either": one["inputs"],
         "nearest to their own class": one["among the first"], **_ends(one["among the first"], one["inputs"])}
        for name, cell in cells.items()
        for method, one in cell["counts"].items()
    ]  # fmt: skip


def points(cells: Cells) -> list[Row]:
    return [{"network": name, **point} for name, cell in cells.items() for point in cell["points"]]


def strips(cells: Cells) -> list[Row]:
    return [{"network": name, **strip} for name, cell in cells.items() for strip in cell["strips"]]


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
