"""`./neurotest.toml`: what it may say of a target and of its data, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from neurotest.settings import Declared, TargetSettings, declared, of_commands
from neurotest.settings.declared import PYTHON, Named
from neurotest.settings.target import in_toml

FILE = Path("neurotest.toml")
DATA = ("train", "holdout")
LARGEST = 1 << 20  # bytes: its parser is slow
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
        allowed = _allowed(section)
        if allowed is None or not isinstance(content, dict):
            raise BadInput(
                "unknown-option",
                str(section),
                f"{file}: [target], [data] and sections of commands such as [fuzz] are read; there is {shown(section)}.",
            )
        for key, value in content.items():
            if key not in allowed:  # a target to load is not among them: a file found by chance must not run code
                raise BadInput("unknown-option", str(key), f"{file}: [{section}] has no key {shown(key)}. {near(key, allowed)}")
            if not (names_files(value) if section == "data" else allowed[key].kind.fits(value)):
                raise BadInput("wrong-type", key, f"{file}: {key} = {shown(value)}: expected {expected(key, section)}.")
    settings: dict[str, Any] = sections.get(wanted, {})
    return settings


def _allowed(section: str) -> dict[str, Any] | None:
    """What a section may say, by key; None for a section that nobody reads."""
    if section == "data":
        return dict.fromkeys(DATA)
    if section == "target":
        return {key: declared(TargetSettings)[key] for key in in_toml()}
    settings = of_commands().get(section)
    return None if settings is None else plain_settings(settings)


def plain_settings(settings: type) -> dict[str, Declared]:
    """Settings of a command that name no code, data, network or file, by the name of their option."""
    known = declared(settings).values()
    return {one.parameter: one for one in known if one.flag != PYTHON and not isinstance(one.kind, Named)}


def names_files(spec: object) -> bool:
    """Whether something names data that are read from files, and nothing that a package of another brings along."""
    return isinstance(spec, str) and spec.partition(":")[0] in KINDS and bool(spec.partition(":")[2])


def expected(key: str, section: str = "data") -> str:
    """What the file may hold under a key, in words."""
    if section == "data":
        return f'data in files, such as "dir:{key}" ({", ".join(f"{kind}:" for kind in KINDS)})'
    allowed = _allowed(section)
    assert allowed is not None
    return str(allowed[key].kind.expected)


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


def settings_of_file(command: str, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of ./neurotest.toml under the name of a command, for those of its options that were not typed."""
    if command not in of_commands() or not FILE.is_file():
        return {}
    content = {key: value for key, value in read_toml(FILE, command).items() if typed.get(key) is None}
    if content:
        print(f"neurotest: {', '.join(content)} from ./neurotest.toml", file=sys.stderr)
    return content


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
