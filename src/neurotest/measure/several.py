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
        self.errors: dict[str, str] = {}
        self._refusals: list[str] = []

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """A part of one method's work: what it refuses concerns this method only."""
        try:
            yield
        except BadInput as error:
            self.errors[name] = _naming(name, str(error))
            self._refusals.append(str(error))
            if len(self.errors) == len(self.names):
                same = len(self.names) > 1 and len(set(self._refusals)) == 1
                raise BadInput(str(error) if same else " ".join(self.errors.values())) from None

    def join(self, other: Several) -> None:
        """Those that dropped out elsewhere drop out here."""
        for name, reason in other.errors.items():
            if name not in self.errors:
                with self.attempt(name):
                    raise BadInput(reason)

    def left(self, methods: dict[str, T]) -> dict[str, T]:
        """Those of the methods that still take part."""
        return {name: method for name, method in methods.items() if name not in self.errors}


def _naming(name: str, sentence: str) -> str:
    """The sentence with the method's name in it."""
    word = re.split(r"[:(]", name)[0]
    return sentence if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", sentence, re.IGNORECASE) else f"{name}: {sentence}"
