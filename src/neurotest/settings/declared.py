"""How a setting is declared: a field of a dataclass with its help, where it goes, and the kind of its values.

A kind knows how a value is typed on a command line, written in TOML, stored in a run, and printed in a command.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from neurotest.checks import integer, number, one_of
from neurotest.errors import BadInput

PYTHON = "-"  # in place of an option: the setting is for Python alone
LARGEST, MOST = 2**63, 100_000  # of an integer; entries of a list


@dataclass(frozen=True)
class Kind:
    """A text, and the base of the other kinds. expected: what `neurotest.toml` may hold, in words."""

    expected: str = "text in quotation marks"
    typed: Any = str | None  # what typer makes of the words on the command line; None: nothing was typed
    metavar: str | None = None  # what stands for a value in the help, where it is not the type

    def check(self, name: str, value: Any) -> None:
        """Refuse a value that no target takes."""

    def parse(self, name: str, typed: Any) -> Any:
        """What was typed (also as one text, as pytest gives it) as a value; BadInput if it cannot be read."""
        return typed

    def normal(self, name: str, value: Any) -> Any:
        """What Python passes, in the one form in which it is used and stored."""
        return value

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
    typed: Any = bool | None

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
class Unless(Flag):
    """An option that turns off what is on without it: `--no-cache` is cache=False."""

    def parse(self, name: str, typed: Any) -> Any:
        return not super().parse(name, typed)

    def words(self, option: str, value: Any) -> list[str]:
        return [] if value else [option]


@dataclass(frozen=True)
class Switch(Flag):
    """`--control` and `--no-control`."""

    def words(self, option: str, value: Any) -> list[str]:
        return [option if value else option.replace("--", "--no-", 1)]


@dataclass(frozen=True)
class Integer(Kind):
    expected: str = "an integer"
    typed: Any = int | None
    least: int | None = None  # None: no limit
    most: int | None = None
    usual: str = ""

    def check(self, name: str, value: Any) -> None:
        if self.least is not None:
            integer(name, value, self.least, self.usual, self.most)

    def parse(self, name: str, typed: Any) -> Any:
        try:
            return int(typed) if isinstance(typed, str) else typed
        except ValueError:
            raise BadInput("wrong-type", name, f"--{name} {typed!r}: expected {self.expected}.") from None

    def fits(self, value: Any) -> bool:
        return type(value) is int and abs(value) < LARGEST


@dataclass(frozen=True)
class Batch(Integer):
    """`auto` is the usual one, as if nothing had been typed: a run that is resumed goes on with its own."""

    expected: str = "an integer or auto"
    typed: Any = str | None
    metavar: str | None = "<int|auto>"
    least: int | None = 1

    def parse(self, name: str, typed: Any) -> Any:
        return None if typed == "auto" else super().parse(name, typed)


@dataclass(frozen=True)
class Number(Kind):
    """unit: what one on the command line is in Python: 1e6 where it is typed in megabytes."""

    expected: str = "a number"
    typed: Any = float | None
    usual: str = ""
    above: float | None = None  # it must be above this
    least: float | None = None  # it may be this
    most: float | None = None
    below: float | None = None  # it must be below this
    unit: float = 1

    def check(self, name: str, value: Any) -> None:
        if self.usual:
            number(name, value, self.usual, above=self.above, least=self.least, most=self.most, below=self.below)

    def parse(self, name: str, typed: Any) -> Any:
        try:
            return float(typed) * self.unit
        except ValueError:
            raise BadInput("wrong-type", name, f"--{name} {typed!r}: expected a number.") from None

    def fits(self, value: Any) -> bool:
        return is_number(value)

    def words(self, option: str, value: Any) -> list[str]:
        return [option, written(value / self.unit)]


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
        return all(is_number(one) for one in several(value))

    def fits_run(self, value: Any) -> bool:
        return isinstance(value, list) and self.fits(value)

    def words(self, option: str, value: Any) -> list[str]:
        return [option, ",".join(written(one) for one in several(value))]


@dataclass(frozen=True)
class Named(Kind):
    """What could name code: a method with options, data, a network. Python also takes it as an object; no file may say it."""


@dataclass(frozen=True)
class Several(Named):
    """An option that may be repeated."""

    typed: Any = list[str] | None

    def normal(self, name: str, value: Any) -> Any:
        return [value] if isinstance(value, str) else list(value) if isinstance(value, tuple) else value

    def fits(self, value: Any) -> bool:
        return isinstance(value, list) and len(value) <= MOST and all(isinstance(one, str) for one in value)

    def words(self, option: str, value: Any) -> list[str]:
        return [word for one in ([value] if isinstance(value, str) else value) for word in (option, str(one))]


@dataclass(frozen=True)
class Listed(Several):
    """Words separated by commas, or none: `noise,pgd`."""

    typed: Any = str | None

    def parse(self, name: str, typed: Any) -> Any:
        return [word for word in typed.replace(" ", "").split(",") if word not in ("", "none")]

    def words(self, option: str, value: Any) -> list[str]:
        return [option, ",".join(value) or "none"]


@dataclass(frozen=True)
class Place(Named):
    """A file or folder."""

    typed: Any = Path | None


def several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) and 0 < len(value) <= MOST else [value]


def is_number(value: Any, *, whole: bool = False) -> bool:
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

    Of commands: flag: the option, where it is not the name; default: what it is without, in words where the value says little.
    stored: whether a run stores it by its name; changes: whether it may be another when the run is resumed. part: whose setting
    it is, where a run stores that as a whole: the `method` that the command applies, the `loop` of a search, its `budget`.
    """

    kind: Kind
    help: str
    toml: str = ""
    part: str = ""
    argument: str = ""
    attribute: str = ""
    usual: Any = None
    flag: str = ""
    default: str = ""
    stored: bool = True
    changes: bool = False
    name: str = ""
    optional: bool = True  # whether it may be None

    @property
    def option(self) -> str:
        return self.flag.partition("/")[0] or f"--{self.name.replace('_', '-')}"

    @property
    def parameter(self) -> str:
        """The name of the option on the command line and in `neurotest.toml`."""
        return self.option.removeprefix("--").replace("-", "_")

    def words(self, value: Any) -> list[str]:
        """The setting on a command line; none where the value is the usual one."""
        plain = list(value) if isinstance(value, tuple) else value
        return [] if value is None or plain == self.usual else self.kind.words(self.option, value)

    def of(self, owner: Any) -> Any:
        """The value that a target (or its preprocessing) has; None where it has none."""
        for name in (self.attribute or self.argument or self.name).split("."):
            owner = None if owner is None else getattr(owner, name)
        return owner


def setting(kind: Kind, help: str, value: Any = None, **more: Any) -> Any:
    """A field of a dataclass of settings. value: its default."""
    if value is not None:
        default = "" if isinstance(value, bool) else f"auto: {value}" if isinstance(kind, Batch) else str(value)
        more = {"usual": value, "default": default, **more}
    return dataclasses.field(default=value, metadata={"declared": Declared(kind, help, **more)})


def another(settings: type, name: str, value: Any, **more: Any) -> Any:
    """A setting of a base class with another default, or other words."""
    before = declared(settings)[name]
    return setting(
        more.pop("kind", before.kind),
        more.pop("help", before.help),
        value,
        **{"changes": before.changes, "flag": before.flag, "stored": before.stored, **more},
    )


def declared(settings: Any) -> dict[str, Declared]:
    """The declared settings of a dataclass, by name: its own in order, then those of its bases."""
    return _declared(settings)


@functools.cache
def _declared(settings: Any) -> dict[str, Declared]:
    fields = {field.name: field for field in dataclasses.fields(settings) if "declared" in field.metadata}
    names = [name for base in settings.__mro__ for name in vars(base).get("__annotations__", ()) if name in fields]
    return {
        name: dataclasses.replace(
            fields[name].metadata["declared"], name=name, optional=any(word in str(fields[name].type) for word in ("None", "Any"))
        )
        for name in dict.fromkeys(names)
    }


@dataclass(frozen=True, kw_only=True)
class CommandSettings:
    """Base of the settings of one command. What is None is left to the command, or to the run that is resumed."""

    def __post_init__(self) -> None:
        for name, one in declared(type(self)).items():
            if getattr(self, name) is not None or not one.optional:
                one.kind.check(name, getattr(self, name))

    @classmethod
    def normal(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that are given, and not None, in the form in which they are used and stored."""
        known = declared(cls)
        return {
            name: known[name].kind.normal(name, value) for name, value in given.items() if value is not None and name in known
        }

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The settings that are given, and not None, over the defaults."""
        return cls(**cls.normal(given))

    def stored(self) -> dict[str, Any]:
        """What a run stores of them by name."""
        return {name: getattr(self, name) for name in by_name(type(self))}

    @classmethod
    def of_part(cls, part: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """What is given, and not None, for a part; for a method also what is not declared here: it knows its options itself."""
        known = declared(cls)
        return {
            name: value
            for name, value in given.items()
            if value is not None and (known[name].part == part if name in known else part == "method")
        }


def by_name(settings: Any) -> dict[str, Declared]:
    """The settings that a run stores by their names."""
    return {name: one for name, one in declared(settings).items() if one.stored and not one.part}
