"""Targets and data, opened the same way for every command."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from torch import nn

from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.errors import BadInput, Remark
from neurotest.scan import aligned, fit, remarks
from neurotest.target import Target
from neurotest.target.description import Description
from neurotest.target.load import load

AnyTarget = Target | Description | nn.Module | str
FILES = ("npz", "dir", "idx", "parquet", "wav")  # data sources whose spec begins with a path


def open_target(target: AnyTarget) -> Target:
    """The target itself, or the one that a spec, a description or a module stands for."""
    return target.open() if isinstance(target, Description) else load(target)


def open_data(target: Target, source: Source | str, *, limit: int | None = None, strict: bool = False) -> Source:
    """Inputs for a target: of its size, in its bounds, labels numbered as the target numbers its classes.

    What a user should know about them (skipped files, the order of classes) is warned about.
    """
    read = data(source, shape=target.shape, limit=limit, strict=strict)
    for sentence in remarks(target, read):
        warnings.warn(sentence, Remark, stacklevel=3)
    return open_counted(target, read)[0]


def open_counted(target: Target, source: Source | str, *, limit: int | None = None, strict: bool = False) -> tuple[Source, int]:
    """The same without the warnings, and how many classes the target has."""
    opened = aligned(target, data(source, shape=target.shape, limit=limit, strict=strict))
    if not len(opened):
        raise BadInput(f"{opened.what} is empty: give data with at least one input.")
    return opened, fit(target, opened)


def stored_spec(source: Source | str | None) -> str | None:
    """A source as a run stores it: with absolute paths, so that it is found from anywhere; None for data in memory."""
    spec = source.spec if isinstance(source, Source) else source
    prefix, colon, rest = (spec or "").partition(":")
    if not colon or prefix not in FILES or rest.startswith(("~", os.sep)):
        return spec or None
    return f"{prefix}:{os.path.join(os.getcwd(), rest)}"


def stored_source(where: Path, stored: Any, repeated: Source | str | None, name: str = "seeds") -> Source | str:
    """What is given again, or the source that a run was started with."""
    if repeated is not None:
        return repeated
    if not isinstance(stored, str) or not stored:
        raise BadInput(f"{where} was started with {name} that a Python program held in memory: give them again.")
    return stored
