"""A source of inputs: how many, what shape, which labels, and the pixels on demand."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from neurotest.audio import is_audio
from neurotest.errors import BadInput
from neurotest.images import Preprocess
from neurotest.levels import levels_of

Array = npt.NDArray[Any]
CHUNK = 1 << 24  # bytes looked at in one go: large enough for numpy, small beside the data
IN_MEMORY = 1 << 30  # up to so many bytes are kept; beyond that inputs are decoded each time they are read
ROWS_COMPARED = 10_000  # in one go: what is kept of all small inputs would outweigh everything else that is kept per input


@dataclass(frozen=True)
class Skipped:
    """A file that was left out, and why."""

    file: str
    reason: str
    named: bool = False  # a sentence of the source's warnings counts it already


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a reader needs beside the spec: the target's input shape, how images are fitted, how strict, how far it is read."""

    shape: tuple[int, ...] | None = None
    preprocess: Preprocess = field(default_factory=Preprocess)
    strict: bool = False
    first: int | None = None  # only the first so many inputs are needed; a reader may stop there


@dataclass(frozen=True)
class Origin:
    """How a source was opened, and which of its inputs these are."""

    where: str
    wanted: Wanted
    places: npt.NDArray[np.int64]  # (n,)

    def take(self, index: npt.NDArray[np.int64]) -> Origin:
        return Origin(self.where, self.wanted, self.places[index])


def shape_text(shape: Sequence[int]) -> str:
    return "x".join(str(side) for side in shape)


def content_ids(x: Array) -> npt.NDArray[np.str_]:
    """One id per row of `x`: a hash of dtype, shape and bytes, so equal inputs have equal ids wherever they come from."""
    rows = np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8) if len(x) else x
    start = hashlib.blake2b(f"{x.dtype.name} {shape_text(x.shape[1:])} ".encode(), digest_size=8)
    ids = np.empty(len(x), dtype="U16")
    for i, row in enumerate(rows):
        one = start.copy()
        one.update(row.data)
        ids[i] = one.hexdigest()
    return ids


def number_classes(labels: Sequence[str]) -> tuple[Array, tuple[str, ...]]:
    """Class numbers and names, in the order of the names as text; numpy would take the memory of the longest for each."""
    names = sorted(set(labels))
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([numbers[label] for label in labels], np.int64), tuple(names)


def quick_keys(x: Array) -> npt.NDArray[np.uint64]:
    """One number per row of `x`, equal where the bytes are equal, and rarely otherwise: a first look before `content_ids`, which
    cost thirty times as much."""
    rows = np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8) if len(x) else np.empty((0, 0), dtype=np.uint8)
    whole = rows.shape[1] // 8 * 8
    words = rows[:, :whole].view(np.uint64)  # (n, bytes / 8)
    keys: npt.NDArray[np.uint64] = words @ _multipliers(words.shape[1])  # products wrap around
    for place in range(whole, rows.shape[1]):
        keys += rows[:, place].astype(np.uint64) << np.uint64(8 * (place - whole))
    return keys


@functools.lru_cache(maxsize=4)
def _multipliers(count: int) -> npt.NDArray[np.uint64]:
    """Odd, so that no single word is lost."""
    return np.random.default_rng(0).integers(0, 1 << 63, count, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


class Source:
    """Inputs of one shape. Readers subclass it: they give the rows (`_rows`) and cut themselves down (`_keep`).

    `notes` is where the inputs come from; `notes["draws"]` has one entry per input. `positions` are those in the source as it
    was before any `take`, `names` the files where there are files. One that `decodes` works for its inputs each time they are
    read, and may be read from another thread: a pass then reads ahead.
    """

    @property
    def decodes(self) -> bool:
        return False

    def __init__(
        self,
        count: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        labels: npt.ArrayLike | None = None,
        *,
        spec: str = "",
        classes: Sequence[str] | None = None,
        originals: Source | None = None,
        notes: dict[str, Any] | None = None,
        skipped: Sequence[Skipped] = (),
        names: Sequence[str] | None = None,
    ) -> None:
        self.spec = spec  # as typed, for display
        self.shape = shape
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.classes = None if classes is None else tuple(classes)
        self.originals = originals
        self.notes = dict(notes or {})
        self.skipped = tuple(skipped)
        self.names = None if names is None else np.asarray(names, dtype=object)
        self.positions = np.arange(count)
        self.rate: int | None = None  # samples a second, of audio
        # Labels that are no integers are regression values, which only a network that predicts one can use.
        self.quantities: npt.NDArray[np.floating[Any]] | None = None
        self.labels: npt.NDArray[np.int64] | None = None
        if labels is not None:
            self.quantities = _quantities(labels, count, self.what)
            if self.quantities is None or self.classes is not None:
                self.labels = _checked_labels(labels, count, self.classes, self.what)
        self._ids: npt.NDArray[np.str_] | None = None
        self._origin: Origin | None = None  # where another process finds the same inputs
        self._inputs_digest: bytes | None = None
        if originals is not None:
            self._check_originals(originals)

    @property
    def what(self) -> str:
        """How error messages call it."""
        return self.spec or "the data"

    def __len__(self) -> int:
        return len(self.positions)

    def __repr__(self) -> str:
        labelled = "unlabelled" if self.labels is None and self.quantities is None else "labelled"
        return f"<{type(self).__name__} {self.spec!r}: {len(self)} x {shape_text(self.shape)} {self.dtype.name}, {labelled}>"

    def read(self, index: npt.ArrayLike) -> Array:
        """The inputs at these positions, (m, *shape), a copy that may be written to."""
        return self._rows(self._checked(index))

    def ids(self) -> npt.NDArray[np.str_]:
        """(n,) content hashes, 16 hexadecimal digits each; computed once."""
        if self._ids is None:
            parts = [content_ids(rows) for rows in self._chunks()]
            self._ids = np.concatenate(parts) if parts else np.empty(0, dtype="U16")
        return self._ids

    def keys(self, index: npt.ArrayLike) -> list[str]:
        """What identifies these inputs within their source: their names, or their positions in it."""
        places = self._checked(index)
        known = self.positions if self.names is None else self.names
        return [str(one) for one in known[places]]

    def contained(self, other: Source) -> npt.NDArray[np.int64]:
        """Positions of the inputs that `other` holds, too, byte for byte. Hashed is only what agrees at first sight."""
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return np.empty(0, dtype=np.int64)
        theirs = np.concatenate([np.empty(0, dtype=np.uint64), *(quick_keys(rows) for rows in other._chunks(ROWS_COMPARED))])
        places, start = [np.empty(0, dtype=np.int64)], 0
        for rows in self._chunks(ROWS_COMPARED):
            keys = quick_keys(rows)
            alike = np.flatnonzero(np.isin(keys, theirs))
            if len(alike):
                there = content_ids(other.read(np.flatnonzero(np.isin(theirs, keys[alike]))))
                places.append(start + alike[np.isin(content_ids(rows[alike]), there)])
            start += len(rows)
        return np.concatenate(places)

    def digest(self) -> str:
        """One hash (64 hexadecimal digits) of dtype, shape, every byte of the inputs, and labels; inputs are read only once.

        Equal data have equal digests wherever they come from: files, names, classes, spec and originals do not matter.
        """
        if self._inputs_digest is None:
            inputs = hashlib.blake2b(f"{self.dtype.name} {shape_text(self.shape)} {len(self)} ".encode(), digest_size=32)
            for rows in self._chunks():
                inputs.update(np.ascontiguousarray(rows).data)
            self._inputs_digest = inputs.digest()
        labels = b"unlabelled" if self.labels is None else b"labels " + self.labels.astype("<i8").tobytes()
        if self.quantities is not None:
            labels = b"quantities " + self.quantities.astype("<f8").tobytes()
        return hashlib.blake2b(self._inputs_digest + labels, digest_size=32).hexdigest()

    def _chunks(self, rows: int = CHUNK) -> Iterator[Array]:
        """All inputs in their order, at most so many at a time."""
        step = min(rows, max(1, CHUNK // max(1, int(np.prod(self.shape)) * self.dtype.itemsize)))
        return (self._rows(np.arange(i, min(i + step, len(self)))) for i in range(0, len(self), step))

    def take(self, index: npt.ArrayLike) -> Source:
        """The source with only these inputs, in this order (a boolean mask works too); labels and originals follow."""
        index = self._checked(index)
        part = copy.copy(self)
        part.notes = dict(self.notes)
        if "draws" in part.notes:  # what a pool's maker drew, one per input
            part.notes["draws"] = part.notes["draws"][index]
        part.positions = self.positions[index]
        part.labels = None if self.labels is None else self.labels[index]
        part.quantities = None if self.quantities is None else self.quantities[index]
        part.names = None if self.names is None else self.names[index]
        part.originals = None if self.originals is None else self.originals.take(index)
        part._ids = None if self._ids is None else self._ids[index]
        part._inputs_digest = None
        part._origin = None if self._origin is None else self._origin.take(index)
        part._keep(index)
        return part

    def without_labels(self) -> Source:
        """The same inputs as if nobody had labelled them."""
        part = copy.copy(self)
        part.labels = part.quantities = None
        return part

    def with_originals(self, originals: Source) -> Source:
        """The same inputs, input i being a variant of `originals[i]`."""
        self._check_originals(originals)
        paired = copy.copy(self)
        paired.originals = originals
        return paired

    def _check_originals(self, originals: Source) -> None:
        if (len(originals), originals.shape) != (len(self), self.shape):
            message = (
                f"{originals.what} has {len(originals)} inputs of {shape_text(originals.shape)}: as originals of {self.what} "
                f"there must be {len(self)} of {shape_text(self.shape)}, in the same order."
            )
            raise BadInput("wrong-count", "originals", message)

    def _checked(self, index: npt.ArrayLike) -> npt.NDArray[np.int64]:
        indices = np.asarray(index)
        if indices.dtype == bool and indices.shape == (len(self),):
            return np.flatnonzero(indices)
        if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
            message = f"index of shape {indices.shape}, type {indices.dtype}: expected positions 0..{len(self) - 1}."
            raise BadInput("wrong-type", "index", message)
        positions = indices.astype(np.int64)
        if positions.size and (positions.min() < 0 or positions.max() >= len(self)):
            wrong = positions.min() if positions.min() < 0 else positions.max()
            message = f"position {wrong} is outside {self.what}, which has {len(self)} inputs (0..{len(self) - 1})."
            raise BadInput("out-of-range", "position", message)
        return positions

    def _rows(self, index: npt.NDArray[np.int64]) -> Array:
        raise NotImplementedError

    def _keep(self, index: npt.NDArray[np.int64]) -> None:
        raise NotImplementedError


class ArraySource(Source):
    """Inputs held in memory: `x` is (n, *shape): uint8, int16 of audio, or floating point (kept as float32, all finite)."""

    def __init__(self, x: npt.ArrayLike, labels: npt.ArrayLike | None = None, **about: Any) -> None:
        array = as_inputs(np.asarray(x), about.get("spec") or "the data")
        super().__init__(len(array), array.shape[1:], array.dtype, labels, **about)
        self._x = array

    def _rows(self, index: npt.NDArray[np.int64]) -> Array:
        return self._x[index]

    def _keep(self, index: npt.NDArray[np.int64]) -> None:
        self._x = self._x[index]

    def __reduce_for_worker__(self) -> tuple[Any, ...]:
        """To a worker it travels as the spec it was opened by; data that only this process has travel themselves."""
        from neurotest.data.spec import reopened

        if self._origin is None:
            return object.__reduce_ex__(self, 2)  # type: ignore[return-value]
        about = {name: value for name, value in vars(self).items() if name not in ("_x", "_ids", "_origin")}
        return reopened, (self._origin, about)


def as_inputs(x: Array, what: str) -> Array:
    """`x` as C-contiguous uint8, int16 or finite float32, or a sentence that says why it cannot be."""
    if x.ndim < 2:
        message = f"{what}: inputs of shape {x.shape}; expected (count, channels, height, width) or (count, features)."
        raise BadInput("wrong-shape", "inputs", message)
    if 0 in x.shape[1:]:
        raise BadInput("empty", "inputs", f"{what}: inputs of shape {x.shape} are empty; each needs at least one value.")
    check_input_dtype(x.dtype, what, x.shape)
    if levels_of(x.dtype) is not None:
        return np.ascontiguousarray(x)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows becomes infinite and is refused below
        x = np.ascontiguousarray(x, dtype=np.float32)
    _check_finite(x, what)
    return x


def check_input_dtype(dtype: np.dtype[Any], what: str, shape: Sequence[int]) -> None:
    """shape: of the whole array; rows of integers are the usual form of text, those of 16 bits of audio."""
    if dtype != np.uint8 and dtype.kind != "f" and not is_audio(dtype, tuple(shape[1:])):
        tokens = " (numbers of tokens? Text models are not supported)" if dtype.kind in "iu" and len(shape) == 2 else ""
        message = f"{what}: inputs of type {dtype}{tokens}; save them as uint8 (0..255), float32 or, of audio, int16."
        raise BadInput("wrong-type", "inputs", message)


def _check_finite(x: Array, what: str) -> None:
    step = max(1, CHUNK // max(1, x[:1].nbytes))
    for i in range(0, len(x), step):
        rows = x[i : i + step]
        if not np.isfinite(rows).all():
            first = i + int(np.argmin(np.isfinite(rows).reshape(len(rows), -1).all(axis=1)))
            message = f"{what}: input {first} holds NaN or infinity (as float32); repair or leave out such inputs."
            raise BadInput("not-finite", "inputs", message)


def _column(labels: npt.ArrayLike, count: int, what: str) -> Array:
    numbers = np.asarray(labels)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim != 1:
        hint = " (one-hot? save y.argmax(axis=1))" if numbers.ndim == 2 else ""
        message = f"{what}: labels of shape {numbers.shape}; expected one class number per input, ({count},){hint}."
        raise BadInput("wrong-shape", "labels", message)
    if len(numbers) != count:
        message = f"{what}: {len(numbers)} labels for {count} inputs; each input needs exactly one."
        raise BadInput("wrong-count", "labels", message)
    return numbers


def _quantities(labels: npt.ArrayLike, count: int, what: str) -> npt.NDArray[np.floating[Any]] | None:
    """Labels in floating point, all finite; None for others."""
    numbers = _column(labels, count, what)
    if numbers.dtype.kind != "f":
        return None
    if not np.isfinite(numbers).all():
        first = int(np.argmin(np.isfinite(numbers)))
        message = f"{what}: the label of input {first} is {numbers[first]}: repair or leave out such inputs."
        raise BadInput("not-finite", "labels", message)
    return numbers


def check_classes(source: Source) -> None:
    """Refuse regression values as labels of a classifier."""
    if source.quantities is None:
        return
    odd = source.quantities[source.quantities != np.rint(source.quantities)]
    hint = "save y.astype(int)"
    if len(odd):
        hint = f"{odd[0]:.6g} is a regression value: for a network that predicts one pass --outputs regression"
    expected = "expected class numbers (integers), 0 for the first class"
    raise BadInput("wrong-type", "labels", f"{source.what}: labels of type {source.quantities.dtype}; {expected}; {hint}.")


def _checked_labels(labels: npt.ArrayLike, count: int, classes: tuple[str, ...] | None, what: str) -> npt.NDArray[np.int64]:
    numbers = _column(labels, count, what)
    if numbers.dtype.kind not in "iu":
        message = f"{what}: labels of type {numbers.dtype}; expected class numbers (integers), 0 for the first class."
        raise BadInput("wrong-type", "labels", message)
    whole = numbers.astype(np.int64)
    limit = None if classes is None else len(classes)
    wrong = np.flatnonzero((whole < 0) | (limit is not None and whole >= limit))
    if wrong.size:
        allowed = "0 or more" if limit is None else f"0..{limit - 1}"
        message = f"{what}: label {numbers[wrong[0]]} of input {wrong[0]} is out of range; class numbers are {allowed}."
        raise BadInput("out-of-range", "labels", message)
    return whole


def check_shape(source: Source, shape: tuple[int, ...]) -> None:
    """Refuse a source whose inputs do not have the shape the target expects, and say what probably happened."""
    have = source.shape
    if have == tuple(shape):
        return
    mismatch = f"{source.what} has inputs of {shape_text(have)}, the target expects {shape_text(shape)}"
    if len(shape) == 3 and have == (*shape[1:], shape[0]):
        message = f"{mismatch}: the channels come last; write npz:FILE#x,y,nhwc or save x.transpose(0, 3, 1, 2)."
        raise BadInput("wrong-shape", "channels", message)
    if int(np.prod(have)) == int(np.prod(shape)):
        message = f"{mismatch}: as many values, arranged otherwise; save x.reshape(-1, *{tuple(shape)}) if that is meant."
        raise BadInput("wrong-shape", "order", message)
    raise BadInput("wrong-shape", "inputs", f"{mismatch}; bring inputs of that size, or correct --size.")
