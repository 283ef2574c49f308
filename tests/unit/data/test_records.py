"""Parquet and tar files: read by their numbers, in any order, and refused in one sentence."""

from __future__ import annotations

import io
import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.refusals import refused

import neurotest
from neurotest.errors import BadInput
from neurotest.images import Preprocess
from neurotest.scale.tasks import pack, unpack

pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (pip install 'neurotest[data]').")
pq = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.plain

N = 23
PIXELS = np.random.default_rng(0).integers(0, 256, (N, 3, 6, 5), dtype=np.uint8)
LABELS = np.arange(N) % 4


def png(x: np.ndarray, form: str = "PNG") -> bytes:
    content = io.BytesIO()
    Image.fromarray(x.transpose(1, 2, 0)).save(content, form)
    return content.getvalue()


def write(path: Path, columns: dict[str, Any], rows: int = 5) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=rows)
    return path


def everything(source: neurotest.Source) -> np.ndarray:
    return source.read(np.arange(len(source)))


def columns() -> dict[str, Any]:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(PIXELS))
    return {
        "bytes": [png(x) for x in PIXELS],
        "hugging face": [{"bytes": png(x), "path": None} for x in PIXELS],
        "lists": PIXELS.tolist(),
        "tensor": tensors,
    }


@pytest.mark.parametrize("kind", list(columns()))
def test_rows_are_what_was_written_in_any_order(kind: str, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"image": columns()[kind][:9], "label": LABELS[:9], "id": [f"a{i}" for i in range(9)]})
    write(tmp_path / "b.parquet", {"image": columns()[kind][9:], "label": LABELS[9:], "id": [f"b{i}" for i in range(N - 9)]})
    source = neurotest.data(f"parquet:{tmp_path}")
    assert np.array_equal(everything(source), PIXELS)
    assert source.labels is not None
    assert source.labels.tolist() == LABELS.tolist()
    assert source.keys([0, 8, 9]) == ["a0", "a8", "b0"]
    order = np.random.default_rng(1).permutation(N)
    assert np.array_equal(source.read(order), PIXELS[order])
    part = unpack(pack(source.take(order[:7])))
    assert np.array_equal(everything(part), PIXELS[order[:7]])
    assert part.keys([1]) == source.keys([order[1]])
    assert len(neurotest.data(f"parquet:{tmp_path}[4:9]")) == 5


def test_many_threads_may_read_at_once(tmp_path: Path) -> None:
    for number in range(N):  # more files than stay open
        tar(tmp_path / f"{number:02d}.tar", samples(number, number + 1))
    write(tmp_path / "a.parquet", {"image": [png(x) for x in PIXELS], "id": [f"n{i}" for i in range(N)]}, rows=2)
    for spec in (f"webdataset:{tmp_path}", f"parquet:{tmp_path}"):
        source = neurotest.data(spec)
        assert source.decodes
        orders = [np.random.default_rng(seed).permutation(N) for seed in range(40)]
        with ThreadPoolExecutor(4) as pool:
            for order, rows in zip(orders, pool.map(source.read, orders), strict=True):
                assert np.array_equal(rows, PIXELS[order])


def test_flat_lists_take_the_shape_of_the_target_and_floats_stay(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((7, 12), dtype=np.float32)
    file = write(tmp_path / "f.parquet", {"x": x.tolist(), "y": list(range(7))})
    assert np.array_equal(everything(neurotest.data(f"parquet:{file}", shape=(3, 2, 2))), x.reshape(7, 3, 2, 2))
    assert np.array_equal(everything(neurotest.data(f"parquet:{file}")), x)


def test_class_names_and_columns_of_other_names(tmp_path: Path) -> None:
    file = write(tmp_path / "f.parquet", {"scan": [png(x) for x in PIXELS[:3]], "what": ["b", "a", "b"], "who": [7, 8, 9]})
    source = neurotest.data(f"parquet:{file}#scan,what,who")
    assert source.classes == ("a", "b")
    assert source.labels is not None
    assert source.labels.tolist() == [1, 0, 1]
    assert source.keys([2]) == ["9"]
    table = pa.table({"image": [png(PIXELS[0])], "label": [0]})
    names = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(names)}), file)
    assert neurotest.data(f"parquet:{file}").classes == ("cat", "dog")


def test_pictures_are_fitted_as_the_target_says(tmp_path: Path) -> None:
    file = write(tmp_path / "f.parquet", {"image": [png(x) for x in PIXELS]})
    source = neurotest.data(f"parquet:{file}", shape=(1, 4, 4), preprocess=Preprocess(resize="4", grey=True))
    assert everything(source).shape == (N, 1, 4, 4)
    with refused("unreadable", "input"):
        everything(neurotest.data(f"parquet:{file}", shape=(3, 4, 4)))


@pytest.mark.parametrize(
    ("columns", "spec", "refusal"),
    [
        ({"photo": [b"x"]}, "", ("not-found", "image")),
        ({"image": [b"x"]}, "#img", ("unknown-name", "column")),
        ({"image": [b"x"]}, "", ("unsupported", "image")),
        ({"image": [[[1, 2], [3]]]}, "", ("wrong-shape", "lists")),
        ({"image": [["a"]]}, "", ("wrong-type", "lists")),
        ({"image": [[1.0, None]]}, "", ("wrong-type", "values")),
        ({"image": pa.array([None], pa.binary())}, "", ("empty", "row")),
        ({"image": ["a.png"]}, "", ("wrong-type", "column")),
        ({"image": [{"path": "a.png"}]}, "", ("unsupported", "files")),
        ({"image": [[1, 2]], "label": [None]}, "", ("missing", "labels")),
        ({"image": pa.array([], pa.list_(pa.int8()))}, "", ("empty", "data")),
        ({"image": [[1.0, float("nan")]]}, "", ("not-finite", "inputs")),
        ({"a": [1], "b": [1], "c": [1], "d": [1]}, "#a,b,c,d", ("syntax", "data")),
    ],
)
def test_parquet_that_cannot_be_used_is_refused(
    columns: dict[str, Any], spec: str, refusal: tuple[str, str], tmp_path: Path
) -> None:
    file = write(tmp_path / "f.parquet", columns)
    with refused(*refusal) as caught:
        neurotest.data(f"parquet:{file}{spec}")
    assert "\n" not in str(caught.value)


def test_a_row_that_cannot_be_used_is_named_when_it_is_read(tmp_path: Path) -> None:
    rows = [png(x) for x in PIXELS]
    rows[17] = rows[17][:40]
    source = neurotest.data(f"parquet:{write(tmp_path / 'f.parquet', {'image': rows, 'id': [f'n{i}' for i in range(N)]})}")
    assert np.array_equal(source.read(np.arange(17)), PIXELS[:17])
    with refused("unreadable", "input"):
        source.read(np.arange(10, 20))
    ragged = neurotest.data(f"parquet:{write(tmp_path / 'r.parquet', {'image': [[1, 2], [1, 2, 3]]})}")
    with refused("wrong-shape", "input"):
        everything(ragged)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "f.parquet").write_bytes(b"PAR1 no")
    with refused("unreadable"):
        neurotest.data(f"parquet:{tmp_path / 'f.parquet'}")
    with refused("not-found", "files"):
        neurotest.data(f"parquet:{tmp_path / 'none'}")
    write(tmp_path / "a.parquet", {"image": [[1]]})
    write(tmp_path / "f.parquet", {"other": [[1]]})
    with refused("conflict", "columns"):
        neurotest.data(f"parquet:{tmp_path}")


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "a.parquet", {"image": [[1]]})
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with refused("not-installed", "pyarrow"):
        neurotest.data(f"parquet:{file}")


# -- tar files


def tar(path: Path, parts: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def samples(first: int, last: int, label: str = "cls") -> dict[str, bytes]:
    parts: dict[str, bytes] = {}
    for i in range(first, last):
        parts[f"train/{i:05d}.png"] = png(PIXELS[i])
        parts[f"train/{i:05d}.{label}"] = (
            str(LABELS[i]).encode() if label == "cls" else json.dumps({"label": int(LABELS[i])}).encode()
        )
    return parts


@pytest.mark.parametrize("label", ["cls", "json"])
def test_samples_are_what_was_written_in_any_order(label: str, tmp_path: Path) -> None:
    tar(tmp_path / "d-00.tar", samples(0, 9, label))
    tar(tmp_path / "d-01.tar", samples(9, N, label))
    for spec in (f"{tmp_path}", f"{tmp_path}/d-{{00..01}}.tar", f"{tmp_path}/d-*.tar#png,{label}"):
        source = neurotest.data(f"webdataset:{spec}")
        assert np.array_equal(everything(source), PIXELS)
        assert source.labels is not None
        assert source.labels.tolist() == LABELS.tolist()
    order = np.random.default_rng(1).permutation(N)
    part = unpack(pack(source.take(order[:5])))
    assert np.array_equal(everything(part), PIXELS[order[:5]])
    assert part.keys([0]) == [f"train/{order[0]:05d}"]
    assert len(pack(source.take(order[:5]))) < len(pack(source))
    assert neurotest.data(f"webdataset:{tmp_path}#png").labels is None
    assert len(neurotest.data(f"webdataset:{tmp_path}", limit=3)) == 3


def test_arrays_and_names_of_classes(tmp_path: Path) -> None:
    content = io.BytesIO()
    np.save(content, np.ones((2, 3), np.float32))
    file = tar(tmp_path / "a.tar", {"a.npy": content.getvalue(), "a.cls": b"dog", "b.npy": content.getvalue(), "b.cls": b"cat"})
    source = neurotest.data(f"webdataset:{file}")
    assert source.shape == (2, 3)
    assert source.classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("parts", "spec", "refusal"),
    [
        ({"a.txt": b"x"}, "", ("empty", "samples")),
        ({"a.png": b"x", "a.jpg": b"x"}, "", ("ambiguous", "input")),
        ({"a.png": b"no"}, "", ("unsupported", "image")),
        ({"a.png": png(PIXELS[0]), "a.cls": b"1", "b.png": png(PIXELS[0])}, "", ("missing", "labels")),
        ({"a.png": png(PIXELS[0]), "a.json": b"{"}, "", ("unreadable", "label")),
        ({"a.png": png(PIXELS[0]), "a.json": b'{"x": 1}'}, "", ("missing", "label")),
        ({"a.npy": b"\x93NUMPY"}, "", ("unsupported", "")),
        ({"a.png": b"x"}, "#a,b,c", ("syntax", "data")),
    ],
)
def test_tar_files_that_cannot_be_used_are_refused(
    parts: dict[str, bytes], spec: str, refusal: tuple[str, str], tmp_path: Path
) -> None:
    with refused(*refusal) as caught:
        neurotest.data(f"webdataset:{tar(tmp_path / 'a.tar', parts)}{spec}")
    assert "\n" not in str(caught.value)


def test_damaged_and_compressed_tar_files(tmp_path: Path) -> None:
    file = tar(tmp_path / "a.tar", samples(0, 5))
    content = file.read_bytes()
    file.write_bytes(content[:600])
    with refused("damaged", "member"):
        neurotest.data(f"webdataset:{file}")
    file.write_bytes(b"no tar" * 200)
    with refused("damaged", "archive"):
        neurotest.data(f"webdataset:{file}")
    import gzip

    file.write_bytes(gzip.compress(content))
    with refused("damaged", "archive"):
        neurotest.data(f"webdataset:{file}")
    file.write_bytes(content)
    source = neurotest.data(f"webdataset:{file}")
    file.write_bytes(content[:1100])
    with refused("changed", "file"):
        everything(source)


@settings(max_examples=25)
@given(cut=st.integers(0, 4000), kind=st.sampled_from(["tar", "parquet"]))
def test_a_file_cut_off_anywhere_is_read_or_refused(cut: int, kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cut")
    if kind == "tar":
        file, spec = tar(folder / "a.tar", samples(0, 3)), f"webdataset:{folder / 'a.tar'}"
    else:
        file = write(folder / "a.parquet", {"image": [png(x) for x in PIXELS[:3]], "label": [0, 1, 2]})
        spec = f"parquet:{file}"
    whole, content = everything(neurotest.data(spec)), file.read_bytes()
    file.write_bytes(content[:cut])
    try:
        read = everything(neurotest.data(spec))
    except BadInput:  # any other error is a failure
        assert cut < len(content)
        return
    assert 0 < len(read) <= len(whole)
    assert np.array_equal(read, whole[: len(read)])
