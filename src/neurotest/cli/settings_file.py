"""`./neurotest.toml`: what it may say of a target and of its data, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from neurotest.settings import TargetSettings, declared
from neurotest.settings.target import in_toml

FILE = Path("neurotest.toml")
DATA = ("train", "holdout")
LARGEST = 1 << 20  # bytes: its parser is slow
SECTIONS: dict[str, Sequence[str]] = {"target": in_toml(), "data": DATA}
KINDS = ("dir", "npz", "parquet", "webdataset", "wav", "idx", "zoo")  # readers of files that run no code


def read_toml(file: Path, wanted: str = "target") -> dict[str, Any]:
    """What the file says in a section; what it says in others that nobody reads would be ignored, and is refused."""
    import tomllib

    from neurotest.checks import shown
    from neurotest.errors import BadInput, near
    from neurotest.reading import read_text, reading

    text = read_text(file, "a TOML file", limit=LARGEST)
    with reading(file, "a TOML file"):
        sections = tomllib.loads(text)
    for section, content in sections.items():
        if section not in SECTIONS or not isinstance(content, dict):
            raise BadInput(
                "unknown-option",
                str(section),
                f"{file}: [target] and [data] are read, and nothing but them; there is {shown(section)}.",
            )
        for key, value in content.items():
            if key not in SECTIONS[section]:  # a target to load is not among them: a file found by chance must not run code
                raise BadInput(
                    "unknown-option", str(key), f"{file}: [{section}] has no key {shown(key)}. {near(key, SECTIONS[section])}"
                )
            if not (names_files(value) if section == "data" else declared(TargetSettings)[key].kind.fits(value)):
                raise BadInput("wrong-type", key, f"{file}: {key} = {shown(value)}: expected {expected(key)}.")
    found: dict[str, Any] = sections.get(wanted, {})
    return found


def names_files(spec: object) -> bool:
    """Whether something names data that are read from files, and nothing that a package of another brings along."""
    return isinstance(spec, str) and spec.partition(":")[0] in KINDS and bool(spec.partition(":")[2])


def expected(key: str) -> str:
    """What the file may hold under a key, in words."""
    if key in DATA:
        return f'data in files, such as "dir:{key}" ({", ".join(f"{kind}:" for kind in KINDS)})'
    return declared(TargetSettings)[key].kind.expected


def read_description(*, toml: bool = True, **options: Any) -> dict[str, Any]:
    """A target's description: the options of the command line, over those of ./neurotest.toml under [target]."""
    kinds = {key: one.kind for key, one in declared(TargetSettings).items()}
    typed = {key: kinds[key].parse(key, value) for key, value in options.items() if value is not None and value is not False}
    if not toml or not FILE.is_file():
        return typed
    content = read_toml(FILE)
    used = sorted(set(content) - set(typed))
    if used:
        print(f"neurotest: {', '.join(used)} from ./neurotest.toml", file=sys.stderr)
    return {**content, **typed}


def data_of_file(values: Mapping[str, Any], stored: Callable[[], bool] = lambda: False) -> dict[str, str | None]:
    """Training data and holdout of ./neurotest.toml, for those of a command's options that were not typed; `none`: without.

    stored: whether the command goes on with a run that has training data of its own.
    """
    without: dict[str, str | None] = {name: None for name in DATA if values.get(name) == "none"}
    missing = [name for name in DATA if name in values and values[name] is None]
    if not missing or not FILE.is_file():
        return without
    content = {name: text for name, text in read_toml(FILE, "data").items() if name in missing}
    if "train" in content and stored():
        del content["train"]
    if content:
        settings = ", ".join(f"{name} {text}" for name, text in content.items())
        print(f"neurotest: {settings} from ./neurotest.toml (--{next(iter(content))} none: without)", file=sys.stderr)
    return {**without, **content}
