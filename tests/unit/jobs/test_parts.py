"""Finished pieces of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from neurotest.errors import BadInput
from neurotest.jobs.life import begin
from neurotest.jobs.parts import Parts
from neurotest.runs.store import Run


def test_parts_come_back_in_order_and_from_the_disk(tmp_path: Path) -> None:
    with begin("test", tmp_path / "run", {}) as run:
        parts = Parts(run)
        assert (len(parts), list(parts)) == (0, [])
        for number in range(3):
            parts.add({"n": np.array(number), "x": np.full((2, number), number, dtype=np.uint8)})
            assert len(parts) == number + 1
    with Run.open(tmp_path / "run") as run:
        again = list(Parts(run))
    assert [int(part["n"]) for part in again] == [0, 1, 2]
    assert [(part["x"].shape, part["x"].dtype) for part in again] == [((2, n), np.dtype(np.uint8)) for n in range(3)]


def test_what_is_no_part_of_the_run_is_not_read(tmp_path: Path) -> None:
    """A crash between the file and its count: the file is written over."""
    with begin("test", tmp_path / "run", {}) as run:
        parts = Parts(run)
        parts.add({"n": np.array(1)})
        run["parts"] = 0
        assert list(parts) == []
        parts.add({"n": np.array(2)})
        assert [int(part["n"]) for part in parts] == [2]


def test_nothing_that_could_run_code_is_written_or_read(tmp_path: Path) -> None:
    with begin("test", tmp_path / "run", {}) as run:
        parts = Parts(run)
        with pytest.raises(ValueError, match="allow_pickle"):
            parts.add({"n": np.array([{}], dtype=object)})
        assert len(parts) == 0
        parts.add({"n": np.array(1)})
        file = next((tmp_path / "run" / "parts").iterdir())
        with open(file, "wb") as out:
            np.savez(out, n=np.array([{}], dtype=object))
        with pytest.raises(BadInput, match=r"cannot be read \(ValueError\): the run is damaged"):
            list(parts)


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 and no more", b"text"])
def test_a_damaged_part_is_named(tmp_path: Path, content: bytes | None) -> None:
    with begin("test", tmp_path / "run", {}) as run:
        parts = Parts(run)
        for number in range(2):
            parts.add({"n": np.array(number)})
        file = sorted((tmp_path / "run" / "parts").iterdir())[1]
        file.unlink() if content is None else file.write_bytes(content)
        reading = iter(parts)
        assert int(next(reading)["n"]) == 0
        with pytest.raises(BadInput, match=rf"{file.name} cannot be read .*the run is damaged"):
            next(reading)


def test_clearing_takes_the_files_away_and_may_come_twice(tmp_path: Path) -> None:
    with begin("test", tmp_path / "run", {}) as run:
        parts = Parts(run)
        parts.add({"n": np.array(1)})
        for _ in range(2):
            parts.clear()
            assert not (tmp_path / "run" / "parts").exists()
