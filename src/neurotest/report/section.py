"""Sections of a page: each is registered beside the function that reads it from a run, and says which runs it is for."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neurotest import plugins
from neurotest.errors import command as command  # for the steps of a conclusion
from neurotest.runs.store import Run

Row = dict[str, Any]
Content = Callable[..., Row | None]  # of a run and, where the section has one, its option


@dataclass(frozen=True)
class Conclusion:
    """What a page says first: one sentence, beside random; whether it is bad or good news for the network; and what to do next.

    bad: something to worry about, beyond chance. good: a threshold was asked for and is kept. Neither: a measurement.
    steps: (what for, command), the most useful first.
    """

    sentence: str
    bad: bool = False
    steps: tuple[tuple[str, str], ...] = ()
    good: bool = False


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun: 1 seed, 2 seeds."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def joined(words: list[str]) -> str:
    """A, B and C."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


@dataclass(frozen=True)
class Section:
    """One part of a page.

    order: its place, smallest first; the first one's title heads the page. commands, holds: the commands of its runs (none: of
    any), and the meta entries such a run must have. template: the fragment, which also gets the run's `config` and `summary`.
    content: what the fragment shows, None where the run has nothing of it; `title` and `subject` in it replace the section's
    title and name what the page is about; `conclusion` of the first section stands above everything else. An empty title: the
    fragment writes its own headings. option: the name of a setting of the page that the function takes beside the run.
    """

    name: str
    title: str
    order: int
    commands: tuple[str, ...]
    holds: tuple[str, ...]
    template: str
    content: Content
    option: str | None = None

    def applies(self, run: Run) -> bool:
        return (not self.commands or run["command"] in self.commands) and all(key in run for key in self.holds)


_sections: dict[str, Section] = {}


def section(
    name: str,
    *,
    title: str,
    order: int,
    commands: tuple[str, ...] = (),
    holds: tuple[str, ...] = (),
    template: str | None = None,
    option: str | None = None,
) -> Callable[[Content], Content]:
    """Function decorator. `template` is by default `NAME.html.j2` in the folder `templates` of the function's package."""

    def add(content: Content) -> Content:
        if name in _sections and _place(_sections[name].content) != _place(content):
            raise ValueError(f"section {name!r} is registered twice")
        file = f"{content.__module__.rpartition('.')[0]}:{template or f'{name}.html.j2'}"
        _sections[name] = Section(name, title, order, commands, holds, file, content, option)
        return content

    return add


def _place(content: Content) -> tuple[str, str]:
    return content.__module__, content.__qualname__


@functools.cache
def load(command: str | None = None) -> None:
    """Import every module that may have sections for runs of a command; None: of any."""
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if _may_apply(file.read_text(encoding="utf-8"), command):
            importlib.import_module(f"{__package__}.{file.stem}")
    plugins.load("section")


def _may_apply(text: str, command: str | None) -> bool:
    """Whether a module with this text has a section for runs of a command; yes, where it does not spell out for which."""
    for decorated in text.split("\n@section(")[1:]:
        commands = re.search(r"\bcommands=(\w+|\(.*?\))", decorated.partition("\ndef ")[0])
        if commands and commands[1].isidentifier():
            commands = re.search(rf"^{commands[1]} = (\(.*?\))$", text, re.MULTILINE)
        if command is None or not commands or "*" in commands[1] or f'"{command}"' in commands[1]:
            return True
    return False


def sections(command: str | None = None) -> list[Section]:
    """Those that may apply to runs of a command, and perhaps others; None: all of them. In the order of the page."""
    load(command)
    return sorted(_sections.values(), key=lambda each: (each.order, each.name))
