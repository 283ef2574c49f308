"""A pass over a source piece by piece: pieces are seen by any worker, and what they gave is merged in their order.

Where a piece ends depends on the batch size alone, and one worker merges as many do: the result is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.executor import Serial, current
from neurotest.scan import BATCH, Batch, Progress, each_batch, wanted
from neurotest.target import Probe, Target, Trace, Want

PIECE_BATCHES = 4  # batches of a piece


@dataclass(frozen=True, eq=False)
class Piece:
    """Some inputs of a source that follow each other in the pass."""

    start: int  # how many inputs of the pass come before it
    index: NDArray[np.int64]  # (n,) positions in the whole source
    source: Source  # these inputs alone

    @property
    def end(self) -> int:
        return self.start + len(self.index)


class _Pass(Protocol):
    """What sees every batch of a source, whole or in pieces. Positions in a batch are those in the piece."""

    lead: int  # so many inputs are seen first, here and in order

    @property
    def wants(self) -> tuple[Want, ...]: ...

    def step(self, part: Batch, trace: Trace, probe: Probe) -> None: ...

    def fresh(self, piece: Piece, *, here: bool) -> Self:
        """An empty one for a piece; `here`, in the process of the whole, it may share what need not be merged."""

    def merge(self, other: Self, piece: Piece) -> None:
        """Take in what a fresh one saw of the piece after those that are merged."""

    def portable(self) -> Self | None:
        """What goes to workers; None: nothing can be merged."""

    def result(self) -> Any:
        """What comes back from a worker about its piece: small, and no activations."""

    def receive(self, result: Any, piece: Piece) -> None:
        """Merge what came back."""

    def rest(self) -> Self | None:
        """What cannot be merged: it sees all pieces in order, here."""


def pieces(source: Source, batch: int, *, order: NDArray[np.int64] | None = None, per: int = PIECE_BATCHES) -> Iterator[Piece]:
    """The source, in `order`, in pieces of so many batches."""
    if batch < 1:
        raise BadInput("out-of-range", "batch", f"batch={batch}: expected an integer >= 1.")
    total = len(source) if order is None else len(order)
    for start in range(0, total, batch * per):
        end = min(total, start + batch * per)
        index = np.arange(start, end) if order is None else order[start:end]
        yield Piece(start, index, source.take(index))


def pass_over(
    target: Target,
    source: Source,
    work: _Pass,
    *,
    order: NDArray[np.int64] | None = None,
    batch: int = BATCH,
    per: int = PIECE_BATCHES,
    progress: Progress | None = None,
) -> None:
    """Let `work` see every batch of the source."""
    executor = current()
    total = len(source) if order is None else len(order)
    left = pieces(source, batch, order=order, per=per)
    for piece in left if isinstance(executor, Serial) else _first(left, work.lead):
        _here(target, work, piece, batch, total, progress)
    if isinstance(executor, Serial):
        return
    if (portable := work.portable()) is not None:
        for piece, result in executor.run(_see, (target, portable, batch), left):
            work.receive(result, piece)
            if progress is not None:
                progress(piece.end, total)
    if (rest := work.rest()) is not None:
        again = pieces(source, batch, order=order, per=per)
        list(_first(again, work.lead))  # those were seen
        for piece in again:
            _here(target, rest, piece, batch, total, progress)


def _first(left: Iterator[Piece], count: int) -> Iterator[Piece]:
    """The pieces with the first so many inputs."""
    seen = 0
    while seen < count and (piece := next(left, None)) is not None:
        seen = piece.end
        yield piece


def _here(target: Target, work: _Pass, piece: Piece, batch: int, total: int, progress: Progress | None) -> None:
    part = work.fresh(piece, here=True)

    def shown(done: int, of: int) -> None:
        if progress is not None and done < of:  # the end of a piece is told when it is merged
            progress(piece.start + done, total)

    each_batch(target, piece.source, part.step, wants=part.wants, batch=batch, progress=shown)
    work.merge(part, piece)
    if progress is not None:
        progress(piece.end, total)


def _see(shared: tuple[Target, Any, int], piece: Piece) -> Any:
    """In a worker: one piece."""
    target, work, batch = shared
    part = work.fresh(piece, here=False)
    each_batch(target, piece.source, part.step, wants=part.wants, batch=batch)
    return part.result()


class Updates:
    """A pass for plain consumers. One with `fresh(start)` and `merge(other)` is seen in pieces, others in order.

    `fresh` gives an empty consumer for inputs that begin `start` after its own, or None where it cannot be merged. `exact`
    says that merging gives what updating in place gives, bit for bit, so that one worker need not.
    """

    lead = 0

    def __init__(self, consumers: Sequence[Any]) -> None:
        self.consumers = list(consumers)
        self.empty: list[Any] = [one.fresh(0) if hasattr(one, "fresh") else None for one in consumers]

    @property
    def wants(self) -> tuple[Want, ...]:
        return wanted(self.consumers)

    def step(self, part: Batch, trace: Trace, probe: Probe) -> None:
        for consumer in self.consumers:
            consumer.update(trace)

    def fresh(self, piece: Piece, *, here: bool) -> Updates:
        pairs = zip(self.consumers, self.empty, strict=True)
        return Updates.of([one if here and in_place(one, empty) else empty.fresh(piece.start) for one, empty in pairs])

    def merge(self, other: Updates, piece: Piece) -> None:
        for one, another in zip(self.consumers, other.consumers, strict=True):
            if one is not another:
                one.merge(another)

    def portable(self) -> Updates | None:
        chosen = [empty for empty in self.empty if empty is not None]
        return Updates(chosen) if chosen else None

    def result(self) -> list[Any]:
        return [one.state_dict() if _restorable(one) else one for one in self.consumers]

    def receive(self, result: list[Any], piece: Piece) -> None:
        kept = [(one, empty) for one, empty in zip(self.consumers, self.empty, strict=True) if empty is not None]
        for (one, empty), content in zip(kept, result, strict=True):
            one.merge(_restored(empty.fresh(piece.start), content))

    def rest(self) -> Updates | None:
        chosen = [one for one, empty in zip(self.consumers, self.empty, strict=True) if empty is None]
        return Updates.of(chosen) if chosen else None

    @classmethod
    def of(cls, consumers: list[Any]) -> Updates:
        """Consumers that are not to be merged."""
        part = cls([])
        part.consumers, part.empty = consumers, [None] * len(consumers)
        return part


def in_place(one: Any, empty: Any) -> bool:
    """Whether one worker updates it in place instead of merging pieces into it."""
    return empty is None or bool(getattr(one, "exact", False))


def _restorable(one: Any) -> bool:
    return hasattr(one, "state_dict") and hasattr(one, "load")


def _restored(empty: Any, content: Any) -> Any:
    if not _restorable(empty):
        return content
    empty.load(content)
    return empty
