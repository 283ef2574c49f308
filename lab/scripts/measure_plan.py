"""What `--plan` forecasts beside what the command then takes, on EfficientNet-lite0 and photographs.

    python lab/scripts/measure_plan.py NETWORK FOLDER WORK [--every N]

As for measure_imagenet.py. Prints a Markdown table: seconds on the clock after loading, peak memory, and the ratio of each to the
forecast. A forecast is about the machine as busy as it is, so both are taken one after the other.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from measure_imagenet import STEPS, measure, prepare, words

PLANNED = ("select deepgini", "cover", "fuzz")


def numbers(name: str, photographs: Path, work: Path, every: int) -> dict[str, Any]:
    command = [word.format(**words(photographs, work, every)) for word in STEPS[name][:-2]]  # a plan writes nothing
    for run in ("begun", "planned"):
        subprocess.run(["rm", "-rf", str(work / run)], check=True)
    measure([*command, "--plan"], work)
    plan = json.loads((work / "said.json").read_text())["plan"]
    # What it takes to begin at all and to draw a page, which no forecast is about.
    once = measure([*STEPS["select deepgini"][:2], command[2], "--limit", "2", "--budget", "1", "--out", "begun"], work)
    real = measure([*command, "--out", "planned"], work)
    return {
        "forecast": plan["seconds"], "real": 60 * (real["minutes"] - once["minutes"]),
        "forecast_memory": plan["memory"] / 2**20, "memory": real["megabytes"], "passes": plan["passes"],
    }  # fmt: skip


def main(network: Path, photographs: Path, work: Path, every: int) -> None:
    prepare(network, photographs, work, every)
    print("| command | passes | forecast, s | real, s | ratio | forecast, MB | real, MB | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for name in PLANNED:
        one = numbers(name, photographs, work, every)
        time = f"{one['forecast']:.0f} | {one['real']:.0f} | {one['real'] / one['forecast']:.2f}"
        memory = f"{one['forecast_memory']:,.0f} | {one['memory']:,.0f} | {one['memory'] / one['forecast_memory']:.2f}"
        print(f"| {name} | {one['passes']:,} | {time} | {memory} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 6):
        raise SystemExit(__doc__)
    network, photographs, work = map(Path, sys.argv[1:4])
    main(network, photographs, work, int(sys.argv[5]) if len(sys.argv) == 6 else 1)
