"""Names of classes: from a file, from a run, or as they are given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from neurotest.checks import shown
from neurotest.errors import BadInput
from neurotest.reading import LARGEST_TEXT, read_text, user_path
from neurotest.runs.schema import FILE
from neurotest.runs.store import Run


def read_classes(classes: object) -> Sequence[str]:
    """The names in a file (one per line) or in a run, or those that are given."""
    if not isinstance(classes, (str, Path)):
        if isinstance(classes, Iterable):
            return list(classes)
        message = f"classes={shown(classes)}: expected a file with one class name per line, or the names."
        raise BadInput("wrong-type", "classes", message)
    place = user_path(classes, f"classes {classes}")
    if (place / FILE).is_file():
        return _stored(place)
    text = read_text(place, "a file with one class name per line", limit=LARGEST_TEXT)
    return [line.strip() for line in text.splitlines() if line.strip()]


def _stored(place: Path) -> Sequence[str]:
    """The names in a run: commands that are printed name it."""
    with Run.open(place) as run:
        config = run["config"]
    description = config.get("description") if isinstance(config, dict) else None
    names = description.get("classes") if isinstance(description, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadInput("not-found", "classes", f"classes={place}: the run has no class names.")
    return names
