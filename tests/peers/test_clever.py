"""CLEVER against the adversarial-robustness-toolbox's `clever_u`, at equal numbers of batches and samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from neurotest import zoo
from neurotest.data.spec import data
from neurotest.evaluate.clever import Clever
from neurotest.evaluate.leads import Leads
from neurotest.generate.gradient.toolbox import installed
from neurotest.target.load import load

pytestmark = [
    pytest.mark.peer("art"),
    pytest.mark.skipif(not installed(), reason="the adversarial-robustness-toolbox is not installed (make test-peers)"),
    pytest.mark.skipif(not zoo.find("mnist-lenet5").embedded, reason="the embedded networks were removed"),
    pytest.mark.slow,
]
N, BATCHES, SAMPLES = 10, 50, 32
COLLAPSED = 0.05  # its fit diverges on some inputs: a score of nearly 0, one twentieth of all others


def test_agrees_within_the_sampling_error() -> None:
    """Its own scores over three seeds say how far apart two estimates of one input are."""
    from art.estimators.classification import PyTorchClassifier
    from art.metrics import clever_u

    target = load("zoo:mnist-lenet5")
    x = target.prepare(data(f"zoo:mnist/test[:{N}]").read(np.arange(N)))
    own = target.logits(x).argmax(1).tolist()
    peer = PyTorchClassifier(
        target.module, loss=torch.nn.CrossEntropyLoss(), input_shape=(1, 28, 28), nb_classes=10, clip_values=(0, 1)
    )
    theirs, mine = np.full((N, 3), np.nan), np.full((N, 3), np.nan)
    for seed in range(3):
        np.random.seed(seed)
        for i in range(N):
            theirs[i, seed] = clever_u(peer, x[i].numpy(), BATCHES, SAMPLES, 5, 2, verbose=False)
            method = Clever(norm="l2", radius=5, batches=BATCHES, samples=SAMPLES)
            mine[i, seed] = method.estimate(Leads(target), x[i], own[i], position=i, seed=seed).score
    print(f"theirs {theirs.round(3).tolist()}\nours {mine.round(3).tolist()}")
    assert (mine > COLLAPSED).all()
    theirs[theirs < COLLAPSED] = np.nan
    usable = ~np.isnan(theirs).any(axis=1)  # where its fit diverges once, its other scores are no yardstick either
    assert usable.sum() >= N // 2
    logs = np.log(np.stack([mine[usable], theirs[usable]]))  # (2, inputs, seeds)
    error = np.sqrt(np.nanmean(np.nanvar(logs, axis=2, ddof=1), axis=1).sum())  # of the difference of two single estimates
    apart = np.nanmean(logs[0], axis=1) - np.nanmean(logs[1], axis=1)
    assert np.abs(apart).max() < 3 * error + 0.05
    assert abs(apart.mean()) < 2 * error
