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


CODES = {
    "unknown-name": "There is nothing of this name; the sentence has the closest names.",
    "unknown-option": "The method, command, table or file section has no option, column or key of this name.",
    "out-of-range": "The value is outside what is allowed.",
    "wrong-type": "The value is of another type or kind.",
    "wrong-shape": "An array or an input has another shape.",
    "wrong-count": "Things that belong together differ in number.",
    "syntax": "The text cannot be parsed.",
    "ambiguous": "The text or file can be read in two ways.",
    "duplicate": "The same thing is named twice.",
    "missing": "Something that is needed was not given.",
    "no-labels": "The data have no labels, and they are needed.",
    "empty": "There is nothing in it, or nothing is left to work on.",
    "too-few": "There are some, but not enough.",
    "too-large": "It is larger than what is read, computed or stored.",
    "conflict": "Two settings, files or answers contradict each other or do not go together.",
    "not-found": "A file, folder or entry is not there.",
    "not-a-file": "A folder, pipe or device stands where a file is expected.",
    "not-a-folder": "A file stands where a folder is expected.",
    "unreadable": "It is there, but cannot be opened, decoded or loaded.",
    "damaged": "It does not hold what was written.",
    "unsupported": "neurotest does not handle this format, network or way of working.",
    "unsuitable": "The method does not fit this network or these data; another one does.",
    "not-finite": "It holds NaN or infinity.",
    "no-gradient": "The network has no usable gradient.",
    "failed": "The network, or code of the user's, raised an error or ended its process.",
    "untrusted": "It could run code, leave its folder or open files, and comes from an untrusted place.",
    "changed": "It is not what the run, profile or file was made with.",
    "wrong-run": "It is not a run, or a run of another command.",
    "unfinished": "The run is not finished.",
    "finished": "It is finished or undone: there is nothing to continue.",
    "exists": "It is there already and is not overwritten.",
    "busy": "Another process or person is using it.",
    "not-writable": "It cannot be written, locked or removed.",
    "not-installed": "A package, program or data file has to be installed.",
    "download-failed": "A download failed, or brought something else.",
    "worker-lost": "A worker process ended before its work was done.",
    "other": "An error of another package, which names no code.",
}


class BadInput(NeurotestError):
    """What the user gave cannot be used: the message names it, says what is allowed and the next step.

    code: one of `CODES`. argument: the option, keyword or field that is wrong, written as in Python. value: a word, a number, or
    the text of anything else. allowed: what there is to choose from. next: a command that solves it. A sentence alone, as
    packages for earlier versions raise it, has the code `other`.

    >>> error = BadInput("out-of-range", "sections", "sections=0: expected an integer >= 1.", value=0)
    >>> error.code, error.argument, error.value, str(error)
    ('out-of-range', 'sections', 0, 'sections=0: expected an integer >= 1.')
    """

    exit_code = 2

    def __init__(
        self,
        code: str,
        argument: str = "",
        message: str | None = None,
        *,
        value: object = None,
        allowed: Iterable[object] = (),
        next: str = "",
    ) -> None:
        if message is None:  # also how pickle makes one; it sets the fields afterwards
            code, message = "other", code
        assert code in CODES, code
        super().__init__(message)
        self.code, self.argument, self.next = code, argument, next
        self.value = value if isinstance(value, str | int | float | None) else shown(value)
        self.allowed = tuple(map(str, allowed))

    def reworded(self, message: str) -> BadInput:
        """The same error with another sentence."""
        return BadInput(self.code, self.argument, message, value=self.value, allowed=self.allowed, next=self.next)


def shown(value: object) -> str:
    """A value in a sentence: never longer than a line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, lists in lists in lists
        return f"a {type(value).__name__} that is too large to be shown"
    return text if len(text) <= 80 else text[:77] + "..."


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
