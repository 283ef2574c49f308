"""Finished pieces of a run, one file each, so that interrupted work goes on where it was."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import files
from neurotest.arrays import read_npz
from neurotest.reading import reading
from neurotest.runs.store import Run

FOLDER = "parts"
LARGEST = 1 << 32  # bytes of a part
Arrays = dict[str, NDArray[Any]]


class Parts:
    """What each finished piece gave. The file comes first, then the count in the run that makes it part of it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.folder = run.path / FOLDER

    def __len__(self) -> int:
        return int(self.run[FOLDER]) if FOLDER in self.run else 0

    def add(self, arrays: Arrays) -> None:
        with files.whole(self._file(len(self))) as part, open(part, "wb") as out:
            np.savez_compressed(out, allow_pickle=False, **arrays)
        self.run[FOLDER] = len(self) + 1

    def __iter__(self) -> Iterator[Arrays]:
        for number in range(len(self)):
            file = self._file(number)
            with reading(file, "a part of a run", hint="The run is damaged; start a new one."), open(file, "rb") as stream:
                arrays = read_npz(stream, str(file), largest=LARGEST)
            yield arrays

    def clear(self) -> None:
        """The run is finished: everything is in its suite now."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return files.inside(self.run.path, f"{FOLDER}/{number:06d}.npz")
