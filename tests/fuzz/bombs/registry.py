"""Files that are small on the disk and large in memory, one or more for every reader: `test_bombs.py` opens them.

    @bomb("npz, deflated", "npz:{}/bomb.npz")
    def npz(folder: Path) -> None:
        ...                                   # writes the file

A process of its own makes each file, so that what making it takes is not counted.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Make = Callable[[Path], None]
Read = Callable[[Path], object]


@dataclass(frozen=True)
class Bomb:
    """make: writes the files into a folder. read: what reads them. refused: whether they have to be; None: either will do."""

    name: str
    make: Make
    read: Read
    refused: bool | None = True
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """The first package that is not installed."""
        return next((name for name in self.needs if importlib.util.find_spec(name) is None), "")


BOMBS: dict[str, Bomb] = {}


def bomb(name: str, read: str | Read, *, refused: bool | None = True, needs: tuple[str, ...] = ()) -> Callable[[Make], Make]:
    """Registers what writes a bomb. read: a function of its folder, or the text of a data source with {} for the folder."""

    def register(make: Make) -> Make:
        assert name not in BOMBS
        BOMBS[name] = Bomb(name, make, rows(read) if isinstance(read, str) else read, refused, needs)
        return make

    return register


def fine(name: str, read: str | Read, *, needs: tuple[str, ...] = ()) -> Callable[[Make], Make]:
    """The same for a file that a person may well have, and that has to be read."""
    return bomb(name, read, refused=False, needs=needs)


def rows(spec: str, **options: object) -> Read:
    """Opens a data source and reads its first rows, as a method does. options: of `Preprocess`."""

    def read(folder: Path) -> object:
        import numpy as np

        from neurotest.data.spec import data
        from neurotest.images import Preprocess

        source = data(spec.format(folder), preprocess=Preprocess(**options))  # type: ignore[arg-type]
        return source.read(np.arange(min(len(source), 256)))

    return read


def zeros(path: Path, size: int, start: bytes = b"") -> None:
    """A file of so many bytes that takes next to nothing on the disk."""
    with open(path, "wb") as out:
        out.write(start)
        out.truncate(size)
