"""Several methods side by side: one that does not fit the target or the data drops out with its reason, the others go on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from neurotest.errors import BadInput

T = TypeVar("T")


class Several:
    """Which of some methods did not fit, and why. When none is left, that is an error."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.errors: dict[str, str] = {}  # each with its method in the sentence
        self.refusals: dict[str, BadInput] = {}
        self._sentences: list[str] = []

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """A part of one method's work: what it refuses concerns this method only."""
        try:
            yield
        except BadInput as error:
            self.errors[name] = _naming(name, str(error))
            self.refusals[name] = error.reworded(self.errors[name])
            self._sentences.append(str(error))
            if len(self.refusals) == len(self.names):
                same = len(self.names) > 1 and len(set(self._sentences)) == 1
                raise self._joined(str(error) if same else " ".join(self.errors.values())) from None

    def _joined(self, message: str) -> BadInput:
        """The refusal of all methods: of the code and argument that they have in common."""
        codes = {refusal.code for refusal in self.refusals.values()}
        arguments = {refusal.argument for refusal in self.refusals.values()}
        return BadInput(codes.pop() if len(codes) == 1 else "unsuitable", arguments.pop() if len(arguments) == 1 else "", message)

    def join(self, other: Several) -> None:
        """Those that dropped out elsewhere drop out here."""
        for name, refusal in other.refusals.items():
            if name not in self.refusals:
                with self.attempt(name):
                    raise refusal

    def left(self, methods: dict[str, T]) -> dict[str, T]:
        """Those of the methods that still take part."""
        return {name: method for name, method in methods.items() if name not in self.refusals}


def _naming(name: str, sentence: str) -> str:
    """The sentence with the method's name in it."""
    word = re.split(r"[:(]", name)[0]
    return sentence if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", sentence, re.IGNORECASE) else f"{name}: {sentence}"
