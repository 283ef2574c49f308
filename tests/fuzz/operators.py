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
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from neurotest.target import exported, operators, program
from neurotest.target.archive import DTYPES, Malformed, Refused

Rng = np.random.Generator
MEMORY, SECONDS = 2 << 30, 10  # of one call; seconds of the processor
MOST_VALUES = 1 << 22  # of a result: larger ones are slow and tell nothing else
KINDS = ("answered", "refused by torch", "refused by neurotest", "died", "hung")
SMALL = (0, 1, 1, 2, 2, 3, 4, 5, 8, -1)
ODD = (2**20, 2**24, 2**31 - 1, 2**31, 2**32 + 1, 2**62, 2**63 - 1, -(2**31), -(2**62), -(2**63), -2, -3, 7, 16, 100)
FLOATS = (0.0, 1.0, 0.5, 2.0, -1.0, 1e-12, 1e12, 1e-300, 1e300, -0.0, 3.7, float("inf"), float("-inf"), float("nan"), 1e-4, 100.0)
TEXTS = ("mean", "sum", "none", "tanh", "floor", "trunc", "same", "valid", "constant", "reflect", "replicate", "circular", "ij",
         "xy", "forward", "backward", "ortho", "fro", "nuc", "add", "multiply", "ab,bc->ac", "...a,...b->...ab", "aa->a", "", "x")  # fmt: skip


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


class Arguments:
    """Arguments for one call, mostly of sizes that fit each other."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng
        self.base = tuple(int(rng.choice((0, 1, 2, 3, 4, 5, 8, 9), p=(0.03, 0.1, 0.2, 0.2, 0.2, 0.1, 0.1, 0.07))) for _ in range(self.rank()))
        self.dtype = self.pick((torch.float32,) * 6 + tuple(DTYPES.values()))

    def pick(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def rank(self) -> int:
        return int(self.pick((0, 1, 2, 3, 3, 4, 4, 4, 5, 5, 6)))

    def shape(self) -> tuple[int, ...]:
        base, way = self.base, int(self.rng.integers(12))
        if way < 6 or not base:
            return base
        if way == 6:
            place = int(self.rng.integers(len(base)))
            return (*base[:place], int(self.pick(SMALL[:-1])), *base[place + 1 :])
        if way == 7:
            return (base[min(1, len(base) - 1)],)
        if way == 8:  # of a convolution
            return (int(self.pick((1, 2, 4))), base[min(1, len(base) - 1)], *(int(self.pick((1, 2, 3))) for _ in base[2:]))
        if way == 9:
            return (base[-1], base[0])
        if way == 10:
            return ()
        return tuple(int(self.pick(SMALL[:-1])) for _ in range(self.rank()))

    def tensor(self) -> torch.Tensor:
        dtype = self.dtype if self.chance(0.75) else self.pick(list(DTYPES.values()))
        shape = self.shape()
        values = self.values(shape, dtype)
        match int(self.rng.integers(8)):
            case 0 if len(shape) > 1:
                values = values.transpose(0, -1)
            case 1 if len(shape) == 4:
                values = values.contiguous(memory_format=torch.channels_last)
            case 2 if shape:
                values = values[..., :1].expand(shape)
            case 3 if shape:
                values = values.flip(0)[::2]
        return values

    def values(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        seed = torch.Generator().manual_seed(int(self.rng.integers(2**31)))
        if dtype.is_floating_point or dtype.is_complex:
            values = torch.randn(shape, generator=seed, dtype=torch.float64)
            values = values * float(self.pick((1, 1, 1, 100, 1e6, 1e38)))
            if self.chance(0.1) and values.numel():
                values.view(-1)[int(self.rng.integers(values.numel()))] = float(self.pick(FLOATS))
            return values.to(dtype)
        if dtype is torch.bool:
            return torch.rand(shape, generator=seed) < 0.5
        if self.chance(0.7):
            return torch.randint(0, 4, shape, generator=seed).to(dtype)
        about = torch.iinfo(dtype)
        values = torch.randint(max(about.min, -5), 6, shape, generator=seed).to(dtype)
        if values.numel():
            values.view(-1)[int(self.rng.integers(values.numel()))] = int(self.pick((about.min, about.max, -1, 0)) if about.min else about.max)
        return values

    def int(self) -> int:
        return int(self.pick(SMALL if self.chance(0.85) else ODD))

    def number(self) -> Any:
        return self.int() if self.chance(0.5) else self.float() if self.chance(0.9) else self.chance(0.5)

    def float(self) -> float:
        return float(self.pick(FLOATS)) if self.chance(0.5) else float(self.rng.normal())

    def one(self, kind: str) -> Any:
        """A value of a type, by torch's name for it."""
        if kind.startswith("Optional["):
            return None if self.chance(0.4) else self.one(kind[9:-1])
        if kind.startswith("List["):
            sides = max(0, len(self.base) - 2)  # what poolings and resizes take
            return [self.one(kind[5:-1]) for _ in range(int(self.pick((sides, sides, sides, 0, 1, 1, 2, 2, 3, 4))))]
        make: dict[str, Callable[[], Any]] = {
            "Tensor": self.tensor, "int": self.int, "number": self.number, "float": self.float,
            "bool": lambda: self.chance(0.5), "complex": lambda: complex(self.float(), self.float()),
            "str": lambda: self.pick(TEXTS), "ScalarType": lambda: self.pick(list(DTYPES.values())),
            "Layout": lambda: torch.strided, "MemoryFormat": lambda: self.pick(list(program._MEMORY.values())),
            "Device": program.Device, "Generator": lambda: None,
        }  # fmt: skip
        return make[kind]() if kind in make else None


def generated(target: str, rng: Rng) -> tuple[list[Any], dict[str, Any]]:
    schema = operators.lookup(target)._schema  # type: ignore[attr-defined]
    make = Arguments(rng)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in schema.arguments:
        if argument.has_default_value() and make.chance(0.3):
            value = argument.default_value  # Optional device and dtype: torch's own
        else:
            value = make.one(str(argument.real_type))
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return args, kwargs


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
    options = parser.parse_args()
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
