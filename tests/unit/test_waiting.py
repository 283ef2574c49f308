"""Tests wait for an event, never for a second: they pass on a machine that is busy with other work."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import waiting

pytestmark = pytest.mark.plain
TESTS = Path(__file__).parents[1]
LEAST = 60  # seconds that anything may take
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time"}
# Where one of them is meant: "file: what stands there" and why no machine is too slow for it.
ALLOWED = {
    "waiting.py: time.sleep": "the pause between two looks at what is waited for",
    "waiting.py: a clock in an assertion": "the limit of all that is waited for",
    "unit/scale/conftest.py: time.sleep in text": "the pause between two looks, in a module that workers import",
    "unit/scale/test_executors.py: timeout=2": "what is tested, on a clock that goes on for the worker that hangs alone",
    "unit/scale/test_executors.py: timeout=0.2": "what is tested, on a clock of the test's own",
    "unit/select/test_large.py: timeout=0.5": "what is tested, on a clock that goes on for the worker that hangs alone",
    "unit/generate/test_control.py: a clock in an assertion": "a part is shorter than the whole, whatever they take",
}


def name(function: ast.expr) -> str:
    """The last word of what is called."""
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def of_time(function: ast.expr) -> bool:
    """`time.x`, or `x` alone."""
    return isinstance(function, ast.Name) or (isinstance(function, ast.Attribute) and name(function.value) == "time")


def short(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value < LEAST


def waits(source: str) -> Iterator[str]:
    """What waits by the clock in a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\btime\.sleep\(", node.value):
            yield "time.sleep in text"
        if isinstance(node, ast.ImportFrom) and node.module == "time" and any(one.name == "sleep" for one in node.names):
            yield "time.sleep"
        if isinstance(node, ast.Attribute) and node.attr == "sleep" and name(node.value) in ("time", "asyncio"):
            yield f"{name(node.value)}.sleep"
        if isinstance(node, ast.Assert):
            calls = [inner.func for inner in ast.walk(node.test) if isinstance(inner, ast.Call)]
            if any(name(call) in CLOCKS and of_time(call) for call in calls):
                yield "a clock in an assertion"
        if isinstance(node, ast.Call):
            yield from short_waits(node)


def short_waits(call: ast.Call) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg in ("timeout", "deadline") and short(keyword.value):
            yield f"{keyword.arg}={ast.unparse(keyword.value)}"
    function = name(call.func)
    first = ("wait", "join", "communicate", "result", "alarm", "Timer", "settimeout", "wait_for_timeout")
    if function in first and call.args and short(call.args[0]) and ast.unparse(call.args[0]) != "0":
        yield f"{function}({ast.unparse(call.args[0])})"
    if function == "wait_for_timeout":
        yield function


def test_no_test_waits_by_the_clock() -> None:
    folders = (TESTS, TESTS.parent / "lab" / "tests")
    files = [(folder, file) for folder in folders for file in sorted(folder.rglob("*.py")) if file != Path(__file__)]
    places = Counter(
        f"{file.relative_to(folder).as_posix()}: {what}" for folder, file in files for what in waits(file.read_text())
    )
    allowed = Counter(ALLOWED.keys())  # each of them once
    assert sorted((places - allowed).elements()) == [], "wait for the event, with tests.waiting.until; no limit is below a minute"
    assert sorted((allowed - places).elements()) == [], "nothing stands there any more"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import time\ntime.sleep(1)", "time.sleep"),
        ("from time import sleep", "time.sleep"),
        ("f(time.sleep, 60)", "time.sleep"),
        ("CODE = 'import time; time.sleep(60)'", "time.sleep in text"),
        ("f'{hold}; time.sleep(60)'", "time.sleep in text"),
        ("process.communicate(timeout=30)", "timeout=30"),
        ("settings(deadline=200)", None),
        ("settings(deadline=20)", "deadline=20"),
        ("event.wait(10)", "wait(10)"),
        ("thread.join(0.5)", "join(0.5)"),
        ("signal.alarm(5)", "alarm(5)"),
        ("signal.alarm(0)", None),
        ("threading.Timer(3, f)", "Timer(3)"),
        ("page.wait_for_timeout(5000)", "wait_for_timeout"),
        ("assert time.monotonic() - began < 60", "a clock in an assertion"),
        ("assert perf_counter() < end", "a clock in an assertion"),
        ("assert run.time() == 3", None),
        ("', '.join(words)", None),
        ("process.wait(LIMIT)", None),
        ("process.communicate(timeout=120)", None),
    ],
)
def test_what_counts_as_waiting_by_the_clock(source: str, what: str | None) -> None:
    assert set(waits(source)) == ({what} if what else set())


def test_until_gives_what_came_and_names_what_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([0, None, [], "there"])
    assert waiting.until(lambda: next(answers), "an answer") == "there"
    monkeypatch.setattr(waiting, "LIMIT", -1)
    with pytest.raises(AssertionError, match="waited -1 seconds for an answer"):
        waiting.until(lambda: False, "an answer")


def test_until_does_not_wait_for_a_process_that_has_ended() -> None:
    process = subprocess.Popen(["false"])
    with pytest.raises(AssertionError, match="waited for an answer, but the process ended with 1"):
        waiting.until(lambda: False, "an answer", process)
    assert waiting.until(lambda: "before it ended", "an answer", process)
