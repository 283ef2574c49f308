"""Scores over several thinned networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import Tensor, nn

from neurotest.data.source import ArraySource
from neurotest.select import select
from neurotest.select.dropout import BALD, MCDropout, _mutual_information, _predictive_entropy, _variation_ratio
from neurotest.select.partners import _Thinned
from neurotest.target import Target

pytestmark = pytest.mark.by_hand

# two inputs, four passes, two classes
SAMPLES = torch.tensor(
    [[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[0.5, 0.5], [0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]], dtype=torch.float64
)


def test_by_hand() -> None:
    assert _variation_ratio(SAMPLES).tolist() == [0.25, 0.25]  # a tie goes to the first class: votes 3:1 twice
    quarter = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25))
    assert _predictive_entropy(SAMPLES).tolist() == pytest.approx([quarter, 1.0])
    assert _mutual_information(SAMPLES).tolist() == pytest.approx([quarter, 1 - (1 + quarter + 1 + quarter) / 4])


def test_predictive_entropy_decides_between_equal_ratios_only() -> None:
    scores = MCDropout(samples=4).score(SAMPLES)
    assert scores[1] > scores[0]
    surer = torch.tensor([[[0.5, 0.5]] * 4, [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    scores = MCDropout(samples=4).score(surer)  # all agree on a coin toss; one of four disagrees, all are certain
    assert scores[1] > scores[0]


class Net(nn.Module):
    def __init__(self, drop: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
        self.drop, self.head = drop, nn.Linear(4 * 36, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.relu(self.norm(self.conv(x)))).flatten(1))


def target(drop: nn.Module) -> Target:
    torch.manual_seed(0)
    return Target(Net(drop).eval(), shape=(1, 6, 6))


POOL = ArraySource(np.random.default_rng(0).random((12, 1, 6, 6), dtype=np.float32))


@pytest.mark.parametrize(
    "drop", [nn.Dropout(0.5), nn.Dropout2d(0.5), nn.AlphaDropout(0.3), nn.FeatureAlphaDropout(0.3), nn.Dropout(1.0)], ids=repr
)
@torch.inference_mode()
def test_a_thinned_network_is_the_network_with_a_mask(drop: nn.Module) -> None:
    """Against plain loops over the module's own parts."""
    network = target(drop)
    thinned = _Thinned(network, seed=3)
    x = network.prepare(POOL.read(np.arange(12)))
    logits = [trace.logits for trace in thinned.traces(x, 3)]
    net = network.module
    for sample in range(3):
        maps = net.relu(net.norm(net.conv(x)))
        kept = thinned._masks.get(("drop", sample))
        if isinstance(drop, (nn.AlphaDropout, nn.FeatureAlphaDropout)):
            p, low = drop.p, -1.7580993408473766
            a = ((1 - p) * (1 + p * low**2)) ** -0.5
            maps = a * (maps * kept + low * (1 - kept)) - a * low * p
        else:
            maps = maps * kept / (1 - drop.p) if drop.p < 1 else maps * 0
        assert torch.allclose(net.head(maps.flatten(1)), logits[sample], atol=1e-5)
    if drop.p < 1:
        assert not torch.allclose(logits[0], logits[1])
    if not isinstance(drop, (nn.Dropout, nn.AlphaDropout)):
        assert thinned._masks["drop", 0].shape == (4, 1, 1)


def test_masks_keep_about_the_right_share_and_the_mean() -> None:
    network = Target(nn.Sequential(nn.Flatten(), nn.Dropout(0.25), nn.Linear(36, 3)).eval(), shape=(1, 6, 6))
    thinned = _Thinned(network, seed=0)
    x = network.prepare(POOL.read(np.arange(12)))
    with torch.inference_mode():
        plain = network.logits(x)
    mean = torch.stack([trace.logits for trace in thinned.traces(x, 400)]).mean(dim=0)
    kept = torch.stack(list(thinned._masks.values())).mean()
    assert kept == pytest.approx(0.75, abs=0.02)
    assert torch.allclose(mean, plain, atol=0.1)


def test_nothing_of_the_network_is_changed() -> None:
    """Batch normalisation keeps its statistics, nothing is left in training mode, the prediction is the network's own."""
    network = target(nn.Dropout(0.5))
    before = {name: value.clone() for name, value in network.module.state_dict().items()}
    selection = select(network, POOL, "mc-dropout:samples=5", 3)
    assert not any(module.training for module in network.module.modules())
    assert all(torch.equal(value, before[name]) for name, value in network.module.state_dict().items())
    assert np.array_equal(selection.predictions, select(network, POOL, "deepgini", 3).predictions)


def test_seeds() -> None:
    scores = [select(target(nn.Dropout(0.5)), POOL, "bald:8", 3, seed=seed).all_scores for seed in (0, 0, 1)]
    assert np.array_equal(scores[0], scores[1])
    assert not np.allclose(scores[0], scores[2])


@pytest.mark.parametrize("method", ["mc-dropout", "bald", "mc-dropout:predictive_entropy"])
@pytest.mark.parametrize("drop", [nn.Identity(), nn.Dropout(0.0)], ids=repr)
def test_a_network_without_dropout_is_refused(method: str, drop: nn.Module) -> None:
    with refused("unsuitable", "dropout"):
        select(target(drop), POOL, method, 3)


@pytest.mark.parametrize(
    ("method", "refusal"), [("bald:1", ("out-of-range", "samples")), ("mc-dropout:by=votes", ("wrong-type", "by"))]
)
def test_bad_settings(method: str, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        select(target(nn.Dropout(0.5)), POOL, method, 3)


def test_disagreement_is_never_negative() -> None:
    probs = torch.from_numpy(np.random.default_rng(0).dirichlet([0.3] * 5, (50, 7)))
    assert (BALD(samples=7).score(probs) >= -1e-12).all()
