"""The public Python interface as it was released, and what has changed since: `tests/golden/api.json`.

After a change of a signature, `python scripts/api.py` notes it and says which names need a line in `changes/`. With `--release`,
when a version is released, the interface becomes the one that later changes are compared with.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "golden" / "api.json"
Names = dict[str, str]  # `select`, `Run.open`: what it takes and gives


def current() -> Names:
    """Every name in `neurotest.__all__`, with the public methods and fields of classes."""
    import neurotest

    names: Names = {}
    for name in neurotest.__all__:
        thing = getattr(neurotest, name)
        if inspect.isclass(thing):
            names |= _members(name, thing)
        elif callable(thing):  # a function, or a module that is called by its name
            names[name] = str(inspect.signature(thing))
    return names


def _members(name: str, of: type) -> Names:
    """Of classes of neurotest only: what Python's own bases have differs between versions of Python."""
    bases = [base for base in reversed(of.__mro__) if base.__module__.partition(".")[0] == "neurotest"]
    names: Names = {name: f"class {of.__name__}"}
    for base in bases:
        for field, kind in inspect.get_annotations(base).items():
            if not field.startswith("_"):
                default = f" = {base.__dict__[field]!r}" if field in base.__dict__ else ""
                names[f"{name}.{field}"] = f": {kind}{default}"
        for member, value in vars(base).items():
            text = _signature(value)
            if text and (member == "__init__" or not member.startswith("_")):
                names[f"{name}.{member}"] = text
    return names


def _signature(member: Any) -> str:
    if isinstance(member, classmethod | staticmethod):
        return f"{type(member).__name__} {inspect.signature(member.__func__)}"
    if isinstance(member, property) or hasattr(member, "attrname"):  # a cached property
        return "property"
    if inspect.isfunction(member) and member.__code__.co_filename != "<string>":  # dataclasses make these; their fields say it
        return str(inspect.signature(member))
    return ""


def changes(released: Names, now: Names) -> dict[str, str | None]:
    """Names that differ from the release, with what they are now; None for one that went."""
    return {name: now.get(name) for name in sorted(released.keys() | now.keys()) if released.get(name) != now.get(name)}


def without_a_line(changed: dict[str, str | None], folder: Path = ROOT / "changes") -> list[str]:
    """Of these names, those that no file in `changes/` mentions."""
    lines = "\n".join(file.read_text(encoding="utf-8") for file in folder.glob("[0-9+]*.md"))
    return [name for name in changed if not re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.]*\w)", lines)]


def stored() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def main() -> None:
    import neurotest

    now = current()
    if "--release" in sys.argv[1:]:
        content: dict[str, Any] = {"version": neurotest.__version__, "released": now, "changed": {}}
    else:
        content = stored()
        content["changed"] = changes(content["released"], now)
        for name in without_a_line(content["changed"]):
            print(f"add a line to changes/ that names {name}")
    FILE.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
