"""Runs generated inputs through a reader and watches what it does: exceptions, time, memory, code, files.

What a reader may do with any input: read it, or raise BadInput. Every input is a function of (reader, seed, number), so a finding
is repeated with `python -m tests.fuzz --readers NAME --seed SEED --only NUMBER`.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, Protocol

import numpy as np
from tests.fuzz.mutators import CANARY, Rng
from tests.waiting import LIMIT

from neurotest.errors import BadInput

SECONDS = 10  # of the processor, for one input
MEMORY = 1 << 30
KEPT = 10  # findings per reader that are written out

Read = Callable[[], object]


class Reader(Protocol):
    """A reader under test. `case` writes one input into the folder and gives the call that reads it."""

    name: str
    outside: bool  # whether the input itself may name files anywhere, as a typed spec does

    def prepare(self, folder: Path) -> None: ...

    def case(self, rng: Rng, folder: Path) -> Read: ...


class Hang(BaseException):
    """The input took longer than it may."""


class Violation(BaseException):
    """The reader did what no input may make it do."""


@dataclass
class Outcome:
    """What came of the inputs of one reader."""

    reader: str
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    violations: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    findings: list[dict[str, Any]] = field(default_factory=list)

    def add(self, number: int, kind: str, detail: str) -> None:
        self.violations += 1
        if len(self.findings) < KEPT and all(one["detail"] != detail for one in self.findings):
            self.findings.append({"input": number, "kind": kind, "detail": detail})

    def plain(self) -> dict[str, Any]:
        return asdict(self)


# -- what is watched while an input is read

ACTS = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "subprocess.Popen",
    "socket.connect",
    "socket.bind",
    "socket.sendto",
    "urllib.Request",
    "webbrowser.open",
    "os.kill",
    "pickle.find_class",
    "os.putenv",
    "os.chdir",
    "pty.spawn",
)
CHANGES = (
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.chown",
    "os.truncate",
    "shutil.rmtree",
)


class Watch:
    """An audit hook that is on while an input is read. Hooks cannot be removed: this is for a process of its own."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = str(scratch.resolve())
        self.on = False
        self.outside = False
        self.events: list[str] = []
        self.armed = float("-inf")
        own = Path(__file__).resolve().parents[2]
        self.readable = tuple(
            os.path.realpath(place)
            for place in filter(None, (sys.prefix, sys.base_prefix, sys.pycache_prefix, str(own / "src"), *sys.path))
        )
        sys.dont_write_bytecode = True
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        self.on = False  # what the check itself does is no matter
        try:
            reason = self._judge(event, arguments)
        finally:
            self.on = True
        if reason:
            self.events.append(reason)
            raise Violation(reason)

    def _judge(self, event: str, arguments: tuple[Any, ...]) -> str:
        if event in ACTS:
            return f"{event} {arguments!r:.200}"
        if event == "exec" and isinstance(arguments[0], CodeType) and self._foreign(arguments[0]):
            return f"executes {arguments[0]!r:.200}"
        if event in CHANGES and not self._inside(arguments[0]):
            return f"{event} {arguments[0]!r:.200}"
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path, mode, flags = arguments
            writes = any(sign in (mode or "") for sign in "wax+") or bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            if writes and not self._inside(path) and os.fspath(path) not in ("/dev/null", b"/dev/null"):
                return f"writes {path!r:.200}"
            if not writes and not self.outside and not self._inside(path) and not self._known(path):
                return f"reads {path!r:.200}"
        return ""

    def _foreign(self, code: CodeType) -> bool:
        """Code from the input: it lies in the scratch folder, or it calls the name that is in every payload."""
        inner = [one for one in code.co_consts if isinstance(one, CodeType)]
        return CANARY in code.co_names or code.co_filename.startswith(self.scratch) or any(map(self._foreign, inner))

    def _inside(self, path: Any) -> bool:
        if isinstance(path, int) or path == ".":  # a folder that is open already
            return True
        return os.path.realpath(os.fsdecode(path)).startswith(self.scratch + os.sep)

    def _known(self, path: Any) -> bool:
        text = os.path.realpath(os.fsdecode(path))
        return text.startswith((*self.readable, "/proc/", "/sys/", "/dev/null", "/usr/", "/lib", "/etc/localtime"))

    @contextmanager
    def watching(self, outside: bool) -> Iterator[None]:
        def late(number: int, frame: Any) -> None:
            raise Hang

        self.events, self.outside = [], outside
        for number in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(number, late)
        self.arm()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.setitimer(signal.ITIMER_REAL, LIMIT)  # who waits for something needs no processor
        self.on = True
        try:
            yield
        finally:
            self.on = False
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)

    def arm(self) -> None:
        """What hangs outside Python ends the process. Once a second is enough, and each time costs a thread."""
        if time.monotonic() - self.armed > 1:
            faulthandler.dump_traceback_later(2 * LIMIT, exit=True)
            self.armed = time.monotonic()


def limit_memory() -> None:
    """So much more than the process has now; a reader that asks for more gets a MemoryError, and is caught."""
    with open("/proc/self/statm") as sizes:
        now = int(sizes.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEMORY, MEMORY))


def stream(reader: str, seed: int, number: int) -> Rng:
    return np.random.default_rng([zlib.crc32(reader.encode()), seed, number])


def run(
    reader: Reader, folder: Path, numbers: Iterator[int] | range, seed: int, watch: Watch, step: Callable[[int], None]
) -> Outcome:
    """Read every input; `step` is called with its number before."""
    outcome = Outcome(reader.name)
    began = time.monotonic()
    for number in numbers:
        step(number)
        read = reader.case(stream(reader.name, seed, number), folder)
        limit_memory()  # anew for every input: what others left in caches is not this one's
        start = time.monotonic()
        _one(read, number, reader.outside, watch, outcome)
        outcome.inputs += 1
        outcome.slowest = max(outcome.slowest, time.monotonic() - start)
    faulthandler.cancel_dump_traceback_later()
    watch.armed = float("-inf")
    outcome.seconds = time.monotonic() - began
    return outcome


def _one(read: Read, number: int, outside: bool, watch: Watch, outcome: Outcome) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with watch.watching(outside):
                read()
        outcome.accepted += 1
    except BadInput as error:
        outcome.refused += 1
        if any(isinstance(cause, MemoryError) for cause in _causes(error)):
            outcome.add(number, "memory", _place(error))
    except Hang as error:
        outcome.add(number, "hang", _place(error))
    except Violation as error:
        outcome.add(number, "act", str(error))
    except BaseException as error:
        outcome.add(number, type(error).__name__, _place(error))
    if watch.events and not any(one["input"] == number for one in outcome.findings):
        outcome.add(number, "act", watch.events[0])  # somebody swallowed it


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _place(error: BaseException) -> str:
    """The words, and where it came from: enough to see whether two findings are one."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "tests/fuzz" not in f.filename][-3:]
    place = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
    return f"{type(error).__name__}: {str(error)[:120]!r} at {place}"
