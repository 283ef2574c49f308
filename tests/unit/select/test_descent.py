"""The descent of adaptive selection: by hand, against scipy and scikit-learn, and that it never ends higher than it began."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from neurotest import rng
from neurotest.data.spec import data
from neurotest.select.adaptive import bank, learner, prior
from neurotest.select.adaptive.learner import Function, _minimise
from neurotest.select.adaptive.outputs import Outputs, class_embedding, shortened
from neurotest.target.load import load

pytestmark = pytest.mark.by_hand


def test_a_bowl_of_one_number_by_hand() -> None:
    """4 (x - 3)^2 from 0: the slope is -24, so that a step of one lands at 24 and is halved until 3; there the slope is zero."""
    places = []

    def bowl(x: Tensor) -> tuple[float, Tensor]:
        places.append(float(x))
        return 4 * (float(x) - 3) ** 2, 8 * (x - 3)

    end = _minimise(bowl, torch.zeros(1, dtype=torch.float64), steps=9, enough=1e-9)
    assert places == [0, 24, 12, 6, 3]  # at 6 the value is that of the start: not lower
    assert float(end) == 3


def convex(seed: int, size: int) -> Function:
    """A logistic loss of random data with a ridge."""
    random = rng.stream("test.descent", seed)
    x = torch.from_numpy(random.normal(size=(3 * size, size)) * np.geomspace(0.2, 3, size))
    signs = torch.from_numpy(random.choice([-1.0, 1.0], 3 * size))

    def function(w: Tensor) -> tuple[float, Tensor]:
        margins = signs * (x @ w)
        value = torch.nn.functional.softplus(-margins).sum() + 0.5 * w.square().sum()
        return float(value), x.T @ (-signs * torch.sigmoid(-margins)) + w

    return function


@pytest.mark.parametrize("size", [1, 5, 40])
def test_the_end_is_that_of_scipy(size: int) -> None:
    function, start = convex(size, size), torch.zeros(size, dtype=torch.float64)
    ours = _minimise(function, start, steps=200, enough=1e-8)

    def plain(w: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = function(torch.from_numpy(w))
        return value, slope.numpy()

    theirs = minimize(plain, start.numpy(), jac=True, method="BFGS", options={"gtol": 1e-8}).x
    assert ours.numpy() == pytest.approx(theirs, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(0, 15))
def test_more_steps_never_end_higher(seed: int, size: int, steps: int) -> None:
    function, start = convex(seed, size), torch.zeros(size, dtype=torch.float64)
    values = [function(_minimise(function, start, steps=n, enough=0.0))[0] for n in (0, steps, steps + 1)]
    slack = 1e-9 * abs(values[0])
    assert values[0] >= values[1] - slack
    assert values[1] >= values[2] - slack


def test_a_head_is_the_regression_of_scikit_learn() -> None:
    """Where the network says nothing (all logits zero) it is a multinomial regression with a ridge, in blocks or not."""
    random = rng.stream("test.descent.head", 0)
    n, d, classes = 2 * learner.BLOCK + 100, 6, 4
    x = random.normal(size=(n, d))
    labels = (x[:, :classes] + random.normal(size=(n, classes))).argmax(axis=1)
    weights = random.random(n)
    outputs = Outputs(torch.zeros(n, classes, dtype=torch.float64))
    aims = outputs.aims(torch.from_numpy(labels))
    arguments = torch.from_numpy(x), outputs, aims, torch.from_numpy(weights), 30.0
    head = learner.quick_head(*arguments, steps=60, precision=torch.float64)
    peer = LogisticRegression(C=1 / 30, fit_intercept=False, tol=1e-9, max_iter=5000).fit(x, labels, weights)
    assert head.T.numpy() == pytest.approx(peer.coef_, abs=1e-4)


def test_few_steps_are_a_shorter_way_to_the_same_end() -> None:
    random = rng.stream("test.descent.steps", 0)
    x = torch.from_numpy(random.normal(size=(500, 20)))
    outputs = Outputs(torch.from_numpy(3 * random.normal(size=(500, 5))))
    aims = outputs.aims(torch.from_numpy(random.integers(0, 5, 500)))
    arguments = x, outputs, aims, torch.ones(500, dtype=torch.float64), 5.0
    start, few, many = (learner.quick_head(*arguments, steps=steps) for steps in (0, 12, 60))
    assert not start.any()
    assert float((few - many).norm()) < 0.02 * float(many.norm())


def test_a_head_of_many_classes_is_that_of_the_other_solver() -> None:
    """Each class by a few numbers, each input by its likeliest classes: rows go through another product."""
    random = rng.stream("test.descent.many", 0)
    x = torch.from_numpy(random.normal(size=(400, 8)))
    logits = torch.from_numpy(2 * random.normal(size=(400, 100)))
    values, classes = shortened(logits)
    outputs = Outputs.of(values, classes, class_embedding(logits))
    aims = outputs.aims(torch.from_numpy(random.integers(0, 100, 400)))
    arguments = x, outputs, aims, torch.from_numpy(random.random(400)), 5.0
    head = learner.quick_head(*arguments, steps=60, precision=torch.float64)
    assert head.shape == (8, outputs.rank)
    assert head.abs().max() > 0.1
    assert torch.allclose(head, learner.corrected_head(*arguments), atol=2e-3)


@pytest.mark.parametrize("wanted", ["head", "shares"])
def test_on_a_bank_few_steps_are_as_far_down_as_sixty_of_the_other_solver(wanted: str) -> None:
    """Counted from where both start to where the descent ends: what either has left is less than a hundredth of the way."""
    some = data("zoo:mnist/train", limit=800)
    assert some.labels is not None
    rows, _ = bank._build(load("zoo:mnist-lenet1"), some, some.labels)
    if wanted == "head":
        x, outputs, labels, steps = (
            prior._with_one(rows.facts.features).double(),
            rows.facts.outputs,
            rows.labels,
            prior.HEAD_STEPS,
        )
    else:
        features = torch.from_numpy(rows.facts.features).double()
        x, labels, steps = prior._expanded(features, features.std(dim=0)), rows.operators, prior.OPERATOR_STEPS
        outputs = Outputs(torch.zeros(len(rows), len(rows.names), dtype=torch.float64))
    aims = outputs.aims(torch.from_numpy(labels))
    arguments = x, outputs, aims, torch.ones(len(rows), dtype=torch.float64), 30.0

    def value(head: Tensor) -> float:
        fit = torch.nn.functional.cross_entropy(outputs.values + x @ head, aims, reduction="sum")
        return float(fit + 15 * head.square().sum())

    end = value(learner.quick_head(*arguments, steps=200, precision=torch.float64))
    way = value(torch.zeros(x.shape[1], outputs.rank, dtype=torch.float64)) - end
    assert 0 <= value(learner.quick_head(*arguments, steps=steps)) - end < 0.01 * way
    assert 0 <= value(learner.corrected_head(*arguments)) - end < 0.01 * way
