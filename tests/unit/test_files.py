"""Files appear whole or not at all, and paths stay inside."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.refusals import refused

from neurotest import files


def test_written_whole(tmp_path: Path) -> None:
    place = tmp_path / "new" / "folder" / "a.txt"
    files.write_text(place, "ä\n")
    assert place.read_bytes() == "ä\n".encode()
    files.write_bytes(place, b"again")
    assert place.read_bytes() == b"again"
    files.write_json(tmp_path / "a.json", {"b": [1, None]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"b": [1, None]}
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.json", "a.txt", "folder", "new"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    place = tmp_path / "a.txt"
    place.write_text("old")

    def fail() -> None:
        with files.atomic_write(place) as part:
            part.write_text("half")
            raise error("stop")

    with pytest.raises(error, match="stop"):
        fail()
    assert place.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_json_without_numbers_that_json_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "a.json", {"a": float("nan")})
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written_to_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused("not-writable"):
        files.write_text(tmp_path / "file" / "a.txt", "x")
    (tmp_path / "folder").mkdir()
    with refused("not-writable"):
        files.write_text(tmp_path / "folder", "x")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_the_cache_can_be_put_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEUROTEST_DATA", raising=False)
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path))
    assert files.cache_dir() == tmp_path
    assert files.data_dir() == tmp_path / "data"
    monkeypatch.setenv("NEUROTEST_DATA", str(tmp_path / "sets"))
    assert files.data_dir() == tmp_path / "sets"
    monkeypatch.delenv("NEUROTEST_CACHE")
    assert files.cache_dir() == Path.home() / ".cache" / "neurotest"


def test_what_is_written_is_synced_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut must not leave a name without its content."""
    order: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append(f"sync {os.fstat(handle).st_size}"), fsync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda part, path: (order.append("rename"), replace(part, path))[1])
    files.write_bytes(tmp_path / "a.bin", b"12345")
    assert order == ["sync 5", "rename"]


def test_the_temporary_file_is_hidden_beside_its_place_and_named_after_the_process(tmp_path: Path) -> None:
    with files.atomic_write(tmp_path / "a.txt") as part:
        part.write_text("x")
        assert part.parent == tmp_path
        assert part.name == f".a.txt.{os.getpid()}.part"
        assert not (tmp_path / "a.txt").exists()


def test_a_block_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with refused("not-writable"), files.atomic_write(tmp_path / "a.txt"):
        pass
    assert not list(tmp_path.iterdir())


def test_json_is_readable_and_ends_with_a_line(tmp_path: Path) -> None:
    files.write_json(tmp_path / "a.json", {"b": [1]})
    assert (tmp_path / "a.json").read_text() == '{\n "b": [\n  1\n ]\n}\n'


def test_an_empty_setting_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", "")
    monkeypatch.setenv("NEUROTEST_DATA", "")
    assert files.cache_dir() == Path.home() / ".cache" / "neurotest"
    assert files.data_dir() == Path.home() / ".cache" / "neurotest" / "data"


def dead() -> int:
    """The number of a process that has ended."""
    import subprocess

    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_what_a_process_that_died_was_writing_goes_with_the_next_one(tmp_path: Path) -> None:
    gone, parent = dead(), os.getppid()
    for name in (f".a.txt.{gone}.part", f".a.txt.{parent}.part", f".b.txt.{gone}.part", ".a.txt.mine.part"):
        (tmp_path / name).touch()
    (tmp_path / f".folder.{gone}.part" / "inner").mkdir(parents=True)
    files.write_text(tmp_path / "a.txt", "x")
    with files.atomic_folder(tmp_path / "folder") as part:
        (part / "b").touch()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(
        [f".a.txt.{parent}.part", f".b.txt.{gone}.part", ".a.txt.mine.part", "a.txt", "folder"]
    )


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        with files.atomic_folder(tmp_path / name) as part:
            (part / "a").touch()
            assert not list(tmp_path.glob(f"{name}/*"))
        assert [file.name for file in (tmp_path / name).iterdir()] == ["a"]
    with refused("not-writable"), files.atomic_folder(tmp_path / "new") as part:
        (part / "b").touch()
    with pytest.raises(RuntimeError), files.atomic_folder(tmp_path / "third"):
        raise RuntimeError
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["a", "a", "empty", "new"]


@pytest.mark.parametrize(
    ("handle", "error", "code", "there"),
    [(7, 0, 259, True), (7, 0, 0, False), (None, 87, 0, False), (None, 5, 0, True)],  # running, ended, unknown, of another user
)
def test_whether_a_process_is_there_is_asked_of_windows_without_a_signal(
    monkeypatch: pytest.MonkeyPatch, handle: int | None, error: int, code: int, there: bool
) -> None:
    import ctypes

    closed: list[int | None] = []

    def exit_code(process: Any, place: Any) -> None:
        place._obj.value = code

    kernel = SimpleNamespace(
        OpenProcess=lambda access, inherit, number: handle,
        GetExitCodeProcess=exit_code,
        CloseHandle=lambda process: closed.append(process.value),
    )
    monkeypatch.setattr(ctypes, "WinDLL", lambda name, use_last_error: kernel, raising=False)
    monkeypatch.setattr(ctypes, "get_last_error", lambda: error, raising=False)
    assert files._alive_on_windows(1234) is there
    assert closed == [handle] * (handle is not None)
    assert files._alive_on_windows(1 << 40) is False
