"""Structures of Thrift's compact protocol, read and written with their kinds: what is in a Parquet file can be changed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
Fields = list[list[Any]]  # [number, kind, value] of each field, as they lie in the file
Change = Callable[[Fields, bytes], tuple[Fields, bytes]]


class Raw(bytes):
    """A number in bytes that no writer would give it."""


def varint(number: int, length: int = 0) -> bytes:
    """As Thrift writes it, or in more bytes."""
    out = bytearray()
    while number > 127 or len(out) + 1 < length:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


class Reader:
    def __init__(self, content: bytes, at: int = 0) -> None:
        self.content, self.at = content, at

    def bytes(self, count: int) -> bytes:
        self.at += count
        return self.content[self.at - count : self.at]

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.bytes(1)[0]
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    def zigzag(self) -> int:
        number = self.varint()
        return number >> 1 ^ -(number & 1)

    def fields(self) -> Fields:
        fields: Fields = []
        number = 0
        while head := self.bytes(1)[0]:
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            fields.append([number, head & 15, self.value(head & 15)])
        return fields

    def value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return None
        if kind in (I16, I32, I64):
            return self.zigzag()
        if kind in (BYTE, DOUBLE):
            return Raw(self.bytes(1 if kind == BYTE else 8))
        if kind == BINARY:
            return self.bytes(self.varint())
        if kind == STRUCT:
            return self.fields()
        head = self.bytes(1)[0]
        count = head >> 4 if head >> 4 < 15 else self.varint()
        return [head & 15, [Raw(self.bytes(1)) if head & 15 in (TRUE, FALSE) else self.value(head & 15) for _ in range(count)]]


def written(fields: Fields) -> bytes:
    out, last = b"", 0
    for number, kind, value in fields:
        step = number - last
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + varint(number << 1)
        out += _value(kind, value)
        last = number
    return out + b"\x00"


def _value(kind: int, value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, Raw):
        return bytes(value)
    if kind in (I16, I32, I64):
        return varint(value << 1 if value >= 0 else -value * 2 - 1)
    if kind == BINARY:
        return varint(len(value)) + bytes(value)
    if kind == STRUCT:
        return written(value)
    inner, values = value
    head = bytes([len(values) << 4 | inner]) if len(values) < 15 else bytes([0xF0 | inner]) + varint(len(values))
    return head + b"".join(_value(inner, one) for one in values)


def find(fields: Fields, number: int, kind: int = 0, new: Any = None) -> Any:
    """The value of a field, and a new one in its place if there is one."""
    field = next((field for field in fields if field[0] == number), None)
    if field is None:
        assert new is not None
        field = [number, kind, None]
        fields.append(field)
        fields.sort(key=lambda field: field[0])
    if new is not None:
        field[2] = new
    return field[2]


class File:
    """A Parquet file of one row group in parts: content before the footer, and the footer."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        size = struct.unpack("<I", content[-8:-4])[0]
        self.path, self.body = path, content[: -8 - size]
        self.footer = Reader(content[-8 - size : -8]).fields()

    @property
    def group(self) -> Fields:
        group: Fields = find(self.footer, 4)[1][0]
        return group

    def column(self, number: int = 0) -> Fields:
        """What the footer says of a column: 1 its type, 4 its codec, 7 its bytes, 9 and 11 where its pages begin."""
        column: Fields = find(find(self.group, 1)[1][number], 3)
        return column

    def pages(self, change: Change) -> File:
        """Every page of the only column: its header and its content."""
        about = self.column()
        start = at = min(field[2] for field in about if field[0] in (9, 11))
        end, out, data = at + find(about, 7), self.body[:at], 0
        while at < end:
            reader = Reader(self.body, at)
            header = reader.fields()
            content = reader.bytes(find(header, 3))
            at = reader.at
            if find(header, 1) != 2 and not data:
                data = len(out)
            header, content = change(header, content)
            out += written(header) + content
        find(about, 7, new=len(out) - start)
        find(about, 9, new=data)
        self.body = out
        return self

    def save(self) -> None:
        footer = written(self.footer)
        self.path.write_bytes(self.body + footer + struct.pack("<I", len(footer)) + b"PAR1")
