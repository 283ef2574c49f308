"""Targets in a worker: loaded by their description, once, however many tasks name them."""

from __future__ import annotations

import dataclasses
from typing import Any

from neurotest.errors import BadInput
from neurotest.target.description import Description
from neurotest.target.rehearsal import skipped
from neurotest.target.target import Target

KEPT = 4  # targets that stay loaded
CACHES = ("_surveys", "_chunks", "reference", "fingerprint")
_open: dict[str, Target] = {}


def reduced(target: Target) -> tuple[Any, ...]:
    """What `__reduce__` would give."""
    about = {name: value for name, value in vars(target).items() if name not in CACHES}
    if not target.loaded or target._own:
        return _held, ({**about, "_surveys": {}, "_chunks": {}, "reference": None},)
    description = Description.of(target)
    return reopened, (description, str(target.device), target.fingerprint, target.deviation)


def _held(about: dict[str, Any]) -> Target:
    target = Target.__new__(Target)
    vars(target).update(about)
    return target


def reopened(description: Description, device: str, fingerprint: str, deviation: float | None) -> Target:
    """The target of a description, checked by its fingerprint."""
    key = f"{fingerprint} {device} {description!r}"
    if key not in _open:
        with skipped():  # where the work was begun, it was tried; the fingerprint says whether it is the same
            target = dataclasses.replace(description, device=device).open()
        target._steady, target.deviation = True, deviation  # where the work was begun, both were looked at
        if target.fingerprint != fingerprint:
            raise BadInput(
                "changed",
                "target",
                f"{description.spec} is another network in a worker than where the work was begun: its weights were changed "
                "after it was loaded, or its code draws at random. Save the weights and name them with --weights, or use one "
                "worker.",
            )
        while len(_open) >= KEPT:
            del _open[next(iter(_open))]
        _open[key] = target
    return _open[key]
