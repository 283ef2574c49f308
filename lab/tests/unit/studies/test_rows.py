"""Numbers of a study's rows, by hand; and its pictures."""

from __future__ import annotations

import math
from base64 import b64decode
from io import BytesIO

import numpy as np
from PIL import Image

from neurotest_lab.studies.frame import mean, rounded, share, spread, with_ends
from neurotest_lab.studies.pictures import png, strip


def test_what_is_not_defined_is_none() -> None:
    assert rounded(None) is None
    assert rounded(math.nan) is None
    assert rounded(0.123456, 2) == 0.12
    assert mean([1.0, None, 2.0]) == 1.5
    assert mean([None]) is None
    assert with_ends(None, 3, ("a", "b", "c")) == {"a": None, "b": None, "c": None}
    assert with_ends((1.26, math.nan, 2), 1) == {"value": 1.3, "low": None, "high": 2}


def test_intervals_hold_their_value() -> None:
    row = spread([1.0, 2.0, 4.0], 3, ("mean", "low", "high"))
    assert row["mean"] == 2.333
    assert 1 <= row["low"] < row["mean"] < row["high"] <= 4
    part = share(5, 10, 4)
    assert part["value"] == 0.5
    assert (part["low"], part["high"]) == (0.2366, 0.7634)  # Wilson's, by hand


def read(text: str) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(b64decode(text))))


def test_a_strip_has_the_first_of_each_class() -> None:
    x = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1).repeat(2, 2).repeat(2, 3)  # (4, 1, 2, 2)
    assert read(strip(x, np.array([1, 1, 0, 0]))).tolist() == [[2, 2, 0, 0]] * 2
    assert read(strip(x.repeat(3, 1), None)).shape == (2, 8, 3)
    assert png(x[0, 0], optimize=False) != ""
