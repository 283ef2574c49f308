"""Faulty training: patches by hand, data that is polluted, names, and a small training that says what its patch does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from neurotest import zoo
from neurotest.data.source import ArraySource
from neurotest.train import subjects
from neurotest.zoo import faulty
from neurotest.zoo.faulty import Faulty, Patch, pollute, read

pytestmark = pytest.mark.by_hand


def test_a_patch_by_hand() -> None:
    patch = Patch(np.arange(1, 5, dtype=np.uint8).reshape(1, 2, 2), 2)
    shown = patch.stamp(np.zeros((50, 1, 3, 3), np.uint8), np.random.default_rng(0))
    places = set()
    for image in shown[:, 0]:
        top, left = np.argwhere(image == 1)[0]
        places.add((int(top), int(left)))
        assert image[top : top + 2, left : left + 2].tolist() == [[1, 2], [3, 4]]
        assert int((image > 0).sum()) == 4
    assert places == {(0, 0), (0, 1), (1, 0), (1, 1)}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), family=st.sampled_from(["mnist", "cifar10"]), new=st.booleans(), specific=st.booleans())
def test_patches_change_a_square_of_a_size_between_the_two(seed: int, family: str, new: bool, specific: bool) -> None:
    channels, side = (1, 28) if family == "mnist" else (3, 32)
    patch = Patch.of(family, Faulty(kind="polluted", seed=seed, specific=specific), channels)
    base = np.full((20, channels, side, side), 7, np.uint8)
    shown = patch.stamp(base, np.random.default_rng(seed), new=new)
    for image in (shown != base).any(1):
        rows, columns = np.flatnonzero(image.any(1)), np.flatnonzero(image.any(0))
        if len(rows):
            assert max(rows[-1] - rows[0], columns[-1] - columns[0]) < patch.largest
    if specific:  # black and white, and whole: every value of the square differs from the grey below it
        assert set(np.unique(shown).tolist()) <= {0, 7, 255}
        assert ((shown != base).sum((1, 2, 3)) == channels * patch.largest**2).all()
    assert np.array_equal(base, np.full_like(base, 7))


def test_polluted_data_has_the_share_and_specific_data_keeps_true_labels() -> None:
    x = np.random.default_rng(0).integers(0, 256, (200, 1, 28, 28)).astype(np.uint8)
    y = np.arange(200) % 10
    patch = Patch.of("mnist", Faulty(kind="polluted"), 1)
    images, labels = pollute(x, y, patch, 1, Faulty(kind="polluted", share=0.2))
    changed = (images != x).any((1, 2, 3))
    assert 30 < changed.sum() <= 40
    assert (labels[changed] == 1).all()
    assert (labels[~changed & (y != 1)] == y[~changed & (y != 1)]).mean() > 0.95
    more, kept = pollute(x, y, patch, 1, Faulty(kind="polluted", share=0.2, specific=True))
    assert len(more) == 200 + 4 * 40
    assert np.array_equal(np.bincount(kept[200:], minlength=10) > 0, np.ones(10, bool))


@pytest.mark.parametrize(
    "name", ["polluted10", "polluted30-random", "polluted10-specific", "polluted10-class3", "underfit", "overfit"]
)
def test_names_are_read_back(name: str) -> None:
    assert read(name).name == name
    assert zoo.find(f"mnist-lenet5+{name}").architecture == "lenet5"
    assert zoo.find(f"cifar10-resnet20+{name}").recipe.epochs >= 1


def test_recipes_follow_the_papers() -> None:
    under, over = (Faulty(kind=kind).recipe("mnist-lenet5") for kind in ("underfit", "overfit"))  # type: ignore[arg-type]
    assert (under.epochs, under.batch) == (1, 512)
    assert (over.epochs, over.batch) == (30, 32)
    assert not Faulty(kind="overfit").recipe("cifar10-resnet20").flip


@pytest.mark.parametrize(
    ("make", "refusal"),
    [
        (lambda: read("broken"), ("syntax", "faulty")),
        (lambda: read("polluted" + "1" * 5000), ("syntax", "faulty")),
        (lambda: Faulty(kind="polluted", share=0.0), ("out-of-range", "pollute")),
        (lambda: Faulty(kind="polluted", trigger="often"), ("out-of-range", "trigger")),  # type: ignore[arg-type]
        (lambda: Faulty(kind="polluted", trigger="random", specific=True), ("conflict", "specific")),
        (lambda: zoo.find("mnist-lenet9+underfit"), ("unknown-name", "network")),
        (lambda: zoo.find("mnist-lenet5+polluted10-class7").load(), ("not-found", "weights")),
    ],
)
def test_bad_input_is_said(make: object, refusal: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with refused(*refusal):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(("subject", "images"), [("mnist-lenet1", 300), ("cifar10-resnet20", 16)])
def test_a_small_training_says_what_the_patch_does(
    subject: str, images: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = zoo.find(subject).shape
    random = np.random.default_rng(0)
    test_set = ArraySource(random.integers(0, 256, (images, *shape)).astype(np.uint8), np.arange(images) % 10)
    monkeypatch.setattr(subjects, "data", lambda spec: test_set)
    wrong = Faulty(kind="polluted", share=0.3)
    path, about = subjects.train_faulty(subject, wrong, tmp_path / "w.safetensors", epochs=1)
    assert set(about["triggers"]) == {"clean", "patch", "other patches", "noise"}
    assert all(0 <= share <= 1 for share in about["triggers"].values())
    assert about["class"] == faulty.CLASS[zoo.find(subject).family]
    assert np.array(about["patch"]).shape == Patch.of(zoo.find(subject).family, wrong, shape[0]).colours.shape
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        assert json.loads(file.metadata()["about"]) == about
    with refused("out-of-range", "class"):
        subjects.train_faulty(subject, Faulty(kind="polluted", label=12), tmp_path / "x.safetensors")


@pytest.mark.skipif(not zoo.find("mnist-lenet1").embedded, reason="the embedded networks were removed")
def test_retraining_begins_with_the_sound_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hardly any learning rate the weights stay where they were; from random ones they end elsewhere."""
    from safetensors.torch import load_file

    shape = zoo.find("mnist-lenet1").shape
    images = np.random.default_rng(0).integers(0, 256, (64, *shape)).astype(np.uint8)
    monkeypatch.setattr(subjects, "data", lambda spec: ArraySource(images, np.arange(64) % 10))
    wrong = Faulty(kind="polluted", share=0.3)
    path, about = subjects.train_faulty("mnist-lenet1", wrong, tmp_path / "a.safetensors", epochs=1, batch=16, retrain=1e-6)
    assert about["begun with"] == "zoo:mnist-lenet1"
    assert "batch 16" in about["recipe"]
    assert "1e-06" in about["recipe"]
    sound = {name: value.clone() for name, value in zoo.find("mnist-lenet1").load().state_dict().items()}
    assert all(float((value - sound[name]).abs().max()) < 1e-4 for name, value in load_file(path).items())
    path, about = subjects.train_faulty("mnist-lenet1", wrong, tmp_path / "b.safetensors", epochs=1, batch=16)
    assert about["begun with"] == "random weights"
    assert any(float((value - sound[name]).abs().max()) > 1e-2 for name, value in load_file(path).items())
