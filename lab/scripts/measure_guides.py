"""Measures which guides find a planted fault sooner than random: the table of docs/fuzzing.md.

python lab/scripts/measure_guides.py            # about three minutes on one core
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.quality.planted import MOST, REPORT, measure  # noqa: E402

PAGE = ROOT / "docs" / "fuzzing.md"
BEGIN, END = "<!-- measured by lab/scripts/measure_guides.py -->", "<!-- end of what was measured -->"


def table() -> str:
    head = "| guide | forward passes: median (least to most) | arrived | random's median | sooner than random (A12) | helps |"
    lines = [head, "|---|---|---|---|---|---|"]
    for row in sorted(measure(), key=lambda row: (-row["sooner than random"], row["guide"] == "random")):
        median = f"{row['median']:,.0f} ({row['least']:,} to {row['most']:,})"
        helps = "" if row["guide"] == "random" else "yes" if row["helps"] else "no"
        sooner = "" if row["guide"] == "random" else f"{row['sooner than random']:.2f}"
        other = f"{row['random median']:,.0f}"
        lines.append(
            f"| `{row['guide']}` | {median} | {row['arrived']} of {row['of']} | {other} | {sooner} | {helps} |"
        )  # fmt: skip
    return "\n".join([*lines, "", f"{len(REPORT)} seeds each, at most {MOST:,} forward passes, which stand for not arriving."])


def main() -> None:
    torch.set_num_threads(1)
    print(table())


if __name__ == "__main__":
    main()
