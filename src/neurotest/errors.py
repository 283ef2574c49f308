"""What goes wrong, in sentences a person can act on."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable
from typing import Any


class NeurotestError(Exception):
    """Base of everything neurotest raises on purpose; `exit_code` is what the command line returns."""

    exit_code = 4


class BadInput(NeurotestError):
    """What the user gave cannot be used: the message names it, says what is allowed and the next step."""

    exit_code = 2


class Interrupted(NeurotestError):
    """Stopped on request; what was done is saved and the run can be resumed."""

    exit_code = 3


class Remark(UserWarning):
    """Something a user should know before trusting a result; the command line prints it as a remark."""


# Control characters (a terminal obeys them), signs that turn the direction of text or are invisible, and what no encoding takes.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def visible(text: str, *, lines: bool = False) -> str:
    r"""Text from anybody, for a terminal: what is no letter or sign is spelled out; line breaks and tabs stay with `lines`.

    >>> print(visible("a\x1b[31mb\u202e"), visible("two\nlines"))
    a\x1b[31mb\u202e two\nlines
    """
    if not lines:
        text = text.replace("\n", "\\n").replace("\t", "\\t")
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


_LONE = re.compile("[\ud800-\udfff]")


def spelled(value: Any) -> Any:
    r"""Text that UTF-8 can hold, also inside lists and dictionaries: bytes of a name that is not UTF-8 are spelled out.

    >>> print(spelled({"name": "caf\udce9"})["name"])
    caf\udce9
    """
    if isinstance(value, str):
        return _LONE.sub(lambda match: match[0].encode("unicode_escape").decode(), value)
    if isinstance(value, dict):
        return {spelled(key): spelled(item) for key, item in value.items()}
    return [spelled(item) for item in value] if isinstance(value, list | tuple) else value


def shell(*words: object) -> str:
    r"""Words for a shell, on one line: what it would take for something else stands in quotation marks; what cannot be seen or is
    not UTF-8 is spelled in bytes, as bash and zsh read them.

    >>> print(shell("rm", "my run", "caf\udce9"))
    rm 'my run' $'caf\xe9'
    """
    return " ".join(_quoted(str(word)) for word in words)


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    try:
        raw = word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = word.encode("utf-8", "replace")
    signs = [chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\x{byte:02x}" for byte in raw]
    return f"$'{''.join(signs)}'"


def command(name: str, *words: object) -> str:
    """A command of neurotest to be copied into a shell; words that are None are left out."""
    return shell("neurotest", name, *(word for word in words if word is not None))


def near(name: str, names: Iterable[str], most: int = 4) -> str:
    """A sentence with the names closest to `name`, or all of them when they are few.

    >>> near("deepgin", ["deepgini", "nss", "random"])
    'Did you mean deepgini?'
    """
    words = sorted(set(names))
    if not words:
        return "There are none."
    close = difflib.get_close_matches(name, words, n=most, cutoff=0.5)
    close += [w for w in words if name and name.lower() in w.lower() and w not in close][: most - len(close)]
    if close:
        return f"Did you mean {', '.join(close)}?"
    shown = ", ".join(words[:12]) + (f" and {len(words) - 12} more" if len(words) > 12 else "")
    return f"Known: {shown}."
