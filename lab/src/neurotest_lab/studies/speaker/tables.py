"""The tables of the speaker study; each takes the finished cells of one kind by the rest of their keys."""

from __future__ import annotations

import numpy as np

from neurotest_lab.studies.frame import Row, by, mean, rounded, share
from neurotest_lab.studies.speaker import published
from neurotest_lab.studies.speaker.cells import METHODS

Cells = dict[str, Row]
RATE = ("rate", "low", "high")


def networks(cells: Cells) -> list[Row]:
    rows = []
    for name, cell in cells.items():
        row: Row = {
            "network": name,
            "parameters": cell["parameters"],
            **share(cell["right"], cell["of"], 4, ("accuracy", "low", "high")),
        }
        row |= {"equal error rate": rounded(cell.get("eer")), "threshold": rounded(cell.get("threshold"))}
        for what, count, of in (("false rejections", "rejected", "genuine"), ("false acceptances", "accepted", "impostors")):
            row[what] = f"{cell[count]} of {cell[of]}" if count in cell else None
        rows.append(row)
    return rows


def reach(cells: Cells) -> list[Row]:
    """`NETWORK/DRAW`: sets of a network together."""
    rows = []
    for name, keys in by(cells, lambda key: key.rpartition("/")[0]).items():
        sets = [cells[key] for key in keys]
        for method in METHODS:
            counts = [(one["seeds"], one[method]) for one in sets if method in one]
            if not counts:
                continue
            seeds, failed = sum(n for n, _ in counts), sum(c["failed"] for _, c in counts)
            row: Row = {"network": name, "method": method, "failed": failed, "seeds": seeds, **share(failed, seeds, 3, RATE)}
            row["evaluations per seed"] = mean((c["evaluations"] for _, c in counts), 0)
            faults, heard = (sum(c.get(what, 0) for _, c in counts) for what in ("faults", "recognised"))
            ends = (
                share(heard, faults, 3, ("recognised", "from", "to")) if faults else dict.fromkeys(("recognised", "from", "to"))
            )
            rows.append(row | ends | {"faults heard": faults or None})
    return rows


def errors(cells: Cells) -> list[Row]:
    """Table 6, `NETWORK/METHOD`."""
    rows = []
    for key, cell in cells.items():
        name, _, method = key.rpartition("/")
        row: Row = {"network": name, "method": method, "seeds": cell["seeds"], "errors": cell["errors"], "of": cell["of"]}
        row |= {"categories": cell["categories"], "categories per seed": round(cell["categories"] / cell["seeds"], 2)}
        row |= {"paper errors": published.errors(name, method), "paper average": published.average(name, method)}
        rows.append(row | {"dB below": rounded(cell["decibels"], 1), "last inputs that fail at 30 dB": cell["inside"]})
    return rows


def faulty(cells: Cells) -> list[Row]:
    """Table 7, `NETWORK/METHOD`."""
    rows = []
    for key, cell in cells.items():
        name, _, method = key.rpartition("/")
        row: Row = {"network": name, "method": method, "seeds": cell["seeds"], "errors": cell["errors"]}
        row |= {**share(cell["errors"], cell["seeds"], 3, RATE), "paper, share": published.incomplete(name, method)}
        row |= {"at 30 dB": cell["inside"], **{what: cell["about"].get(what) for what in ("accuracy", "train_accuracy")}}
        rows.append(row)
    return rows


def sweep(cells: Cells) -> list[Row]:
    """Figures 10 and 11."""
    return [
        {"network": name, "what": what, "value": value, "seeds": cell["seeds"], **one,
         **share(one["failed"], cell["seeds"], 3, RATE)}
        for name, cell in cells.items()
        for what in ("lambda", "start")
        for value, one in cell[what].items()
    ]  # fmt: skip


def examples(cells: Cells) -> list[Row]:
    return [{"network": name, **row} for name, cell in cells.items() for row in cell["examples"]]


def checks(rows: list[Row]) -> dict[str, float]:
    """Rates at 30 dB, and the listener's share, by network."""
    numbers: dict[str, float] = {}
    for row in rows:
        numbers[f"{row['network']}, {row['method']}, share of seeds"] = row["rate"]
        if row["recognised"] is not None and row["method"] == "swarm":
            numbers[f"{row['network']}, still recognised"] = row["recognised"]
    return {name: float(np.round(value, 4)) for name, value in numbers.items()}
