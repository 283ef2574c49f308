"""Inputs that nobody would write: bytes, texts and JSON values, changed at random or replaced by what breaks readers."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

Rng = np.random.Generator
T = TypeVar("T")

CANARY = "neurotest_fuzz_canary"  # a name that no honest code has: whoever executes it is caught
PAYLOADS = (
    f"__import__('os').system('{CANARY}')",
    f"{CANARY}()",
    f"')\r{CANARY}()#",
    f'")\n{CANARY}()\n("',
    f"{{{{{CANARY}()}}}}",
    f"cos\nsystem\n(S'{CANARY}'\ntR.",
)
NUMBERS = (0, -1, 1, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 10**400)
FLOATS = (0.0, -0.0, 0.5, -1.5, 1e308, -1e308, 5e-324, float("inf"), float("-inf"), float("nan"))
WORDS = (
    "",
    " ",
    "\0",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\x1b[31m",
    "\x7f",
    "\ud800",
    "\ufeff",
    "\u202e",
    "é",
    "💥",
    "a" * 300,
    "x" * 5000,
    "..",
    "../..",
    "../../../../etc/passwd",
    "/",
    "//",
    "/etc/passwd",
    "/dev/zero",
    "/dev/stdin",
    "~",
    "~nobody-here",
    "~root/x",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "-0",
    "0x10",
    "1_000",
    "٣",
    "²",
    "9" * 30,
    "1" * 5000,
    "null",
    "true",
    "none",
    "None",
    "[]",
    "{}",
    "()",
    "[",
    "]",
    "(",
    ")",
    "'",
    '"',
    "\\",
    "`",
    "%s",
    "{0}",
    "$HOME",
    "#",
    "@",
    ":",
    ",",
    ";",
    "=",
    "|",
    "=cmd|' /C calc'!A0",
    "[:0]",
    "[::0]",
    "@0:1",
    "[1:2][3:4]",
    "(" * 30,
    "[" * 300,
    "-" * 300,
    "((((1,),),),)",
    *PAYLOADS,
)
BYTES = (
    b"",
    b"\0",
    b"\xff",
    b"\0" * 64,
    b"\xff" * 64,
    b"\x80",
    b"\xed\xa0\x80",
    b"\xff\xfe",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"\x93NUMPY",
    b"\x89PNG\r\n\x1a\n",
    b"\x1f\x8b",
    b"\x80\x04cos\nsystem\n",
    b"SQLite format 3\0",
    *(p.encode() for p in PAYLOADS),
)


def pick(rng: Rng, items: Sequence[T]) -> T:
    return items[int(rng.integers(len(items)))]


def mutate_bytes(rng: Rng, content: bytes, others: Sequence[bytes] = ()) -> bytes:
    """One to eight changes: bits, numbers, pieces moved, cut, repeated, or taken from another file."""
    out = bytearray(content)
    for _ in range(1 + int(rng.geometric(0.4))):
        if not out:
            out += pick(rng, BYTES) or b"\0"
        place = int(rng.integers(len(out) + 1))
        length = min(int(rng.geometric(0.05)), len(out))
        match int(rng.integers(9)):
            case 0:
                out[min(place, len(out) - 1)] ^= 1 << int(rng.integers(8))
            case 1:
                out[min(place, len(out) - 1)] = int(rng.integers(256))
            case 2:
                size = pick(rng, (1, 2, 4, 8))
                number = pick(rng, NUMBERS) % 2 ** (8 * size)
                out[place : place + size] = number.to_bytes(size, pick(rng, ("little", "big")))  # type: ignore[arg-type]
            case 3:
                out[place:place] = pick(rng, BYTES)
            case 4:
                del out[place : place + length]
            case 5:
                out[place:place] = out[place : place + length] * int(rng.integers(1, 4))
            case 6:
                del out[place:]
            case 7:
                out[place : place + length] = rng.bytes(length)
            case _ if others:
                other = pick(rng, others)
                start = int(rng.integers(len(other) + 1))
                out[place : place + length] = other[start : start + length]
            case _:
                out += rng.bytes(length)
    return bytes(out)


def mutate_text(rng: Rng, text: str) -> str:
    """One to four changes of a text, most of them by words that mean something to some reader."""
    for _ in range(1 + int(rng.geometric(0.5))):
        place = int(rng.integers(len(text) + 1))
        end = min(len(text), place + int(rng.geometric(0.2)))
        match int(rng.integers(6)):
            case 0 | 1:
                text = text[:place] + pick(rng, WORDS) + text[place:]
            case 2:
                text = text[:place] + pick(rng, WORDS) + text[end:]
            case 3:
                text = text[:place] + text[end:]
            case 4:
                text = text[:end] + text[place:]
            case _:
                text = text[:place] + str(pick(rng, (*NUMBERS, *FLOATS))) + text[end:]
    return text


def nasty(rng: Rng) -> Any:
    """A JSON value of another kind than the one that is expected."""
    match int(rng.integers(8)):
        case 0:
            return pick(rng, NUMBERS)
        case 1:
            return pick(rng, FLOATS)
        case 2 | 3:
            return pick(rng, WORDS)
        case 4:
            return pick(rng, (None, True, False))
        case 5:
            return pick(rng, ([], {}, [[]], [None], {"": None}, [{}], {"a": {"b": []}}, [0] * 1000))
        case 6:
            return nested(pick(rng, (3, 60, 2000)))
        case _:
            return {pick(rng, WORDS): pick(rng, WORDS)}


def nested(depth: int) -> Any:
    value: Any = 0
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def mutate_json(rng: Rng, value: Any) -> Any:
    """One to three nodes replaced, removed or doubled."""
    value = copy.deepcopy(value)
    for _ in range(1 + int(rng.geometric(0.6))):
        places = list(_places(value))
        if not places:
            return nasty(rng)
        owner, key = pick(rng, places)
        match int(rng.integers(6)):
            case 0:
                del owner[key]
            case 1 if isinstance(owner, dict):
                owner[pick(rng, WORDS)] = owner.pop(key)
            case 2 if isinstance(owner, list):
                owner[key:key] = [owner[key]] * int(rng.integers(1, 4))
            case 3 if isinstance(owner[key], str):
                owner[key] = mutate_text(rng, owner[key])
            case _:
                owner[key] = nasty(rng)
    return value


def _places(value: Any, depth: int = 0) -> Any:
    if depth > 40:
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner, depth + 1)


def dump(value: Any) -> str:
    """As JSON, whatever it is: also what JSON forbids."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError):
        return "[" * 3000 + "]" * 3000


def encode(rng: Rng, text: str) -> bytes:
    """Mostly UTF-8; now and then another encoding, a mark of it, or bytes that are none."""
    encoding = pick(rng, ("utf-8",) * 12 + ("utf-8-sig", "utf-16", "latin-1"))
    content = text.encode(encoding, "surrogatepass" if encoding.startswith("utf") else "replace")
    return mutate_bytes(rng, content) if rng.random() < 0.1 else content
