"""What is a fault."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from neurotest.errors import BadInput
from neurotest.oracles import Differential, Quantised, Recognised, Roots, _rounded, build_oracles, predicted
from neurotest.target import Target

TARGET = Target(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval(), shape=(1, 2, 2))
X = torch.zeros(3, 1, 2, 2)


def roots(labels: list[int], predicted: list[int]) -> Roots:
    return Roots(np.array(labels), np.array(predicted), np.eye(3, dtype=np.float32)[: len(labels)] * 2)


LOGITS = torch.tensor([[2.0, 0, 0], [0, 0, 2], [float("nan"), 1, 0]])
LABELLED = roots([0, 1, 2], [0, 2, 2])


@pytest.mark.parametrize(
    ("oracle", "verdict"),
    [
        ("label", [None, "label", "nonfinite"]),
        ("metamorphic", [None, None, "nonfinite"]),
        ("nonfinite", [None, None, "nonfinite"]),
        ("regression:tolerance=0.5", [None, "regression", "nonfinite"]),
        ("regression:tolerance=1.5,outputs=logits", [None, "regression", "nonfinite"]),
    ],
)
def test_verdicts_by_hand(oracle: str, verdict: list[str | None]) -> None:
    judges = build_oracles(TARGET, oracle)
    assert [judges.names[i] if i >= 0 else None for i in judges(X, LOGITS, LABELLED)] == verdict


def test_several_oracles_the_first_gives_the_name() -> None:
    judges = build_oracles(TARGET, ["metamorphic", "label"])
    verdicts = judges(X, LOGITS, roots([0, 1, 2], [1, 2, 2]))
    assert [judges.names[i] for i in verdicts] == ["metamorphic", "label", "nonfinite"]
    assert judges.needs_labels
    assert not build_oracles(TARGET, "metamorphic").needs_labels


def test_prediction_of_logits_that_are_no_numbers() -> None:
    assert predicted(LOGITS).tolist() == [0, 2, -1]


def test_rounding_by_hand() -> None:
    weight = torch.tensor([1.27, -0.634, 0.0])
    assert torch.allclose(_rounded(weight, "int8"), torch.tensor([1.27, -0.63, 0.0]), atol=1e-6)
    assert _rounded(torch.tensor([1.001]), "bf16").item() == 1.0
    assert torch.equal(_rounded(torch.zeros(2), "int8"), torch.zeros(2))


def test_quantised_and_differential_compare_with_another_network() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False)).eval()
    with torch.no_grad():
        module[1].weight.copy_(torch.tensor([[1.0, 0.001, 0, 0], [1.0, 0.0, 0, 0]]))  # int8 loses the small one
    target = Target(module, shape=(1, 2, 2))
    x = torch.ones(1, 1, 2, 2)
    judge = Quantised().begin(target)
    root = Roots(np.array([0]), np.array([0]), np.zeros((1, 2), np.float32))
    logits = target.logits(x)
    assert logits.argmax(1).item() == 0
    assert judge(x, logits, root).tolist() == [False]  # a tie, and the first wins
    with torch.no_grad():
        module[1].weight.copy_(torch.tensor([[1.0, 0.0, 0, 0], [1.0, 0.001, 0, 0]]))
    logits = target.logits(x)
    assert Quantised().begin(target)(x, logits, root).tolist() == [True]
    assert judge.passes == 1
    assert module[1].weight[1, 1].item() == pytest.approx(0.001)  # the target itself stays
    other = Target(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval(), shape=(1, 2, 2))
    with torch.no_grad():
        other.module[1].weight.zero_()
        other.module[1].bias.copy_(torch.tensor([1.0, 0.0]))
    assert Differential(other=other).begin(target)(x, logits, root).tolist() == [True]


def test_what_nobody_recognises_is_no_fault() -> None:
    """Against a plain loop: wrong for the target and right for the other network, row by row."""
    torch.manual_seed(0)
    target, other = (Target(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval(), shape=(1, 2, 2)) for _ in range(2))
    x, labels = torch.rand(60, 1, 2, 2), np.arange(60) % 3
    check = Recognised(other=other).begin(target)
    wrong = check(x, target.logits(x), Roots(labels, labels, np.zeros((60, 3), np.float32)))
    expected = [
        int(target.logits(one[None]).argmax()) != label and int(other.logits(one[None]).argmax()) == label
        for one, label in zip(x, labels.tolist(), strict=True)
    ]
    assert wrong.tolist() == expected
    assert 0 < sum(expected) < (predicted(target.logits(x)) != labels).sum()
    assert (check.passes, check.labels) == (1, True)


@pytest.mark.parametrize(
    ("oracle", "says"),
    [
        ("labell", "unknown oracle"),
        ("quantised:to=int4", "expected int8 or bf16"),
        ("regression:tolerance=0", "above 0"),
        ("regression:outputs=x", "logits or probs"),
        ("differential", "needs another network"),
        ("recognised", "needs another network"),
        (Recognised(other=TARGET), "is the one under test"),
        ([], "none was given"),
    ],
)
def test_bad_oracles(oracle: object, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        build_oracles(TARGET, oracle)  # type: ignore[arg-type]
