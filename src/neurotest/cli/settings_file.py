"""`./neurotest.toml`: what it may say of a target and of its data, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FILE = Path("neurotest.toml")
# What ./neurotest.toml may say.
DESCRIPTION = (
    "weights", "bounds", "mean", "std", "size", "classes", "outputs", "span", "bins", "tolerance", "resize", "crop", "grey",
    "interpolation", "rate", "layout", "precision",
)  # fmt: skip

DATA = ("train", "holdout")
LARGEST = 1 << 20  # bytes: its parser is slow
SECTIONS = {"target": DESCRIPTION, "data": DATA}
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
            raise BadInput(f"{file}: [target] and [data] are read, and nothing but them; there is {shown(section)}.")
        for key, value in content.items():
            if key not in SECTIONS[section]:  # a target to load is not among them: a file found by chance must not run code
                raise BadInput(f"{file}: [{section}] has no key {shown(key)}. {near(key, SECTIONS[section])}")
            if not (names_files(value) if section == "data" else _fits_toml(key, value)):
                raise BadInput(f"{file}: {key} = {shown(value)}: expected {TOML.get(key, 'something else')}.")
    found: dict[str, Any] = sections.get(wanted, {})
    return found


def names_files(spec: object) -> bool:
    """Whether something names data that are read from files, and nothing that a package of another brings along."""
    return isinstance(spec, str) and spec.partition(":")[0] in KINDS and bool(spec.partition(":")[2])


TOML = {
    "weights": "text in quotation marks",
    "outputs": "text in quotation marks",
    "classes": "a file name in quotation marks, or a list of names",
    "size": 'text such as "1x28x28", or a list of integers',
    "bounds": "two numbers, [0, 1]",
    "mean": "a number for all channels, or a list with one for each",
    "std": "a number for all channels, or a list with one for each",
    "resize": 'an integer, or text such as "224x320"',
    "crop": "text in quotation marks",
    "interpolation": "text in quotation marks",
    "layout": "text in quotation marks",
    "precision": "text in quotation marks",
    "span": "two numbers, [-0.4, 0.4]",
    "bins": "an integer",
    "tolerance": "a number, or a share of the span such as 5%",
    "grey": "true or false",
    "rate": "an integer, samples a second",
    "train": f'data in files, such as "dir:training" ({", ".join(f"{kind}:" for kind in KINDS)})',
    "holdout": f'data in files, such as "dir:holdout" ({", ".join(f"{kind}:" for kind in KINDS)})',
}


def _fits_toml(key: str, value: Any) -> bool:
    """Whether a value of the file has the type that its key needs; the network's own checks say more."""
    values = value if isinstance(value, list) and 0 < len(value) <= 100_000 else [value]
    if key == "grey":
        return isinstance(value, bool)
    if key in ("weights", "outputs", "crop", "interpolation", "layout", "precision"):
        return isinstance(value, str)
    if key == "classes":
        return all(isinstance(one, str) for one in values)
    if key in ("size", "resize", "tolerance") and isinstance(value, str):
        return True
    if key in ("resize", "bins", "rate"):
        return type(value) is int and abs(value) < 2**63
    kinds = (int,) if key == "size" else (int, float)
    fits = all(isinstance(one, kinds) and not isinstance(one, bool) and abs(one) < 2**63 for one in values)
    return fits and (key not in ("bounds", "span") or len(values) == 2) and (key != "size" or isinstance(value, list))


def read_description(*, toml: bool = True, **options: Any) -> dict[str, Any]:
    """A target's description: the options of the command line, over those of ./neurotest.toml under [target]."""
    for key in ("mean", "std"):
        if options.get(key) is not None:
            options[key] = numbers(key, options[key])
    typed = {key: value for key, value in options.items() if value is not None and value is not False}
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


def numbers(name: str, text: str) -> list[float]:
    from neurotest.errors import BadInput

    try:
        return [float(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise BadInput(f"--{name} {text!r}: expected numbers separated by commas, for example 0.5,0.5,0.5.") from None
