"""Pages of runs, section by section, every string escaped.

A section is registered beside the function that reads it from a run, and says which runs it is for.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import UndefinedError
from markupsafe import Markup

from neurotest import plugins
from neurotest.errors import BadInput
from neurotest.errors import command as command  # for the steps of a conclusion
from neurotest.files import write_bytes
from neurotest.report import rendering
from neurotest.report.rendering import environment, render
from neurotest.runs.folder import declare
from neurotest.runs.places import PAGE
from neurotest.runs.store import Run
from neurotest.zoo import LAB

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

    order: its place, smallest first; the first one's title heads the page. commands, requires: the commands of its runs (none: of
    any), and the meta entries such a run must have. template: the fragment, which also gets the run's `config` and `summary`.
    content: what the fragment shows, None where the run has nothing of it; `title` and `subject` in it replace the section's
    title and name what the page is about; `conclusion` of the first section stands above everything else. An empty title: the
    fragment writes its own headings. option: the name of a setting of the page that the function takes beside the run.
    """

    name: str
    title: str
    order: int
    commands: tuple[str, ...]
    requires: tuple[str, ...]
    template: str
    content: Content
    option: str | None = None

    def applies(self, run: Run) -> bool:
        return (not self.commands or run["command"] in self.commands) and all(key in run for key in self.requires)


_sections: dict[str, Section] = {}


def section(
    name: str,
    *,
    title: str,
    order: int,
    commands: tuple[str, ...] = (),
    requires: tuple[str, ...] = (),
    template: str | None = None,
    option: str | None = None,
    holds: tuple[str, ...] = (),  # `requires` in version 0.1
) -> Callable[[Content], Content]:
    """Function decorator. `template` is by default `NAME.html.j2` in the folder `templates` of the function's package."""

    def add(content: Content) -> Content:
        if name in _sections and _place(_sections[name].content) != _place(content):
            raise ValueError(f"section {name!r} is registered twice")
        file = f"{content.__module__.rpartition('.')[0]}:{template or f'{name}.html.j2'}"
        _sections[name] = Section(name, title, order, commands, (*requires, *holds), file, content, option)
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


LIVE_CHART = 'class="spec"'  # a chart that answers to the pointer; a name that says so is escaped
declare(r"report\.html")


class Block(NamedTuple):
    """A section as it stands on a page."""

    name: str
    title: str
    html: Markup
    subject: str = ""
    conclusion: Conclusion | None = None


def assemble(blocks: Sequence[Block], **facts: Any) -> str:
    """A whole page; the first block heads it, `facts` are those of the footer."""
    contents = [block for block in blocks[1:] if block.title]
    live = any(LIVE_CHART in block.html for block in blocks)
    return render(
        "base.html.j2", blocks=blocks, contents=contents, policy=rendering.policy(), script=rendering.script(),
        bundle=rendering.bundle() if live else None, **{"created": None, "settings": None, **facts},
    )  # fmt: skip


def write_report(run_path: Path | str, out: Path | str | None = None, *, layout: str | None = None) -> Path:
    """Write RUN/report.html (or `out`) for a run that some section applies to.

    layout: tsne or umap, with a map of seeds and faults, which costs seconds and opens the run's target; None: without.
    """
    with Run.open(run_path) as run:
        page = _run_page(run, layout=layout).encode("utf-8", "backslashreplace")  # names of files need not be Unicode
        if out is None:
            run.file(PAGE).write(page)
            return run.file(PAGE).path
    write_bytes(Path(out), page)
    return Path(out)


def _run_page(run: Run, **options: Any) -> str:
    """options: what sections that have an option of that name are given."""
    applying = [section for section in sections(run["command"]) if section.applies(run)]
    if applying and run["state"] != "done":
        raise BadInput("unfinished", "", f"{run.path} is not finished: there is nothing to report yet.")
    blocks = [block for section in applying if (block := block_of(section, run, **options)) is not None]
    if not blocks:
        step = f"it comes with neurotest-lab: {LAB}." if run["command"] == "study" else "`neurotest evaluate` judges it."
        raise BadInput("wrong-run", "", f"{run.path} is a run of {run['command']!r}: there is no report for that here; {step}")
    return assemble(blocks, command=run["command"], version=run["version"], created=run["created"], settings=run["config"])


def block_of(section: Section, run: Run, **options: Any) -> Block | None:
    """What a section shows of a run; None where the run has nothing of it."""
    template = environment().get_template(section.template)
    try:
        content = section.content(run, *([options.get(section.option)] if section.option else []))
        if content is None:
            return None
        html = Markup(template.render({"config": run["config"], "summary": run["summary"], **content}))
        title, subject = str(content.get("title", section.title)), str(content.get("subject", ""))
        return Block(section.name, title, html, subject, content.get("conclusion"))
    except (UndefinedError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(
            "damaged",
            section.name,
            f"{run.path}: the section {section.name!r} cannot be shown ({type(error).__name__}: {error}). The run is damaged or "
            f"of another version; `neurotest {run['command']}` makes a new one.",
        ) from error
