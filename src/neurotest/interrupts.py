"""Stopping on request: Ctrl-C, SIGTERM and SIGHUP end a command where nothing is half done.

Work that writes a run is `deferred`: a signal is remembered, and the work stops at its next `check`. Everything else stops at
once, because it has written nothing. A second Ctrl-C does not wait; whoever asks once more gets no clean-up either.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
GRACE = 5.0  # seconds until work without a safe point is stopped where it is: a file is whole or absent, a row committed or not
AGAIN = 30.0  # and once more, should a library have swallowed that
WAIT = "stopping at the next safe point; press Ctrl-C again to stop at once"
EXIT = 3


@dataclass
class _State:
    requested: bool = False
    raised: bool = False  # the command is on its way out
    depth: int = 0  # of deferred work


_state = _State()


def requested() -> bool:
    """Whether somebody asked this command to stop."""
    return _state.requested


def raised() -> bool:
    """Whether it is on its way out because of that."""
    return _state.raised


def check() -> None:
    """A safe point: raises KeyboardInterrupt if somebody asked to stop."""
    if _state.requested:
        _state.raised = True
        raise KeyboardInterrupt


@contextmanager
def deferred() -> Iterator[None]:
    """Work that must not be cut anywhere: signals wait for the next `check`, the first of which is here."""
    if not _state.depth:
        check()
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1
        if not _state.depth:
            _alarm(0)


@contextmanager
def listening() -> Iterator[None]:
    """Take the three signals for the duration of a command. One that is ignored (nohup, a background job) stays ignored."""
    _state.__init__()  # type: ignore[misc]
    before = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, _note)
    try:
        yield
    finally:
        _alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)
        _state.__init__()  # type: ignore[misc]


def _note(number: int, frame: FrameType | None) -> None:
    first, _state.requested = not _state.requested, True
    if not first and number != signal.SIGINT:
        return  # a terminal that closes sends SIGHUP more than once, a supervisor SIGTERM: only a person is in a hurry
    if first and _state.depth:
        with suppress(OSError):  # not print: the signal may have come while something was being printed
            os.write(2, f"\nneurotest: {WAIT}\n".encode())
        _alarm(GRACE)
        return
    if _state.raised:
        os._exit(EXIT)
    _state.raised = True
    raise KeyboardInterrupt


def _alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer") and (seconds or signal.getsignal(signal.SIGALRM) is _out_of_time):
        signal.signal(signal.SIGALRM, _out_of_time if seconds else signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN if seconds else 0)


def _out_of_time(number: int, frame: FrameType | None) -> None:
    if _state.depth:
        _state.raised = True
        raise KeyboardInterrupt
