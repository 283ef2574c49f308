"""How much memory a column of a Parquet file takes, from its pages themselves: what the footer says of sizes may be untrue.

Compression and encodings make much of few bytes. The header of a page says how large it is unpacked, and pyarrow unpacks no more.
A dictionary repeats a cell without storing it again. Lists repeat values by runs: their levels say how long the longest is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from neurotest.errors import BadInput
from neurotest.memory import size as size_text
from neurotest.reading import check_unpacked, on_disk

PAGE = 128 << 20  # bytes of a page that compresses well; one that does not may be as large as it is on the disk
TIMES = 4  # how often the bytes on the disk a larger page may have
CELL = 128 << 20  # bytes of a list in memory
BATCH = 64 << 20  # bytes of the rows that are read together
ROWS = 1024  # of them at most
BUFFER = 1 << 20  # bytes that pyarrow reads at once: not the whole column of a row group
PAGES, RUNS = 1 << 17, 1 << 21  # of a column in a row group: each takes time
HEADER = 1 << 20  # bytes of a page's header
FOOTER, SMALL = 1 << 24, 1 << 21  # bytes of a footer; one of so few is not looked through
ENTRIES = 1 << 20  # of lists in a footer: pyarrow makes 800 bytes of a column, which is three in the file
DEPTH = 12
LEVELS = 8  # bytes that pyarrow holds for a value of a list beside it
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 16}
DATA, INDEX, DICTIONARY, DATA_2 = range(4)  # kinds of pages
HEADERS = {DATA: 5, INDEX: 6, DICTIONARY: 7, DATA_2: 8}  # the field of a page's header that is about this kind
I32, STRUCT = 5, 12  # kinds of Thrift's fields
RLE = 3  # the encoding of levels that is in use
PADDED = (1, 2, 9)  # before this version of parquet-mr, pyarrow reads beyond the end of a column
PREFIXED = {6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}  # encodings that repeat bytes without a bound
AGAIN = "write it again, or leave it out."


class _Page(NamedTuple):
    """The header of a page, and where its content begins."""

    kind: int
    unpacked: int
    packed: int
    values: int
    encoding: int
    levels: int  # bytes of repetition levels, where they lie before everything else
    level_encodings: tuple[int, ...]  # of definition and repetition, where a header says them
    at: int

    @property
    def size(self) -> int:
        """Bytes that pyarrow holds at once: what is not compressed is as large as it is stored, whatever its header says."""
        return max(self.unpacked, self.packed)


class _Struct:
    """A structure of Thrift's compact protocol: numbers by their field, inner structures; everything else is skipped.

    Thrift itself cuts numbers that are too long, lets the last of two equal fields win and skips fields of another kind than
    it expects. What it would read differently from what is read here is refused.
    """

    def __init__(self, content: bytes) -> None:
        self.content, self.at, self.entries = content, 0, 0

    def varint(self, bits: int = 32) -> int:
        number = shift = 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            number |= (byte & 127) << shift
            shift += 7
            if number >> bits or shift > 70:
                raise ValueError(f"a number of more than {bits} bits")
            if byte < 128:
                return number

    def zigzag(self, bits: int = 32) -> int:
        number = self.varint(bits)
        return number >> 1 ^ -(number & 1)

    def read(self, depth: int = 0) -> dict[int, tuple[int, Any]]:
        """Kind and value by the number of a field."""
        fields: dict[int, tuple[int, Any]] = {}
        number = 0
        while kind := self.content[self.at]:
            self.at += 1
            number = number + (kind >> 4) if kind >> 4 else self.zigzag(16)
            if number in fields or not 0 < number < 1 << 15:
                raise ValueError(f"field {number} is there twice or cannot be")
            fields[number] = kind & 15, self.value(kind & 15, depth)
        self.at += 1
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind in (4, 5, 6):
            return self.zigzag({4: 16, 5: 32, 6: 64}[kind])
        if kind in (3, 7):
            self.at += 1 if kind == 3 else 8
        elif kind == 8:
            length = self.varint()
            self.at += length
        elif kind == STRUCT and depth < DEPTH:
            return self.read(depth + 1)
        elif kind in (9, 10) and depth < DEPTH:
            self.skip_list(depth + 1)
        else:
            raise ValueError(f"a field of kind {kind}")
        return None

    def skip_list(self, depth: int) -> None:
        head = self.content[self.at]
        self.at += 1
        count = head >> 4 if head >> 4 < 15 else self.varint()
        self.entries += count
        if self.entries > ENTRIES:
            raise ValueError(f"lists of more than {ENTRIES:,} entries")
        for _ in range(count):
            if head & 15 in (1, 2):
                self.at += 1
            else:
                self.value(head & 15, depth)


def _page(file: int, at: int) -> _Page:
    for window in (1 << 12, HEADER):
        struct = _Struct(os.pread(file, window, at))
        try:
            fields = struct.read()
            break
        except IndexError:
            if window == HEADER:
                raise ValueError("a page's header has no end") from None
    kind, unpacked, packed = (_number(fields, number) for number in (1, 2, 3))
    if kind not in HEADERS or any(number in fields for number in HEADERS.values() if number != HEADERS[kind]):
        raise ValueError(f"kind {kind} does not belong to its header")
    values = encoding = levels = 0
    level_encodings: tuple[int, ...] = ()
    if kind != INDEX:  # of which nothing is read
        about = _inner(fields, HEADERS[kind])
        values, encoding = _number(about, 1), _number(about, 4 if kind == DATA_2 else 2)
        levels = _number(about, 6) if kind == DATA_2 else 0
        level_encodings = (_number(about, 3), _number(about, 4)) if kind == DATA else ()
    page = _Page(kind, unpacked, packed, values, encoding, levels, level_encodings, at + struct.at)
    if min(unpacked, packed, values, levels) < 0 or levels > packed or struct.at > HEADER:
        raise ValueError("a page of impossible size")
    return page


def _number(fields: dict[int, tuple[int, Any]], field: int) -> int:
    kind, value = fields[field]
    if kind != I32:
        raise ValueError(f"field {field} is not a number of 32 bits")
    return int(value)


def _inner(fields: dict[int, tuple[int, Any]], field: int) -> dict[int, tuple[int, Any]]:
    kind, value = fields[field]
    if kind != STRUCT:
        raise ValueError(f"field {field} is not a structure")
    inner: dict[int, tuple[int, Any]] = value
    return inner


def check_footer(file: int, what: str) -> None:
    """Refuse a footer that is larger than one can be: pyarrow makes much of every byte in it."""
    length = os.fstat(file).st_size
    end = os.pread(file, 8, max(0, length - 8))
    size = int.from_bytes(end[:4], "little") if end[4:] == b"PAR1" else 0  # pyarrow says what it is instead
    if size > min(FOOTER, length):
        message = f"{what}: its footer has {size:,} bytes, at most {min(FOOTER, length):,} are read: {AGAIN}"
        raise BadInput("too-large", "footer", message)
    if size > SMALL:
        try:
            _Struct(os.pread(file, size, length - 8 - size)).read()
        except (ValueError, IndexError) as error:
            raise BadInput("damaged", "footer", f"{what}: its footer cannot be read ({error}): {AGAIN}") from None


def check_rows(file: int, metadata: Any, what: str) -> None:
    """Refuse more rows than a file of this size can hold: each has an input of its own, unless encodings repeat one."""
    groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    rows, stored = metadata.num_rows, on_disk(file)
    if min(groups, default=0) < 0 or sum(groups) != rows:
        raise BadInput("damaged", "rows", f"{what} promises {rows:,} rows, its row groups {sum(groups):,}: {AGAIN}")
    if rows > max(1 << 20, stored):
        message = f"{what} promises {rows:,} rows in {size_text(stored)} on the disk: equal rows are stored once; {AGAIN}"
        raise BadInput("too-large", "rows", message)


def check_writer(created_by: str | None, what: str) -> None:
    """Refuse files of parquet-mr before 1.2.9: pyarrow reads on behind the end of their columns, where nobody has looked."""
    name = (created_by or "").lower()
    version = re.match(r"\s*parquet-mr version (\d{1,4})\.(\d{1,4})\.(\d{1,4})(?!\d)", name)
    if "parquet-mr" in name and (version is None or tuple(map(int, version.groups())) < PADDED):
        least = ".".join(map(str, PADDED))
        message = f"{what} was written by parquet-mr before {least} (or does not say its version): {AGAIN}"
        raise BadInput("unsupported", "writer", message)


def rows_at_once(file: int, metadata: Any, group: int, column: str, fixed: int, what: str) -> int:
    """Rows of a column that may be read together. fixed: bytes that its type gives every row, empty or not.

    Columns are found by the schema, as pyarrow finds them: what a row group says of their names and types may be untrue.
    """
    schemas = [metadata.schema.column(number) for number in range(len(metadata.schema))]
    leaves = [n for n, schema in enumerate(schemas) if schema.path == column or schema.path.startswith(f"{column}.")]
    budget = BATCH // max(1, len(leaves))
    rows = max(1, min(ROWS, budget // max(1, fixed)))
    cell = fixed
    for number in leaves:
        leaf = metadata.row_group(group).column(number)
        leaf_cell, leaf_rows = _leaf(file, leaf, schemas[number], budget, f"{what}, column {column}")
        rows, cell = min(rows, leaf_rows), cell + leaf_cell
    if cell > CELL:
        message = f"{what}, column {column}: a row takes {size_text(cell)}, at most {size_text(CELL)} are read: {AGAIN}"
        raise BadInput("too-large", "row", message)
    return rows


def _leaf(file: int, leaf: Any, schema: Any, budget: int, what: str) -> tuple[int, int]:
    """What a column of a row group may cost: bytes of one row at most, and rows that may be read together."""
    pages = _pages(file, leaf, what)
    text = schema.physical_type == "BYTE_ARRAY"
    width = schema.length if schema.physical_type == "FIXED_LEN_BYTE_ARRAY" else WIDTHS[schema.physical_type]
    rows, stored = max(1, min(ROWS, budget // max(1, width))), on_disk(file)
    for page in pages:
        _check_encodings(page, schema, what)
        check_unpacked(f"{what}, a page", page.size, min(page.packed, stored), always=PAGE, times=TIMES)
        if text and page.kind == DICTIONARY:  # every row may be the largest cell in it
            width, rows = width + page.size, max(1, min(rows, budget // max(1, page.size)))
        elif text and page.size:
            rows = max(1, min(rows, page.values * budget // page.size))
    if not schema.max_repetition_level:
        return 0 if text else width, rows
    width += LEVELS * schema.max_repetition_level  # each list in a list has offsets of its own
    longest = sum(page.values for page in pages)
    if longest * width > budget:
        longest = _longest(file, leaf, pages, schema.max_repetition_level, what)
    cell = longest * width
    return cell, max(1, min(rows, budget // max(1, cell)))


def _check_encodings(page: _Page, schema: Any, what: str) -> None:
    if page.encoding in PREFIXED and schema.physical_type.endswith("BYTE_ARRAY"):
        name = PREFIXED[page.encoding]
        message = f"{what} is encoded as {name}, which is not read: write it again with the usual encodings (plain)."
        raise BadInput("unsupported", "encoding", message)
    depths = (schema.max_definition_level, schema.max_repetition_level)
    if any(depth and encoding != RLE for depth, encoding in zip(depths, page.level_encodings, strict=False)):
        message = f"{what} has levels in an encoding that is out of use (only RLE is read): {AGAIN}"
        raise BadInput("unsupported", "levels", message)


def _pages(file: int, leaf: Any, what: str) -> list[_Page]:
    """The headers of all pages, found as pyarrow finds them."""
    at = leaf.data_page_offset
    if leaf.has_dictionary_page and 0 < leaf.dictionary_page_offset < at:
        at = leaf.dictionary_page_offset
    end = at + leaf.total_compressed_size
    if not 0 <= at <= end <= os.fstat(file).st_size:
        raise BadInput("damaged", "column", f"{what} lies beyond the end of the file: {AGAIN}")
    pages: list[_Page] = []
    while at < end:
        try:
            page = _page(file, at)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise BadInput("damaged", "page", f"{what} has a page that cannot be read ({error}): {AGAIN}") from None
        pages.append(page)
        at = page.at + page.packed
        if at > end:
            raise BadInput("damaged", "page", f"{what} has a page that ends behind its column: {AGAIN}")
        if len(pages) > PAGES:
            message = f"{what} has more than {PAGES:,} pages in a row group: write it again with larger pages."
            raise BadInput("too-large", "pages", message)
    return pages


def _longest(file: int, leaf: Any, pages: list[_Page], most: int, what: str) -> int:
    """How many values the longest list has: those from one repetition level of 0 to the next."""
    longest = open_row = runs = 0
    for page in pages:
        if page.kind not in (DATA, DATA_2):
            continue
        left = page.values
        for level, count in _runs(_levels(file, page, leaf.compression.lower(), what), most.bit_length(), what):
            runs += 1
            if runs > RUNS:
                message = f"{what} has more than {RUNS:,} runs of levels in a row group: write smaller row groups."
                raise BadInput("too-large", "levels", message)
            if isinstance(level, int):
                open_row = 1 if level == 0 else open_row + min(count, left)
                longest = max(longest, open_row)
            else:
                starts = np.flatnonzero(level[:left] == 0)
                if len(starts):
                    longest = max(longest, open_row + int(starts[0]), int(np.diff(starts).max(initial=0)))
                    open_row = len(level[:left]) - int(starts[-1])
                else:
                    open_row += len(level[:left])
                longest = max(longest, open_row)
            left -= count
            if left <= 0:
                break
        if left > 0:
            raise BadInput("damaged", "levels", f"{what} has fewer levels than values: {AGAIN}")
    return longest


def _levels(file: int, page: _Page, codec: str, what: str) -> bytes:
    """The repetition levels of a page, as they are encoded."""
    import pyarrow as pa

    if page.kind == DATA_2:
        return os.pread(file, page.levels, page.at)
    content = os.pread(file, page.packed, page.at)
    if codec != "uncompressed":
        content = pa.Codec({"lz4": "lz4_raw"}.get(codec, codec)).decompress(content, page.unpacked, asbytes=True)
    length = int.from_bytes(content[:4], "little")
    if length > len(content) - 4:
        raise BadInput("damaged", "levels", f"{what} has levels that end behind their page: {AGAIN}")
    return content[4 : 4 + length]


def _runs(content: bytes, bits: int, what: str) -> Iterator[tuple[Any, int]]:
    """(level, count) of runs, (levels, count) of what is packed: the hybrid that levels are written in."""
    reader = _Struct(content)
    while reader.at < len(content):
        try:
            head = reader.varint()
        except (ValueError, IndexError):
            head = 0
        if head < 2:  # pyarrow may take what follows for something else
            raise BadInput("damaged", "levels", f"{what} has a run of levels without a length: {AGAIN}")
        if head & 1:
            size = (head >> 1) * bits
            packed = np.frombuffer(content[reader.at : reader.at + size], np.uint8)
            values = np.unpackbits(packed, bitorder="little")[: len(packed) * 8 // bits * bits].reshape(-1, bits)
            yield values.any(axis=1).astype(np.uint8), len(values)
            reader.at += size
        else:
            level = content[reader.at : reader.at + (bits + 7) // 8]
            yield int(any(level)), head >> 1
            reader.at += (bits + 7) // 8
