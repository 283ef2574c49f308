"""Calls every operator that a `.pt2` may use with generated arguments: none may end the process.

`python -m tests.fuzz.operators --calls 100000 [--seed 0] [--only NUMBER] [--operators upsample,conv]`. A call is a function of
(seed, number). Children of one process make the calls, so a dead one costs a fork and not an import of torch.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import struct
import sys
import tempfile
import warnings
from collections import Counter
from typing import Any

import numpy as np
import torch
from tests.fuzz.calls import Rng, generated

from neurotest.target import exported, operators, program
from neurotest.target.archive import Malformed, Refused

MEMORY, SECONDS = 2 << 30, 10  # of one call; seconds of the processor
MOST_VALUES = 1 << 22  # of a result: larger ones are slow and tell nothing else
KINDS = ("answered", "refused by torch", "refused by neurotest", "died", "hung")


def overloads() -> list[str]:
    """Every overload on the list."""
    names = sorted(operators.OPERATORS | {f"{name}_" for name in operators.OPERATORS if not name.startswith("__")})
    targets = []
    for name in names:
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            target = f"torch.ops.aten.{name}.{overload}"
            try:
                function = operators.lookup(target)
            except (Refused, Malformed):
                continue
            if operators.exportable(function):
                targets.append(target)
    return targets


def on(value: Any, device: str, grad: bool = False) -> Any:
    """The argument on a device; floating tensors want gradients if asked."""
    if isinstance(value, torch.Tensor):
        if device == "meta":
            return value.to("meta")
        return value.clone().requires_grad_() if grad and value.is_floating_point() else value.clone() if grad else value
    if isinstance(value, list):
        return [on(one, device, grad) for one in value]
    return torch.device(device) if isinstance(value, program.Device) else value


def call(target: str, rng: Rng) -> str:
    """One call as a network makes it: types checked, run without values, run, run backward; what came of it."""
    args, kwargs = generated(target, rng)
    grad = bool(rng.random() < 0.5)
    try:
        function = operators.lookup(target)
        program._check_types(target, function, args, kwargs)
        with exported._Sizes():
            function(*on(args, "meta"), **{name: on(value, "meta") for name, value in kwargs.items()})
        result = function(*on(args, "cpu", grad), **{name: on(value, "cpu", grad) for name, value in kwargs.items()})
        results = [one for one in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(one, torch.Tensor)]
        losses = [one.abs().sum() for one in results if one.requires_grad]
        if losses:
            torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
    except (Refused, Malformed):
        return "refused by neurotest"
    except Exception:  # an operator may complain in any way
        return "refused by torch"
    return "answered"


def child(targets: list[str], seed: int, numbers: range, at: int) -> None:
    """Make calls until one of them ends this process; the number of the call is noted before, its outcome behind it."""
    warnings.simplefilter("ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # torch warns in C++, where no filter reaches
    with open("/proc/self/statm") as sizes:
        now = int(sizes.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    exported.MOST_VALUES = MOST_VALUES
    for number in numbers:
        os.pwrite(at, struct.pack("<q", number), 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        outcome = call(targets[number % len(targets)], np.random.default_rng([seed, number]))
        os.pwrite(at, bytes([KINDS.index(outcome)]), 8 + number - numbers.start)


def run(targets: list[str], calls: int, seed: int, piece: int = 20_000) -> dict[str, Any]:
    """Make so many calls, the overloads in turn."""
    counts: Counter[str] = Counter()
    deaths: dict[str, list[str]] = {}
    start = 0
    while start < calls:
        numbers = range(start, min(calls, start + piece))
        with tempfile.TemporaryFile() as notes:
            process = os.fork()
            if not process:
                code = 1
                try:
                    child(targets, seed, numbers, notes.fileno())
                    code = 0
                finally:
                    os._exit(code)
            _, status = os.waitpid(process, 0)
            notes.seek(0)
            (last,) = struct.unpack("<q", notes.read(8))
            done = notes.read()
        ended = os.waitstatus_to_exitcode(status)
        start = numbers.stop if ended == 0 else last + 1
        counts.update(KINDS[kind] for kind in done[: start - numbers.start - (ended != 0)])
        if ended:
            name = signal.Signals(-ended).name if ended < 0 else f"exit {ended}"
            counts["hung" if name == "SIGVTALRM" else "died"] += 1
            deaths.setdefault(targets[last % len(targets)], []).append(f"--only {last}: {name}")
            print(f"{targets[last % len(targets)]} --only {last}: {name}", file=sys.stderr, flush=True)
    return {"overloads": len(targets), "calls": calls, **{kind: counts[kind] for kind in KINDS}, "deaths": deaths}


def shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        values = value.flatten().tolist() if value.numel() < 10 else "..."
        return f"{value.dtype} {tuple(value.shape)} {value.stride()} {values}"
    if isinstance(value, list):
        return f"[{'; '.join(map(shown, value))}]"
    return str({name: shown(one) for name, one in value.items()}) if isinstance(value, dict) else repr(value)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.operators", description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--operators", default="", help="parts of names, comma between")
    parser.add_argument("--only", type=int, help="make one call and show it")
    parser.add_argument(
        "--unbounded", action="store_true", help="without the limits of neurotest, to see whether calls find anything"
    )
    options = parser.parse_args()
    if options.unbounded:
        operators.CHECKS.clear()
        operators.check_bounds = lambda *_: None
    torch.set_num_threads(1)
    words = [word for word in options.operators.split(",") if word]
    targets = [one for one in overloads() if not words or any(word in one for word in words)]
    if options.only is not None:
        target, rng = targets[options.only % len(targets)], np.random.default_rng([options.seed, options.only])
        args, kwargs = generated(target, np.random.default_rng([options.seed, options.only]))
        print(operators.lookup(target)._schema, *map(shown, args), shown(kwargs), sep="\n", flush=True)  # type: ignore[attr-defined]
        print(call(target, rng))
        return 0
    outcome = run(targets, options.calls, options.seed)
    print(json.dumps(outcome, indent=1))
    return int(bool(outcome["deaths"]))


if __name__ == "__main__":
    sys.exit(main())
