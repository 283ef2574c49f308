"""How a setting is declared: a field of a dataclass with its help, where it goes, and the kind of its values.

A kind knows how a value is typed on a command line, written in TOML, stored in a run, and printed in a command.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neurotest.checks import one_of
from neurotest.errors import BadInput

LARGEST, MOST = 2**63, 100_000  # of an integer; entries of a list


@dataclass(frozen=True)
class Kind:
    """A text, and the base of the other kinds. expected: what `neurotest.toml` may hold, in words."""

    expected: str = "text in quotation marks"
    typed: Any = str | None  # what typer makes of the words on the command line
    untyped: Any = None  # and of none

    def check(self, name: str, value: Any) -> None:
        """Refuse a value that no target takes."""

    def parse(self, name: str, typed: Any) -> Any:
        """What was typed (also as one text, as pytest gives it) as a value; BadInput if it cannot be read."""
        return typed

    def fits(self, value: Any) -> bool:
        """Whether a value of a TOML or JSON file has the right type; the target's own checks say more."""
        return isinstance(value, str)

    def fits_run(self, value: Any) -> bool:
        """The same for a run. A run stores the names themselves, never a file to read them from."""
        return self.fits(value)

    def words(self, option: str, value: Any) -> list[str]:
        """The value on a command line."""
        return [option, str(value)]


@dataclass(frozen=True)
class Choice(Kind):
    """One of some words; `also` are other spellings."""

    among: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    def check(self, name: str, value: Any) -> None:
        if value not in self.also:
            one_of(name, value, self.among)


@dataclass(frozen=True)
class Flag(Kind):
    expected: str = "true or false"
    typed: Any = bool
    untyped: Any = False

    def parse(self, name: str, typed: Any) -> Any:
        if isinstance(typed, str):
            if typed.lower() not in ("true", "false", "1", "0", "yes", "no"):
                raise BadInput("wrong-type", name, f"--{name} {typed}: expected true or false.")
            return typed.lower() in ("true", "1", "yes")
        return typed

    def fits(self, value: Any) -> bool:
        return isinstance(value, bool)

    def words(self, option: str, value: Any) -> list[str]:
        return [option] if value else []


@dataclass(frozen=True)
class Integer(Kind):
    expected: str = "an integer"
    typed: Any = int | None

    def parse(self, name: str, typed: Any) -> Any:
        try:
            return int(typed) if isinstance(typed, str) else typed
        except ValueError:
            raise BadInput("wrong-type", name, f"--{name} {typed!r}: expected an integer.") from None

    def fits(self, value: Any) -> bool:
        return type(value) is int and abs(value) < LARGEST


@dataclass(frozen=True)
class Either(Kind):
    """A number that may be written as text: `224x320`, `5%`. whole: only an integer will do."""

    whole: bool = True

    def fits(self, value: Any) -> bool:
        return isinstance(value, str) or _is_number(value, whole=self.whole)

    def fits_run(self, value: Any) -> bool:
        return _is_number(value, whole=self.whole) or (self.whole and isinstance(value, str))  # a share was turned into a number

    def words(self, option: str, value: Any) -> list[str]:
        return [option, value if isinstance(value, str) else written(value)]


@dataclass(frozen=True)
class Numbers(Kind):
    """One number for all channels, or one for each: typed as 0.5,0.5,0.5."""

    expected: str = "a number for all channels, or a list with one for each"

    def parse(self, name: str, typed: Any) -> Any:
        if not isinstance(typed, str):
            return typed
        try:
            return [float(part) for part in typed.replace(",", " ").split()]
        except ValueError:
            raise BadInput(
                "wrong-type", name, f"--{name} {typed!r}: expected numbers separated by commas, for example 0.5,0.5,0.5."
            ) from None

    def fits(self, value: Any) -> bool:
        return all(_is_number(one) for one in _several(value))

    def fits_run(self, value: Any) -> bool:
        return isinstance(value, list) and self.fits(value)

    def words(self, option: str, value: Any) -> list[str]:
        return [option, ",".join(written(one) for one in _several(value))]


@dataclass(frozen=True)
class Pair(Numbers):
    """Two numbers: typed as two words."""

    expected: str = "two numbers, [0, 1]"
    typed: Any = tuple[float, float] | None

    def fits(self, value: Any) -> bool:
        return isinstance(value, list) and len(value) == 2 and super().fits(value)

    def words(self, option: str, value: Any) -> list[str]:
        return [option, *(written(one) for one in value)]


@dataclass(frozen=True)
class Size(Kind):
    """Sides of an input: typed as 1x28x28."""

    expected: str = 'text such as "1x28x28", or a list of integers'

    def fits(self, value: Any) -> bool:
        return isinstance(value, str) or (isinstance(value, list) and all(_is_number(one, whole=True) for one in _several(value)))

    def fits_run(self, value: Any) -> bool:
        return isinstance(value, list) and self.fits(value)

    def words(self, option: str, value: Any) -> list[str]:
        return [option, value if isinstance(value, str) else "x".join(map(str, value))]


@dataclass(frozen=True)
class Names(Kind):
    """A file with one name per line, a run that has them, or the names themselves."""

    expected: str = "a file name in quotation marks, or a list of names"

    def fits(self, value: Any) -> bool:
        return all(isinstance(one, str) for one in _several(value))

    def fits_run(self, value: Any) -> bool:
        return isinstance(value, list) and self.fits(value)


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) and 0 < len(value) <= MOST else [value]


def _is_number(value: Any, *, whole: bool = False) -> bool:
    kinds = (int,) if whole else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and abs(value) < LARGEST


def written(number: float) -> str:
    """A number with all its digits, and no more: it reads back as the same."""
    return repr(number).removesuffix(".0")


@dataclass(frozen=True)
class Declared:
    """What is known of one setting.

    help: for the command line. toml: its comment in `neurotest.toml`; empty: not allowed there. part: `target`
    or `preprocess`, whose argument it is; empty: `load` itself uses it. argument: its name there, if that is another.
    attribute: where a target tells it. usual: a value that need not be said.
    """

    kind: Kind
    help: str
    toml: str = ""
    part: str = ""
    argument: str = ""
    attribute: str = ""
    usual: Any = None
    name: str = ""

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    def words(self, value: Any) -> list[str]:
        """The setting on a command line; none where the value is the usual one."""
        plain = list(value) if isinstance(value, tuple) else value
        return [] if value is None or plain == self.usual else self.kind.words(self.option, value)

    def of(self, owner: Any) -> Any:
        """The value that a target (or its preprocessing) has; None where it has none."""
        for name in (self.attribute or self.argument or self.name).split("."):
            owner = None if owner is None else getattr(owner, name)
        return owner


def setting(kind: Kind, help: str, **more: Any) -> Any:
    """A field of a dataclass of settings."""
    return dataclasses.field(default=None, metadata={"declared": Declared(kind, help, **more)})


@functools.cache
def declared(settings: Any) -> dict[str, Declared]:
    """The declared settings of a dataclass, by name, in order."""
    fields = [field for field in dataclasses.fields(settings) if "declared" in field.metadata]
    return {field.name: dataclasses.replace(field.metadata["declared"], name=field.name) for field in fields}
