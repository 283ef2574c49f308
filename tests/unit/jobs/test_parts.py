"""Finished pieces of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from neurotest.errors import Remark
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
        run["parts digests"] = [None]  # as runs of the first versions have it
        with pytest.warns(Remark, match=r"pickled Python objects.*done again from this part on"):
            assert list(parts) == []


@pytest.mark.parametrize("digests", [True, False])
@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 and no more", b"text"])
def test_from_a_damaged_part_on_the_work_is_done_again(tmp_path: Path, content: bytes | None, digests: bool) -> None:
    with begin("test", tmp_path / "run", {}) as run:
        parts = Parts(run)
        for number in range(3):
            parts.add({"n": np.array(number)})
        if not digests:  # as runs of the first versions have it
            del run["parts digests"]
        file = sorted((tmp_path / "run" / "parts").iterdir())[1]
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.warns(Remark, match=rf"{file.name}.*The work is done again from this part on"):
            assert [int(part["n"]) for part in parts] == [0]
        assert len(parts) == 1
        parts.add({"n": np.array(5)})
        assert [int(part["n"]) for part in parts] == [0, 5]


def test_another_part_than_was_written_is_not_used(tmp_path: Path) -> None:
    with begin("test", tmp_path / "run", {}) as run:
        parts = Parts(run)
        parts.add({"n": np.array(1)})
        np.savez_compressed(tmp_path / "run" / "parts" / "000000.npz", n=np.array(2))
        with pytest.warns(Remark, match="is not what was written"):
            assert list(parts) == []


def test_clearing_leaves_what_is_not_ours(tmp_path: Path) -> None:
    with begin("test", tmp_path / "run", {}) as run:
        Parts(run).add({"n": np.array(1)})
        (tmp_path / "run" / "parts" / "my-notes.npz").write_text("mine")
        Parts(run).clear()
    assert [file.name for file in (tmp_path / "run" / "parts").iterdir()] == ["my-notes.npz"]


def test_clearing_takes_the_files_away_and_may_come_twice(tmp_path: Path) -> None:
    with begin("test", tmp_path / "run", {}) as run:
        parts = Parts(run)
        parts.add({"n": np.array(1)})
        for _ in range(2):
            parts.clear()
            assert not (tmp_path / "run" / "parts").exists()
