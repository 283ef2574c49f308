"""Outputs of few and of many classes, and heads that correct them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest import rng
from neurotest.select.adaptive import learner
from neurotest.select.adaptive.outputs import MANY, RANK, SHORT, Outputs, class_embedding, shortened

pytestmark = pytest.mark.by_hand


def logits(n: int = 30, classes: int = 100, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(rng.stream("test.outputs", seed).normal(size=(n, classes)) * 3)


def test_fault_odds_by_hand() -> None:
    """Two classes, 0.8 and 0.2: the odds that the first is wrong are 1 : 4."""
    outputs = Outputs(torch.tensor([[0.8, 0.2]], dtype=torch.float64).log())
    assert float(outputs.fault_odds()) == pytest.approx(math.log(0.25))
    assert float(outputs.fault_odds(torch.tensor([1]))) == pytest.approx(math.log(4))
    assert float(outputs.gini_odds()) == pytest.approx(math.log(0.32 / 0.68))


def test_of_many_classes_the_likeliest_are_kept_and_the_rest_is_one() -> None:
    whole = logits()
    values, classes = shortened(whole)
    short = Outputs.of(values, classes, class_embedding(whole))
    assert whole.shape[1] > MANY
    assert (short.count, short.rank, values.shape[1]) == (100, RANK, SHORT + 1)
    assert torch.equal(short.predicted, whole.argmax(dim=1))
    probs = whole.softmax(dim=1)
    assert short.probs()[:, 0].numpy() == pytest.approx(probs.amax(dim=1).numpy(), rel=1e-5)
    assert short.probs()[:, -1].numpy() == pytest.approx(1 - probs.topk(SHORT).values.sum(dim=1).numpy(), abs=1e-5)
    assert short.fault_odds().numpy() == pytest.approx(Outputs(whole).fault_odds().numpy(), abs=1e-4)
    labels = torch.stack([short.classes[0, 3], whole[1].argmin()])  # one of the likeliest, one of the rest
    assert short[:2].aims(labels).argmax(dim=1).tolist() == [3, SHORT]


def test_a_head_with_a_number_per_class_equals_the_head_of_all_classes() -> None:
    """Nothing is left out and nothing shared: both ways of writing the same regression agree, as far as both are solved."""
    random = rng.stream("test.outputs.head", 0)
    k, n = 4, 25
    x, whole = torch.from_numpy(random.normal(size=(n, 3))), logits(n, k)
    labels = torch.from_numpy(random.integers(0, k, n))
    order = whole.argsort(dim=1, descending=True)
    values = torch.cat([whole.gather(1, order), torch.full((n, 1), -50.0, dtype=torch.float64)], dim=1)
    embedding = torch.cat([torch.eye(k), torch.zeros(1, k)]).double()
    short, dense = Outputs(values, order, embedding), Outputs(whole)
    weights = torch.ones(n, dtype=torch.float64)
    ours = learner.corrected_head(x, short, short.aims(labels), weights, 2.0)
    theirs = learner.corrected_head(x, dense, dense.aims(labels), weights, 2.0)
    assert ours.numpy() == pytest.approx(theirs.numpy(), abs=learner.ENOUGH)
    odds = [o.corrected(x, h).fault_odds(whole.argmax(dim=1)) for o, h in ((short, ours), (dense, theirs))]
    assert odds[0].numpy() == pytest.approx(odds[1].numpy(), abs=10 * learner.ENOUGH)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_nothing_added_changes_nothing_and_the_head_lowers_the_loss(seed: int) -> None:
    whole = logits(40, 80, seed)
    values, classes = shortened(whole)
    outputs = Outputs.of(values, classes, class_embedding(whole))
    random = rng.stream("test.outputs.any", seed)
    x = torch.from_numpy(random.normal(size=(40, 5)))
    assert torch.equal(outputs.corrected(x, torch.zeros(5, RANK, dtype=torch.float64)).values, outputs.values)
    aims = outputs.aims(torch.from_numpy(random.integers(0, 80, 40)))
    head = learner.corrected_head(x, outputs, aims, torch.ones(40, dtype=torch.float64), 1.0)
    before, after = (-(aims * o.values.log_softmax(dim=1)).sum() for o in (outputs, outputs.corrected(x, head)))
    assert float(after + 0.5 * head.square().sum()) <= float(before) + 1e-9


def test_few_classes_are_left_as_they_are() -> None:
    assert Outputs.of(np.zeros((2, 3), np.float32), None, None).vectors() is None
