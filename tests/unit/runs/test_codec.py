"""What was tested is what is read back, and a person can open it."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from tests.refusals import refused

from neurotest.errors import BadInput
from neurotest.runs import codec

unhurried = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
image_shapes = st.tuples(st.sampled_from([1, 2, 3, 4]), st.integers(1, 9), st.integers(1, 9))


def identical(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def png(width: int, height: int, mode: int = 0, body: bytes = b"") -> bytes:
    """A PNG written by hand: signature, header, data, end."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, mode, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


# by hand


def test_grey_and_colour_become_pictures_that_anybody_can_open(tmp_path: Path) -> None:
    grey = np.array([[[0, 128, 255]]], dtype=np.uint8)
    path = codec.encode(grey, tmp_path / "grey")
    assert path == tmp_path / "grey.png"
    with Image.open(path) as image:
        assert (image.mode, image.size, list(image.tobytes())) == ("L", (3, 1), [0, 128, 255])
    colour = np.array([[[1]], [[2]], [[3]]], dtype=np.uint8)
    with Image.open(codec.encode(colour, tmp_path / "colour")) as image:
        assert (image.mode, image.getpixel((0, 0))) == ("RGB", (1, 2, 3))


def test_a_picture_written_by_hand_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(png(2, 2, body=bytes([0, 10, 20, 0, 30, 40])))
    assert codec.decode(tmp_path / "x.png").tolist() == [[[10, 20], [30, 40]]]


def test_floats_are_kept_exactly_with_a_view_beside(tmp_path: Path) -> None:
    x = np.array([[[-1.0, 0.0, 1.0]]], dtype=np.float32)
    path = codec.encode(x, tmp_path / "x", bounds=(-1.0, 1.0))
    assert path.name == "x.npy"
    shown = codec.picture(path)
    assert shown == tmp_path / "x.view.png"
    with Image.open(shown) as image:
        assert list(image.tobytes()) == [0, 128, 255]
    np.testing.assert_array_equal(np.load(path, allow_pickle=False), x)


def test_other_channel_counts_stand_side_by_side_in_the_view(tmp_path: Path) -> None:
    x = np.array([[[10]], [[20]]], dtype=np.uint8)
    shown = codec.picture(codec.encode(x, tmp_path / "x"))
    assert shown is not None
    with Image.open(shown) as image:
        assert (image.mode, image.size, list(image.tobytes())) == ("L", (2, 1), [10, 20])


def test_a_feature_vector_has_no_picture(tmp_path: Path) -> None:
    path = codec.encode(np.array([0.5, np.nan], dtype=np.float32), tmp_path / "x")
    assert codec.picture(path) is None
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["x.npy"]


def test_a_dot_in_the_stem_is_no_ending(tmp_path: Path) -> None:
    assert codec.encode(np.zeros((1, 1, 1), np.uint8), tmp_path / "a.b").name == "a.b.png"


# properties


@given(hnp.arrays(np.uint8, image_shapes))
@unhurried
def test_uint8_round_trip(tmp_path: Path, x: np.ndarray) -> None:
    path = codec.encode(x, tmp_path / "x")
    assert path.suffix == (".png" if x.shape[0] in (1, 3) else ".npy")
    assert identical(codec.decode(path), x)
    assert codec.picture(path) is not None


@given(hnp.arrays(np.float32, image_shapes, elements=st.floats(width=32)))
@unhurried
def test_float32_round_trip_with_every_bit(tmp_path: Path, x: np.ndarray) -> None:
    assert identical(codec.decode(codec.encode(x, tmp_path / "x")), x)


@given(hnp.arrays(st.sampled_from([np.uint8, np.float32]), hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4)))
@unhurried
def test_any_shape_round_trip(tmp_path: Path, x: np.ndarray) -> None:
    assert identical(codec.decode(codec.encode(x, tmp_path / "x")), x)


def test_views_of_arrays_are_stored_by_what_they_show(tmp_path: Path) -> None:
    base = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    for i, x in enumerate(
        (base[0, :, ::-1], base[1].transpose(2, 0, 1), np.asfortranarray(base[0]), base[0, :, :, ::2].astype(np.uint8))
    ):
        back = codec.decode(codec.encode(x, tmp_path / str(i)))
        np.testing.assert_array_equal(back, x)
        assert back.flags.c_contiguous
        assert back.flags.writeable


# bad input


@pytest.mark.parametrize(
    "x", [np.zeros((1, 2, 2)), np.zeros((1, 2, 2), np.int64), np.zeros((0, 2, 2), np.uint8), np.float32(1), np.array(["a"])]
)
def test_what_is_no_input_is_not_stored(tmp_path: Path, x: np.ndarray) -> None:
    with refused("wrong-type", "input"):
        codec.encode(np.asarray(x), tmp_path / "x")
    assert not list(tmp_path.glob("x*"))


def test_an_input_too_large_to_be_read_back_is_not_stored(tmp_path: Path) -> None:
    with refused("too-large", "input"):
        codec.encode(np.broadcast_to(np.uint8(0), (1, 10_000, 10_000)), tmp_path / "x")


def test_a_picture_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb = tmp_path / "x.png"
    for width, height in ((9_000, 9_000), (60_000, 60_000)):
        bomb.write_bytes(png(width, height, body=bytes(1000)))
        with refused("damaged"):
            codec.decode(bomb)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", [4, 6])
def test_a_picture_of_another_mode_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "x.png").write_bytes(png(1, 1, mode, bytes(5)))
    with refused("damaged"):
        codec.decode(tmp_path / "x.png")


def npy(header: str, body: bytes = b"", version: int = 1) -> bytes:
    text = header.encode().ljust(118 - 1) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + body


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        b"PK\x03\x04",
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000)}"),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", bytes(4)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", bytes(12)),
        npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1)}", bytes(4)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -1)}", bytes(4)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", bytes(4)),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", bytes(8)),
        npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", bytes(4)),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"cos\nsystem\n(S'false'\ntR."),
        npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", bytes(4)),
        npy("__import__('os').getcwd()"),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", bytes(4), version=2),
    ],
)
def test_an_array_file_that_is_not_ours_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with refused("damaged"):
        codec.decode(tmp_path / "x.npy")


def test_an_array_file_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"PK\x03\x04")
    with refused("damaged"):
        codec.decode(tmp_path / "x.npy")


@pytest.mark.parametrize("kind", ["BMP", "GIF", "TIFF"])
def test_another_kind_of_picture_is_refused_whatever_its_name(tmp_path: Path, kind: str) -> None:
    Image.new("L", (2, 2)).save(tmp_path / "x.png", format=kind)
    with refused("damaged"):
        codec.decode(tmp_path / "x.png")


@pytest.mark.parametrize("cut", [0, 8, 20, 40, 60])
def test_a_truncated_picture_is_refused(tmp_path: Path, cut: int) -> None:
    path = codec.encode(np.random.default_rng(0).integers(0, 256, (3, 20, 20), dtype=np.uint8), tmp_path / "x")
    path.write_bytes(path.read_bytes()[:cut])
    with refused("damaged"):
        codec.decode(path)


@given(st.integers(0, 10_000), st.integers(0, 255))
@unhurried
def test_a_damaged_file_is_refused_or_read_but_never_breaks_anything(tmp_path: Path, place: int, value: int) -> None:
    x = np.random.default_rng(0).integers(0, 256, (3, 6, 6), dtype=np.uint8)
    for path in (codec.encode(x, tmp_path / "x"), codec.encode(x.astype(np.float32), tmp_path / "y")):
        content = bytearray(path.read_bytes())
        content[place % len(content)] = value
        path.write_bytes(bytes(content))
        try:
            codec.decode(path)
        except BadInput:
            continue


def test_views_missing_files_and_other_endings_are_refused(tmp_path: Path) -> None:
    view = codec.picture(codec.encode(np.zeros((2, 1, 1), np.uint8), tmp_path / "x"))
    assert view is not None
    with refused("wrong-type", "view"):
        codec.decode(view)
    with refused("not-found"):
        codec.decode(tmp_path / "gone.png")
    with refused("wrong-type", "file"):
        codec.decode(tmp_path / "x.pkl")


@pytest.mark.parametrize("shape", [(300,), (1, 300)])
def test_sound_is_a_wav_with_its_spectrogram_beside_it(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(-32768, 32768, shape).astype(np.int16)
    file = codec.encode(x, tmp_path / "a", rate=8000)
    back = codec.decode(file)
    assert file.name == "a.wav"
    assert (back.shape, back.dtype) == (x.shape, x.dtype)
    assert (back == x).all()
    assert codec.rate(file) == 8000
    assert codec.picture(file) == tmp_path / "a.view.png"
    file.write_bytes(file.read_bytes()[:-3])
    with refused("damaged"):
        codec.decode(file)
    with refused("missing", "rate"):
        codec.encode(x, tmp_path / "b")
