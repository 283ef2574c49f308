"""The tables of docs/notes/study-fuzzing.md out of a run of the study.

neurotest study fuzzing --json | python lab/scripts/tables_of_fuzzing.py protocols    # faults at equal cost
neurotest study fuzzing --json | python lab/scripts/tables_of_fuzzing.py inside       # what looking inside adds to goals
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

PROTOCOLS = {
    "equal iterations": "3: equal iterations", "equal outputs": "12: equal outputs",
    "equal forward passes": "equal forward passes",
}  # fmt: skip
Row = dict[str, Any]


def faults(rows: Sequence[Row], limit: int | None) -> str:
    """The mean faults of each subject; how many outputs there were, where the limit was not reached."""
    means = ", ".join(f"{row['faults']:.1f}" for row in rows)
    short = [f"{row['outputs']:.0f}" for row in rows if limit is not None and row["outputs"] < limit]
    if limit is None and any(row["reached"] < row["repetitions"] for row in rows):
        return means + " (ended before)"
    return means + (f" ({', '.join(short)} outputs)" if short else "")


def protocols(content: Row) -> tuple[list[str], list[list[str]]]:
    """One row per guide: faults of all subjects, and A12 over random, under each protocol."""
    tables, checks = content["tables"], content["checks"]
    limits = {row["protocol"]: row["limit"] for row in tables["budgets"]}
    guides = list(dict.fromkeys(row["guide"] for row in tables["equal forward passes"]))
    subjects = ", ".join(dict.fromkeys(row["subject"] for row in tables["equal forward passes"]))
    rows = []
    for guide in sorted(guides, key=lambda name: name != "random"):
        cells = [guide]
        for name, table in PROTOCOLS.items():
            short = name.removeprefix("equal ").split()[0]
            mine = [row for row in tables[table] if row["guide"] == guide]
            effect = checks.get(f"a12 of {guide} over random, equal {'forwards' if short == 'forward' else short}")
            cells += [faults(mine, limits.get("equal outputs") if name == "equal outputs" else None), _number(effect)]
        rows.append(cells)
    columns = [part for name in PROTOCOLS for part in (f"{name}: {subjects}", "A12")]
    return ["guide", *columns], rows


def inside(content: Row) -> tuple[list[str], list[list[str]]]:
    """One row per subject and variant: families, and how many times those of random, of logits only and of the control."""
    rows = []
    for row in content["tables"]["goals: what looking inside adds"]:
        ratios = []
        for other in ("over random", "over logits only", "over pixels"):
            low, high = _number(row.get(f"{other} low")), _number(row.get(f"{other} high"))
            ratios.append(f"{_number(row[f'families {other}'])} ({low} to {high})" if row.get(f"families {other}") else "")
        rows.append([row["subject"], row["guide"], *(f"{row[name]:.0f}" for name in ("families", "pairs", "seeds")), *ratios])
    columns = ["subject", "guide", "families", "pairs", "seeds broken", "families over random's (interval)", "over logits only's",
               "over the pixels'"]  # fmt: skip
    return columns, rows


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def main() -> None:
    columns, rows = {"protocols": protocols, "inside": inside}[sys.argv[1]](json.load(sys.stdin))
    for cells in (columns, ["---"] * len(columns), *rows):
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
