"""Pictures of any size and mode as inputs: turned upright, flattened, rounded to 8 bits, resized and cropped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from neurotest.data import data
from neurotest.errors import BadInput
from neurotest.images import Preprocess, Unusable, pixels

PLAIN = Preprocess()


def colours(height: int, width: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_crop_takes_the_middle_after_the_shorter_side_was_resized_by_hand() -> None:
    # 4 x 8 in black, with a white square of 4 x 4 in the middle; the shorter side becomes 2, the picture 2 x 4.
    x = np.zeros((4, 8), np.uint8)
    x[:, 2:6] = 255
    image = Preprocess(resize=2, crop="centre", interpolation="nearest")(Image.fromarray(x), (2, 2))
    assert np.asarray(image).tolist() == [[255, 255], [255, 255]]


def test_resize_without_crop_fits_the_whole_picture_in() -> None:
    x = np.zeros((4, 8), np.uint8)
    x[:, 4:] = 255
    image = Preprocess(resize=2, interpolation="nearest")(Image.fromarray(x), (2, 2))
    assert np.asarray(image).tolist() == [[0, 255], [0, 255]]


@pytest.mark.parametrize("name", ["bilinear", "bicubic", "lanczos", "nearest"])
def test_resizing_is_pillows(name: str) -> None:
    image = colours(40, 60)
    ours = pixels(image, 3, (24, 24), Preprocess(resize=24, interpolation=name)).x  # type: ignore[arg-type]
    theirs = np.asarray(image.resize((24, 24), Image.Resampling[name.upper()])).transpose(2, 0, 1)
    assert (ours == theirs).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 30), st.booleans())
def test_every_picture_gets_the_size_asked_for(height: int, width: int, side: int, crop: bool) -> None:
    preprocess = Preprocess(resize=side, crop="centre" if crop else None)
    result = pixels(colours(height, width), 3, preprocess.output(None), preprocess)
    assert result.x.shape == (3, side, side)
    assert result.changes == ()


@pytest.mark.parametrize("tag", range(1, 9))
def test_a_photograph_is_turned_as_its_camera_says(tmp_path: Path, tag: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = tag
    image = colours(12, 20)
    image.save(tmp_path / "a.png", exif=exif)
    with Image.open(tmp_path / "a.png") as stored:
        upright = np.asarray(ImageOps.exif_transpose(stored)).transpose(2, 0, 1)
    source = data(f"dir:{tmp_path}")
    assert source.shape == upright.shape == ((3, 12, 20) if tag < 5 else (3, 20, 12))
    assert (source.read([0])[0] == upright).all()


def test_sixteen_bits_are_rounded_and_said(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 128, 129, 65535]], np.uint16)).save(tmp_path / "deep.png")
    source = data(f"dir:{tmp_path}", shape=(1, 1, 4))
    assert source.read([0])[0, 0, 0].tolist() == [0, 0, 1, 255]  # 128 / 257 is below a half, 129 / 257 above
    assert source.notes["warnings"] == ["1 file has 16 bits per channel, rounded to 8 (first: deep.png)."]


def test_transparent_pixels_are_put_on_white_and_said(tmp_path: Path) -> None:
    x = np.zeros((1, 3, 4), np.uint8)
    x[..., 3] = [255, 0, 51]  # black: opaque, invisible, a fifth
    Image.fromarray(x).save(tmp_path / "clear.png")
    source = data(f"dir:{tmp_path}")
    assert source.read([0])[0, 0, 0].tolist() == [0, 255, 204]
    assert "1 file has transparent pixels, put on white" in source.notes["warnings"][0]


def test_cmyk_palette_and_grey_become_colour(tmp_path: Path) -> None:
    colours(6, 6).convert("CMYK").save(tmp_path / "a.jpg")
    colours(6, 6).convert("P").save(tmp_path / "b.png")
    colours(6, 6).convert("L").save(tmp_path / "c.png")
    source = data(f"dir:{tmp_path}", shape=(3, 6, 6))
    assert len(source) == 3
    assert source.skipped == ()


def test_other_sizes_are_counted_named_and_usable_with_resize(tmp_path: Path) -> None:
    for i, (height, width) in enumerate([(8, 8), (8, 8), (9, 8), (30, 20), (5, 40), (8, 9)]):
        colours(height, width, i).save(tmp_path / f"{i}.png")
    plain = data(f"dir:{tmp_path}", shape=(3, 8, 8))
    assert len(plain) == 2
    assert plain.notes["warnings"][0].startswith("4 of 6 files are not 3x8x8 (first: 2.png, 8x9 pixels)")
    assert "--resize 8" in plain.notes["warnings"][0]
    assert len(data(f"dir:{tmp_path}", shape=(3, 8, 8), preprocess=Preprocess(resize=8))) == 6
    cropped = data(f"dir:{tmp_path}", shape=(3, 8, 8), preprocess=Preprocess(resize=8, crop="centre"))
    assert len(cropped) == 6
    assert data(f"dir:{tmp_path}", preprocess=Preprocess(resize="8x10", grey=True)).shape == (1, 8, 10)


def test_when_none_fits_the_sentence_says_how_they_would(tmp_path: Path) -> None:
    colours(9, 9).save(tmp_path / "a.png")
    with pytest.raises(BadInput, match=r"1 of 1 files are not 3x8x8.*--resize 8"):
        data(f"dir:{tmp_path}", shape=(3, 8, 8))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"resize": 0}, "resize=0"), ({"resize": "8by8"}, "resize='8by8'"), ({"resize": 99999}, "at most"),
        ({"crop": "left"}, "crop='left'"), ({"interpolation": "cubic"}, "interpolation='cubic'"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        Preprocess(**options)  # type: ignore[arg-type]


def test_sizes_that_do_not_fit_the_network_are_refused(tmp_path: Path) -> None:
    colours(9, 9).save(tmp_path / "a.png")
    with pytest.raises(BadInput, match=r"resize=16: gives 16x16 pixels .* takes 8x8.*--crop centre"):
        data(f"dir:{tmp_path}", shape=(3, 8, 8), preprocess=Preprocess(resize=16))
    with pytest.raises(BadInput, match="three channels"):
        data(f"dir:{tmp_path}", shape=(3, 9, 9), preprocess=Preprocess(grey=True))
    with pytest.raises(BadInput, match="how large is unknown"):
        data(f"dir:{tmp_path}", preprocess=Preprocess(crop="centre"))


def test_a_picture_too_small_to_crop_is_left_out() -> None:
    with pytest.raises(Unusable, match="too small to crop 8x8"):
        pixels(colours(6, 20), 3, (8, 8), Preprocess(crop="centre"))
