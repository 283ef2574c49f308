"""Memory and disk of a long campaign: resident memory at marks along the way, bytes of the run at its end.

    python lab/scripts/measure_memory.py [ITERATIONS]      # 100,000 by default, some minutes on one core

LeNet-1, KMNC, one mutant per turn, so that iterations are forward passes; with its control, written to a temporary folder.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import neurotest
from neurotest.campaign.driver import Watched
from neurotest.errors import BadInput
from neurotest.generate.fuzz import Mutant


def resident() -> float:
    """Megabytes of this process in memory now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise BadInput("resident memory can be read on Linux only.")


def measure(iterations: int, folder: Path) -> dict[str, Any]:
    marks = [iterations // 10, iterations // 2, iterations]
    megabytes: dict[int, float] = {}

    def watch(fuzzer: Watched, mutants: list[Mutant], new: list[Mutant]) -> None:
        for mark in marks:
            if mark not in megabytes and fuzzer.tally.iterations >= mark:
                megabytes[mark] = round(resident(), 1)

    done = neurotest.fuzz(
        "zoo:mnist-lenet1", "zoo:mnist/test", "kmnc:1000", train="zoo:mnist/train", iterations=iterations, tries=1,
        mutations="rules95:bilateral=false", out=folder / "run", watch=watch,
    )  # fmt: skip
    content = done.to_dict()
    sizes = {path.name: path.stat().st_size for path in (folder / "run").rglob("*") if path.is_file()}
    images = sum(size for name, size in sizes.items() if name.startswith("fault-"))
    return {
        "megabytes": {str(mark): megabytes[mark] for mark in marks},
        "forwards": content["forwards"], "random forwards": content["random"]["forwards"], "outputs": content["outputs"],
        "faults": content["faults"], "disk megabytes": round(sum(sizes.values()) / 1e6, 1), "of images": round(images / 1e6, 2),
    }  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, Path(place))))
