"""Planted label errors, ours beside cleanlab's confident learning on the same probabilities, in one run."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.peers.packages import package

from neurotest.jobs.opening import open_counted, open_target
from neurotest.measure.answers import Answers, answers

package("cleanlab")
pytestmark = pytest.mark.peer("cleanlab")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab" / "scripts"))


@pytest.fixture(scope="module", params=["mnist-lenet5 mnist", "fashion-lenet5 fashion-mnist", "cifar10-resnet20 cifar10"])
def subject(request: pytest.FixtureRequest) -> tuple[Answers, np.ndarray]:
    network, data = request.param.split()
    target = open_target(f"zoo:{network}")
    source = open_counted(target, f"zoo:{data}/test")[0]
    assert source.labels is not None
    return answers(target, source), source.labels


@pytest.mark.parametrize("kind", ["random", "class-dependent"])
def test_at_least_as_many_planted_errors_come_first(subject: tuple[Answers, np.ndarray], kind: str) -> None:
    """Over three seeds, against each of cleanlab's orders; with slack, since few errors can be planted in CIFAR-10."""
    from measure_suspects import orders, planted

    said, truth = subject
    hits: dict[str, list[float]] = {}
    for seed in range(3):
        labels, where = planted(truth, said.predicted, kind, seed)
        for name, order in orders(said, labels, seed).items():
            hits.setdefault(name, []).append(float(np.isin(order[: len(where)], where).mean()))
    means = {name: float(np.mean(values)) for name, values in hits.items()}
    assert means["random"] < 0.1
    assert means["suspects"] >= max(value for name, value in means.items() if "cleanlab" in name) - 0.02, means


def test_self_confidence_is_the_networks_part_of_ours(subject: tuple[Answers, np.ndarray]) -> None:
    """Without neighbours our order is that of the log-odds, cleanlab's that of the label's own probability."""
    from cleanlab.rank import get_label_quality_scores

    said, labels = subject
    quality = get_label_quality_scores(labels, np.exp(said.log_probs), method="self_confidence")
    assert quality == pytest.approx(np.exp(said.log_probs[np.arange(len(labels)), labels]), abs=1e-9)
