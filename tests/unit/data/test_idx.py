"""idx: plain and gzipped, with and without labels, damaged."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from neurotest.data import data, npz
from neurotest.errors import BadInput

X = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
Y = np.array([2, 0, 1], np.uint8)
Write = Callable[[Path, np.ndarray], None]


@pytest.fixture(params=["", ".gz"])
def prefix(tmp_path: Path, write_idx: Write, request: pytest.FixtureRequest) -> Path:
    write_idx(tmp_path / f"some-images-idx3-ubyte{request.param}", X)
    write_idx(tmp_path / f"some-labels-idx1-ubyte{request.param}", Y)
    return tmp_path / "some"


def images(prefix: Path) -> Path:
    return next(prefix.parent.glob("some-images*"))


def test_images_and_labels(prefix: Path) -> None:
    source = data(f"idx:{prefix}")
    assert source.shape == (1, 4, 5)
    assert (source.read([0, 1, 2])[:, 0] == X).all()
    assert source.labels is not None
    assert source.labels.tolist() == [2, 0, 1]
    part = data(f"idx:{prefix}[1:2]")
    assert (part.read([0])[0, 0] == X[1]).all()


def test_without_labels_it_is_unlabelled(prefix: Path) -> None:
    next(prefix.parent.glob("some-labels*")).unlink()
    assert data(f"idx:{prefix}").labels is None


@pytest.mark.parametrize("part", ["", "[:2]"])
def test_label_count_mismatch(prefix: Path, write_idx: Write, part: str) -> None:
    write_idx(next(prefix.parent.glob("some-labels*")), Y[:2])
    with pytest.raises(BadInput, match=r"2 labels, .* 3 images"):
        data(f"idx:{prefix}{part}")


def test_missing_files_show_what_is_there(prefix: Path) -> None:
    with pytest.raises(BadInput, match=r"no sone-images-idx3-ubyte.*Did you mean some"):
        data(f"idx:{prefix.parent}/sone")
    with pytest.raises(BadInput, match=f"Did you mean idx:{prefix}"):
        data(f"idx:{prefix.parent}")
    with pytest.raises(BadInput, match="is no folder"):
        data(f"idx:{prefix.parent}/gone/some")


def test_cut_off_anywhere(prefix: Path) -> None:
    file = images(prefix)
    good = file.read_bytes()
    for length in range(len(good)):
        file.write_bytes(good[:length])
        with pytest.raises(BadInput):
            data(f"idx:{prefix}")


def rewrite(file: Path, content: bytes) -> None:
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (struct.pack(">4I", 0x803, 3, 4, 5) + X.tobytes() + b"x", "longer than its header|holds 61"),
        (struct.pack(">4I", 0x803, 4, 4, 5) + X.tobytes(), "ends early|holds 60"),
        (struct.pack(">4I", 0x803, 0, 4, 5), "is empty"),
        (struct.pack(">4I", 0x801, 3, 4, 5) + X.tobytes(), "does not start as an idx file"),
        (struct.pack(">4I", 0xD03, 3, 4, 5) + X.tobytes(), "does not start as an idx file"),
        (struct.pack(">4I", 0x803, 2**32 - 1, 2**32 - 1, 2**32 - 1), "promises"),
        (struct.pack(">4I", 0x803, 60000, 280, 280), "promises"),
        (b"", "does not start as an idx file"),
    ],
)
def test_headers_that_lie(prefix: Path, content: bytes, message: str) -> None:
    rewrite(images(prefix), content)
    with pytest.raises(BadInput, match=message):
        data(f"idx:{prefix}")


def test_a_changed_byte_in_a_gzipped_file_is_noticed(tmp_path: Path, write_idx: Write) -> None:
    file = tmp_path / "some-images-idx3-ubyte.gz"
    write_idx(file, X)
    content = bytearray(file.read_bytes())
    content[-6] ^= 0xFF  # in the checksum
    file.write_bytes(content)
    with pytest.raises(BadInput, match="damaged"):
        data(f"idx:{tmp_path}/some")


def test_more_than_the_cap_needs_a_slice(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "MAX_BYTES", 40)
    with pytest.raises(BadInput, match="exceed the 40 read at once"):
        data(f"idx:{prefix}")
    assert len(data(f"idx:{prefix}[:2]")) == 2
