"""Entry points of other packages: whatever one does while it is imported, the command goes on without it and says so."""

from __future__ import annotations

import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import EntryPoints, entry_points
from typing import Any

from neurotest.errors import Remark


def points(kind: str) -> EntryPoints:
    return entry_points(group=f"neurotest.{kind.replace(' ', '_')}")


def load(kind: str, name: str | None = None) -> list[Any]:
    """What other packages bring of a kind, all of it or by name. What they print goes to standard error."""
    loaded = []
    for point in points(kind):
        if name not in (None, point.name):
            continue
        try:
            with redirect_stdout(sys.stderr), redirect_stderr(sys.stderr):  # both are put back, whatever becomes of them
                loaded.append(point.load())
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit, too: it would end the command as if all were well
            package = point.dist.name if point.dist else point.value
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(
                f"the {kind} {point.name!r} of the package {package} cannot be loaded ({reason}).", Remark, stacklevel=2
            )
    return loaded
