"""Specs: which source, which slice, and the messages about those that name none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.refusals import refused

import neurotest
from neurotest import registry
from neurotest.data import ArraySource, Source, data
from neurotest.data.spec import split_slice
from neurotest.errors import BadInput

ENDS = st.none() | st.integers(-14, 14)
STEPS = st.none() | st.integers(-3, 3).filter(bool)
N = 9


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Input i holds i; label i."""
    path = tmp_path_factory.mktemp("pool") / "pool.npz"
    np.savez(path, x=np.repeat(np.arange(N, dtype=np.uint8), 4).reshape(N, 1, 2, 2), y=np.arange(N))
    return path


@pytest.fixture
def made_split(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A generated split of this test's own, instead of those that need torch."""
    monkeypatch.setitem(registry.KINDS, "split", ())
    monkeypatch.setitem(registry._entries, "split", {})
    registry._load.cache_clear()

    @registry.register("split", "darker", paper="", cost="")
    def darker(*, source: Source, seed: int) -> Source:
        """Every pixel divided by 2 + seed."""
        x = source.read(np.arange(len(source))) // (2 + seed)
        return ArraySource(x, source.labels, spec=source.spec, originals=source, notes={"draws": np.arange(len(source))})

    yield
    registry._load.cache_clear()


def test_slices_by_hand() -> None:
    assert split_slice("npz:a.npz#x,y") == ("npz:a.npz#x,y", slice(None))
    assert split_slice("npz:a.npz#x,y[:1000]") == ("npz:a.npz#x,y", slice(None, 1000, None))
    assert split_slice("zoo:mnist/test[100:200]") == ("zoo:mnist/test", slice(100, 200, None))
    assert split_slice("dir:photos[::2]") == ("dir:photos", slice(None, None, 2))
    assert split_slice("dir:photos@0:1000") == ("dir:photos", slice(0, 1000, None))
    assert split_slice("zoo:mnist/nss-pool@3") == ("zoo:mnist/nss-pool@3", slice(None))
    assert split_slice("zoo:mnist/nss-pool@3[-5:]") == ("zoo:mnist/nss-pool@3", slice(-5, None, None))
    assert split_slice("zoo:mnist/nss-pool@3@0:5") == ("zoo:mnist/nss-pool@3", slice(0, 5, None))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(ENDS, ENDS, STEPS, st.none() | st.integers(1, 12), st.booleans())
def test_slices_equal_python_slices(
    pool: Path, start: int | None, stop: int | None, step: int | None, limit: int | None, at: bool
) -> None:
    expected = list(range(N))[start:stop:step][:limit]
    text = ":".join("" if part is None else str(part) for part in (start, stop, *([] if step is None else [step])))
    spec = f"npz:{pool}@{text}" if at else f"npz:{pool}[{text}]"
    if not expected:
        with refused("empty", "slice"):
            data(spec, limit=limit)
        return
    source = data(spec, limit=limit)
    assert source.labels is not None
    assert source.labels.tolist() == expected
    assert source.read(np.arange(len(source)))[:, 0, 0, 0].tolist() == expected
    assert source.positions.tolist() == expected
    assert source.spec == spec
    assert source.ids().tolist() == data(f"npz:{pool}").ids()[expected].tolist()


@pytest.mark.parametrize("end", ["[5]", "[a:b]", "[::0]", "[1:2:3:4]", "[]", "[:1.5]", "@a:b", "@1:2:0"])
def test_what_is_no_slice(pool: Path, end: str) -> None:
    with refused("syntax", "slice"):
        data(f"npz:{pool}{end}")


@pytest.mark.parametrize("end", ["[:5][:2]", "@0:5[:2]", "[:5]@0:2"])
def test_two_slices_are_refused(pool: Path, end: str) -> None:
    with refused("duplicate", "slice"):
        data(f"npz:{pool}{end}")


def test_a_file_may_be_called_like_a_slice(pool: Path, tmp_path: Path) -> None:
    for name in ("pool[1].npz", "pool@1:2", "pool[:2]"):
        strange = tmp_path / name
        strange.write_bytes(pool.read_bytes())
        assert len(data(f"npz:{strange}")) == N
        assert len(data(f"npz:{strange}[:3]")) == 3


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_must_be_positive(pool: Path, limit: int) -> None:
    with refused("out-of-range", "limit"):
        data(f"npz:{pool}", limit=limit)


def test_a_source_passes_through(pool: Path) -> None:
    source = data(f"npz:{pool}")
    assert data(source) is source
    assert len(data(source, limit=2)) == 2
    with refused("wrong-shape", "size"):
        data(source, shape=(3, 2, 2))


def test_an_empty_source_is_refused() -> None:
    with refused("empty", "data"):
        data(ArraySource(np.zeros((0, 1, 2, 2), np.uint8)))


def test_the_shape_is_checked(pool: Path) -> None:
    assert data(f"npz:{pool}", shape=(1, 2, 2)).shape == (1, 2, 2)
    with refused("wrong-shape", "size"):
        data(f"npz:{pool}", shape=(1, 28, 28))


def test_the_package_can_be_called() -> None:
    source = ArraySource(np.zeros((1, 2), np.uint8))
    assert neurotest.data(source) is source


@pytest.mark.parametrize(
    ("make", "spec", "message"),
    [
        ("pool.npz", "pool.npz", "pool.npz has no source. Did you mean npz:pool.npz ?"),
        ("pool.npz", "pool.npz#a,b", "pool.npz#a,b has no source. Did you mean npz:pool.npz#a,b ?"),
        (None, "gone.npz", "gone.npz has no source. Did you mean npz:gone.npz ?"),
        ("photos/", "photos", "photos has no source. Did you mean dir:photos ?"),
        ("sets/t10k-images-idx3-ubyte.gz", "sets", "sets has no source. Did you mean idx:sets/t10k ?"),
        ("sets/t10k-images-idx3-ubyte.gz", "sets/t10k", "sets/t10k has no source. Did you mean idx:sets/t10k ?"),
        (None, "mnist", "mnist has no source. Did you mean zoo:mnist/test ?"),
        (None, "fashion-mnist/train", "fashion-mnist/train has no source. Did you mean zoo:fashion-mnist/train ?"),
        (
            None,
            "whatever",
            "npz:FILE#x,y, dir:FOLDER, dir:FOLDER#LABELS.csv, parquet:FILE#image,label, webdataset:FILES.tar, wav:",
        ),
        (None, "", "the empty text has no source. Write npz:"),
        ("notes.txt", "notes.txt", "notes.txt has no source. Write npz:"),
        (None, "nzp:pool.npz", "there is no data source 'nzp'. Did you mean npz"),
        (None, "npz:", "npz: names nothing"),
    ],
)
def test_a_spec_without_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: str | None, spec: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if make is not None:
        Path(make).parent.mkdir(exist_ok=True)
        Path(make).mkdir() if make.endswith("/") else Path(make).write_bytes(b"")
    with pytest.raises(BadInput) as error:
        data(spec)
    assert message in str(error.value)


def test_a_path_is_no_spec_either(pool: Path) -> None:
    with refused("missing", "source"):
        data(pool)


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ("zoo:minst/test", ("unknown-name", "data")),
        ("zoo:mnist", ("missing", "split")),
        ("zoo:mnist/", ("missing", "split")),
        ("zoo:mnist/test@3", ("syntax", "split")),
        ("zoo:mnist/tset", ("unknown-name", "split")),
        ("zoo:mnist/darker", ("out-of-range", "seed")),
        ("zoo:mnist/darker@-1", ("out-of-range", "seed")),
        ("zoo:mnist/darker@x", ("out-of-range", "seed")),
    ],
)
def test_zoo_specs_that_name_nothing(made_split: None, spec: str, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        data(spec)


def test_a_generated_split_knows_its_originals(made_split: None, small_zoo: None) -> None:
    split = data("zoo:mnist/darker@1[2:4]")
    assert split.spec == "zoo:mnist/darker@1[2:4]"
    assert split.originals is not None
    assert (split.read([0, 1]) == split.originals.read([0, 1]) // 3).all()
    assert split.originals.ids().tolist() == data("zoo:mnist/test").ids()[2:4].tolist()
    assert split.notes["draws"].tolist() == [2, 3]


def test_every_data_source_is_listed() -> None:
    entries = registry.entries("data source")
    assert {"npz", "idx", "dir", "wav", "zoo"} <= set(entries)
    assert all(entry.summary and entry.cost for entry in entries.values())


def test_importing_data_imports_nothing_slow() -> None:
    code = "import sys, neurotest.data; print(sorted({'torch', 'kornia', 'sklearn', 'scipy', 'PIL'} & set(sys.modules)))"
    env = {**os.environ, "PYTHONPATH": str(Path(neurotest.__file__).parents[1])}
    assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout == "[]\n"
