"""The gate: by hand on networks that read their answer off the input, against plain counts, as a property, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from tests.refusals import refused
from torch import nn

from neurotest.check.gate import AccuracyChange, gate
from neurotest.target import Target


class Reads(nn.Module):
    """Class 1 where one pixel is bright; `column` says which."""

    def __init__(self, column: int) -> None:
        super().__init__()
        self.column = column
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value = x.flatten(1)[:, self.column] - 0.5 + self.unused
        return torch.stack([-value, value], 1)


def networks() -> tuple[Target, Target]:
    return tuple(Target(Reads(column).eval(), shape=(1, 2, 2)) for column in (0, 1))  # type: ignore[return-value]


def inputs(old: list[bool], new: list[bool], labels: list[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Inputs that the old network gets right where `old` says so, and the new one where `new` does."""
    y = np.array([i % 2 for i in range(len(old))] if labels is None else labels)
    x = np.zeros((len(old), 1, 2, 2), dtype=np.float32)
    x[:, 0, 0, 0] = np.where(old, y, 1 - y)
    x[:, 0, 0, 1] = np.where(new, y, 1 - y)
    return x, y


def test_by_hand() -> None:
    old = [True] * 90 + [False] * 10
    new = [True] * 88 + [False] * 2 + [True] * 9 + [False]
    result = gate(*networks(), inputs(old, new))
    assert (result.data.fixed, result.data.broken, result.data.inputs) == (9, 2, 100)
    assert result.may_replace
    assert result.data.p == pytest.approx(2 * (1 + 11 + 55) / 2**11)
    assert result.fixed == tuple(range(90, 99))
    assert result.broken == (88, 89)
    assert result.headline().startswith("The new network may replace the old one: 9 faults fixed, 2 new on 100 inputs")


def test_reasons() -> None:
    right, half = [True] * 200, [True] * 100 + [False] * 100
    worse = gate(*networks(), inputs(right, half))
    assert not worse.may_replace
    assert "accuracy falls by 50.00 points" in worse.headline()
    assert worse.to_dict()["may_replace"] is False
    # One class pays for the other: together nothing is lost.
    labels = [0] * 100 + [1] * 100
    shifted = gate(*networks(), inputs([False] * 30 + [True] * 170, [True] * 170 + [False] * 30, labels))
    assert shifted.data.difference.value == 0
    assert [reason.split(" (")[0] for reason in shifted.reasons] == ["class 1 falls by 30.0 points"]
    # A small fall beyond chance, within what is allowed.
    many = gate(*networks(), inputs([True] * 4000, [True] * 3988 + [False] * 12))
    assert [reason.split(",")[0] for reason in many.reasons] == ["it breaks more than it fixes"]
    # Nothing is lost, but few inputs cannot show it.
    equal = inputs([True] * 50, [True] * 50)
    assert gate(*networks(), equal).may_replace
    assert "cannot be ruled out" in gate(*networks(), equal, certain=True).headline()


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
@settings(max_examples=30)
def test_against_plain_counts(pairs: list[tuple[bool, bool]]) -> None:
    old, new = (list(side) for side in zip(*pairs, strict=True))
    result = gate(*networks(), inputs(old, new))
    fixed = sum(1 for a, b in pairs if b and not a)
    broken = sum(1 for a, b in pairs if a and not b)
    assert (result.data.fixed, result.data.broken) == (fixed, broken)
    assert result.data.p == pytest.approx(binomtest(fixed, fixed + broken).pvalue if fixed + broken else 1.0)
    assert sum(one.fixed for one in result.by_class) == fixed
    swapped = gate(*reversed(networks()), inputs(old, new))
    assert (swapped.data.fixed, swapped.data.broken) == (broken, fixed)
    assert result.may_replace or swapped.may_replace or any("class" in reason for reason in (*result.reasons, *swapped.reasons))


def test_a_run_and_the_same_network(tmp_path) -> None:
    old, _ = networks()
    result = gate(old, old, inputs([True] * 10, [True] * 10), out=tmp_path / "gate")
    assert (tmp_path / "gate" / "run.json").is_file()
    assert any("the same" in note for note in result.notes)
    assert AccuracyChange.of("x", np.array([True]), np.array([False])).broken == 1


def test_refusals() -> None:
    x, y = inputs([True] * 4, [True] * 4)
    with refused("no-labels", "data"):
        gate(*networks(), x)
    for code, options in (
        ("out-of-range", {"max_loss": 2}),
        ("out-of-range", {"alpha": 0}),
        ("unknown-option", {"max_los": 1}),
    ):
        with refused(code, next(iter(options))):
            gate(*networks(), (x, y), **options)
