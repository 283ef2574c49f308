"""How much memory a column of a Parquet file takes, from its pages themselves: what the footer says of sizes may be untrue.

Compression and encodings make much of few bytes. The header of a page says how large it is unpacked, and pyarrow unpacks no more.
A dictionary repeats a cell without storing it again. Lists repeat values by runs: their levels say how long the longest is.
"""

from __future__ import annotations

import os
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
PREFIXED = {6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}  # encodings that repeat bytes without a bound
AGAIN = "write it again, or leave it out."


class Page(NamedTuple):
    """The header of a page, and where its content begins."""

    kind: int
    unpacked: int
    packed: int
    values: int
    encoding: int
    levels: int  # bytes of repetition levels, where they lie before everything else
    compressed: bool
    at: int


class _Struct:
    """A structure of Thrift's compact protocol: numbers by their field, inner structures; everything else is skipped."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at, self.entries = content, 0, 0

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number
            if shift > 63:
                raise ValueError("a number without an end")

    def zigzag(self) -> int:
        number = self.varint()
        return number >> 1 ^ -(number & 1)

    def read(self, depth: int = 0) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while kind := self.content[self.at]:
            self.at += 1
            number = number + (kind >> 4) if kind >> 4 else self.zigzag()
            fields[number] = self.value(kind & 15, depth)
        self.at += 1
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind in (4, 5, 6):
            return self.zigzag()
        if kind in (3, 7):
            self.at += 1 if kind == 3 else 8
        elif kind == 8:
            length = self.varint()
            self.at += length
        elif kind == 12 and depth < DEPTH:
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


def _page(file: int, at: int) -> Page:
    for window in (1 << 12, HEADER):
        struct = _Struct(os.pread(file, window, at))
        try:
            fields = struct.read()
            break
        except IndexError:
            if window == HEADER:
                raise ValueError("a page's header has no end") from None
    first, second, words = (_inner(fields, number) for number in (5, 8, 7))
    about = second or first or words
    numbers = [fields[1], fields[2], fields[3], about.get(1, 0), about.get(4 if second else 2, 0), second.get(6, 0)]
    if any(not isinstance(number, int) for number in numbers):
        raise ValueError("a field that is not a number")
    page = Page(*[*numbers, second.get(7, True), at + struct.at])
    if min(page.unpacked, page.packed, page.values, page.levels) < 0 or struct.at > HEADER:
        raise ValueError("a page of negative size")
    return page


def _inner(fields: dict[int, Any], number: int) -> dict[int, Any]:
    value = fields.get(number, {})
    if not isinstance(value, dict):
        raise ValueError(f"field {number} is not a structure")
    return value


class Bound(NamedTuple):
    """What a column of a row group may cost. cell: bytes of one row at most; rows: that may be read together."""

    cell: int
    rows: int


def check_footer(file: int, what: str) -> None:
    """Refuse a footer that is larger than one can be: pyarrow makes much of every byte in it."""
    length = os.fstat(file).st_size
    end = os.pread(file, 8, max(0, length - 8))
    size = int.from_bytes(end[:4], "little") if end[4:] == b"PAR1" else 0  # pyarrow says what it is instead
    if size > min(FOOTER, length):
        raise BadInput(f"{what}: its footer has {size:,} bytes, at most {min(FOOTER, length):,} are read: {AGAIN}")
    if size > SMALL:
        try:
            _Struct(os.pread(file, size, length - 8 - size)).read()
        except (ValueError, IndexError) as error:
            raise BadInput(f"{what}: its footer cannot be read ({error}): {AGAIN}") from None


def check_rows(file: int, metadata: Any, what: str) -> None:
    """Refuse more rows than a file of this size can hold: each has an input of its own, unless encodings repeat one."""
    rows, stored = metadata.num_rows, on_disk(file)
    if rows > max(1 << 20, stored):
        raise BadInput(f"{what} promises {rows:,} rows in {size_text(stored)} on the disk: equal rows are stored once; {AGAIN}")


def rows_at_once(file: int, metadata: Any, group: int, column: str, fixed: int, what: str) -> int:
    """Rows of a column that may be read together. fixed: bytes that its type gives every row, empty or not."""
    rows = max(1, min(ROWS, BATCH // max(1, fixed)))
    cell = fixed
    part = metadata.row_group(group)
    for number in range(part.num_columns):
        leaf = part.column(number)
        if leaf.path_in_schema == column or leaf.path_in_schema.startswith(f"{column}."):
            one = _leaf(file, leaf, metadata.schema.column(number), f"{what}, column {column}")
            rows, cell = min(rows, one.rows), cell + one.cell
    if cell > CELL:
        raise BadInput(f"{what}, column {column}: a row takes {size_text(cell)}, at most {size_text(CELL)} are read: {AGAIN}")
    return rows


def _leaf(file: int, leaf: Any, schema: Any, what: str) -> Bound:
    pages = _pages(file, leaf, what)
    text = leaf.physical_type == "BYTE_ARRAY"
    width = schema.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else WIDTHS[leaf.physical_type]
    rows, stored = max(1, min(ROWS, BATCH // max(1, width))), on_disk(file)
    for page in pages:
        if page.encoding in PREFIXED and leaf.physical_type.endswith("BYTE_ARRAY"):
            name = PREFIXED[page.encoding]
            raise BadInput(f"{what} is encoded as {name}, which is not read: write it again with the usual encodings (plain).")
        check_unpacked(f"{what}, a page", page.unpacked, min(page.packed, stored), always=PAGE, times=TIMES)
        if text and page.kind == DICTIONARY:  # every row may be the largest cell in it
            width, rows = width + page.unpacked, max(1, min(rows, BATCH // max(1, page.unpacked)))
        elif text and page.unpacked:
            rows = max(1, min(rows, page.values * BATCH // page.unpacked))
    if not schema.max_repetition_level:
        return Bound(0 if text else width, rows)
    longest = sum(page.values for page in pages)
    if longest * (width + LEVELS) > BATCH:
        longest = _longest(file, leaf, pages, schema.max_repetition_level, what)
    cell = longest * (width + LEVELS)
    return Bound(cell, max(1, min(rows, BATCH // max(1, cell))))


def _pages(file: int, leaf: Any, what: str) -> list[Page]:
    """The headers of all pages, found as pyarrow finds them."""
    at = leaf.data_page_offset
    if leaf.has_dictionary_page and 0 < leaf.dictionary_page_offset < at:
        at = leaf.dictionary_page_offset
    end = at + leaf.total_compressed_size
    if not 0 <= at <= end <= os.fstat(file).st_size:
        raise BadInput(f"{what} lies beyond the end of the file: {AGAIN}")
    pages: list[Page] = []
    while at < end:
        try:
            page = _page(file, at)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise BadInput(f"{what} has a page that cannot be read ({error}): {AGAIN}") from None
        pages.append(page)
        at = page.at + page.packed
        if len(pages) > PAGES:
            raise BadInput(f"{what} has more than {PAGES:,} pages in a row group: write it again with larger pages.")
    return pages


def _longest(file: int, leaf: Any, pages: list[Page], most: int, what: str) -> int:
    """How many values the longest list has: those from one repetition level of 0 to the next."""
    import pyarrow as pa

    name = leaf.compression.lower()
    longest = open_row = runs = 0
    for page in pages:
        if page.kind not in (DATA, DATA_2):
            continue
        content = os.pread(file, page.levels if page.kind == DATA_2 else page.packed, page.at)
        if page.kind == DATA:
            if name != "uncompressed":
                codec = {"lz4": "lz4_raw"}.get(name, name)
                content = pa.Codec(codec).decompress(content, page.unpacked, asbytes=True)
            content = content[4 : 4 + int.from_bytes(content[:4], "little")]
        left = page.values
        for level, count in _runs(content, most.bit_length()):
            runs += 1
            if runs > RUNS:
                raise BadInput(f"{what} has more than {RUNS:,} runs of levels in a row group: write smaller row groups.")
            if left <= 0:
                break
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
    return longest


def _runs(content: bytes, bits: int) -> Any:
    """(level, count) of runs, (levels, count) of what is packed: the hybrid that levels are written in."""
    reader = _Struct(content)
    while reader.at < len(content):
        head = reader.varint()
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
