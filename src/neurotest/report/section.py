"""Sections of a page: each is registered beside the function that reads it from a run, and says which runs it is for."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
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
        before = _sections[name].content if name in _sections else content
        if (before.__module__, before.__qualname__) != (content.__module__, content.__qualname__):
            raise ValueError(f"section {name!r} is registered twice")
        file = f"{content.__module__.rpartition('.')[0]}:{template or f'{name}.html.j2'}"
        _sections[name] = Section(name, title, order, commands, holds, file, content, option)
        return content

    return add


@functools.cache
def load() -> None:
    """Import everything that registers sections or charts."""
    from neurotest import report

    for module in pkgutil.iter_modules(report.__path__):
        importlib.import_module(f"{report.__name__}.{module.name}")
    plugins.load("section")


def sections() -> list[Section]:
    """All of them, in the order of the page."""
    load()
    return sorted(_sections.values(), key=lambda each: (each.order, each.name))
