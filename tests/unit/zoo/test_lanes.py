"""Drawn roads with a known bend, and the networks on them."""

from __future__ import annotations

import numpy as np
import torch

import neurotest
from neurotest.target import Target
from neurotest.train import mean_error
from neurotest.zoo import find, lanes
from neurotest.zoo.architectures import build


def test_pictures_are_the_same_every_time_and_a_slice_is_a_part() -> None:
    whole, bends = lanes.load("test")
    assert whole.shape == (1000, 1, 32, 48)
    assert whole.dtype == np.uint8
    assert (np.abs(bends) <= 1).all()
    lanes.drawn.cache_clear()
    part, some = lanes.load("test", 501)
    assert (part == whole[:501]).all()
    assert (some == bends[:501]).all()
    assert len(lanes.load("train", 0)[0]) == 0
    assert not (lanes.load("train", 10)[0] == whole[:10]).all()


def test_a_road_that_bends_to_the_right_leaves_the_picture_on_the_right() -> None:
    """Without grain, shadow and paint the road is the darkest part: its middle, row by row, is the parabola."""
    random = np.random.default_rng(0)
    scene = lanes._scene(random)
    plain = {name: np.full((lanes.GROUP, 1, 1), value) for name, value in (
        ("offset", 0.0), ("heading", 0.0), ("horizon", 8.0), ("half", 18.0), ("sky", 0.9), ("grass", 0.8), ("road", 0.0),
        ("paint", 0.0), ("shadow", -1.0), ("grain", 0.0),
    )}  # fmt: skip
    x = lanes._image(scene._replace(**plain), random)[:, 0] < 100
    row = 16
    near = (row + 0.5 - 8) / (32 - 8)
    expected = 24 + 6 * scene.bend[:, 0, 0] * (1 - near) ** 2 / near
    seen = (x[:, row] * (np.arange(48) + 0.5)).sum(axis=1) / x[:, row].sum(axis=1)
    inside = np.abs(expected - 24) < 10  # further aside the road leaves the picture
    assert inside.sum() > 200
    assert np.allclose(seen[inside], expected[inside], atol=0.6)


def test_the_small_networks_are_much_better_than_the_mean() -> None:
    test = neurotest.data("zoo:lanes/test[:300]")
    for name in ("lanes-dave", "lanes-pooled"):
        assert mean_error(find(name).load(), test) < 0.12  # always the mean: 0.5
    target = neurotest.load("zoo:lanes-dave")
    assert (target.span, target.tolerance) == ((-1.0, 1.0), 0.2)


def test_dave2_has_the_neurons_of_the_coverage_study() -> None:
    layers = (
        Target(build("driving", "dave2").eval(), shape=(3, 100, 100), outputs="regression", span=(-20, 20))
        .survey()
        .find("pre_activation")
    )
    assert sum(layer.neurons("unit") for layer in layers) == 82_669


def test_a_mirrored_road_has_the_opposite_bend() -> None:
    from neurotest.train.loop import augment
    from neurotest.zoo.recipes import Recipe

    x = torch.arange(12, dtype=torch.uint8).view(4, 1, 1, 3)
    y = torch.tensor([1.0, 2.0, 3.0, 4.0])
    images, truths = augment(x, y, Recipe(epochs=1, flip=True), np.random.default_rng(1))
    flipped = truths < 0
    assert 0 < int(flipped.sum()) < 4
    for before, after, truth, turned in zip(x, images, truths, flipped, strict=True):
        assert torch.equal(after, before.flip(2) if turned else before)
        assert abs(float(truth)) == float(y[(torch.equal(before, x[0]) and 0) or int(before[0, 0, 0]) // 3])
