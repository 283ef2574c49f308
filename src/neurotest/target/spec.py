"""The whole description of a target: what a run stores so that every later command opens the same network."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from neurotest.errors import BadInput, shell
from neurotest.images import Preprocess
from neurotest.reading import resolved, user_path
from neurotest.settings import TargetSettings, declared
from neurotest.settings.declared import Kind
from neurotest.settings.kinds import Names
from neurotest.target.code import expecting, imported, ran
from neurotest.target.load import is_file, load, on_path, sha256
from neurotest.target.target import Target

FILES = ("pt2", "onnx", "hf", "run")  # sources whose spec is a file, or a folder


@dataclass(frozen=True, kw_only=True)
class TargetSpec(TargetSettings):
    """Where a network comes from and how it is fed; None: as the source itself says.

    spec: with the absolute path of its file. sha256: of the file of the weights. code: the hash of the file that the spec
    names (of a `py:` module: `module`, found from `folder`). imports: files beside it that it imported, each as HASH PATH.
    """

    spec: str | None = None
    sha256: str | None = None
    code: str | None = None
    folder: str | None = None
    module: str | None = None
    imports: tuple[str, ...] | None = None
    if TYPE_CHECKING:  # values, no text to be read
        size: tuple[int, ...] | None = None
        classes: tuple[str, ...] | None = None

    @classmethod
    def of(cls, target: Target) -> TargetSpec:
        """The description of a target that `load` has opened, or of one that lives in memory only (spec None)."""
        spec = absolute(target.spec) if target.loaded else None
        code = _code_of(spec)
        return cls(
            spec=spec, weights=target.weights and str(target.weights.path), sha256=target.weights and target.weights.sha256,
            code=None if code.file is None else _hash(code.file), folder=None if code.folder is None else str(code.folder),
            module=str(code.file) if code.folder else None,
            imports=tuple(f"{_hash(file)} {file}" for file in code.imports) or None,
            trust_pickle=target.trust_pickle or None, **target_settings(target),
        )  # fmt: skip

    @classmethod
    def read(cls, stored: Any, where: Path) -> TargetSpec:
        """What a run holds, which may be anybody's: values of another type are refused."""
        holds = stored if isinstance(stored, Mapping) else {}
        values = {field.name: holds[field.name] for field in dataclasses.fields(cls) if holds.get(field.name) is not None}
        kinds = {name: one.kind for name, one in declared(TargetSettings).items()} | {"imports": Names()}
        for name, value in values.items():
            plain = list(value) if isinstance(value, tuple) else value  # of a target that was never stored
            if not kinds.get(name, Kind()).fits_run(plain):
                message = f"{where} describes its target with {name}={value!r}, which does not fit: it is damaged."
                raise BadInput("damaged", name, message)
            values[name] = tuple(plain) if isinstance(plain, list) else plain
        return cls(**values)

    def plain(self) -> dict[str, Any]:
        """What is not None, as JSON holds it."""
        return {name: value for name, value in vars(self).items() if value is not None and value is not False}

    def over(self, stored: TargetSpec) -> TargetSpec:
        """The stored description with what is said here in its place; the hash of the weights stays that of the run."""
        changes = {name: value for name, value in vars(self).items() if value}
        if self.spec is not None:
            changes |= {"code": None, "folder": None, "module": None, "imports": None}
        return dataclasses.replace(stored, **changes)

    def open(self) -> Target:
        """Load the network; weights and code must be those that were described."""
        if self.spec is None:
            message = "the network was given in memory, by a Python program: pass it again as the target."
            raise BadInput("missing", "target", message)
        self._check("weights", self.weights, self.sha256, "--weights FILE")
        option, hashes = shell("--target", self.spec), {}
        what = "the code" if self.spec.startswith("py:") else "the network"
        origin = self.module or source_file(self.spec)
        self._check(what, origin, self.code, option)
        if origin is not None and self.code is not None:
            hashes[resolved(origin)] = self.code
        for entry in self.imports or ():
            expected, _, file = entry.partition(" ")
            self._check("the code", file, expected, option)
            hashes[resolved(file)] = expected
        found = nullcontext() if self.folder is None else on_path(Path(self.folder), 0)  # where its `py:` module was found
        with found, expecting(hashes):
            return load(self.spec, **{name: getattr(self, name) for name in declared(TargetSettings)})

    def _check(self, what: str, file: str | Path | None, expected: str | None, option: str) -> None:
        if file is None or expected is None:
            return
        if not Path(file).is_file():
            message = f"{what}: {file} is gone (sha256 {expected[:16]}): say where it is now with {option}."
            raise BadInput("not-found", option, message)
        if (actual := sha256(Path(file))) != expected:
            message = (
                f"{what}: {file} has changed since the run was made (sha256 {actual[:16]} now, {expected[:16]} then): bring the "
                f"old file back or name it with {option}; a changed network needs a new run."
            )
            raise BadInput("changed", option, message)


def _hash(file: Path) -> str:
    """Of the text that was run, where it was; the file may have another by now."""
    return ran(file) or sha256(file)


def target_settings(target: Target) -> dict[str, Any]:
    """What a target says of itself; of its preprocessing what is not as usual."""
    usual = Preprocess()
    values = {name: one.of(target) for name, one in declared(TargetSettings).items() if one.part == "target"}
    for name, one in declared(TargetSettings).items():
        if one.part == "preprocess" and one.of(target.preprocess) != one.of(usual):
            values[name] = one.of(target.preprocess)
    return values


def absolute(spec: str) -> str:
    """The spec with the absolute path of its file, so that it means the same from anywhere.

    >>> absolute("zoo:fashion-lenet5")
    'zoo:fashion-lenet5'
    """
    prefix, _, rest = spec.partition(":")
    file = source_file(spec)
    if file is None:
        return spec
    return f"{prefix}:{resolved(file)}" + (f":{rest.rpartition(':')[2]}" if prefix == "py" else "")


class _Code(NamedTuple):
    """What a loaded spec ran: its file, the folder a module was found from, and what it imported from beside it."""

    file: Path | None = None
    folder: Path | None = None
    imports: tuple[Path, ...] = ()


def _code_of(spec: str | None) -> _Code:
    """The files behind a spec that was loaded in this process."""
    file = source_file(spec)
    if not spec or not spec.startswith("py:"):
        return _Code(file if file is not None and file.is_file() else None)
    where = spec.removeprefix("py:").rpartition(":")[0]
    if file is not None:
        return _Code(file, None, imported(resolved(file)))
    origin = getattr(sys.modules.get(where), "__file__", None)
    if origin is None:
        return _Code()
    file = resolved(origin)
    outer = where.count(".") + (file.name == "__init__.py")
    return _Code(file, file.parents[outer], imported(file))


def source_file(spec: str | None) -> Path | None:
    """The file that a spec names, if it names one."""
    prefix, _, rest = (spec or "").partition(":")
    if prefix == "py":
        where = rest.rpartition(":")[0]
        return Path(where) if where and is_file(where) else None
    return user_path(rest, spec or "") if prefix in FILES else None


# -- targets in a worker: loaded by their description, once, however many tasks name them

OPEN_TARGETS = 4  # targets that stay loaded
CACHES = ("_surveys", "_chunks", "reference", "fingerprint")
_open: dict[str, Target] = {}


def reduced(target: Target) -> tuple[Any, ...]:
    """What `__reduce__` would give."""
    about = {name: value for name, value in vars(target).items() if name not in CACHES}
    if not target.loaded or target._replaced:
        return _held, ({**about, "_surveys": {}, "_chunks": {}, "reference": None},)
    description = TargetSpec.of(target)
    return _reopened, (description, str(target.device), target.fingerprint, target.deviation)


def _held(about: dict[str, Any]) -> Target:
    target = Target.__new__(Target)
    vars(target).update(about)
    return target


def _reopened(description: TargetSpec, device: str, fingerprint: str, deviation: float | None) -> Target:
    """The target of a description, checked by its fingerprint."""
    from neurotest.target.rehearsal import skipped

    key = f"{fingerprint} {device} {description!r}"
    if key not in _open:
        with skipped():  # where the work was begun, it was tried; the fingerprint says whether it is the same
            target = dataclasses.replace(description, device=device).open()
        target._steady, target.deviation = True, deviation  # where the work was begun, both were looked at
        if target.fingerprint != fingerprint:
            message = (
                f"{description.spec} is another network in a worker than where the work was begun: its weights were changed "
                "after it was loaded, or its code draws at random. Save the weights and name them with --weights, or use one "
                "worker."
            )
            raise BadInput("changed", "target", message)
        while len(_open) >= OPEN_TARGETS:
            del _open[next(iter(_open))]
        _open[key] = target
    return _open[key]
