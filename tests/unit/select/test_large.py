"""Scores of data of any size: the same as a selection's, once each, whatever dies on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import only_hanging_takes_time

import neurotest
from neurotest.data.spec import data as open_data
from neurotest.errors import BadInput
from neurotest.executor import Executor, _current
from neurotest.scale.opening import open_executor
from neurotest.select import large
from neurotest.select.api import compare

pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow (pip install 'neurotest[data]').")
pa = pytest.importorskip("pyarrow")

TARGET, POOL, TRAIN = "zoo:mnist-lenet1", "zoo:mnist/test[:900]", "zoo:mnist/train[:400]"
METHODS = ["deepgini", "nss", "mdsa", "nearest"]


def stored(run: Path) -> Any:
    return pq.read_table(run / "scores", use_threads=False)


def test_scores_are_those_of_a_selection(tmp_path: Path) -> None:
    result = neurotest.score(TARGET, POOL, METHODS, train=TRAIN, budget=30, batch=50, out=tmp_path / "run")
    selected = compare(TARGET, POOL, METHODS, 30, train=TRAIN, batch=50)
    table = stored(tmp_path / "run")
    assert table["position"].to_pylist() == list(range(900))
    assert table["id"].to_pylist() == [str(i) for i in range(900)]
    for name, selection in selected.items():
        assert np.array_equal(table[f"score {name}"].to_numpy(), selection.all_scores), name
        assert result.methods[name]["indices"] == selection.indices.tolist()
        assert result.methods[name]["scores"] == selection.scores.tolist()
    assert result.accuracy == float((open_data(POOL).labels == table["predicted"].to_numpy()).mean())
    assert (result.inputs, result.scored, result.set_aside) == (900, 900, ())


def test_a_diverse_batch_is_the_selections_too(tmp_path: Path) -> None:
    result = neurotest.score(TARGET, POOL, "deepgini", budget=20, spread=True, batch=50, out=tmp_path / "run")
    selection = neurotest.select(TARGET, POOL, "deepgini", 20, spread=True, batch=50)
    assert result.methods["deepgini"]["indices"] == selection.indices.tolist()


def test_parts_that_are_gone_or_damaged_are_made_again_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = large._score

    def stops(shared: Any, piece: Any) -> Any:
        if len(seen) == 5:
            raise KeyboardInterrupt
        seen.append(piece.start)
        return real(shared, piece)

    monkeypatch.setattr(large, "_score", stops)
    with pytest.raises(neurotest.NeurotestError, match="--resume"):
        neurotest.score(TARGET, POOL, "deepgini", batch=25, budget=10, out=tmp_path / "run")
    assert [p.name for p in sorted((tmp_path / "run" / "scores").iterdir())] == ["00000000.parquet"]  # 16 batches each
    seen.clear()
    monkeypatch.setattr(large, "_score", lambda shared, piece: (seen.append(piece.start), real(shared, piece))[1])
    first = (tmp_path / "run" / "scores" / "00000000.parquet").stat().st_mtime_ns
    result = neurotest.score(resume=tmp_path / "run")
    assert seen == list(range(400, 900, 100))
    assert (tmp_path / "run" / "scores" / "00000000.parquet").stat().st_mtime_ns == first
    whole = neurotest.score(TARGET, POOL, "deepgini", batch=25, budget=10, out=tmp_path / "other")
    assert stored(tmp_path / "run").equals(stored(tmp_path / "other"))
    assert result.methods == whole.methods


def test_a_damaged_part_is_scored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large._Scores, "_result", lambda self, run: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(neurotest.NeurotestError, match="3 of 3 parts"):
        neurotest.score(TARGET, POOL, "deepgini", batch=25, budget=10, out=tmp_path / "run")
    monkeypatch.undo()
    before = stored(tmp_path / "run")
    (tmp_path / "run" / "scores" / "00000001.parquet").write_bytes(b"PAR1")
    neurotest.score(resume=tmp_path / "run")
    assert stored(tmp_path / "run").equals(before)


def test_inputs_that_cannot_be_read_are_set_aside_one_by_one(tmp_path: Path) -> None:
    import io

    from PIL import Image

    rng = np.random.default_rng(0)
    rows = []
    for x in rng.integers(0, 256, (60, 28, 28), dtype=np.uint8):
        content = io.BytesIO()
        Image.fromarray(x).save(content, "PNG")
        rows.append(content.getvalue())
    rows[7], rows[33] = rows[7][:60], b"none"
    pq.write_table(pa.table({"image": rows, "id": [f"k{i}" for i in range(60)]}), tmp_path / "d.parquet", row_group_size=9)
    result = neurotest.score(TARGET, f"parquet:{tmp_path / 'd.parquet'}", "deepgini", batch=10, budget=5, out=tmp_path / "run")
    assert [(one["first"], one["last"], one["ids"]) for one in result.set_aside] == [(7, 7, ["k7"]), (33, 33, ["k33"])]
    assert "k33 is no PNG, JPEG or WebP image" in result.set_aside[1]["reason"]
    assert result.scored == 58
    assert stored(tmp_path / "run")["id"].to_pylist() == [f"k{i}" for i in range(60) if i not in (7, 33)]
    assert any("2 of 60 inputs are set aside (first: k7" in note for note in result.notes)


NETWORK = '''
import os, signal, threading
import torch
from torch import nn

class Deadly(nn.Module):
    """A picture whose first pixel is 255 kills the process, 254 hangs it. What looks at the network beforehand has none."""
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 3)
    def forward(self, x):
        first = (x[:, 0, 0, 0] * 255).round()
        if (first == 255).any():
            os.kill(os.getpid(), signal.SIGKILL)
        if (first == 254).any():
            threading.Event().wait()
        return self.linear(x.flatten(1))

def build():
    torch.manual_seed(0)
    return Deadly().eval()
'''


@pytest.fixture
def deadly(tmp_path: Path) -> tuple[str, str, np.ndarray]:
    (tmp_path / "deadly.py").write_text(NETWORK)
    x = np.random.default_rng(0).integers(0, 250, (130, 1, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", x=x)
    return f"py:{tmp_path / 'deadly.py'}:build", f"npz:{tmp_path / 'x.npz'}", x


@pytest.fixture(params=["processes", pytest.param("ray", marks=pytest.mark.ray)])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    import importlib.util

    if request.param == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: `make test-ray` brings it.")
    executor = open_executor(2, "local" if request.param == "ray" else None)
    token = _current.set(executor)
    yield executor
    _current.reset(token)
    executor.close()


@pytest.mark.slow  # a worker has to be given time before it counts as hanging
def test_batches_on_which_workers_die_or_hang_are_set_aside_and_the_others_scored(
    deadly: tuple[str, str, np.ndarray], executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, data, x = deadly
    only_hanging_takes_time(executor, lambda piece: 77 in piece.index, monkeypatch)
    x[42, 0, 0, 0], x[77, 0, 0, 0] = 255, 254
    np.savez(data.removeprefix("npz:"), x=x)
    result = neurotest.score(
        neurotest.load(target, size="1x4x4"), data, "margin", batch=10, budget=5, timeout=0.5, out=tmp_path / "run"
    )
    assert [(one["first"], one["last"]) for one in result.set_aside] == [(40, 49), (70, 79)]
    assert "its worker was lost" in result.set_aside[0]["reason"]
    assert "its worker was lost: no answer within" in result.set_aside[1]["reason"]
    expected = [i for i in range(130) if not 40 <= i < 50 and not 70 <= i < 80]
    assert stored(tmp_path / "run")["position"].to_pylist() == expected


@pytest.mark.parametrize(
    ("method", "options", "says"),
    [
        ("cam:nac", {}, "cam:nac has to see the whole pool at once"),
        ("random", {}, "has to see the whole pool"),
        ("nss:sample=none", {}, "has to see the whole pool"),
        ("nothing", {}, "nothing"),
        ("deepgini", {"timeout": 0}, "timeout=0: expected a number above 0"),
        ("deepgini", {"budget": 2000}, "the pool has only 900 inputs"),
    ],
)
def test_what_cannot_be_done_is_refused(method: str, options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=says):
        neurotest.score(TARGET, POOL, method, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_other_data_or_settings_do_not_resume_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large._Scores, "_result", lambda self, run: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(neurotest.NeurotestError):
        neurotest.score(TARGET, POOL, "deepgini", batch=50, budget=10, out=tmp_path / "run")
    monkeypatch.undo()
    with pytest.raises(BadInput, match="the data are not those"):
        neurotest.score(data="zoo:mnist/test[:800]", resume=tmp_path / "run")
    with pytest.raises(BadInput, match="batch=20"):
        neurotest.score(batch=20, resume=tmp_path / "run")
    with pytest.raises(BadInput, match="needs a target and data"):
        neurotest.score()
