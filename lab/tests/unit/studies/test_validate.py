"""Descriptions of output neurons against the names of their classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.unit.semantics.subjects import CLASSES, source, target

from neurotest.errors import BadInput
from neurotest.semantics.describe.api import material
from neurotest.semantics.describe.profile import ClassProfile
from neurotest.semantics.descriptions import UNKNOWN, Descriptions, NeuronDescription
from neurotest_lab.studies.nsgen.validate import by_exemplars, fewer, named, output_units

pytestmark = pytest.mark.plain


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))


def table(*texts: str) -> Descriptions:
    rows = [NeuronDescription("fc", n, text, 1.0, "by hand") for n, text in enumerate(texts)]
    return Descriptions.of(target(), {"fc": 4}, rows, "by hand")


def letters(texts: list[str]) -> np.ndarray:
    """Counts of letters: an encoder simple enough to check."""
    return np.array([[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts], dtype=float)


def test_the_class_that_is_named_first() -> None:
    assert named("white areas; upper right, lower left", CLASSES) == "upper right"
    assert named("T-shirt", ["shirt", "T-shirt"]) == "T-shirt"
    assert named("sneakers", ["sneaker"]) is None
    assert named("7, 1", list("0123456789")) == "7"


def test_output_neurons_by_hand() -> None:
    validation = output_units(table("upper left", "lower left", UNKNOWN, "red; lower right"), material(target(), source()))
    assert [row.named for row in validation.rows] == ["upper left", "lower left", None, "lower right"]
    assert validation.accuracy.value == 0.5
    assert validation.chance == 0.25
    assert validation.margin is None
    assert validation.to_dict()["known"] == 3


def test_similarity_stands_beside_that_to_other_classes() -> None:
    validation = output_units(table(*CLASSES), material(target(), source()), letters)
    vectors = letters(list(CLASSES))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = vectors @ vectors.T
    assert validation.margin is not None
    assert validation.margin.value == pytest.approx(np.mean([1 - np.delete(near[i], i).mean() for i in range(4)]))
    assert validation.nearest is not None
    assert validation.nearest.value == 1.0
    shuffled = output_units(table(*CLASSES[::-1]), material(target(), source()), letters)
    assert shuffled.margin is not None
    assert shuffled.margin.value < validation.margin.value


def test_fewer_exemplars_and_too_many() -> None:
    work = material(target(), source(), k=5)
    by_k = by_exemplars(ClassProfile(), work, (1, 3, 5))
    assert {k: v.accuracy.value for k, v in by_k.items()} == {1: 1.0, 3: 1.0, 5: 1.0}
    by_itself = material(target(), source(), k=2).exemplars
    assert np.array_equal(fewer(work, 2).exemplars.top("fc")[0], by_itself.top("fc")[0])
    with pytest.raises(BadInput, match="only 5 exemplars"):
        by_exemplars(ClassProfile(), work, (9,))


def test_names_must_tell_classes_apart() -> None:
    with pytest.raises(BadInput, match="stands twice"):
        output_units(table(*CLASSES), material(target(("a", "b", "b", "c")), source().without_labels()))
