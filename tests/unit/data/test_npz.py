"""npz: which arrays, which order of axes, and files that are not what they say."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from neurotest.data import data, npz
from neurotest.errors import BadInput

X = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
Y = np.array([1, 0])


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    path = tmp_path / "pool.npz"
    np.savez_compressed(path, x=X, y=Y, images=X[::-1].astype(np.float64) / 255, last=X.transpose(0, 2, 3, 1), grey=X[:, 0])
    return path


def both(spec: str, **options: Any) -> np.ndarray:
    return data(spec, **options).read([0, 1])


def test_named_arrays(pool: Path) -> None:
    source = data(f"npz:{pool}#x,y")
    assert (source.read([0, 1]) == X).all()
    assert source.labels is not None
    assert source.labels.tolist() == [1, 0]
    assert data(f"npz:{pool}#x").labels is None
    assert data(f"npz:{pool}").labels is not None


def test_float64_is_read_as_float32(pool: Path) -> None:
    read = both(f"npz:{pool}#images,y")
    assert read.dtype == np.float32
    assert np.allclose(read, X[::-1] / 255)


@pytest.mark.parametrize("names", ["last,nhwc", "last,y,nhwc"])
def test_channels_last(pool: Path, names: str) -> None:
    assert (both(f"npz:{pool}#{names}") == X).all()
    with pytest.raises(BadInput, match=r"channels come last.*nhwc"):
        data(f"npz:{pool}#last,y", shape=(3, 4, 5))


def test_grey_images_may_lack_the_channel_axis(pool: Path) -> None:
    assert data(f"npz:{pool}#grey").shape == (1, 4, 5)
    assert data(f"npz:{pool}#grey", shape=(4, 5)).shape == (4, 5)


def test_feature_vectors(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", x=np.ones((3, 7), np.float32))
    assert data(f"npz:{tmp_path}/f.npz").shape == (7,)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.dtype(t) for t in ("u1", "<f4", ">f4", "<f8", "<f2")]),
        hnp.array_shapes(min_dims=2, max_dims=4, min_side=1, max_side=5),
        elements={"min_value": 0, "max_value": 100},
    ),
    st.booleans(),
    st.booleans(),
    st.integers(1, 6),
    st.sampled_from([8, 64, 1 << 20]),
)
def test_whatever_numpy_writes_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, x: np.ndarray, fortran: bool, packed: bool, limit: int, chunk: int
) -> None:
    monkeypatch.setattr(npz, "CHUNK", chunk)
    path = tmp_path / "any.npz"
    (np.savez_compressed if packed else np.savez)(path, x=np.asfortranarray(x) if fortran else x)
    source = data(f"npz:{path}#x", limit=limit)
    expected = x[:limit, None] if x.ndim == 3 else x[:limit]
    expected = expected if x.dtype == np.uint8 else expected.astype(np.float32)
    read = source.read(np.arange(len(source)))
    assert read.dtype == expected.dtype
    assert read.flags.c_contiguous
    assert np.array_equal(read, expected)


def test_a_name_with_a_hash(tmp_path: Path) -> None:
    np.savez(tmp_path / "pool#1.npz", x=X, y=Y)
    assert len(data(f"npz:{tmp_path}/pool#1.npz")) == 2
    assert data(f"npz:{tmp_path}/pool#1.npz#x").labels is None


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("#pixels,y", r"no array named 'pixels'\. Did you mean images"),
        ("#x,label", "no array named 'label'"),
        ("#x,y,y", "expected #x, #x,y or #x,y,nhwc"),
        ("#grey,y,nhwc", "nhwc needs"),
        ("#y", r"shape \(2,\)"),
        ("#x,grey", r"expected one class number per input"),
    ],
)
def test_names_that_do_not_fit(pool: Path, names: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        data(f"npz:{pool}{names}")


def test_without_names_the_arrays_are_listed(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", x_train=X, y_train=Y)
    with pytest.raises(BadInput, match=r"no array x, only x_train, y_train: write npz:.*#IMAGES,LABELS"):
        data(f"npz:{tmp_path}/p.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X, "y": np.arange(3)}, "each input needs exactly one label"),
        ({"x": X, "y": np.eye(2)}, "one-hot"),
        ({"x": X, "y": np.array([0, -1])}, "label -1 of input 1"),
        ({"x": np.full((2, 3), np.nan)}, "input 0 holds NaN"),
        ({"x": np.zeros((0, 1, 2, 2), np.uint8)}, "x is empty"),
        ({"x": np.zeros((2, 0), np.uint8)}, "shape"),
        ({"x": X.astype(np.int64)}, "int64; save them as uint8"),
        ({"x": np.array(["a", "b"])}, "plain array of numbers"),
        ({"x": np.zeros(2, [("a", "u1")])}, "plain array of numbers"),
        ({"x": np.uint8(3)}, "shape"),
    ],
)
def test_arrays_that_cannot_be_used(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "p.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=message):
        data(f"npz:{tmp_path}/p.npz")


def test_labels_that_are_too_few_are_refused_even_behind_a_slice(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", x=X, y=np.arange(1))
    with pytest.raises(BadInput, match="exactly one label"):
        data(f"npz:{tmp_path}/p.npz[:1]")


def test_pickles_are_refused_unread(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", x=np.array([{"a": 1}, None], dtype=object))
    with pytest.raises(BadInput, match=r"pickled Python objects.*refused"):
        data(f"npz:{tmp_path}/p.npz")


def test_missing_folder_npy_and_nonsense(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        data(f"npz:{tmp_path}/gone.npz")
    with pytest.raises(BadInput, match=r"is a folder.*dir:"):
        data(f"npz:{tmp_path}")
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(BadInput, match=r"single .npy array"):
        data(f"npz:{tmp_path}/a.npy")
    (tmp_path / "b.npz").write_bytes(b"nonsense")
    with pytest.raises(BadInput, match="no numpy archive"):
        data(f"npz:{tmp_path}/b.npz")
    (tmp_path / "c.npz").write_bytes(b"")
    with pytest.raises(BadInput, match="no numpy archive"):
        data(f"npz:{tmp_path}/c.npz")


@pytest.mark.parametrize("packed", [True, False])
def test_damage_anywhere_is_one_sentence_or_harmless(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "p.npz"
    (np.savez_compressed if packed else np.savez)(path, x=X, y=Y)
    good = path.read_bytes()
    refused = 0
    for length in range(0, len(good), 7):
        path.write_bytes(good[:length])
        with pytest.raises(BadInput):
            data(f"npz:{path}#x,y")
    for place in range(0, len(good), 3):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        try:
            assert (both(f"npz:{path}#x,y") == X).all()  # the checksums let no changed pixel through
        except BadInput:
            refused += 1
    assert refused > len(good) // 30


def lying(path: Path, shape: str, content: bytes, compression: int = zipfile.ZIP_DEFLATED) -> None:
    """An archive whose array says it has another shape than its bytes allow."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("shape", ["(4, 1, 30000, 30000)", "(2, 5)", "(1000, 1)"])
def test_a_header_that_promises_more_or_less_than_there_is(tmp_path: Path, shape: str, compression: int) -> None:
    lying(tmp_path / "p.npz", shape, b"\0" * 100, compression)
    with pytest.raises(BadInput, match=r"promises .* bytes, the file holds 100"):
        data(f"npz:{tmp_path}/p.npz")


def test_a_negative_side(tmp_path: Path) -> None:
    lying(tmp_path / "p.npz", "(-10, -10)", b"\0" * 100)
    with pytest.raises(BadInput, match="plain array of numbers"):
        data(f"npz:{tmp_path}/p.npz")


def test_an_archive_whose_directory_lies_too(tmp_path: Path) -> None:
    """Header and directory agree on 4 GB, but what is stored cannot unpack to that: no memory is asked for."""
    path = tmp_path / "p.npz"
    lying(path, "(4, 1, 30000, 30000)", b"\0" * 100)
    content = bytearray(path.read_bytes())
    at = content.index(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<I", 128 + 4 * 30000 * 30000)
    path.write_bytes(content)
    with pytest.raises(BadInput, match="promises 3600000128 bytes"):
        data(f"npz:{path}")


def test_more_than_the_cap_needs_a_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "p.npz", x=X)
    monkeypatch.setattr(npz, "MAX_BYTES", 100)
    with pytest.raises(BadInput, match="exceed the 100 read at once; read a part"):
        data(f"npz:{tmp_path}/p.npz")
    assert len(data(f"npz:{tmp_path}/p.npz[:1]")) == 1


def test_an_encrypted_archive(tmp_path: Path) -> None:
    inner = io.BytesIO()
    np.save(inner, X)
    path = tmp_path / "p.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", inner.getvalue())
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + offset] |= 1
    path.write_bytes(content)
    with pytest.raises(BadInput, match="encrypted"):
        data(f"npz:{path}")
