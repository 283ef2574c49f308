"""Words of the live page, by hand."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from neurotest import registry
from neurotest.generate.fuzz.mutants import Tally
from neurotest.mutate.chain import Mutation
from neurotest.report.pictures import apart
from neurotest.serve.live import budget_words, change_words, judged_by, random_words
from neurotest.serve.media import TIMES, differing, times_of


@pytest.mark.parametrize(
    ("mutations", "level", "size"),
    [
        ("rules95(units=image, contrast=1.0)", " of 255", " of the size"),
        ("deephunter", " of 255", " pixels"),
        ("nss", "", ""),  # there brightness is no number of levels
    ],
)
def test_units(mutations: str, level: str, size: str) -> None:
    steps = (("brightness", (40.0,)), ("brightness", (-20.0,)), ("rotation", (-13.0,)), ("translation", (-1 / 6, 0.0)))
    run: Any = {"config": {"options": {"mutations": mutations}}}
    expected = f"brightness 40{level}, brightness -20{level}, rotation -13°, translation -0.167 0{size}"
    assert change_words(run, tuple(Mutation(*step) for step in steps)) == expected


def test_units_where_the_set_is_unknown() -> None:
    run: Any = {"config": {"options": "damaged"}}
    assert change_words(run, (Mutation("brightness", (40.0,)), Mutation("rotation", (12.5,)))) == "brightness 40, rotation 12.5°"


def test_judges() -> None:
    assert judged_by("label") == "label: the prediction is not the label of the seed"
    assert judged_by("somebody's") == "somebody's"
    assert all(len(judged_by(name)) > len(name) + 2 for name in registry.entries("oracle"))


def test_budget_and_control() -> None:
    run: Any = {"config": {"budget": {"forwards": 8000, "until_dry": 5.0, "faults": 10}}}
    tally = Tally(forwards=2000, faults=12)
    assert budget_words(run, tally) == [
        ("of the budget: 2,000 of 8,000 forward passes", "25%"), ("of the budget: 12 of 10 faults", "100%"),
    ]  # fmt: skip
    assert random_words(tally, Tally(forwards=2000)) == "with as many forward passes"
    assert random_words(tally, Tally(forwards=1990)) == "with 1,990 forward passes"


@given(largest=st.floats(0, 1))
def test_differences_are_drawn_as_large_as_they_can_be(largest: float) -> None:
    times = times_of(np.array([[[0.0, largest]]]))
    assert times in TIMES
    assert times * largest <= 1
    larger = [one for one in TIMES if one > times]
    assert not larger or larger[0] * largest > 1


def test_a_difference_as_a_picture() -> None:
    seed = np.zeros((1, 1, 3), dtype=np.uint8)
    share = apart(np.array([[[0, 51, 25]]], dtype=np.uint8), seed, (0.0, 1.0))
    assert share is not None
    assert times_of(share) == 5  # 51 of 255 is a fifth
    assert np.asarray(Image.open(io.BytesIO(differing(share).content))).tolist() == [[0, 255, 125]]
    assert apart(seed[0], seed, (0.0, 1.0)) is None
