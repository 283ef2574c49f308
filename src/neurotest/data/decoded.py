"""Inputs out of files that have to be decoded: each once to check it, and again when there are too many to keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from neurotest.data.ahead import ahead
from neurotest.data.listing import File
from neurotest.data.source import IN_MEMORY, Array, ArraySource, Skipped, Source, Wanted, content_ids
from neurotest.errors import BadInput
from neurotest.pictures import Unusable

F = TypeVar("F", bound=File)
G = TypeVar("G", bound=File, contravariant=True)


class Decoder(Protocol[G]):
    """Makes an input of a file. threads: how many files at once; None: as many as help."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    things: str
    threads: int | None

    def decode(self, file: G, /) -> tuple[Array, tuple[str, ...]]:
        """The input and what had to be changed to get there; `Unusable` for what cannot be one."""


def refuse(skipped: Sequence[Skipped]) -> None:
    if skipped:
        more = f" (and {len(skipped) - 1} more)" if len(skipped) > 1 else ""
        raise BadInput(
            "unreadable", "strict", f"{skipped[0].file}: {skipped[0].reason}{more}; repair or remove it, or leave out --strict."
        )


def decode_all(files: Sequence[F], decoder: Decoder[F], wanted: Wanted, skipped: list[Skipped], about: dict[str, Any]) -> Source:
    """Decode each file once: it shows which are damaged and gives the ids; the values are kept if there are not too many."""
    shape, dtype = decoder.shape, decoder.dtype
    enough = len(files) if wanted.first is None else min(wanted.first, len(files))
    keep = enough * int(np.prod(shape)) * dtype.itemsize <= IN_MEMORY
    values = np.empty((enough if keep else 1, *shape), dtype)
    good: list[F] = []
    changed: dict[str, list[str]] = {}  # what was changed to fit, and in which files
    ids: list[npt.NDArray[np.str_]] = []
    for file, decoded in ahead(decoder.decode, files, threads=decoder.threads):
        if len(good) == enough:
            break
        row = values[len(good) if keep else 0]
        try:
            row[...], changes = decoded()
        except Unusable as error:
            skipped.append(Skipped(file.name, str(error)))
            if wanted.strict:
                refuse(skipped)
            continue
        for change in changes:
            changed.setdefault(change, []).append(file.name)
        good.append(file)
        ids.append(content_ids(row[None]))
    skipped.sort(key=lambda one: one.file)
    if not good:
        first, what = skipped[0], about["spec"] or "the data"
        hint = "".join(f" {sentence}" for sentence in about["notes"].get("warnings", ())[:1] if "--" in sentence)
        raise BadInput(
            "empty",
            "data",
            f"{what}: none of its {len(skipped)} {decoder.things} can be used; first {first.file}: {first.reason}.{hint}",
        )
    sentences = [
        f"{len(names)} file{'s have' if len(names) > 1 else ' has'} {change} (first: {names[0]})."
        for change, names in changed.items()
    ]
    if sentences:
        about["notes"]["warnings"] = [*about["notes"].get("warnings", ()), *sentences]
    labels = None if about["classes"] is None else np.array([file.label for file in good], np.int64)
    about |= {"skipped": skipped, "names": [file.name for file in good]}
    if keep:
        source: Source = DecodedSource(values[: len(good)], good, decoder, labels, **about)
    else:
        source = FolderSource(good, decoder, labels, **about)
    source._ids = np.concatenate(ids)
    return source


class DecodedSource(ArraySource):
    """Files that were decoded and kept. To a worker they travel as files."""

    def __init__(
        self, x: Array, files: Sequence[F], decoder: Decoder[F], labels: npt.ArrayLike | None = None, **about: Any
    ) -> None:
        super().__init__(x, labels, **about)
        self._files, self._decoder = list(files), decoder

    def _keep(self, index: npt.NDArray[np.int64]) -> None:
        super()._keep(index)
        self._files = [self._files[i] for i in index]

    def __reduce_for_worker__(self) -> tuple[Any, ...]:
        return _undecoded, ({name: value for name, value in vars(self).items() if name != "_x"},)


def _undecoded(about: dict[str, Any]) -> FolderSource:
    source = FolderSource.__new__(FolderSource)
    vars(source).update(about)
    return source


class FolderSource(Source):
    """Files too many for memory: decoded again whenever they are read, and compared with what was checked at first."""

    def __init__(self, files: Sequence[F], decoder: Decoder[F], labels: npt.ArrayLike | None = None, **about: Any) -> None:
        super().__init__(len(files), decoder.shape, decoder.dtype, labels, **about)
        self._files, self._decoder = list(files), decoder

    @property
    def decodes(self) -> bool:
        """Objects of the user's program are asked one by one, and by nobody else meanwhile."""
        return self._decoder.threads != 1

    def _rows(self, index: npt.NDArray[np.int64]) -> Array:
        rows = np.empty((len(index), *self.shape), self.dtype)
        decoder = self._decoder
        files = ahead(decoder.decode, [self._files[i] for i in index], threads=decoder.threads)
        for row, i, (file, decoded) in zip(rows, index, files, strict=True):
            try:
                row[...] = decoded()[0]
            except Unusable as error:
                raise BadInput(
                    "changed", "file", f"{file.path} can no longer be read ({error}); leave the folder alone during a run."
                ) from error
            if self._ids is not None and content_ids(row[None])[0] != self._ids[i]:
                raise BadInput(
                    "changed",
                    "file",
                    f"{file.path} has changed since the folder was opened; leave the folder alone during a run.",
                )
        return rows

    def _keep(self, index: npt.NDArray[np.int64]) -> None:
        self._files = [self._files[i] for i in index]
