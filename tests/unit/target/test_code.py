"""A user's Python files are run from their text, and what was run is what is hashed."""

from __future__ import annotations

import hashlib
import importlib.util
import py_compile
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from neurotest.errors import BadInput
from neurotest.target import load
from neurotest.target.code import expecting, imported, ran
from neurotest.target.spec import TargetSpec

pytestmark = pytest.mark.plain

TEXT = """
from torch import nn
{0}


def build():
    return nn.Sequential(nn.Flatten(), nn.ReLU())
"""
EVIL = "import pathlib\npathlib.Path(__file__).parent.joinpath('evil').touch()\n"
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH  # Python runs it without a look at the text


@pytest.fixture(autouse=True)
def fresh_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "pycache_prefix", None)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:  # neurotest's and torch's stay: a second copy of a class is another class
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def plant(file: Path) -> None:
    """Bytecode of another text beside a file."""
    other = file.with_name("other.py")
    other.write_text(EVIL + file.read_text())
    py_compile.compile(str(other), importlib.util.cache_from_source(str(file)), str(file), invalidation_mode=UNCHECKED)
    other.unlink()


@pytest.mark.parametrize("spec", ["py:{0}/network_text.py:build", "py:network_text:build"])
@pytest.mark.parametrize("planted", ["network_text.py", "helper_text.py"])
def test_bytecode_beside_a_file_is_not_run(
    spec: str, planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper_text.py").write_text("SIZE = 3\n")
    (tmp_path / "network_text.py").write_text(TEXT.format("import helper_text"))
    plant(tmp_path / planted)
    load(spec.format(tmp_path))
    assert not (tmp_path / "evil").exists()
    for name in ("network_text.py", "helper_text.py"):
        assert ran(tmp_path / name) == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()


def test_python_would_run_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above would prove nothing."""
    (tmp_path / "plain_text.py").write_text("SIZE = 3\n")
    plant(tmp_path / "plain_text.py")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("plain_text")
    assert (tmp_path / "evil").exists()


def test_a_helper_without_text_is_code_too(tmp_path: Path) -> None:
    (tmp_path / "compiled_helper.py").write_text("SIZE = 3\n")
    py_compile.compile(str(tmp_path / "compiled_helper.py"), str(tmp_path / "compiled_helper.pyc"))
    (tmp_path / "compiled_helper.py").unlink()
    (tmp_path / "with_helper.py").write_text(TEXT.format("import compiled_helper"))
    target = load(f"py:{tmp_path}/with_helper.py:build")
    assert imported((tmp_path / "with_helper.py").resolve()) == (tmp_path.resolve() / "compiled_helper.pyc",)
    described = TargetSpec.of(target)
    (tmp_path / "compiled_helper.pyc").write_bytes(b"another")
    with pytest.raises(BadInput, match=r"compiled_helper\.pyc has changed"):
        described.open()


def test_the_hash_is_that_of_the_text_that_was_run(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    file.write_text(TEXT.format(""))
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    target = load(f"py:{file}:build")
    file.write_text(TEXT.format("# edited while the command was at work"))
    assert TargetSpec.of(target).code == before


def test_a_text_that_changes_between_the_look_and_the_run_is_not_run(tmp_path: Path) -> None:
    file = tmp_path / "swapped.py"
    file.write_text(EVIL + TEXT.format(""))
    with expecting({file.resolve(): "0" * 64}), pytest.raises(BadInput, match="has changed while it was opened"):
        load(f"py:{file}:build")
    assert not (tmp_path / "evil").exists()
