"""What was added to a seed: there and back, by hand, and texts that do not fit."""

from __future__ import annotations

import base64
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from neurotest.campaign.differences import difference, restored

IMAGES = arrays.arrays(np.uint8, (2, 1, 3, 4))


@given(pair=IMAGES)
def test_there_and_back(pair: np.ndarray) -> None:
    assert np.array_equal(restored(pair[0], difference(pair[0], pair[1])), pair[1])


def test_by_hand() -> None:
    """One pixel three brighter: little-endian 3 and zeros."""
    seed = np.array([[[5, 250]]], np.uint8)
    text = difference(seed, np.array([[[8, 250]]], np.uint8))
    assert zlib.decompress(base64.b85decode(text)) == b"\x03\x00\x00\x00"


def text_of(raw: bytes) -> str:
    return base64.b85encode(zlib.compress(raw)).decode()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("no base85 \x00", "unpacked"), ("", "another size"), (text_of(b"\x00" * 6), "another size"),
        (text_of(b"\x00" * 10_000_000), "another size"), (text_of(b"\x06\x00\x06\x00"), "leaves the 8 bits"),
    ],
)  # fmt: skip
def test_texts_that_do_not_fit(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        restored(np.array([[[5, 250]]], np.uint8), text)


@given(text=st.text(max_size=60))
def test_any_text_gives_an_input_or_a_value_error(text: str) -> None:
    seed = np.zeros((1, 2, 2), np.uint8)
    with suppress(ValueError):
        assert restored(seed, text).shape == seed.shape


def test_only_8_bits() -> None:
    with pytest.raises(ValueError, match="8 or 16 bits"):
        restored(np.zeros((1, 2, 2), np.float32), text_of(b"\x00" * 8))


def test_sound_comes_back_too() -> None:
    seed, changed = np.array([[-32768, 0, 32767]], np.int16), np.array([[32767, -5, -32768]], np.int16)
    back = restored(seed, difference(seed, changed))
    assert back.dtype == np.int16
    assert np.array_equal(back, changed)
    with pytest.raises(ValueError, match="leaves the 16 bits"):
        restored(changed, difference(seed, changed))
