"""What JSON can hold, out of what Python and numpy hold."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """The value as JSON types: arrays and tuples become lists, paths text; NaN and infinities, which JSON lacks, null."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in a run: give numbers, text, lists and dictionaries")


def dumps(value: Any) -> str:
    """One line of JSON, the same for equal values."""
    return json.dumps(plain(value), sort_keys=True, allow_nan=False)
