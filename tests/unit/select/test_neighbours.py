"""Share of faults among labelled neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from tests.refusals import refused
from torch import Tensor, nn

from neurotest.data.source import ArraySource
from neurotest.select import select
from neurotest.target import Target

pytestmark = pytest.mark.by_hand


class Plane(nn.Module):
    """Two coordinates as they are, then a dense layer that says class 0 left of the middle and class 1 right of it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)
        self.head.weight.data = 4 * Tensor([[-1, 0], [1, 0]])
        self.head.bias.data = Tensor([2, -2])

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


def target() -> Target:
    return Target(Plane().eval(), shape=(2,))


X = np.array(
    [[0.1, 0.1], [0.15, 0.1], [0.1, 0.9], [0.15, 0.9], [0.9, 0.5], [0.12, 0.12], [0.12, 0.88], [0.88, 0.5]], dtype=np.float32
)
LABELS = {0: 1, 1: 1, 2: 0, 3: 0, 4: 1}  # the network is wrong at 0 and 1


def test_by_hand() -> None:
    selection = select(target(), ArraySource(X), "neighbours:2", 3, labels=LABELS)
    assert selection.order[0] == 5  # beside two faults
    assert (selection.all_scores[[5, 6, 7]] // 0.5).tolist() == [2, 0, 0]
    assert selection.all_scores[:5].tolist() == [-1.0] * 5  # labelled already
    assert "5 labels are known, 2 of them faults" in selection.notes[0]


def test_against_plain_loops() -> None:
    random = np.random.default_rng(0)
    x = random.random((60, 2), dtype=np.float32)
    labels = {int(i): int(random.integers(0, 2)) for i in random.permutation(60)[:25]}
    selection = select(target(), ArraySource(x), "neighbours:k=4", 5, labels=labels)
    for i in (i for i in range(60) if i not in labels):
        near = sorted(labels, key=lambda j: float(np.square(x[i].astype(float) - x[j].astype(float)).sum()))[:4]
        share = np.mean([selection.predictions[j] != labels[j] for j in near])
        assert share <= selection.all_scores[i] < share + 1 / 4


def test_fewer_labels_than_neighbours() -> None:
    assert select(target(), ArraySource(X), "neighbours:k=50", 3, labels=LABELS).picked == 3


@pytest.mark.parametrize("labels", [None, {}])
def test_labels_are_asked_for(labels: object) -> None:
    with refused("missing", "labels"):
        select(target(), ArraySource(X), "neighbours", 3, labels=labels)


@pytest.mark.parametrize(
    ("labels", "refusal"),
    [
        ({99: 0}, ("not-found", "inputs")),
        ({"ab" * 8: 0}, ("not-found", "inputs")),
        ({0: 7}, ("out-of-range", "label")),
        ({0: "cat"}, ("unknown-name", "label")),
    ],
)
def test_bad_labels(labels: dict[int | str, int | str], refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        select(target(), ArraySource(X), "neighbours", 3, labels=labels)


def test_contradicting_labels_of_equal_inputs() -> None:
    source = ArraySource(np.concatenate([X, X[:1]]))
    with refused("conflict", "label"):
        select(target(), source, "neighbours", 3, labels={str(source.ids()[0]): 1, 8: 0})
