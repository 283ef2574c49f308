"""Rows of Parquet files: `parquet:FILE_OR_FOLDER`, `parquet:GLOB#image,label,id`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neurotest import registry
from neurotest.data import pages
from neurotest.data.objects import INPUT_KEYS, LABEL_KEYS
from neurotest.data.pages import AGAIN
from neurotest.data.records import Content, Format, Ints, RecordSource, find_files
from neurotest.data.source import Array, Source, Wanted, as_inputs, number_classes
from neurotest.data.spec import split_names
from neurotest.errors import BadInput, near
from neurotest.reading import check_unpacked, on_disk, reading, resolved

ID_KEYS = ("id", "key", "__key__", "image_id", "file_name", "filename")
KIND = "a Parquet file"
LONGEST_TEXT = 4096  # characters of a label or an id
TEXT = 128 << 20  # bytes of all that are different; more only if they are many on the disk
LONGEST_TYPE = 80  # characters of a type in a sentence


@registry.register("data source", "parquet", paper="", cost="rows are read when they are needed; 24 bytes in memory for each")
def _open_parquet(rest: str, wanted: Wanted) -> Source:
    """Rows of Parquet files: `parquet:FILE`, a folder or a pattern, `#image,label,id` names the columns. Inputs are encoded
    images (bytes, or the image feature of Hugging Face), lists of numbers, or tensors."""
    where, columns = split_names(rest, "parquet")
    files = find_files(where, ".parquet", "parquet")
    table = _Table(files, f"parquet:{where}")
    image, label, key = _choose(table.names, columns, f"parquet:{where}")
    count = table.rows if wanted.first is None else min(table.rows, wanted.first)
    if not count:
        raise BadInput("empty", "data", f"parquet:{where} has no rows; there is nothing to test.")
    ((_, values),) = table.read(image, np.arange(1))
    first = _content(values[0], f"parquet:{where}, column {image}")
    form = Format.of(first, wanted, f"parquet:{where}, row 0")
    labels, classes = (None, None) if label is None else _labels(table, label, count, f"parquet:{where}")
    return ParquetSource(table, image, key, count, form, labels, spec=f"parquet:{rest}", classes=classes)


def _choose(names: list[str], columns: list[str], what: str) -> tuple[str, str | None, str | None]:
    """The columns of inputs, labels and ids: those that are named, or those that are called so."""
    if len(columns) > 3:
        raise BadInput("syntax", "data", f"{what}#{','.join(columns)}: expected #image, #image,label or #image,label,id.")
    for column in columns:
        if column not in names:
            raise BadInput("unknown-name", "column", f"{what} has no column {column!r}. {near(column, names)}")
    if columns:
        return columns[0], columns[1] if len(columns) > 1 else None, columns[2] if len(columns) > 2 else _known(names, ID_KEYS)
    image = _known(names, INPUT_KEYS)
    if image is None:
        message = f"{what} has no image column, only {', '.join(names)}: name it, parquet:FILE#IMAGE,LABEL"
        raise BadInput("not-found", "image", message)
    return image, _known(names, LABEL_KEYS), _known([name for name in names if name != image], ID_KEYS)


def _known(names: Sequence[str], keys: Sequence[str]) -> str | None:
    return next((key for key in keys if key in names), None)


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise BadInput("not-installed", "pyarrow", "Parquet files need pyarrow: pip install 'neurotest[data]'.") from error
    return pyarrow.parquet


class _Table:
    """The rows of all files, found by their number. What is open is not part of a copy, and does not travel."""

    def __init__(self, files: Sequence[Path], what: str) -> None:
        self.files, self.what = [str(resolved(file)) for file in files], what
        self.groups: list[tuple[int, int]] = []  # file and row group of each part
        counts, schema = [0], None
        for number, file in enumerate(files):
            with _opened(file, f"{what} ({file.name})", first=True) as (opened, handle):
                metadata = opened.metadata
                pages.check_writer(metadata.created_by, f"{what} ({file.name})")
                pages.check_rows(handle, metadata, f"{what} ({file.name})")
                names = opened.schema_arrow.names
                if schema is None:
                    schema, self.names, self.about = opened.schema_arrow, names, opened.schema_arrow.metadata or {}
                elif names != self.names:
                    message = f"{what}: {file.name} has other columns than {files[0].name}: keep them apart."
                    raise BadInput("conflict", "columns", message)
                for group in range(metadata.num_row_groups):
                    self.groups.append((number, group))
                    counts.append(metadata.row_group(group).num_rows)
        self.starts: Ints = np.cumsum(counts)
        self._rows: dict[tuple[int, str], tuple[int, str]] = {}  # that may be read at once, and what of the column is read
        self._cursors: dict[str, _Cursor] = {}
        self._lock = threading.Lock()  # a pass reads ahead in a thread, and cursors are shared by all copies of a source

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_cursors", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _cursors={}, _lock=threading.Lock())

    def read(self, column: str, numbers: Ints) -> Iterator[tuple[Ints, Any]]:
        """The values of a column as arrow has them, a bounded number of bytes at a time: places among the numbers, and values."""
        import pyarrow as pa

        order = np.argsort(numbers, kind="stable")
        done = 0
        while done < len(order):
            with self._lock:
                cursor = self._cursors.setdefault(column, _Cursor(self, column))
                start, chunk = cursor.at(int(numbers[order[done]]))
            here = int(np.searchsorted(numbers[order], start + len(chunk)))
            yield order[done:here], chunk.take(pa.array(numbers[order[done:here]] - start))
            done = here

    def column(self, column: str, count: int) -> Iterator[Any]:
        """The first rows of a column, in chunks."""
        done = 0
        for number in range(len(self.groups)):
            for chunk in self.chunks(number, column):
                if done >= count:
                    return
                yield chunk[: count - done]
                done += len(chunk)

    def chunks(self, number: int, column: str) -> Iterator[Any]:
        file, group = self.groups[number]
        where = f"{self.what} ({Path(self.files[file]).name})"
        with _opened(self.files[file], where) as (opened, handle):
            if (number, column) not in self._rows:
                part, kind = _part(column, opened.schema_arrow.field(column).type, f"{self.what}, column {column}")
                if any(f"{part}.".startswith(f"{name}.") for name in self.names if name != column):
                    message = f"{self.what} has two columns that are called {part} (one in a structure): rename one."
                    raise BadInput("duplicate", "column", message)
                rows = pages.rows_at_once(handle, opened.metadata, group, part, _fixed(kind), where)
                self._rows[number, column] = rows, part
            rows, part = self._rows[number, column]
            for batch in opened.iter_batches(rows, row_groups=[group], columns=[part], use_threads=False):
                yield batch.column(0)


@contextmanager
def _opened(file: str | Path, what: str, *, first: bool = False) -> Iterator[tuple[Any, int]]:
    """A file and its handle. What goes wrong is one sentence. first: its footer was not looked at before."""
    with reading(what, KIND, hint=AGAIN), open(file, "rb") as stream:
        if first:
            pages.check_footer(stream.fileno(), what)
        with _pyarrow().ParquetFile(file, buffer_size=pages.BUFFER) as opened:
            yield opened, stream.fileno()


def _part(column: str, kind: Any, what: str) -> tuple[str, Any]:
    """What is read of a column, and its type. Of a structure it is only the bytes: others may be as large, and are not used."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        if names.count("bytes") != 1:
            message = f"{what} names files instead of holding them ({', '.join(names)}): embed the bytes of the images."
            raise BadInput("unsupported", "files", message)
        column, kind = f"{column}.bytes", kind.field("bytes").type
    inner = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    while _is_list(inner):
        inner = inner.value_type
    if _is_list(kind) and not pa.types.is_primitive(inner):  # cells of text in lists have no bound
        raise BadInput("wrong-type", "lists", f"{what} holds lists of {_short(inner)}: expected numbers.")
    if pa.types.is_nested(inner):
        message = f"{what} holds {_short(kind)}: expected images as bytes, lists of numbers, or tensors."
        raise BadInput("wrong-type", "column", message)
    return column, kind


def _short(kind: Any) -> str:
    """A type in words that fit into a sentence: a structure may have thousands of fields."""
    words = str(kind)
    return words if len(words) <= LONGEST_TYPE else words[:LONGEST_TYPE] + "..."


def _fixed(kind: Any) -> int:
    """Bytes that every row takes because its type says so, whether or not anything is stored."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _fixed(kind.storage_type)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _fixed(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(_fixed(kind.field(i).type) for i in range(kind.num_fields))
    try:
        return int(kind.bit_width + 7) // 8
    except ValueError:  # no fixed width
        return 1


class _Cursor:
    """A place in a column. Going on is cheap, going back begins the row group again."""

    def __init__(self, table: _Table, column: str) -> None:
        self.table, self.column = table, column
        self.group, self.start = -1, 0
        self.chunk: Any = None
        self.left: Iterator[Any] = iter(())

    def at(self, number: int) -> tuple[int, Any]:
        """Rows around this one, and the number of the first."""
        group = int(np.searchsorted(self.table.starts, number, side="right")) - 1
        if group != self.group or number < self.start:
            self.group, self.start, self.chunk = group, int(self.table.starts[group]), None
            self.left = self.table.chunks(group, self.column)
        while self.chunk is None or number >= self.start + len(self.chunk):
            if self.chunk is not None:
                self.start += len(self.chunk)
            self.chunk = next(self.left, None)
            if self.chunk is None:
                raise BadInput("damaged", "rows", f"{self.table.what} has fewer rows than it promises: {AGAIN}")
        return self.start, self.chunk


class ParquetSource(RecordSource):
    """Rows of Parquet files."""

    def __init__(
        self, table: _Table, image: str, key: str | None, count: int, form: Format, labels: npt.ArrayLike | None, **about: Any
    ) -> None:
        super().__init__(count, form, labels, **about)
        self._table, self._image, self._key = table, image, key

    def fetch(self, numbers: Ints) -> Iterator[tuple[int, Content]]:
        what = f"{self.what}, column {self._image}"
        for places, values in self._table.read(self._image, numbers):
            for place, value in zip(places, values, strict=True):
                yield int(place), _content(value, what)

    def _rows(self, index: Ints) -> Array:
        """Numbers all at once where they are even; what is not is looked at row by row, and named."""
        if self._form.preprocess is not None or not len(index):
            return super()._rows(index)
        rows = np.empty((len(index), *self.shape), self.dtype)
        for places, part in self._table.read(self._image, self._at[index]):
            values = _together(part)
            if values is None or values[0].size != int(np.prod(self.shape)) or values.dtype != self.dtype:
                return super()._rows(index)
            rows[places] = values.reshape(len(places), *self.shape)
        return as_inputs(rows, self.what)

    def record_names(self, numbers: Ints) -> list[str]:
        if self._key is None:
            return [f"row {number}" for number in numbers]
        texts, found = _Texts(self._table, f"{self.what}, column {self._key}"), np.empty(len(numbers), np.int64)
        for places, part in self._table.read(self._key, numbers):
            found[places] = texts.numbers(part)
        names = list(texts.known)
        return [names[number] for number in found]

    def keys(self, index: npt.ArrayLike) -> list[str]:
        return super().keys(index) if self._key is not None else Source.keys(self, index)


def _together(column: Any) -> Array | None:
    """Lists or tensors of one size as one array of 8 bits or floating point; None where they are not even."""
    import pyarrow as pa

    if column.null_count:
        return None
    try:
        tensors = isinstance(column.type, pa.FixedShapeTensorType)
        values = _eight_bit(np.asarray(column.to_numpy_ndarray())) if tensors else _stacked(column, "")
    except BadInput:
        return None
    values = values if values.dtype.kind in "iu" else values.astype(np.float32)
    return values if values.dtype in (np.uint8, np.float32) and np.isfinite(values).all() else None


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _check_text(column: Any, what: str) -> None:
    """Refuse labels and ids that are longer than any: one in a dictionary may stand in every row."""
    import pyarrow as pa
    from pyarrow import compute

    kind = column.type
    texts = column.dictionary if pa.types.is_dictionary(kind) else column
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    longest = compute.max(compute.binary_length(texts)).as_py() if any(test(texts.type) for test in kinds) else 0
    if (longest or 0) > LONGEST_TEXT:
        message = f"{what} holds a text of {longest:,} bytes; labels and ids have at most {LONGEST_TEXT:,}: shorten them."
        raise BadInput("too-large", "text", message)


def _content(scalar: Any, what: str) -> Content:
    """Bytes of an image, or values."""
    import pyarrow as pa

    kind = scalar.type
    if not scalar.is_valid:
        raise BadInput("empty", "row", f"{what} holds an empty row: fill or drop it.")
    if isinstance(kind, pa.FixedShapeTensorType):
        return np.asarray(scalar.to_numpy())
    if pa.types.is_struct(kind):  # {"bytes": ..., "path": ...}, the image feature of Hugging Face
        names = [kind.field(i).name for i in range(kind.num_fields)]
        if "bytes" not in names or not scalar["bytes"].is_valid:
            message = f"{what} names files instead of holding them ({', '.join(names)}): embed the bytes of the images."
            raise BadInput("unsupported", "files", message)
        scalar = scalar["bytes"]
        kind = scalar.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes(scalar.as_py())
    if _is_list(kind):
        return _stacked(scalar.values, what)
    raise BadInput("wrong-type", "column", f"{what} holds {kind}: expected images as bytes, lists of numbers, or tensors.")


def _stacked(values: Any, what: str) -> Array:
    """Numbers in nested lists as an array."""
    import pyarrow as pa

    shape = [len(values)]
    while _is_list(values.type):
        inner = values.flatten()
        if not len(values) or not _even(values):
            raise BadInput("wrong-shape", "lists", f"{what} holds ragged lists: every input needs rows of one length.")
        shape.append(len(inner) // len(values))
        values = inner
    if values.null_count or not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        message = f"{what} holds lists of {values.type}{' with gaps' if values.null_count else ''}: expected numbers."
        raise BadInput("wrong-type", "lists", message)
    return _eight_bit(values.to_numpy(zero_copy_only=False).reshape(shape))


def _even(values: Any) -> bool:
    lengths = np.asarray(values.value_lengths())
    return not values.null_count and bool((lengths == lengths[0]).all())


def _eight_bit(array: Array) -> Array:
    """Integers of any width as 8 bits, where they are; Python's lists of pixels come as 64."""
    fits = array.dtype.kind in "iu" and array.size and array.min() >= 0 and array.max() <= 255
    return array.astype(np.uint8, copy=False) if fits else array


def _labels(table: _Table, column: str, count: int, what: str) -> tuple[Array, tuple[str, ...] | None]:
    """Class numbers and, where they are known, names."""
    import pyarrow as pa

    texts, parts = _Texts(table, f"{what}, column {column}"), []
    for part in table.column(column, count):
        kind = part.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
        if part.null_count:
            message = f"{what}: the column {column} has gaps: every row needs a label, or leave the column out."
            raise BadInput("missing", "labels", message)
        if not (text or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            message = f"{what}: the column {column} holds {_short(kind)}: labels are class numbers or class names."
            raise BadInput("wrong-type", "labels", message)
        parts.append(texts.numbers(part) if text else part.to_numpy(zero_copy_only=False))
        if bool(texts.known) != text:
            message = f"{what}: the column {column} holds names in one file and numbers in another: keep them apart."
            raise BadInput("conflict", "labels", message)
    numbers = np.concatenate(parts)
    if not texts.known:
        return numbers, _hugging_face(table.about, column)
    order, names = number_classes(list(texts.known))
    return order[numbers], names


class _Texts:
    """Labels or ids, each of them once: a dictionary may repeat a long one in every row."""

    def __init__(self, table: _Table, what: str) -> None:
        self.what, self.known, self.size = what, dict[str, int](), 0
        self.stored = sum(on_disk(file) for file in table.files)

    def numbers(self, column: Any) -> Ints:
        """The number of each row's text among those that are known, or become so."""
        import pyarrow as pa

        _check_text(column, self.what)
        if pa.types.is_nested(column.type) and not pa.types.is_dictionary(column.type):
            message = f"{self.what} holds {_short(column.type)}: labels and ids are text or numbers."
            raise BadInput("wrong-type", "column", message)
        with reading(self.what, KIND, hint=AGAIN):
            coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            indices = coded.indices.cast(pa.int64()).fill_null(-1).to_numpy()
            used, places = np.unique(indices, return_inverse=True)
            full = used[used >= 0]
            values = coded.dictionary.take(pa.array(full)).to_pylist()  # of a large dictionary only what is in use
        values = [None] * (len(used) - len(full)) + values
        return np.array([self._number(str(value)) for value in values], np.int64)[places]

    def _number(self, text: str) -> int:
        number = self.known.setdefault(text, len(self.known))
        if number == len(self.known) - 1:
            self.size += len(text)
            if self.size > TEXT:
                check_unpacked(f"{self.what}, its text", self.size, self.stored, always=TEXT, times=pages.TIMES)
        return number


def _hugging_face(about: dict[bytes, bytes], column: str) -> tuple[str, ...] | None:
    """Class names as `datasets` writes them into the file."""
    try:
        names = json.loads(about[b"huggingface"])["info"]["features"][column]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    usable = isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    return tuple(names) if usable else None
