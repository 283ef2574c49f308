"""What exists, by kind and name: methods register themselves in one line, and lists, docs and the command line read it.

Which module registers which name is read from its text: to find a name imports its module, to list a kind all of them. Other
people's come by the entry point group `neurotest.KIND` (`name = "package.module"`). A method is written `name(option=value)`:
`build` reads that, `text` writes it.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, dataclass_transform

from neurotest import checks, plugins
from neurotest.errors import BadInput, Remark, near
from neurotest.reading import refuse_untrusted

T = TypeVar("T", bound=Callable[..., Any])

# Where the methods of each kind live: every module there that registers one of the kind is found by looking at its text.
KINDS: dict[str, tuple[str, ...]] = {
    "criterion": ("coverage",),
    "selector": ("select",),
    "estimator": ("select",),
    "study": (),  # of neurotest-lab
    "mutation": ("mutate",),
    "attack": ("generate",),
    "generator": ("generate",),
    "differential": ("generate",),
    "critical": ("semantics",),
    "encoder": ("semantics",),
    "describer": ("semantics",),
    "guide": ("generate",),
    "goal": ("generate",),
    "robustness": ("evaluate",),
    "suite": ("evaluate", "campaign"),
    "check": ("check",),
    "repair": ("repair",),
    "oracle": ("oracles.py",),
    "fitness": ("generate",),
    "validity": ("mutate",),
    "style transfer": ("mutate",),
    "split": ("mutate",),
    "target source": ("target", "jobs"),
    "data source": ("data",),
}
OLD_KINDS = {"examination": "check"}  # names of version 0.1, which other packages may use


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


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
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
    """Decorator; a class becomes a frozen, keyword-only dataclass of its settings, unless it is a dataclass by itself.

    `main` names the option that `name:VALUE` sets; `cost` and `differs` go to the docs page. A class whose options name files,
    networks or runs says so (`opens`): those that a run from elsewhere names are refused.
    """

    kind = OLD_KINDS.get(kind, kind)

    def add(make: T) -> T:
        settings: Any = make
        if isinstance(settings, type) and "__dataclass_fields__" not in vars(settings):
            dataclass(frozen=True, kw_only=True)(settings)  # in place
            if not hasattr(settings, "name") and "name" not in (one.name for one in dataclasses.fields(settings)):
                setattr(settings, "name", name)  # noqa: B010 - mypy knows no such attribute of a type
        registered = _entries.setdefault(kind, {})
        if name in registered:
            _settle(registered[name], make)
        registered[name] = Entry(
            kind=kind, name=name, make=make, paper=paper, cost=cost, differs=differs, main=main, presets=presets or {}
        )
        return make

    return add


def _settle(before: Entry, make: Callable[..., Any]) -> None:
    """A name is registered again: by the same code, or neurotest's own method takes its name back from another package."""
    old, new = before.make, make
    if (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__):
        return
    if _is_ours(old) or not _is_ours(new):
        raise ValueError(f"{before.kind} {before.name!r} is registered twice")
    warnings.warn(
        f"the {before.kind} {before.name!r} of {old.__module__} is not used: neurotest has one of that name.",
        Remark,
        stacklevel=4,
    )


def _is_ours(make: Callable[..., Any]) -> bool:
    return make.__module__.partition(".")[0] == "neurotest"


def modules(kind: str) -> dict[str, str]:
    """The names of a kind that this package registers, as the text of its modules has them, each with its module."""
    return _modules(kind, KINDS.get(kind, ()))


@functools.cache
def _modules(kind: str, places: tuple[str, ...]) -> dict[str, str]:
    registers = re.compile(rf'register\(\s*"{re.escape(kind)}",\s*"([^"]+)"')
    root = Path(__file__).parent
    files = sorted(
        file for place in places for file in ([root / place] if place.endswith(".py") else (root / place).rglob("*.py"))
    )
    return {name: _module(file.relative_to(root)) for file in files for name in registers.findall(file.read_text("utf-8"))}


def _module(file: Path) -> str:
    return ".".join(("neurotest", *file.with_suffix("").parts)).removesuffix(".__init__")


@functools.cache
def _load(kind: str) -> None:
    for module in dict.fromkeys(modules(kind).values()):
        importlib.import_module(module)
    for group in (kind, *(old for old, new in OLD_KINDS.items() if new == kind)):
        plugins.load(group)


def kinds() -> list[str]:
    return sorted(KINDS)


def entries(kind: str) -> dict[str, Entry]:
    """Every entry of a kind by name, in the order of registration."""
    kind = OLD_KINDS.get(kind, kind)
    if kind not in KINDS:
        raise BadInput("unknown-name", "kind", f"unknown kind {kind!r}. {near(kind, KINDS)}")
    _load(kind)
    return dict(_entries.get(kind, {}))


def names(kind: str) -> set[str]:
    """The names of `entries`; no module is imported for them, unless other packages bring some."""
    return set(entries(kind)) if plugins.points(kind) else {*modules(kind), *_entries.get(kind, {})}


def find(kind: str, name: str) -> Entry:
    """The entry of a name; of this package's modules only the one that registers it is imported."""
    if name in modules(kind):
        importlib.import_module(modules(kind)[name])
        if name in _entries.get(kind, {}):
            return _entries[kind][name]
    registered = entries(kind)
    if name not in registered:
        for entry in registered.values():  # by class: older runs store what repr gives
            if name in (entry.make.__name__, *getattr(entry.make, "formerly", ())):
                return entry
        raise BadInput("unknown-name", kind, f"unknown {kind} {name!r}. {near(name, registered)}", value=name, allowed=registered)
    return registered[name]


NESTED = re.compile(r"([a-z]+(?: [a-z]+)*)/([\w.+-]+\(.*\))", re.DOTALL)  # criterion/kmnc(sections=10), inside another method


LONGEST, DEEPEST = 10_000, 20  # characters of a method, brackets inside each other: beyond that Python's parser may fall over


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, OverflowError, MemoryError, RecursionError):
        pass
    nested = NESTED.fullmatch(text)
    if nested and nested[1] in KINDS:
        return build(nested[1], nested[2])
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def parse(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Split `name`, `name:main`, `name:a=1,b=2` or `name(a=1, b=2)` into name, main values and options.

    >>> parse("nss:reference=original,k=0.1")
    ('nss', [], {'reference': 'original', 'k': 0.1})
    """
    name, bare, options = _split(text)
    return name, [_value(piece) for piece in bare], {key: _value(value) for key, value in options.items()}


def _split(text: str) -> tuple[str, list[str], dict[str, str]]:
    match = re.fullmatch(r"\s*([\w.+-]+)\s*(?::(.*)|\((.*)\))?\s*", text, re.DOTALL) if _readable(text) else None
    if not match:
        spellings = "name, name:value, name:option=value,... or name(option=value)"
        raise BadInput("syntax", "method", f"cannot read the method {checks.shown(text)}: write {spellings}.")
    name, colon, parens = match.groups()
    bare: list[str] = []
    options: dict[str, str] = {}
    for piece in filter(None, map(str.strip, _pieces(colon or parens or ""))):
        key, equals, value = piece.partition("=")
        if equals:
            options[key.strip()] = value.strip()
        else:
            bare.append(piece)
    return name, bare, options


def _readable(text: str) -> bool:
    """Whether it is short and flat enough to be somebody's method."""
    depth = deepest = 0
    for sign in text[: LONGEST + 1]:
        depth += (sign in "([{") - (sign in ")]}")
        deepest = max(deepest, depth)
    return len(text) <= LONGEST and deepest <= DEEPEST and "\0" not in text and not re.search(r"[-+~]{20}", text)


def _pieces(text: str) -> Iterator[str]:
    """The text cut at its commas, but for those inside brackets and quotes."""
    start, depth, quote, escaped = 0, 0, "", False
    for place, sign in enumerate(text):
        if quote:
            quote, escaped = ("" if sign == quote and not escaped else quote), sign == "\\" and not escaped
        elif sign in "'\"":
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and depth <= 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


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
            raise BadInput("unknown-option", name, f"{name} takes no bare value {checks.shown(bare[0])}; {allowed}.")
        options = {entry.main: _read(entry, entry.main, bare[0]), **options}
    if (preset := options.pop("preset", None)) is not None:
        if not isinstance(preset, str) or preset not in entry.presets:
            raise BadInput(
                "unknown-name",
                "preset",
                f"{name} has no preset {checks.shown(preset)}. {near(str(preset), entry.presets)}",
                allowed=entry.presets,
            )
        options = {**entry.presets[preset], **options}
    return make(entry, options)


def make(entry: Entry, options: dict[str, Any]) -> Any:
    """The method with these options, which may be anybody's: names and types are checked before its class sees them."""
    for option in options:
        if option not in entry.options:
            raise BadInput(
                "unknown-option",
                str(option),
                f"{entry.name} has no option {checks.shown(option)}. {near(str(option), entry.options)}",
                allowed=entry.options,
            )
    required = [
        name for name, parameter in inspect.signature(entry.make).parameters.items() if parameter.default is parameter.empty
    ]
    if missing := [name for name in required if name not in options]:
        needs = ", ".join(f"{name}=..." for name in missing)
        raise BadInput("missing", missing[0], f"{entry.name} needs {needs}: write {entry.name}:{needs.replace(', ', ',')}")
    if not entry.options:
        return entry.make()
    for name in getattr(entry.make, "opens", ()):
        if options.get(name):
            refuse_untrusted(options[name], f"{entry.name}({name}={checks.shown(options[name])})")
    hints = checks.hints(entry.make)
    return entry.make(**{name: checks.option(name, hints.get(name, Any), value) for name, value in options.items()})


def _entry_of(method: Any) -> Entry:
    """The entry whose class an object is of."""
    for entries_of_kind in _entries.values():
        for entry in entries_of_kind.values():
            if entry.make is type(method):
                return entry
    raise BadInput(
        "unknown-name",
        "method",
        f"{method!r} is of no registered class: give a name of `neurotest list`, or register {type(method).__name__}.",
    )


def text(method: Any) -> str:
    """A method as text, from which `build` makes an equal one; options that have their defaults are left out.

    >>> text(build("criterion", "kmnc:10"))
    'kmnc(sections=10)'
    """
    entry = _entry_of(method)
    options = {option: getattr(method, option) for option, field in entry.options.items() if not _is_default(method, field)}
    written = [f"{option}={_written(entry, option, value)}" for option, value in options.items()]
    return f"{entry.name}({', '.join(written)})" if written else entry.name


def _is_default(method: Any, field: dataclasses.Field[Any]) -> bool:
    value = getattr(method, field.name)
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return type(value) is type(default) and bool(value == default)


def _written(entry: Entry, option: str, value: Any) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = _entry_of(value)
        return f"{inner.kind}/{inner.name}({text(value).partition('(')[2].removesuffix(')')})"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w.*-]*", value) and _read(entry, option, value) == value:
        return value
    written = repr(value).replace("inf", "1e999") if isinstance(value, float) else repr(value)
    try:
        same = bool(_read(entry, option, written) == value)
    except (BadInput, TypeError, ValueError):
        same = False
    if not same:
        raise BadInput(
            "unsupported",
            option,
            f"{entry.name} has {option}={value!r}, which cannot be written as text: a run made with it can only go on if it is "
            "given again.",
        )
    return written
