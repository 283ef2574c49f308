"""Templates, style sheet and scripts of the pages: one environment, every string escaped, only our own scripts allowed."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

SCRIPT, BUNDLE = "page.js", "vendor/vega.js.gz"


def _thousands(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def _number(value: float | None, form: str = ".4g", missing: str = "") -> str:
    return missing if value is None else format(value, form)


def _percent(share: float | None, digits: int = 1, missing: str = "") -> str:
    return missing if share is None else f"{100 * share:.{digits}f} %"


def _interval(limits: Sequence[float | None] | None, form: str = ".1f", scale: float = 1) -> str:
    if not limits or limits[0] is None or limits[1] is None:
        return ""
    return f"{scale * limits[0]:{form}} .. {scale * limits[1]:{form}}"


def _as_json(value: Any) -> str:
    """JSON for people to read; inside a script `tojson` is the filter."""
    return json.dumps(value, indent=1, ensure_ascii=False)


@functools.cache
def environment() -> Environment:
    """The one environment: everything is escaped, a name that is missing is an error."""
    shared = Environment(loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined)
    shared.filters |= {"thousands": _thousands, "number": _number, "percent": _percent, "interval": _interval, "json": _as_json}
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


def _asset(name: str) -> bytes:
    """A file of the folder `templates`: the style sheet, a script, the packed bundle."""
    return (resources.files("neurotest.report") / "templates" / name).read_bytes()


@functools.cache
def script() -> Markup:
    """Our own script, as it stands in a page."""
    return Markup(_asset(SCRIPT).decode())


@functools.cache
def bundle() -> str:
    """The packed chart library as text; the page unpacks it when the first chart comes into view."""
    return base64.b64encode(_asset(BUNDLE)).decode()


@functools.cache
def policy() -> str:
    """What a page may load: pictures and styles it holds itself, and of scripts these two by their hash. No request, no eval."""
    hashes = " ".join(f"'sha256-{_hash(text)}'" for text in (str(script()).encode(), gzip.decompress(_asset(BUNDLE))))
    return (
        f"default-src 'none'; script-src {hashes}; img-src data:; media-src data:; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(content: bytes) -> str:
    return base64.b64encode(hashlib.sha256(content).digest()).decode()
