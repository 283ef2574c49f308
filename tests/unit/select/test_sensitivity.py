"""NSS: the paper's example, a re-derivation in plain numpy, and its settings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn

from neurotest import registry, rng
from neurotest.data.source import ArraySource, Source
from neurotest.mutate.nss import NssMutations, nss_pool
from neurotest.select.api import rank, select
from neurotest.select.scorer import Partner, Pool, sample_first
from neurotest.select.sensitivity import NSS, _Sensitivity
from neurotest.target import Target, Trace

pytestmark = pytest.mark.by_hand

# Table II of the paper: activations of two neurons for four tests and their mutants.
HERE = [[0.4, 0.5], [0.2, 0.4], [0.4, 0.5], [0.8, 0.5]]
THERE = [[0.3, 0.4], [0.2, 0.4], [0.3, 0.3], [0.7, 0.45]]


def fed(method: NSS, here: list[list[float]], *there: list[list[float]], batch: int = 100) -> np.ndarray:
    """The scores a state gives when it is fed these activations."""
    state = _Sensitivity(method, len(here))

    def trace(values: list[list[float]]) -> Trace:
        return Trace(torch.zeros(len(values), 2), {method.want: {"layer": torch.tensor(values)}})

    for start in range(0, len(here), batch):
        part = slice(start, start + batch)
        state.update(np.arange(len(here))[part], trace(here[part]), [trace(t[part]) for t in there])
    return state.value()


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_table_two_of_the_paper(batch: int) -> None:
    scores = fed(NSS(reference="original", k=1.0), HERE, THERE, batch=batch)
    assert scores.tolist() == pytest.approx([0.2, 0.0, 0.3, 0.15], abs=1e-6)
    assert (rank(scores) + 1).tolist() == [3, 1, 4, 2]


def test_the_more_sensitive_of_two_neurons() -> None:
    """Summed over the four tests the first changes by 0.3, the second by 0.35."""
    scores = fed(NSS(reference="original", k=0.5), HERE, THERE)
    assert scores.tolist() == pytest.approx([0.1, 0.0, 0.2, 0.05], abs=1e-6)


def test_sum_and_vote_can_disagree() -> None:
    """One neuron changes hugely once, the other a little every time."""
    here, there = [[0.0, 0.0]] * 4, [[9.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    assert fed(NSS(reference="original", k=0.5), here, there).tolist() == [9, 0, 0, 0]
    assert fed(NSS(reference="original", k=0.5, identify="vote"), here, there).tolist() == [0, 1, 1, 1]


def test_several_mutants_are_averaged() -> None:
    scores = fed(NSS(reference="remutate", k=1.0, n_mutants=2), [[0.0, 0.0]], [[1.0, 0.0]], [[0.0, 4.0]])
    assert scores.tolist() == [2.5]


def test_cosine_by_hand() -> None:
    here = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.3, 0.7], [2.0, 0.0]]
    there = [[0.0, 2.0], [2.0, 0.0], [0.0, 0.0], [0.0, 5.0], [0.3, 0.7], [-1.0, 0.0]]
    scores = fed(NSS(reference="original", distance="cosine"), here, there)
    assert scores.tolist() == pytest.approx([1.0, 1 - 0.5**0.5, 0.0, 1.0, 0.0, 2.0], abs=1e-6)
    assert scores[2] == scores[4] == 0  # nothing changed: a tie, not rounding noise


def test_small_angles_keep_their_digits() -> None:
    """1 - cos is 5e-9 here, below what single precision can tell from 1."""
    scores = fed(NSS(reference="original", distance="cosine"), [[1.0, 0.0]], [[1.0, 1e-4]])
    assert scores[0] == pytest.approx(5e-9, rel=1e-3)


def test_a_share_that_is_a_whole_number_of_neurons_is_that_number() -> None:
    """0.29 * 100 is 28.999... for a computer."""
    here = [[0.0] * 100]
    there = [list(range(100))]
    scores = fed(NSS(reference="original", k=0.29), here, there)
    assert scores.tolist() == [sum(range(71, 100))]


def test_at_least_one_neuron() -> None:
    assert fed(NSS(reference="original", k=0.001), [[0.0, 0.0]], [[1.0, 2.0]]).tolist() == [2.0]


def test_neurons_that_change_alike_are_taken_in_order() -> None:
    assert fed(NSS(reference="original", k=0.5), [[0.0] * 4] * 2, [[1.0] * 4, [1.0, 1.0, 3.0, 1.0]]).tolist() == [2.0, 4.0]


# -- the whole way, re-derived in plain numpy


class Net(nn.Module):
    """Its features are 18 pooled values, and nothing is cut off at zero, so no two changes tie."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.conv, self.pool, self.fc = nn.Conv2d(1, 2, 3, padding=1), nn.AvgPool2d(2), nn.Linear(18, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.pool(self.conv(x)).flatten(1))


NET = Net().eval()
N = 40


def pool() -> Source:
    random = rng.stream("test.nss", 0)
    return nss_pool(source=ArraySource(random.integers(0, 256, (N, 1, 6, 6), dtype=np.uint8)), seed=0)


def features(x: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return NET.pool(NET.conv(x)).flatten(1).double().numpy()


def plain(here: np.ndarray, partners: list[np.ndarray], k: float, identify: str, distance: str, sample: np.ndarray) -> np.ndarray:
    """Algorithms 1 and 2 as loops."""
    neurons = here.shape[1]
    count = max(1, int(k * neurons))
    total = np.zeros(neurons)
    for there in partners:
        for i in sample:
            change = np.abs(there[i] - here[i])
            if identify == "sum":
                total += change
            else:
                total[np.argsort(-change)[:count]] += 1
    sensitive = np.argsort(-total, kind="stable")[:count]
    scores = np.zeros(len(here))
    for i in range(len(here)):
        for there in partners:
            a, b = here[i, sensitive], there[i, sensitive]
            if distance == "l1":
                scores[i] += np.abs(b - a).sum() / len(partners)
            else:
                scores[i] += (1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b))) / len(partners)
    return scores


@pytest.mark.parametrize("distance", ["l1", "cosine"])
@pytest.mark.parametrize("identify", ["sum", "vote"])
@pytest.mark.parametrize("k", [0.1, 0.4, 1.0])
@pytest.mark.parametrize(("reference", "mutants"), [("original", 1), ("remutate", 1), ("remutate", 3)])
@pytest.mark.parametrize("sample", [9, 1000])
def test_equals_a_plain_derivation(distance: str, identify: str, k: float, reference: str, mutants: int, sample: int) -> None:
    target, source = Target(NET, shape=(1, 6, 6)), pool()
    method = NSS(reference=reference, k=k, distance=distance, identify=identify, n_mutants=mutants, sample=sample)
    selection = select(target, source, method, 5, seed=3, batch=7)
    everyone = np.arange(N)
    x = torch.from_numpy(source.read(everyone)).float() / 255
    if reference == "original":
        others = [torch.from_numpy(source.originals.read(everyone)).float() / 255]
    else:
        mutations = NssMutations(rounding="pool")
        draws = [mutations.draw(rng.stream("select.remutate", 3, number), N) for number in range(mutants)]
        # In the batches of the selection: a mean of pixels half way between two of 256 steps falls to either side.
        batches = [everyone[at : at + 7] for at in range(0, N, 7)]
        others = [torch.cat([mutations.apply(x[index], drawn[index]) for index in batches]) for drawn in draws]
    sampled = everyone if sample >= N else rng.stream("select.sample", 3).permutation(N)[:sample]
    expected = plain(features(x), [features(other) for other in others], k, identify, distance, sampled)
    assert selection.all_scores == pytest.approx(expected, rel=1e-4, abs=2e-6)


def test_a_smaller_sample_is_the_beginning_of_a_larger_one() -> None:
    place = Pool(Target(NET, shape=(1, 6, 6)), pool(), 0)
    alone, both = sample_first(place, {5}), sample_first(place, {0, 5, 12})
    assert set(alone[:5]) == set(both[:5]) < set(both[:12]) == set(sample_first(place, {12})[:12])
    for order in (alone, both):
        assert sorted(order) == list(range(N))
    assert np.array_equal(sample_first(place, {0, N, 1000}), np.arange(N))
    assert not np.array_equal(sample_first(Pool(place.target, place.source, 1), {5})[:5], alone[:5])


def test_another_layer_and_channels() -> None:
    target, source = Target(NET, shape=(1, 6, 6)), pool()
    selection = select(target, source, "nss:layer=conv,neuron=channel,k=1.0", 5)
    with torch.no_grad():
        here, there = (
            NET.conv(torch.from_numpy(s.read(np.arange(N))).float() / 255).mean((2, 3)).numpy()
            for s in (source, source.originals)
        )
    assert selection.all_scores == pytest.approx(np.abs(here - there).sum(1), abs=1e-5)


def test_several_layers_are_joined() -> None:
    target, source = Target(NET, shape=(1, 6, 6)), pool()
    joined = select(target, source, "nss:layer=*c*,neuron=unit,k=1.0", 5).all_scores  # conv and fc
    single = [select(target, source, f"nss:layer={name},k=1.0", 5).all_scores for name in ("conv", "fc")]
    assert joined == pytest.approx(single[0] + single[1], rel=1e-5)


# -- settings


def test_defaults_and_presets() -> None:
    assert NSS().share == 0.1
    assert NSS(distance="cosine").share == 1.0
    assert NSS(distance="cosine", k=0.3).share == 0.3
    assert registry.build("selector", "nss:0.2") == NSS(k=0.2)
    assert registry.build("selector", "nss:preset=cosine").share == 1.0
    assert NSS(reference="remutate", n_mutants=4).partner == Partner("remutate", 4)
    assert NSS(reference="original", n_mutants=4).partner == Partner("original", 1)
    with refused("unsupported", "reference"):
        _ = NSS().partner


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("nss:reference=clean", ("wrong-type", "reference")),
        ("nss:k=0", ("out-of-range", "k")),
        ("nss:k=1.5", ("out-of-range", "k")),
        ("nss:k=ten", ("wrong-type", "k")),
        ("nss:distance=l2", ("wrong-type", "distance")),
        ("nss:identify=mean", ("wrong-type", "identify")),
        ("nss:n_mutants=0", ("out-of-range", "n_mutants")),
        ("nss:n_mutants=1.5", ("wrong-type", "n_mutants")),
        ("nss:sample=0", ("out-of-range", "sample")),
        ("nss:refrence=original", ("unknown-option", "refrence")),
    ],
)
def test_bad_settings(text: str, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        registry.build("selector", text)


def test_bad_neuron_is_told_before_the_work() -> None:
    with refused("wrong-type", "neuron"):
        select(Target(NET, shape=(1, 6, 6)), pool(), "nss:layer=conv,neuron=cell", 5)
