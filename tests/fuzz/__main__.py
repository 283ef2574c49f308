"""`python -m tests.fuzz --inputs 1000 [--readers npz,idx] [--seed 0] [--json FILE]`: generated inputs through every reader.

`--only NUMBER` repeats one input of one reader with its trace. Exit 1 if any input did what no input may.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TOGETHER = 1000  # inputs per reader up to which one process does for all of them


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--readers", default="", help="NAME,NAME=INPUTS,...")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--json", type=Path, help="written reader by reader; what it holds already is not repeated")
    parser.add_argument("--table", action="store_true", help="a Markdown table, for docs/_results.py")
    parser.add_argument("--worker", nargs=2, metavar=("START", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    from tests.fuzz.readers import READERS

    pairs = [one.partition("=") for one in options.readers.split(",") if one] or [(name, "", "") for name in READERS]
    inputs = {name: int(count) if count else options.inputs for name, _, count in pairs}
    if unknown := [name for name in inputs if name not in READERS]:
        parser.error(f"no reader {unknown[0]}; there are {', '.join(READERS)}")
    if options.only is not None:
        return repeat(next(iter(inputs)), options.seed, options.only)
    if options.worker:
        return work(inputs, options.seed, int(options.worker[0]), Path(options.worker[1]))
    outcomes = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    done = {one["reader"]: one["inputs"] for one in outcomes}
    left = {name: count for name, count in inputs.items() if done.get(name, 0) < count}
    # Starting a process costs more than a few inputs.
    groups = [left] if max(left.values(), default=0) <= TOGETHER else [{name: count} for name, count in left.items()]
    for group in groups:
        outcomes = [one for one in outcomes if one["reader"] not in group] + oversee(group, options.seed)
        if options.json:
            options.json.write_text(json.dumps(outcomes, indent=1) + "\n")
    show([one for one in outcomes if one["reader"] in inputs], table=options.table)
    return int(any(one["violations"] for one in outcomes))


def oversee(inputs: dict[str, int], seed: int) -> list[dict[str, Any]]:
    """Let a process of its own read; one that dies over an input is a finding, and the next goes on behind it."""
    outcomes: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as place:
        file, start, left = Path(place, "outcomes"), 0, list(inputs)
        while left:
            file.write_bytes(b"")
            readers = ",".join(f"{name}={inputs[name]}" for name in left)
            command = [sys.executable, "-m", "tests.fuzz", "--seed", str(seed), "--readers", readers]
            environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "NEUROTEST_CACHE": f"{place}/cache"}
            done = subprocess.run(
                [*command, "--worker", str(start), str(file)], cwd=ROOT, env=environment, capture_output=True, text=True
            )
            for line in file.read_text().splitlines():
                join(outcomes, json.loads(line))
                left.pop(0)
                start = 0
            if not left:
                break
            if not file.with_suffix(".at").exists():
                raise SystemExit(f"the fuzzing process failed before its first input:\n{done.stderr[-3000:]}")
            (start,) = struct.unpack("<q", file.with_suffix(".at").read_bytes())
            print(f"{left[0]} --only {start}: the process ended with {done.returncode}", file=sys.stderr, flush=True)
            finding = {"input": start, "kind": "died", "detail": f"exit {done.returncode}: {done.stderr[-300:]}"}
            join(
                outcomes,
                {**dict.fromkeys(SUMS, 0), "reader": left[0], "inputs": 1, "violations": 1, "findings": [finding], "slowest": 0},
            )
            start += 1
    return list(outcomes.values())


def join(outcomes: dict[str, dict[str, Any]], one: dict[str, Any]) -> None:
    before = outcomes.setdefault(one["reader"], {**one, "findings": [], **dict.fromkeys(SUMS, 0), "slowest": 0.0})
    for key in SUMS:
        before[key] += one[key]
    before["slowest"] = max(before["slowest"], one["slowest"])
    before["findings"] = [*before["findings"], *one["findings"]]


SUMS = ("inputs", "accepted", "refused", "violations", "seconds")


def work(inputs: dict[str, int], seed: int, start: int, file: Path) -> int:
    """In the process of its own: limits on, then reader after reader."""
    from tests.fuzz import harness
    from tests.fuzz.readers import READERS

    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place).resolve()
        os.environ["NEUROTEST_CACHE"] = str(scratch / "cache")
        readers = [READERS[name]() for name in inputs]
        for reader in readers:
            folder = scratch / reader.name
            folder.mkdir()
            reader.prepare(folder)
        os.chdir(scratch)
        watch = harness.Watch(scratch)
        for reader in readers:  # lazy imports happen now, and honest inputs have to be read
            for number in range(3):
                with contextlib.suppress(Exception):
                    reader.case(harness.stream(reader.name, seed, -1 - number & 0xFFFF), scratch / reader.name)()
        with open(file.with_suffix(".at"), "wb", buffering=0) as at, open(file, "a") as out:
            for reader in readers:

                def step(number: int) -> None:
                    at.seek(0)
                    at.write(struct.pack("<q", number))

                outcome = harness.run(reader, scratch / reader.name, range(start, inputs[reader.name]), seed, watch, step)
                out.write(json.dumps(outcome.plain()) + "\n")
                out.flush()
                start = 0
        os.chdir("/")
    return 0


def repeat(name: str, seed: int, number: int) -> int:
    """One input again, without limits, with its trace."""
    from tests.fuzz import harness
    from tests.fuzz.readers import READERS

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        os.environ["NEUROTEST_CACHE"] = str(folder / "cache")
        reader = READERS[name]()
        reader.prepare(folder)
        os.chdir(folder)
        read = reader.case(harness.stream(name, seed, number), folder)
        try:
            print("accepted:", repr(read())[:500])
        except BaseException:
            traceback.print_exc()
        print(f"the input: {getattr(reader, 'last', None)!r:.2000}")
        os.chdir("/")
    return 0


def show(outcomes: list[dict[str, Any]], *, table: bool) -> None:
    if table:
        print("| reader | inputs | read | refused in a sentence | anything else | slowest |\n|---|---|---|---|---|---|")
    for one in outcomes:
        cells = [
            one["reader"],
            f"{one['inputs']:,}",
            f"{one['accepted']:,}",
            f"{one['refused']:,}",
            f"{one['violations']:,}",
            f"{one['slowest']:.1f} s",
        ]
        print("| " + " | ".join(cells) + " |" if table else f"{cells[0]:16}" + "".join(f"{cell:>10}" for cell in cells[1:]))
        for finding in one["findings"]:
            print(f"  {one['reader']} --only {finding['input']}: {finding['kind']}: {finding['detail']}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
