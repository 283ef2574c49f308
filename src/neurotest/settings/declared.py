"""How a setting is declared: a field of a dataclass with its kind, its help, and where it goes."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from neurotest.settings.kinds import Kind


@dataclass(frozen=True)
class Declared:
    """What is known of one setting.

    help: for the command line. toml: what stands beside it in `neurotest.toml`; empty: it may not stand there. part: `target`
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
