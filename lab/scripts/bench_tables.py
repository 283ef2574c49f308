"""What `neurotest bench NAME --json` measured, as a Markdown table.

neurotest bench select --json > FILE; python lab/scripts/bench_tables.py FILE ratios|rounds|on_paper
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from prior_tables import head, row


def main(file: str, part: str) -> None:
    content = json.loads(Path(file).read_text())
    if part == "ratios":
        head("work / subject / setting", "ratio", "middle half", "timed")
        for name, ratio in content["ratios"].items():
            low, high = content["spread"][name]
            row(name, f"{ratio:.2f}", f"{low:.2f} .. {high:.2f}", f"{content['repeats']} times")
        return
    if part == "on_paper":
        head(*content["on_paper"][0])
        for one in content["on_paper"]:
            row(*one.values())
        return
    head("classes", "inputs", "labels so far", "labels of the round", "processor time")
    for name, one in content["rounds"].items():
        row(name.split()[0], *(f"{one[key]:,}" for key in ("pool", "labels", "batch")), f"{one['seconds']:.2f} s")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in ("ratios", "rounds", "on_paper"):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
