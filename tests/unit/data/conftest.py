"""Small files of every kind that is read."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from neurotest import zoo
from neurotest.zoo import embedded


def idx_bytes(array: np.ndarray) -> bytes:
    """An array of bytes as an idx file."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def write_idx() -> Callable[[Path, np.ndarray], None]:
    """Writes an array to a path, gzipped if it ends in .gz."""

    def write(path: Path, array: np.ndarray) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = idx_bytes(array)
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)

    return write


@pytest.fixture
def small_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedded sets of 10 noisy images, so that these tests also run where the real ones were deleted."""
    random = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    for name in ("mnist", "fashion-mnist"):
        splits = {}
        for split in ("test", "train"):
            x, y = random.integers(0, 256, (10, 28, 28), dtype=np.uint8), np.arange(10, dtype=np.uint8)
            (tmp_path / "data" / f"{name}-{split}.xz").write_bytes(embedded.pack(x, y))
            splits[split] = embedded.Split(10, (f"{name}-{split}.xz",), embedded.digest(x, y))
        monkeypatch.setitem(embedded.PARTS, name, splits)
    monkeypatch.setattr(zoo, "folders", lambda: (tmp_path,))
