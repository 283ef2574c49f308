"""Finished pieces of a run, one file each, so that interrupted work goes on where it was."""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.arrays import read_npz
from neurotest.errors import BadInput, Remark
from neurotest.runs.folder import LARGEST, RunFile, declare
from neurotest.runs.store import Run

FOLDER, DIGESTS = "parts", "parts digests"  # entries of the run
MOST_PARTS = 10_000_000
OURS = declare(rf"{FOLDER}/[0-9]{{6,}}\.npz", FOLDER)
Arrays = dict[str, NDArray[Any]]


class Parts:
    """What each finished piece gave. The file comes first, then the count in the run that makes it part of it."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __len__(self) -> int:
        if FOLDER not in self.run:
            return 0
        count = self.run[FOLDER]
        if type(count) is not int or not 0 <= count < MOST_PARTS:
            raise BadInput("damaged", "count", f"{self.run.path} counts {count!r:.50} parts: it is damaged.")
        return count

    def add(self, arrays: Arrays) -> None:
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **arrays)
        number = len(self)
        self._file(number).write(content.getvalue())
        with self.run.transaction():
            self.run[FOLDER] = number + 1
            self.run[DIGESTS] = [*self._digests()[:number], _digest(content.getvalue())]

    def _digests(self) -> list[Any]:
        """Of every part; runs of the first versions have none."""
        if DIGESTS in self.run and isinstance(stored := self.run[DIGESTS], list):
            return stored
        return [None] * len(self)

    def __iter__(self) -> Iterator[Arrays]:
        """Part by part. From one that is damaged or gone on, the work is done again: every piece depends on the seed only."""
        digests = self._digests()
        for number in range(len(self)):
            file = self._file(number)
            try:
                content = file.read(LARGEST)
                if digests[number] not in (None, _digest(content)):
                    raise BadInput("damaged", "parts", f"{file} is not what was written.")
                arrays = read_npz(io.BytesIO(content), str(file), largest=LARGEST, text=True)
            except (BadInput, IndexError) as error:
                warnings.warn(f"{error} The work is done again from this part on.", Remark, stacklevel=2)
                with self.run.transaction():
                    self.run[FOLDER], self.run[DIGESTS] = number, digests[:number]
                return
            yield arrays

    def forget(self) -> None:
        """The run is finished, as soon as this is committed: everything is in its suite."""
        for entry in (FOLDER, DIGESTS):
            del self.run[entry]

    def clear(self) -> None:
        """Remove the files of a finished run."""
        for name in [name for name in self.run.folder.names() if OURS.fullmatch(name)]:
            self.run.file(name).remove()
        self.run.folder.remove_folder(FOLDER)

    def _file(self, number: int) -> RunFile:
        return self.run.file(f"{FOLDER}/{number:06d}.npz")


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
