"""Exemplars: by hand, against a plain loop over stored maps, and merged halves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import Tensor, nn

from neurotest.data.source import ArraySource
from neurotest.scan import scan
from neurotest.semantics.exemplars import Exemplars, _cut, _hashes, maps, regions
from neurotest.target import Probe, Target, Want

pytestmark = pytest.mark.by_hand


class Sums(nn.Module):
    """Two maps: the image itself and its negative, rectified; then their means."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 1)
        with torch.no_grad():
            self.conv.weight.copy_(torch.tensor([1.0, -1.0, 0.0]).view(3, 1, 1, 1))
            self.conv.bias.zero_()
        self.relu = nn.ReLU()
        self.fc = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.relu(self.conv(x)).mean(dim=(2, 3)))


def target() -> Target:
    return Target(Sums().eval(), shape=(1, 4, 4), bounds=(-1, 1))


def exemplars_of(x: np.ndarray, *, k: int = 2, quantile: float = 0.5, **more: object) -> Exemplars:
    subject = target()
    exemplars = Exemplars(subject.survey().find("relu,fc"), k, quantile, **more)
    scan(subject, ArraySource(x.astype(np.float32)), [exemplars], batch=3)
    return exemplars


def test_by_hand() -> None:
    x = np.zeros((4, 1, 4, 4))
    x[1, 0, 2, 3], x[2, 0, 0, 0], x[3, 0, 1, 1] = 0.5, 0.9, -0.4
    seen = exemplars_of(x)
    index, values = seen.top("relu")
    assert index.tolist() == [[2, 1], [3, 0], [0, 1]]  # ties go to the earlier input
    assert values[0].tolist() == pytest.approx([0.9, 0.5])
    assert values[1].tolist() == pytest.approx([0.4, 0.0])
    assert seen.dead("relu").tolist() == [False, False, True]
    assert not seen.dead("fc").any()
    assert seen.gamma("relu").tolist() == [0.0, 0.0, 0.0]  # half of the pixels and more are black


def test_masks_are_where_the_map_is_above_the_quantile_and_never_empty() -> None:
    x = np.zeros((3, 1, 4, 4))
    x[0, 0, :2, :2] = 0.8
    x[1, 0, 3, 3] = 0.3
    seen = exemplars_of(x, quantile=0.5)
    (first,) = regions(seen, target(), ArraySource(x.astype(np.float32)), "relu", np.array([0]))
    assert first.positions.tolist() == [[0, 1]]
    assert first.masks[0, 0].tolist() == (x[0, 0] > 0).tolist()
    assert first.masks[0, 1].sum() == 1
    assert first.masks[0, 1, 3, 3]
    high = _cut(torch.tensor([[[1.0, 5.0], [2.0, 3.0]]]), torch.tensor([9.0]))
    assert high.tolist() == [[[False, True], [False, False]]]


def test_a_neuron_without_a_map_looks_at_the_whole_input() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (5, 1, 4, 4))
    seen = exemplars_of(x)
    (only,) = regions(seen, target(), ArraySource(x.astype(np.float32)), "fc")
    assert only.masks.all()
    assert only.masks.shape == (2, 2, 4, 4)


def test_against_a_plain_loop_over_stored_maps() -> None:
    """Every quantity again from all maps at once, on a network with several layers and sizes."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 4, 3, padding=1), nn.ReLU(), nn.Flatten())
    module.append(nn.Linear(4 * 9, 6))
    subject = Target(module.eval(), shape=(3, 8, 8))
    x = np.random.default_rng(1).random((40, 3, 8, 8)).astype(np.float32)
    labels = np.arange(40) % 3
    layers = subject.survey().find("1,4,6")
    seen = Exemplars(layers, 4, 0.9, labels=labels, classes=3)
    scan(subject, ArraySource(x, labels), [seen], batch=7)
    want = Want(layers="1,4,6", keep="map")
    with Probe(subject, want) as probe:
        trace = probe(torch.from_numpy(x))
    for layer in layers:
        stored = maps(layer, trace[want][layer.name])
        pooled = stored.amax(dim=2)
        for neuron in range(layer.neurons()):
            order = sorted(range(40), key=lambda i: (-float(pooled[i, neuron]), i))[:4]
            assert seen.top(layer.name)[0][neuron].tolist() == order
            assert float(seen.gamma(layer.name)[neuron]) == pytest.approx(
                float(stored[:, neuron].flatten().quantile(0.9)), abs=1e-6
            )
            floor = float(pooled[:, neuron].quantile(0.01))
            by_class = [max(0.0, float(pooled[labels == c, neuron].double().mean()) - floor) for c in range(3)]
            assert seen.means(layer.name)[:, neuron].tolist() == pytest.approx(by_class, abs=1e-6)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 11), st.integers(1, 4), st.integers(0, 100), st.booleans())
def test_two_halves_merged_equal_the_whole(at: int, k: int, seed: int, backwards: bool) -> None:
    x = np.random.default_rng(seed).integers(-2, 3, (12, 1, 4, 4)).astype(np.float32) / 2  # many ties
    subject, labels = target(), np.arange(12) % 3
    layers = subject.survey().find("relu,fc")
    parts = [(0, 12), (0, at), (at, 12)]
    whole, left, right = (Exemplars(layers, k, 0.7, samples=20, start=a, labels=labels, classes=3) for a, _ in parts)
    for one, (a, b) in zip((whole, left, right), parts, strict=True):
        scan(subject, ArraySource(x[a:b]), [one], batch=5)
    merged, other = (right, left) if backwards else (left, right)
    merged.merge(other)
    for name, value in whole.state_dict().items():
        # Other batches may be summed otherwise: a sum of 12 float32 values of about 1 is right to some 1e-6.
        assert np.allclose(value, merged.state_dict()[name], atol=1e-5), name


def test_the_sample_of_map_values_is_bounded_and_close_to_the_quantile() -> None:
    x = np.random.default_rng(2).uniform(-1, 1, (400, 1, 4, 4))
    full, small = exemplars_of(x, quantile=0.9), exemplars_of(x, quantile=0.9, samples=1000)
    assert len(small.best["relu"].places.keys) == 1000 < len(full.best["relu"].places.keys) == 6400
    assert float(small.gamma("relu")[0]) == pytest.approx(float(full.gamma("relu")[0]), abs=0.05)


def test_memory_does_not_grow_with_the_data() -> None:
    x = np.random.default_rng(2).uniform(-1, 1, (400, 1, 4, 4))
    sizes = [sum(v.nbytes for v in exemplars_of(some, samples=200).state_dict().values()) for some in (x[:200], x)]
    assert sizes[0] == sizes[1]


def test_hashes_spread_evenly_and_depend_on_the_place_only() -> None:
    some = _hashes(0, 50, 100)
    assert len(set(some.tolist())) == 5000
    assert np.array_equal(_hashes(20, 10, 100), some[2000:3000])
    assert np.quantile(some.astype(float) / 2.0**64, [0.25, 0.5, 0.75]) == pytest.approx([0.25, 0.5, 0.75], abs=0.03)


@pytest.mark.parametrize(
    ("settings_", "refusal"), [({"k": 0}, ("out-of-range", "k")), ({"quantile": 1.0}, ("out-of-range", "quantile"))]
)
def test_bad_settings(settings_: dict[str, float], refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        Exemplars(target().survey().find("relu"), **settings_)  # type: ignore[arg-type]


def test_layers_of_another_kind_are_not_merged() -> None:
    layers = target().survey().find("relu,fc")
    with refused("conflict", "merge"):
        Exemplars(layers, 2).merge(Exemplars(layers, 3))
