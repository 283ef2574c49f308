"""BIM against the adversarial-robustness-toolbox's PGD without a random start, where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from neurotest import zoo
from neurotest.data.spec import data
from neurotest.generate.gradient import BIM
from neurotest.generate.gradient.engine import Engine
from neurotest.generate.gradient.toolbox import installed
from neurotest.target.load import load

pytestmark = [
    pytest.mark.peer("art"),
    pytest.mark.skipif(not installed(), reason="the adversarial-robustness-toolbox is not installed (make test-peers)"),
    pytest.mark.skipif(not zoo.find("mnist-lenet1").embedded, reason="the embedded networks were removed"),
    pytest.mark.slow,
]
N = 200


def test_success_rates_agree_within_two_points() -> None:
    from art.attacks.evasion import ProjectedGradientDescent
    from art.estimators.classification import PyTorchClassifier

    target = load("zoo:mnist-lenet1")
    source = data(f"zoo:mnist/test[:{N}]")
    x = target.prepare(source.read(np.arange(N)))
    y = target.logits(x).argmax(1).detach()
    peer = PyTorchClassifier(
        target.module, loss=nn.CrossEntropyLoss(), input_shape=(1, 28, 28), nb_classes=10, clip_values=(0, 1)
    )
    theirs = ProjectedGradientDescent(peer, eps=0.1, eps_step=0.01, max_iter=10, verbose=False, batch_size=N, num_random_init=0)
    with Engine(target, levels=None) as engine:
        moved = BIM(eps=0.1, step=0.01, steps=10).run(engine, x, y, positions=range(N), random=0)
    other = torch.from_numpy(theirs.generate(x.numpy(), y=y.numpy()))
    mine, peers = (float((target.logits(each).argmax(1) != y).double().mean()) for each in (moved, other))
    assert mine == pytest.approx(peers, abs=0.02)
    assert mine > 0.1
