"""From a run to its page: the sections that apply, in one base template, every string escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from jinja2 import UndefinedError
from markupsafe import Markup

from neurotest.errors import BadInput
from neurotest.files import write_bytes
from neurotest.report import rendering
from neurotest.report.rendering import environment, render
from neurotest.report.section import Conclusion, Section, sections
from neurotest.runs.folder import own
from neurotest.runs.places import PAGE
from neurotest.runs.store import Run
from neurotest.zoo import LAB

LIVE = 'class="spec"'  # a chart that answers to the pointer; a name that says so is escaped
own(r"report\.html")


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
    live = any(LIVE in block.html for block in blocks)
    return render(
        "base.html.j2", blocks=blocks, contents=contents, policy=rendering.policy(), script=rendering.script(),
        bundle=rendering.bundle() if live else None, **{"created": None, "settings": None, **facts},
    )  # fmt: skip


def write_report(run_path: Path | str, out: Path | str | None = None, *, layout: str | None = None) -> Path:
    """Write RUN/report.html (or `out`) for a run that some section applies to.

    layout: tsne or umap, with a map of seeds and faults, which costs seconds and opens the run's target; None: without.
    """
    with Run.open(run_path) as run:
        page = run_page(run, layout=layout).encode("utf-8", "backslashreplace")  # names of files need not be Unicode
        if out is None:
            run.file(PAGE).write(page)
            return run.file(PAGE).path
    write_bytes(Path(out), page)
    return Path(out)


def run_page(run: Run, **options: Any) -> str:
    """options: what sections that have an option of that name are given."""
    applying = [section for section in sections(run["command"]) if section.applies(run)]
    if applying and run["state"] != "done":
        raise BadInput("unfinished", "", f"{run.path} is not finished: there is nothing to report yet.")
    blocks = [block for section in applying if (block := _block(section, run, options)) is not None]
    if not blocks:
        step = f"it comes with neurotest-lab: {LAB}." if run["command"] == "study" else "`neurotest evaluate` judges it."
        raise BadInput("wrong-run", "", f"{run.path} is a run of {run['command']!r}: there is no report for that here; {step}")
    return assemble(blocks, command=run["command"], version=run["version"], created=run["created"], settings=run["config"])


def _block(section: Section, run: Run, options: Mapping[str, Any] = MappingProxyType({})) -> Block | None:
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
