"""From a run to its page: the sections that apply, in one base template, every string escaped."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined, UndefinedError
from markupsafe import Markup

from neurotest.errors import BadInput
from neurotest.files import write_bytes
from neurotest.report.section import Conclusion, Section, sections
from neurotest.runs.folder import own
from neurotest.runs.store import Run

REPORT = "report.html"
own(r"report\.html")


class Block(NamedTuple):
    """A section as it stands on a page."""

    name: str
    title: str
    html: Markup
    subject: str = ""
    conclusion: Conclusion | None = None


def thousands(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def number(value: float | None, form: str = ".4g", missing: str = "") -> str:
    return missing if value is None else format(value, form)


def percent(share: float | None, digits: int = 1, missing: str = "") -> str:
    return missing if share is None else f"{100 * share:.{digits}f} %"


def interval(limits: Sequence[float | None] | None, form: str = ".1f", scale: float = 1) -> str:
    if not limits or limits[0] is None or limits[1] is None:
        return ""
    return f"{scale * limits[0]:{form}} .. {scale * limits[1]:{form}}"


def as_json(value: Any) -> str:
    """JSON for people to read; inside a script `tojson` is the filter."""
    return json.dumps(value, indent=1, ensure_ascii=False)


@functools.cache
def environment() -> Environment:
    """The one environment: everything is escaped, a name that is missing is an error."""
    shared = Environment(loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined)
    shared.filters |= {"thousands": thousands, "number": number, "percent": percent, "interval": interval, "json": as_json}
    return shared


def _source(name: str) -> str | None:
    """The template `FILE` of this package, or `PACKAGE:FILE` of another one, which may use ours."""
    package, _, file = name.rpartition(":")
    for place in filter(None, (package, "neurotest.report")):
        template = resources.files(place) / "templates" / file
        if template.is_file():
            return template.read_text(encoding="utf-8")
    return None


def render(template: str, **content: Any) -> Markup:
    return Markup(environment().get_template(template).render(content))


def assemble(blocks: Sequence[Block], **facts: Any) -> str:
    """A whole page; the first block heads it, `facts` are those of the footer."""
    return render("base.html.j2", blocks=blocks, **{"created": None, "settings": None, **facts})


def write_report(run_path: Path | str, out: Path | str | None = None) -> Path:
    """Write RUN/report.html (or `out`) for a run that some section applies to."""
    with Run.open(run_path) as run:
        page = run_page(run).encode("utf-8", "backslashreplace")  # names of files need not be Unicode
        if out is None:
            run.file(REPORT).write(page)
            return run.file(REPORT).path
    write_bytes(Path(out), page)
    return Path(out)


def run_page(run: Run) -> str:
    applying = [section for section in sections() if section.applies(run)]
    if applying and run["state"] != "done":
        raise BadInput(f"{run.path} is not finished: there is nothing to report yet.")
    blocks = [block for section in applying if (block := _block(section, run)) is not None]
    if not blocks:
        raise BadInput(f"{run.path} is a run of {run['command']!r}: there is no report for that; `neurotest evaluate` judges it.")
    return assemble(blocks, command=run["command"], version=run["version"], created=run["created"], settings=run["config"])


def _block(section: Section, run: Run) -> Block | None:
    template = environment().get_template(section.template)
    try:
        content = section.content(run)
        if content is None:
            return None
        html = Markup(template.render({"config": run["config"], "summary": run["summary"], **content}))
        title, subject = str(content.get("title", section.title)), str(content.get("subject", ""))
        return Block(section.name, title, html, subject, content.get("conclusion"))
    except (UndefinedError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(
            f"{run.path}: the section {section.name!r} cannot be shown ({type(error).__name__}: {error}). The run is damaged or "
            f"of another version; `neurotest {run['command']}` makes a new one."
        ) from error
