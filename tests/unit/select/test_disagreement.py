"""Selecting without a softmax: what is true nearby, and how steady an answer is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors
from tests.refusals import refused
from torch import Tensor, nn

import neurotest
from neurotest import registry
from neurotest.mutate.weather import WeatherMutations
from neurotest.target import Target

pytestmark = pytest.mark.by_hand


class Line(nn.Module):
    """A hidden layer that is the input itself, and its first value as the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.relu, self.out = nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)
        with torch.no_grad():
            self.hidden.weight.copy_(torch.eye(2))
            self.hidden.bias.zero_()
            self.out.weight.copy_(torch.tensor([[1.0, 0.0]]))
            self.out.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.relu(self.hidden(x)))


def target() -> Target:
    return neurotest.load(Line().eval(), outputs="regression", span=(0, 1), size=(2,), tolerance=0.15)


def test_by_hand() -> None:
    # Two directions: along the first axis the truth is .9, along the second it is .1.
    train = (np.array([[0.9, 0.0], [0.5, 0.0], [0.0, 0.9], [0.0, 0.5]], dtype=np.float32), np.array([0.9, 0.8, 0.1, 0.2]))
    pool = (np.array([[0.3, 0.0], [0.8, 0.0], [0.0, 0.7]], dtype=np.float32), np.array([0.3, 0.85, 0.9]))
    result = neurotest.select(target(), pool, "disagreement:k=2,layer=hidden", 2, train=train)
    # answers .3, .8, 0; neighbours' truths (.9, .8), (.9, .8), (.1, .2)
    assert result.all_scores == pytest.approx([0.55, 0.05, 0.15])
    assert result.order.tolist() == [0, 2, 1]
    assert result.quality is not None
    assert result.predictions.tolist()[0] == 7  # right: the bin of the truth
    assert result.quality.fdr.value == pytest.approx(0.5)  # of the two picks one is off by .9, the other not at all


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_against_scikit_learn_in_any_batch(seed: int, k: int) -> None:
    random = np.random.default_rng(seed)
    train_x, pool_x = ((random.random((n, 2)) + 0.01).clip(0, 1).astype(np.float32) for n in (30, 12))
    train_y = random.random(30)
    near = NearestNeighbors(n_neighbors=k, metric="cosine", algorithm="brute").fit(train_x.astype(np.float64))
    rows = near.kneighbors(pool_x.astype(np.float64), return_distance=False)
    expected = np.abs(pool_x[:, :1] - train_y[rows]).mean(axis=1)
    method = f"disagreement:k={k},layer=hidden"
    for batch in (5, 12):
        one = neurotest.select(target(), pool_x, method, 3, train=(train_x, train_y), batch=batch)
        same = np.isclose(one.all_scores, expected, atol=1e-6)
        assert same.mean() > 0.8  # neighbours at the same angle to seven digits may swap


def test_unsteady_against_a_plain_loop() -> None:
    from neurotest.mutate.operators import WhiteNoise
    from neurotest.select.partners import NOISE

    network, x = target(), np.random.default_rng(0).random((5, 2)).astype(np.float32)
    result = neurotest.select(network, x, "unsteady:3", 2, batch=2)
    for i in range(5):
        answers = [float(x[i, 0])]
        for number in range(3):
            stream = neurotest.rng.stream("select.noise", 0, number, i).integers(1 << 53)
            noisy = WhiteNoise().apply(
                torch.from_numpy(x[i : i + 1]), torch.tensor([[NOISE, float(stream)]], dtype=torch.float64)
            )
            answers.append(float(noisy.clamp(0, 1)[0, 0]))
        assert result.all_scores[i] == pytest.approx(np.std(answers), abs=1e-6)


def test_the_default_for_a_quantity_and_what_is_refused() -> None:
    x = np.random.default_rng(0).random((20, 2)).astype(np.float32)
    train = (x, x[:, 0].astype(np.float64))
    assert neurotest.select(target(), x, budget=3, train=train).method == "disagreement"
    with refused("unsuitable", "outputs"):
        neurotest.select(target(), x, "deepgini", 3, train=train)
    with refused("missing", "train"):
        neurotest.select(target(), x, budget=3)
    with refused("missing", "train"):
        neurotest.select(target(), x, budget=3, train=x)
    classifier = neurotest.load(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3)).eval(), size=(2,))
    for method in ("disagreement", "unsteady"):
        with refused("unsuitable", "outputs"):
            neurotest.select(classifier, x, method, 3, train=(x, np.zeros(20, int)))


def test_it_beats_random_on_roads() -> None:
    test, mutations = neurotest.data("zoo:lanes/test[:400]"), WeatherMutations()
    unit = torch.from_numpy(test.read(np.arange(400))).float() / 255
    changed = mutations.apply(unit, mutations.draw(np.random.default_rng(0), 400))
    pool = (changed.mul(255).round().byte().numpy(), test.quantities)
    result = neurotest.select("zoo:lanes-dave", pool, "disagreement", "10%", train="zoo:lanes/train[:1500]")
    assert result.quality is not None
    assert result.quality.fdr.low > result.quality.random_fdr.high


@pytest.mark.parametrize(
    "method", sorted(n for n, e in registry.entries("selector").items() if getattr(e.make, "quantities", False))
)
@pytest.mark.parametrize("batch", [1, 7, 100])
def test_an_order_is_a_permutation_whatever_the_batch(method: str, batch: int) -> None:
    random = np.random.default_rng(3)
    train, pool = (random.random((n, 2)).astype(np.float32) for n in (40, 25))
    data = {"train": (train, train[:, 0].astype(np.float64)), "seed": 5}
    one, other = (neurotest.select(target(), pool, method, 5, batch=b, **data) for b in (batch, 13))
    assert sorted(one.order) == list(range(25))
    assert (np.diff(one.all_scores[one.order]) <= 0).all()
    assert np.allclose(one.all_scores, other.all_scores, atol=1e-6)
