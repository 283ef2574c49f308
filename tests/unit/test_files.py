"""Files appear whole or not at all, and paths stay inside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neurotest import files
from neurotest.errors import BadInput


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
        with files.whole(place) as part:
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
    with pytest.raises(BadInput, match="cannot write"):
        files.write_text(tmp_path / "file" / "a.txt", "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match="cannot write"):
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


def test_paths_inside(tmp_path: Path) -> None:
    assert files.inside(tmp_path, "inputs/a.png") == tmp_path.resolve() / "inputs" / "a.png"
    assert files.inside(tmp_path, "inputs/../a.png") == tmp_path.resolve() / "a.png"


@pytest.mark.parametrize("path", ["../a", "inputs/../../a", "/etc/passwd", "a\0b", "link/a", "circle/a"])
def test_paths_that_leave_are_refused(tmp_path: Path, path: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "link").symlink_to(tmp_path)
    (run / "circle").symlink_to(run / "circle")
    if path == "circle/a":  # newer Pythons resolve it to a place inside, where nothing can be opened
        try:
            assert files.inside(run, path).is_relative_to(run.resolve())
        except BadInput:
            return
        return
    with pytest.raises(BadInput, match="refused"):
        files.inside(run, path)


def test_an_absolute_path_is_refused_even_if_it_lies_inside(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="refused"):
        files.inside(tmp_path, str(tmp_path / "a"))
