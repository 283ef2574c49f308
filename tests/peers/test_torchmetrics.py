"""FID, KID and IS against torchmetrics, where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.peers.packages import package

from neurotest.evaluate.metrics import fid, inception_score, kid

package("torchmetrics")
pytestmark = pytest.mark.peer("torchmetrics")


class Same(torch.nn.Module):
    """Features handed over as if they were images."""

    num_features = 6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(80, 6)) + seed


def test_fid() -> None:
    from torchmetrics.image.fid import FrechetInceptionDistance

    metric = FrechetInceptionDistance(feature=Same(), input_img_size=(6,))
    metric.set_dtype(torch.float64)
    metric.update(torch.from_numpy(drawn(0)), real=True)
    metric.update(torch.from_numpy(drawn(1)), real=False)
    assert fid(drawn(1), drawn(0)).value == pytest.approx(float(metric.compute()), rel=1e-4)


def test_kid() -> None:
    from torchmetrics.image.kid import KernelInceptionDistance

    metric = KernelInceptionDistance(feature=Same(), subsets=1, subset_size=80)
    metric.update(torch.from_numpy(drawn(0)), real=True)
    metric.update(torch.from_numpy(drawn(1)), real=False)
    assert kid(drawn(1), drawn(0)).value == pytest.approx(float(metric.compute()[0]), rel=1e-4)


def test_inception_score() -> None:
    from torchmetrics.image.inception import InceptionScore

    metric = InceptionScore(feature=Same(), splits=1)
    metric.update(torch.from_numpy(drawn(0)))
    probs = torch.from_numpy(drawn(0)).softmax(1).numpy()
    assert inception_score(probs).value == pytest.approx(float(metric.compute()[0]), rel=1e-4)
