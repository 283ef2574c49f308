"""Running a user's Python files: what is run is the text of the file, and what was run can be told by its hash.

Python itself would rather take the bytecode that lies beside a file, which may be of another text and which nobody reads.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from neurotest.errors import BadInput

OURS = Path(__file__).resolve().parents[1]

_ran: dict[Path, str] = {}  # files that this process has run, and the hash of the text that it ran
_imports: dict[Path, set[Path]] = {}
_expected: ContextVar[Mapping[Path, str] | None] = ContextVar("expected", default=None)


class _TextLoader(SourceFileLoader):
    """Reads a file once, compares that text with the hash it should have, and runs it."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        content, file = self.get_data(path), Path(path).resolve()
        digest = hashlib.sha256(content).hexdigest()
        if (expected := (_expected.get() or {}).get(file, digest)) != digest:
            message = f"the code: {file} has changed while it was opened (sha256 {digest[:16]}, not {expected[:16]}): try again."
            raise BadInput("changed", "code", message)
        _ran[file] = digest
        code: CodeType = self.source_to_code(content, path)
        return code


class _TextFinder(MetaPathFinder):
    """Finds what Python finds; files of the user's own get the loader above."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader and not _installed(Path(spec.loader.path).resolve()):
            spec.loader = _TextLoader(spec.loader.name, spec.loader.path)
            spec.cached = None
        return spec


def _installed(file: Path) -> bool:
    """Whether a file belongs to Python, to an installed package or to neurotest."""
    folders = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), OURS}
    return bool(folders & set(file.parents) or {"site-packages", "dist-packages"} & set(file.parts))


@contextmanager
def from_text() -> Iterator[None]:
    """Meanwhile files of the user's own are run from their text."""
    finder = _TextFinder()
    place = next((i for i, one in enumerate(sys.meta_path) if one is PathFinder), len(sys.meta_path))
    sys.meta_path.insert(place, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def expecting(hashes: Mapping[Path, str]) -> Iterator[None]:
    """Meanwhile these files are run only with these hashes."""
    before = _expected.set(hashes)
    try:
        yield
    finally:
        _expected.reset(before)


def run_file(file: Path) -> Any:
    """The module that a file makes."""
    if not file.is_file():
        raise BadInput("not-found", "target", f"py:{file}: no such file.")
    name = f"neurotest_target_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file, loader=_TextLoader(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles of the file look themselves up here
    spec.loader.exec_module(module)
    return module


def ran(file: Path) -> str | None:
    """The hash of the text of a file that this process has run."""
    return _ran.get(file.resolve())


def imported(file: Path) -> tuple[Path, ...]:
    """The files beside a `py:` file that it imported while it was loaded in this process."""
    return tuple(sorted(_imports.get(file, ())))


@contextmanager
def noting_imports(where: str, is_file: bool) -> Iterator[None]:
    """Note which files beside the user's own it imports: they are its code, too, whatever they are written in."""
    before = set(sys.modules)
    yield
    origin = where if is_file else getattr(sys.modules.get(where), "__file__", None)
    if origin is None:
        return
    file = Path(origin).resolve()
    top = file.parent if is_file else file.parents[where.count(".") + (file.name == "__init__.py")]
    for name in set(sys.modules) - before:
        other = getattr(sys.modules.get(name), "__file__", None)
        path = Path(other).resolve() if isinstance(other, str) else file
        if path != file and path.is_relative_to(top) and not _installed(path):
            _imports.setdefault(file, set()).add(path)
