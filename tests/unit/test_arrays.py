"""Arrays from files that nobody vouches for."""

from __future__ import annotations

import io
import resource
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.refusals import refused

from neurotest.arrays import MAGIC, map_npy, open_archive, read_header, read_npz
from neurotest.errors import BadInput

LARGEST = 1 << 20
TYPES = st.sampled_from(["|b1", "|u1", "<i2", ">i4", "<i8", "<f4", ">f8", "<f2", "<U5", "|S3"])


def archive(method: int = zipfile.ZIP_DEFLATED, **members: bytes) -> io.BytesIO:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return out


def npy(shape: str, descr: str = "<f4", content: bytes = b"", fortran: str = "False") -> bytes:
    header = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n" + content


@settings(max_examples=60, deadline=None)
@given(x=TYPES.flatmap(lambda t: hnp.arrays(t, hnp.array_shapes(min_dims=0, min_side=0, max_side=5))), packed=st.booleans())
def test_what_numpy_writes_is_read_as_numpy_reads_it(x: np.ndarray, packed: bool) -> None:
    out = io.BytesIO()
    written = {"x": x, "turned": np.asfortranarray(x)}
    (np.savez_compressed if packed else np.savez)(out, **written)
    arrays = read_npz(out, "file", largest=LARGEST, text=True)
    for name, array in written.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        assert arrays[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_bomb_by_another_method_is_refused_before_it_is_unpacked(method: int) -> None:
    """2 GB of zeros are 1.8 kB by bzip2; nothing but the method says so before it is too late."""
    zeros = npy("(1000, 20000)", content=bytes(80_000_000))
    packed = archive(method, x=zeros)
    assert len(packed.getvalue()) < 20_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with refused("unsupported", "compression"):
        read_npz(packed, "file", largest=1 << 33)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # kB


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        (b"", ("unsupported", "")),
        (b"\x93NUMPY", ("unsupported", "")),
        (npy("(29, 1099511627776)"), ("damaged", None)),
        (npy("(3,)", content=bytes(11)), ("damaged", "size")),
        (npy("(3,)", content=bytes(13)), ("damaged", "size")),
        (npy("(-3,)"), ("wrong-shape", "")),
        (npy("(True,)"), ("wrong-shape", "")),
        (npy("[3]"), ("wrong-shape", "")),
        (npy("(" + "1, " * 33 + ")"), ("wrong-shape", "")),
        (npy("(1,)", "|O"), ("untrusted", "")),
        (npy("(1,)", "<c8"), ("unsupported", "dtype")),
        (npy("(1,)", "<U5"), ("unsupported", "dtype")),
        (npy("(" * 3000), ("damaged", "header")),
        (npy("(9**9**9,)"), ("damaged", "header")),
        (npy("(1,)", fortran="1"), ("wrong-shape", "")),
        (b"\x93NUMPY\x03\x00" + npy("(1,)")[8:], ("unsupported", "version")),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 31), ("too-large", "header")),
    ],
)
def test_what_is_no_plain_array_is_refused(content: bytes, refusal: tuple[str, str | None]) -> None:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with refused(*refusal):
            read_npz(archive(method, x=content), "file", largest=1 << 40)


def test_what_is_larger_than_allowed_is_refused() -> None:
    out = io.BytesIO()
    np.savez(out, a=np.zeros(600, np.uint8), b=np.zeros(600, np.uint8))
    assert len(read_npz(out, "file", largest=1200)) == 2
    with refused("too-large"):
        read_npz(out, "file", largest=1199)
    assert list(read_npz(out, "file", largest=600, names=["b"])) == ["b"]
    with refused("damaged", "c"):
        read_npz(out, "file", largest=600, names=["c"])


@pytest.mark.parametrize("at", range(0, 400, 7))
def test_a_changed_or_cut_archive_is_a_sentence_or_the_same_arrays(at: int) -> None:
    out = io.BytesIO()
    np.savez_compressed(out, x=np.arange(50, dtype=np.int32))
    content = out.getvalue()
    flipped = bytearray(content)
    flipped[at % len(content)] ^= 0xFF
    for broken in (bytes(flipped), content[: at % len(content)]):
        try:
            arrays = read_npz(io.BytesIO(broken), "file", largest=LARGEST)
        except BadInput:
            continue
        assert [a.tolist() for a in arrays.values()] in ([], [list(range(50))])


def test_an_encrypted_archive_is_refused() -> None:
    content = bytearray(archive(x=npy("(0,)")).getvalue())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    with refused("unsupported", "encryption"):
        open_archive(io.BytesIO(bytes(content)), "file")


def test_a_mapped_array(tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for array in (x, np.asfortranarray(x), x[:0]):
        np.save(tmp_path / "x.npy", array)
        with open(tmp_path / "x.npy", "rb") as file:
            mapped = map_npy(file, "x", largest=LARGEST)
        assert np.array_equal(mapped, array)
        assert not mapped.flags.writeable or not mapped.size
    np.save(tmp_path / "x.npy", x)
    with open(tmp_path / "x.npy", "rb") as file, refused("damaged", "size"):
        map_npy(file, "x", largest=95)


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=200) | st.binary(max_size=100).map(lambda b: b"\x93NUMPY\x01\x00" + b))
def test_any_bytes_as_a_header(content: Any) -> None:
    with refused(("unsupported", "damaged", "too-large"), None):
        read_header(io.BytesIO(content), "x")


def test_deep_nesting_in_a_header_never_reaches_the_parser() -> None:
    """Python's parser runs out of its own stack there, which looks like a want of memory."""
    text = (b"{'shape': " + b"(" * 300 + b")" * 300 + b"}").ljust(700)
    with refused("damaged", "header") as caught:
        read_header(io.BytesIO(MAGIC + b"\x01\x00" + len(text).to_bytes(2, "little") + text), "x")
    assert isinstance(caught.value.__context__, ValueError)
