"""What exists, by kind and name: methods register themselves in one line, and lists, docs and the command line read it.

A kind's own modules are imported when the kind is first asked for; other people's come by the entry point group
`neurotest.KIND` (`name = "package.module"`).
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, TypeVar

from neurotest.errors import BadInput, near

T = TypeVar("T", bound=Callable[..., Any])

MODULES: dict[str, tuple[str, ...]] = {
    "criterion": tuple(
        f"neurotest.coverage.{module}"
        for module in ("threshold", "ranges", "topk", "cluster", "surprise", "causal", "layerwise", "paths")
    ),
    "selector": tuple(
        f"neurotest.select.{module}"
        for module in ("uncertainty", "sensitivity", "dropout", "surprise", "greedy", "ats", "neighbours", "adaptive", "decision")
    ),
    "estimator": ("neurotest.select.estimation", "neurotest.select.pace"),
    "study": tuple(
        f"neurotest.studies.{module}" for module in ("nss", "fuzzing", "coverage", "illumination", "nsgen", "deepsensor")
    ),
    "mutation set": ("neurotest.mutate.space",),
    "mutation space": ("neurotest.mutate.rules",),
    "attack": tuple(f"neurotest.generate.gradient.{module}" for module in ("attacks", "carlini", "toolbox")),
    "generator": ("neurotest.generate.illuminate.settings",),
    "differential": tuple(f"neurotest.generate.differential.{module}" for module in ("deepxplore", "dlfuzz", "adapt")),
    "critical": ("neurotest.semantics.critical",),
    "encoder": ("neurotest.semantics.encoders",),
    "describer": tuple(
        f"neurotest.semantics.describe.{module}"
        for module in ("combined", "profile", "attributes", "concepts", "imported", "clip", "milan")
    ),
    "guide": ("neurotest.generate.fuzz.guides", "neurotest.generate.fuzz.semantic"),
    "suite": ("neurotest.evaluate.readers", "neurotest.campaign.suite"),
    "oracle": ("neurotest.oracles",),
    "fitness": ("neurotest.generate.swarm.fitness", "neurotest.generate.swarm.excitability"),
    "validity": ("neurotest.mutate.validity",),
    "style transfer": ("neurotest.mutate.style",),
    "split": ("neurotest.mutate.pools",),
    "target source": ("neurotest.target.load", "neurotest.target.exported"),
    "data source": ("neurotest.data.spec",),
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One registered thing: the class (or function) and what its docs page says beside the docstring."""

    kind: str
    name: str
    make: Callable[..., Any]
    paper: str
    cost: str
    differs: str = ""
    main: str | None = None
    presets: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        return (self.make.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")

    @property
    def options(self) -> dict[str, dataclasses.Field[Any]]:
        if not dataclasses.is_dataclass(self.make):
            return {}
        return {f.name: f for f in dataclasses.fields(self.make) if f.init}


_entries: dict[str, dict[str, Entry]] = {}


def register(
    kind: str,
    name: str,
    *,
    paper: str,
    cost: str,
    differs: str = "",
    main: str | None = None,
    presets: dict[str, dict[str, Any]] | None = None,
) -> Callable[[T], T]:
    """Class decorator. `main` names the option that `name:VALUE` sets; `cost` and `differs` go to the docs page."""

    def add(make: T) -> T:
        known = _entries.setdefault(kind, {})
        if name in known and known[name].make.__qualname__ != make.__qualname__:
            raise ValueError(f"{kind} {name!r} is registered twice")
        known[name] = Entry(
            kind=kind, name=name, make=make, paper=paper, cost=cost, differs=differs, main=main, presets=presets or {}
        )
        return make

    return add


@functools.cache
def _load(kind: str) -> None:
    for module in MODULES.get(kind, ()):
        importlib.import_module(module)
    for point in entry_points(group=f"neurotest.{kind.replace(' ', '_')}"):
        point.load()


def kinds() -> list[str]:
    return sorted(MODULES)


def entries(kind: str) -> dict[str, Entry]:
    """Every entry of a kind by name, in the order of registration."""
    if kind not in MODULES:
        raise BadInput(f"unknown kind {kind!r}. {near(kind, MODULES)}")
    _load(kind)
    return dict(_entries.get(kind, {}))


def find(kind: str, name: str) -> Entry:
    known = entries(kind)
    if name not in known:
        raise BadInput(f"unknown {kind} {name!r}. {near(name, known)}")
    return known[name]


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def parse(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Split `name`, `name:main`, `name:a=1,b=2` or `name(a=1, b=2)` into name, main values and options.

    >>> parse("nss:reference=original,k=0.1")
    ('nss', [], {'reference': 'original', 'k': 0.1})
    """
    name, bare, options = _split(text)
    return name, [_value(piece) for piece in bare], {key: _value(value) for key, value in options.items()}


def _split(text: str) -> tuple[str, list[str], dict[str, str]]:
    match = re.fullmatch(r"\s*([\w.+-]+)\s*(?::(.*)|\((.*)\))?\s*", text, re.DOTALL)
    if not match:
        raise BadInput(f"cannot read the method {text!r}: write name, name:value, name:option=value,... or name(option=value).")
    name, colon, parens = match.groups()
    bare: list[str] = []
    options: dict[str, str] = {}
    for piece in filter(None, (p.strip() for p in (colon or parens or "").split(","))):
        key, equals, value = piece.partition("=")
        if equals:
            options[key.strip()] = value.strip()
        else:
            bare.append(piece)
    return name, bare, options


def _read(entry: Entry, option: str, text: str) -> Any:
    """An option's value; one that is a word stays one, though it looks like a number: layers may be called 3 or 1.10."""
    value = _value(text)
    word = option in entry.options and entry.options[option].type in ("str", "str | None")
    return text if word and value is not None and not isinstance(value, str) else value


def build(kind: str, method: Any) -> Any:
    """The object a text such as `kmnc:1000` stands for; an object that is no text passes through."""
    if not isinstance(method, str):
        return method
    name, bare, texts = _split(method)
    entry = find(kind, name)
    options = {option: _read(entry, option, text) for option, text in texts.items()}
    if bare:
        if entry.main is None or len(bare) > 1:
            allowed = f"its options: {', '.join(entry.options)}" if entry.options else "it has no options"
            raise BadInput(f"{name} takes no bare value {bare[0]!r}; {allowed}.")
        options = {entry.main: _read(entry, entry.main, bare[0]), **options}
    if (preset := options.pop("preset", None)) is not None:
        if preset not in entry.presets:
            raise BadInput(f"{name} has no preset {preset!r}. {near(str(preset), entry.presets)}")
        options = {**entry.presets[preset], **options}
    for option in options:
        if option not in entry.options:
            raise BadInput(f"{name} has no option {option!r}. {near(option, entry.options)}")
    return entry.make(**options)
