"""A command that is interrupted says so, whatever a library makes of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup

from neurotest import interrupts
from neurotest.cli.app import _Commands
from neurotest.errors import Interrupted


def group() -> _Commands:
    return _Commands(name="neurotest")


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """Processes in the background of a shell ignore Ctrl-C, tests among them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_import_that_fails_because_of_ctrl_c_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def invoke(self: TyperGroup, context: Any) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr(TyperGroup, "invoke", invoke)
    with interrupts.listening(), pytest.raises(Interrupted, match="nothing was kept"):
        group().invoke(None)


def test_an_error_without_an_interrupt_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def invoke(self: TyperGroup, context: Any) -> None:
        raise ImportError("not there")

    monkeypatch.setattr(TyperGroup, "invoke", invoke)
    with interrupts.listening(), pytest.raises(ImportError, match="not there"):
        group().invoke(None)
