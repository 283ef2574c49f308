"""Describing into a run: interrupted and resumed it is what it would have been; runs of others give no snapshots."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from neurotest.errors import BadInput, Interrupted, Remark
from neurotest.runs.store import Run
from neurotest.semantics.describe import work
from neurotest.semantics.describe.work import recorded

from .subjects import source, target

pytestmark = pytest.mark.plain

FILES = ("descriptions.csv", "exemplars.csv", "rating.csv", "sheets/00-relu-0000.png", "sheets/01-fc-0000.png")
SETTINGS = {"k": 4, "quantile": 0.99, "batch": 8, "seed": 0, "limit": None, "cache": False}


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(work, "PAUSE", 0.0)


def interrupted(run: Path, batches: int) -> None:
    """A run that stops after so many batches of eight inputs."""

    def stop(done: int, total: int) -> None:
        assert total == 40
        if done >= 8 * batches:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=f"neurotest describe --resume {run}"):
        recorded(target(), source(), "class-profile", None, out=run, progress=stop, **SETTINGS)


def resume(run: Path, **changes: object) -> list[int]:
    """Go on; gives the number of inputs seen after each batch."""
    seen: list[int] = []
    nothing = {name: None for name in SETTINGS if name != "cache"}
    recorded(target(), source(), None, None, resume=run, progress=lambda done, _: seen.append(done), cache=False,
             **{**nothing, **changes})  # fmt: skip
    return seen


def test_files_have_their_names(tmp_path: Path) -> None:
    named = source()
    named.names = np.array([f"folder/=image {i}.png" for i in range(40)], dtype=object)
    recorded(target(), named, "class-profile", None, out=tmp_path / "run", **SETTINGS)
    with open(tmp_path / "run" / "exemplars.csv", newline="") as text:
        rows = list(csv.DictReader(text))
    assert rows
    assert all(row["file"] == f"folder/=image {row['position']}.png" for row in rows)
    with Run.open(tmp_path / "run") as run:
        assert {row.position: row.name for row in run.inputs()} == {int(row["position"]): row["file"] for row in rows}


@pytest.mark.parametrize("batches", [1, 2, 4])
def test_a_resumed_run_is_what_it_would_have_been(tmp_path: Path, batches: int) -> None:
    recorded(target(), source(), "class-profile", None, out=tmp_path / "whole", **SETTINGS)
    interrupted(tmp_path / "run", batches)
    assert (tmp_path / "run" / work.PASS).is_file()
    assert resume(tmp_path / "run") == list(range(8 * batches + 8, 41, 8))
    for file in FILES:
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file
    assert not (tmp_path / "run" / work.PASS).exists()
    with Run.open(tmp_path / "run") as run, Run.open(tmp_path / "whole") as whole:
        assert run["summary"] == whole["summary"]
        assert run.inputs() == whole.inputs()
    with pytest.raises(BadInput, match="is finished"):
        resume(tmp_path / "run")


def test_a_crash_while_the_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(target(), source(), "class-profile", None, out=tmp_path / "whole", **SETTINGS)
    with monkeypatch.context() as patch:
        patch.setattr("neurotest.semantics.describe.record._write_rating", lambda *a, **k: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            recorded(target(), source(), "class-profile", None, out=tmp_path / "run", **SETTINGS)
    resume(tmp_path / "run")
    for file in FILES:
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file


def test_a_damaged_snapshot_costs_time_only(tmp_path: Path) -> None:
    interrupted(tmp_path / "run", 3)
    file = tmp_path / "run" / work.PASS
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.warns(Remark, match="begins again"):
        assert resume(tmp_path / "run")[0] == 8


def test_a_snapshot_of_another_network_is_refused(tmp_path: Path) -> None:
    interrupted(tmp_path / "run", 3)
    with np.load(tmp_path / "run" / work.PASS) as arrays:
        np.savez(tmp_path / "run" / work.PASS, **{**arrays, "0/values": arrays["0/values"][:, :2]})
    with pytest.warns(Remark, match="is not of the layers"):
        assert resume(tmp_path / "run")[0] == 8


def test_settings_stay_those_of_the_run(tmp_path: Path) -> None:
    interrupted(tmp_path / "run", 3)
    with pytest.raises(BadInput, match=r"k=7: .* was started with 4"):
        resume(tmp_path / "run", k=7)
    with pytest.raises(BadInput, match="data are not those"):
        recorded(target(), source(20), None, None, resume=tmp_path / "run", cache=False)
    with pytest.raises(BadInput, match="leave out --out"):
        recorded(target(), source(), None, None, resume=tmp_path / "run", out=tmp_path / "other")
