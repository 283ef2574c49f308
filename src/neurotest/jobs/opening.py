"""Targets and data, opened the same way for every command."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from torch import nn

from neurotest import zoo
from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.data.spec import absolute
from neurotest.errors import BadInput, Remark
from neurotest.runs.store import Run
from neurotest.scan import aligned, fit, read, remarks
from neurotest.target import Target
from neurotest.target.load import load
from neurotest.target.spec import TargetSpec
from neurotest.zoo import embedded

AnyTarget = Target | TargetSpec | nn.Module | str
ENOUGH = 5000  # training images; where fewer are embedded, the complete set is looked for


def open_target(target: AnyTarget) -> Target:
    """The target itself, or the one that a spec, a description or a module stands for."""
    return target.open() if isinstance(target, TargetSpec) else load(target)


def open_data(target: Target, source: AnyData, *, limit: int | None = None, strict: bool = False) -> Source:
    """Inputs for a target: of its size, in its bounds, labels numbered as the target numbers its classes.

    What a user should know about them (skipped files, the order of classes) is warned about.
    """
    source = read(target, source, limit=limit, strict=strict)
    for sentence in remarks(target, source):
        warnings.warn(sentence, Remark, stacklevel=3)
    return open_counted(target, source)[0]


def open_counted(target: Target, source: AnyData, *, limit: int | None = None, strict: bool = False) -> tuple[Source, int]:
    """The same without the warnings, and how many classes the target has."""
    opened = aligned(target, read(target, source, limit=limit, strict=strict))
    if not len(opened):
        raise BadInput("empty", "data", f"{opened.what} is empty: give data with at least one input.")
    return opened, fit(target, opened)


def known_training(target: Target) -> Source | None:
    """The training data of a network of the zoo, where it is here: the complete set if too little of it is embedded."""
    if not target.spec.startswith("zoo:"):
        return None
    name = zoo.find(target.spec[4:]).dataset
    specs = [f"zoo:{name}/train", f"zoo:{name}-full/train"]
    few = name in embedded.PARTS and embedded.PARTS[name]["train"].count < ENOUGH
    for spec in reversed(specs) if few else specs:
        with suppress(BadInput):  # embedded sets may be removed, complete ones need not be here
            return open_counted(target, spec)[0]
    return None


def digests(**sources: Source | None) -> dict[str, str]:
    """What a run stores of the content of its data, so that it goes on with the same."""
    return {name: source.digest() for name, source in sources.items() if source is not None}


def stored_spec(source: AnyData | None) -> str | None:
    """A source as a run stores it: with absolute paths, so that it is found from anywhere; None for data in memory."""
    spec = source.spec if isinstance(source, Source) else source if isinstance(source, str) else None
    return absolute(spec) if spec else None


def stored_source(run: Run, stored: Any, repeated: AnyData | None, name: str = "seeds") -> AnyData:
    """What is given again, or the source that a run was started with; a run from elsewhere does not make us open our files."""
    if repeated is not None:
        return repeated
    if not isinstance(stored, str) or not stored:
        raise BadInput(
            "missing", name, f"{run.path} was started with {name} that a Python program held in memory: give them again."
        )
    if not (run.made_here or stored.startswith("zoo:")):
        raise BadInput(
            "untrusted", name, f"{run.path} was made elsewhere and names {stored!r} as its {name}: give the data yourself."
        )
    return stored
