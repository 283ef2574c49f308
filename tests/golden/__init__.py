"""Reference values of other people's implementations. README.md says where each comes from and how it was made."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
# Material too large for the project (checkpoints of others, the complete file of a study): optional, tests that need it skip.
BESIDE = Path(os.environ.get("NEUROTEST_MATERIAL") or HERE.parents[2] / "shared")


@cache
def arrays(name: str, folder: str = "coverage") -> dict[str, np.ndarray]:
    with np.load(HERE / folder / f"{name}.npz") as stored:
        return dict(stored)


@cache
def numbers(name: str, folder: str = "coverage") -> dict[str, Any]:
    values: dict[str, Any] = json.loads((HERE / folder / f"{name}.json").read_text())
    return values
