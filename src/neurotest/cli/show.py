"""What people see: progress and remarks on standard error, results on standard output."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import typer

from neurotest import interrupts
from neurotest.errors import BadInput, near, visible


class Plain:
    """A stream for text from anybody: what a terminal would obey or not show is spelled out."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(visible(text, lines=True))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def plain_output() -> Iterator[None]:
    """Let everything that is printed pass through `Plain`; `console` is the way around it for our own colours and bars."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Plain(sys.stdout), Plain(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def console(*, stderr: bool = False, **settings: Any) -> Any:
    """A rich console on the terminal itself: texts that it is given have to be visible() ones."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream.stream if isinstance(stream, Plain) else stream, **settings)


def remark(text: str, *, quiet: bool = False) -> None:
    if not quiet:
        print(f"neurotest: {visible(text)}", file=sys.stderr)


def forecast(plan: Any) -> None:
    """What a command will take: passes and time by what they are for, and memory."""
    table("what it will take", ["forward passes over", "passes", "time"], plan.rows())
    print(plan.sentence())


def print_json(content: dict[str, Any]) -> None:
    print(json.dumps(content, allow_nan=False))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output; plain enough to be read when piped. Numbers stand on the right, words on the left."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=Text(visible(title)), title_justify="left")
    for number, column in enumerate(columns):
        words = number == 0 or any(not NUMBER.match(row[number]) for row in rows if number < len(row) and row[number])
        grid.add_column(Text(visible(column)), justify="left" if words else "right", no_wrap=number == 0)
    for row in rows:
        grid.add_row(*(Text(visible(cell)) for cell in row))
    screen = console()
    (screen if screen.is_terminal else console(width=140)).print(grid)


NUMBER = re.compile(r"[-+]?[.\d]\S*( (%|s|ms|MB|\.\.|of) ?\S*)*$|[-–]$|nan$")  # 0.5, 12.3 %, 1.2 .. 3.4, 5 of 9


def families(rows: Sequence[dict[str, Any]], total: int) -> None:
    """The ten most frequent fault families of a generator, if there are any."""
    if rows:
        cells = [[f"{row['true']} taken for {row['predicted']}", str(row["faults"])] for row in rows[:10]]
        table(f"{total} fault families, the most frequent first", ["family", "faults"], cells)


def number(value: float | None, form: str = ".4g") -> str:
    return "" if value is None else format(value, form)


class _Ticker:
    """A bar on a terminal; otherwise one line at most every five seconds.

    seconds: after so many it ends, however much is done by then.
    """

    def __init__(self, what: str, *, quiet: bool, seconds: float | None = None) -> None:
        self.what, self.quiet = what, quiet
        self.end = None if seconds is None else time.monotonic() + seconds
        self.last_line = time.monotonic()
        self.first: tuple[float, int] | None = None  # time and progress of the first report: warm-up is no measure of speed
        self.bar: Any = None
        self.task: Any = None

    def __call__(self, done: int, total: int) -> None:
        interrupts.check()  # what is done is kept by now
        if self.quiet:
            return
        if sys.stderr.isatty():
            self._bar(done, total)
            return
        now = time.monotonic()
        self.first = self.first or (now, done)
        if now - self.last_line > 5:
            self.last_line = now
            seconds = self._left(now, done, total)
            left = "" if seconds is None else f", about {seconds:.0f} s left"
            print(f"neurotest: {visible(self.what)}: {done:,} of {total:,}{left}", file=sys.stderr)

    def _left(self, now: float, done: int, total: int) -> float | None:
        """Seconds until the end: by the clock where that ends it, else by how quickly it went so far."""
        if self.end is not None:
            return max(0.0, self.end - now)
        began, before = self.first or (now, done)
        return (now - began) * (total - done) / (done - before) if done > before else None

    def _bar(self, done: int, total: int) -> None:
        if self.bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            remaining = TimeRemainingColumn() if self.end is None else TextColumn("{task.fields[left]:.0f} s left", markup=False)
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), remaining)
            self.bar = Progress(*columns, console=console(stderr=True), transient=True)
            self.task = self.bar.add_task(visible(self.what), total=total, left=0.0)
            self.bar.start()
        self.bar.update(self.task, completed=done, total=total, left=self._left(time.monotonic(), done, total))

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()


@contextmanager
def ticking(what: str, *, quiet: bool = False, seconds: float | None = None) -> Iterator[_Ticker]:
    ticker = _Ticker(what, quiet=quiet, seconds=seconds)
    try:
        yield ticker
    finally:
        ticker.close()


_CONDITION = re.compile(r"\s*([\w./:%@-]+?)\s*(>=|<=|==|>|<)\s*([-+.\deE]+)\s*")


def check_fail_if(conditions: Sequence[str] | None, content: dict[str, Any]) -> None:
    """Exit 1 when a condition such as `fdr>0.05`, `random.fdr<0.1` or `runs.0.faults>9` holds for the JSON result."""
    for condition in conditions or ():
        path, sign, limit = _read_condition(condition)
        value: Any = content
        for part in path.split("."):
            try:
                value = value[int(part) if isinstance(value, list) else part]
            except (LookupError, TypeError, ValueError):
                raise BadInput(
                    "unknown-name", "fail_if", f"--fail-if {condition!r}: the result has no number {path!r}."
                ) from None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise BadInput("wrong-type", "fail_if", f"--fail-if {condition!r}: {path!r} is not a number.")
        holds = {">": value > limit, "<": value < limit, ">=": value >= limit, "<=": value <= limit, "==": value == limit}[sign]
        if holds:
            print(f"neurotest: failed: {path} is {value:g}, --fail-if {condition!r}", file=sys.stderr)
            raise typer.Exit(1)


def check_names(conditions: Sequence[str] | None, numbers: Sequence[str] | None) -> None:
    """Refuse conditions that cannot be read or, where a command says which numbers its result has, name another."""
    for condition in conditions or ():
        name = _read_condition(condition)[0]
        if numbers is not None and not any(fnmatchcase(name, pattern) for pattern in numbers):
            closest = near(name, numbers).removeprefix("Known: ")
            closest = f"{closest} " if closest.startswith("Did") else ""
            raise BadInput(
                "unknown-name",
                "fail_if",
                f"--fail-if {condition!r}: the result has no number {name!r}. {closest}There are {', '.join(numbers)}.",
            )


def _read_condition(condition: str) -> tuple[str, str, float]:
    """Split a condition; called before the work starts, so that a mistake is reported at once."""
    match = _CONDITION.fullmatch(condition)
    try:
        if match is None:
            raise ValueError
        return match[1], match[2], float(match[3])
    except ValueError:
        raise BadInput("syntax", "fail_if", f"--fail-if {condition!r}: write NUMBER>LIMIT, for example 'fdr>0.05'.") from None
