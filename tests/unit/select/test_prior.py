"""What is learned before the first label: shares of changes, heads, the stack, the guard, the promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest import rng
from neurotest.select.adaptive import learner, prior
from neurotest.select.adaptive.bank import Bank
from neurotest.select.adaptive.experts import PriorLoop
from neurotest.select.adaptive.features import Facts
from neurotest.select.adaptive.learner import quick_head

pytestmark = pytest.mark.by_hand

CLASSES = 4


def scanned(n: int, share: float, seed: int) -> tuple[Facts, np.ndarray, np.ndarray]:
    """Inputs of which a share is moved along one feature; the network takes moved ones for the next class, and is sure."""
    random = rng.stream("test.prior", seed)
    x = random.normal(size=(n, 6)).astype(np.float32)
    moved = random.random(n) < share
    x[:, 0] += 6 * moved
    labels = random.integers(0, CLASSES, n)
    wrong = moved & (x[:, 1] > 0)
    predicted = np.where(wrong, (labels + 1) % CLASSES, labels)
    x[np.arange(n), 2 + labels % 4] += 2.0  # where the true class can be seen
    logits = random.normal(size=(n, CLASSES)).astype(np.float32)
    logits[np.arange(n), predicted] += 4
    return Facts(x, logits), labels, moved


def bank(n: int = 2000, share: float = 0.5, seed: int = 1) -> Bank:
    facts, labels, moved = scanned(n, share, seed)
    return Bank(facts, labels, moved.astype(np.int64), np.arange(n), ("plain", "moved"))


def test_em_by_hand() -> None:
    """A classifier that knows for certain: the shares are those of its answers."""
    chances = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert prior._maximise(chances, np.array([0.5, 0.5])).tolist() == [0.75, 0.25]


def test_em_equals_a_plain_loop() -> None:
    random = rng.stream("test.em", 0)
    chances = random.dirichlet(np.ones(3), 20)
    before = np.array([0.2, 0.3, 0.5])
    pi = before.tolist()
    for _ in range(7):
        sums = [0.0, 0.0, 0.0]
        for row in chances:
            joint = [row[o] * pi[o] / before[o] for o in range(3)]
            for o in range(3):
                sums[o] += joint[o] / sum(joint)
        pi = [s / len(chances) for s in sums]
    assert prior._maximise(chances, before, steps=7) == pytest.approx(pi)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_shares_are_a_distribution(seed: int, count: int) -> None:
    chances = rng.stream("test.em.any", seed).dirichlet(np.ones(count), 30)
    found = prior._maximise(chances, np.full(count, 1 / count))
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()


@pytest.mark.parametrize("share", [0.1, 0.8])
def test_the_share_of_changed_inputs_is_found_without_labels(share: float) -> None:
    pool, _, moved = scanned(1500, share, 7)
    one = bank()
    found = prior._shares_of_operators(one.facts.features, one.operators, 2, pool.features)
    assert found[1] == pytest.approx(moved.mean(), abs=0.05)  # the ridge keeps the classifier from being sure


def test_faults_are_foreseen_where_deepgini_sees_nothing() -> None:
    pool, labels, _ = scanned(1500, 0.4, 3)
    learned = prior.learn(bank(), pool)
    assert not learned.guarded
    loop = PriorLoop(pool, prior=learned)
    wrong = labels != loop.predictions.numpy()
    first, plain = loop.propose(50), np.argsort(-loop.gini.numpy(), kind="stable")[:50]
    assert wrong[first].mean() > wrong[plain].mean() + 0.3
    assert learned.promise > 20


def test_a_pool_that_looks_natural_starts_with_deepgini() -> None:
    pool, _, _ = scanned(1500, 0.0, 4)
    quiet = bank()
    learned = prior.learn(Bank(quiet.facts, quiet.facts.logits.argmax(1), quiet.operators, quiet.images, quiet.names), pool)
    assert learned.guarded
    assert learned.shares["plain"] > 0.9
    loop = PriorLoop(pool, prior=learned)
    assert np.array_equal(loop.propose(30), np.argsort(-loop.gini.numpy(), kind="stable")[:30])


def test_the_rate_of_weighted_rows_by_hand() -> None:
    """Budget one half: the first row (0.25), and half of the second's 0.5."""
    scores, faults = np.array([3.0, 2.0, 1.0]), np.array([True, False, True])
    portion = np.array([0.25, 0.5, 0.25])
    assert prior._rates(scores, faults, portion, (0.5, 1.0)) == pytest.approx([0.25 / 0.5, 0.5])
    assert prior._gain(scores, scores, faults, portion) == 0


def test_each_half_is_judged_by_the_head_of_the_other() -> None:
    """Re-derived half by half and row by row."""
    one = bank(200)
    weights = torch.ones(200, dtype=torch.float64)
    head, odds = prior._crossfit(one, weights, 30.0)
    x = np.column_stack([one.facts.features, np.ones(200)]).astype(np.float64)
    heads = []
    for half in (1, 0):
        rows = np.flatnonzero(one.images % 2 == half)
        outputs = one.facts.only(rows).outputs
        aims = outputs.aims(torch.from_numpy(one.labels[rows]))
        arguments = torch.from_numpy(x[rows]), outputs, aims, weights[rows], 30.0
        heads.append(quick_head(*arguments, steps=prior.HEAD_STEPS).numpy())
        assert heads[-1] == pytest.approx(learner.corrected_head(*arguments).numpy(), abs=1e-3)
    assert head.numpy() == pytest.approx((heads[0] + heads[1]) / 2, abs=1e-5)  # in single precision
    for i in range(0, 200, 17):
        corrected = one.facts.logits[i].astype(np.float64) + x[i] @ heads[0 if i % 2 == 0 else 1]
        chance = np.exp(corrected - corrected.max())
        chance = chance / chance.sum()
        ours = chance[one.facts.logits[i].argmax()]
        assert float(odds[i]) == pytest.approx(np.clip(np.log((1 - ours) / ours), -6, 6), abs=1e-4)


def test_what_was_not_simulated_is_left_out() -> None:
    one = bank(100)
    left = one.without(["moved"])
    assert left.names == ("plain",)
    assert len(left) == int((one.operators == 0).sum())
    assert set(left.operators.tolist()) == {0}


# -- the stack


def plain_stack(x: np.ndarray, faults: np.ndarray, weights: np.ndarray, middle: np.ndarray, hold: np.ndarray) -> np.ndarray:
    """Projected gradient descent."""
    c = middle.copy()
    z = np.column_stack([np.ones(len(x)), x])
    for _ in range(20_000):
        slope = z.T @ (weights * (1 / (1 + np.exp(-z @ c)) - faults)) + hold * (c - middle)
        c = c - 0.01 * slope
        c[1:] = np.maximum(c[1:], 0)
    return c


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_stack_equals_projected_descent(seed: int) -> None:
    random = rng.stream("test.rising", seed)
    x = random.normal(size=(40, 3))
    faults = (random.random(40) < 1 / (1 + np.exp(-x[:, 0] + x[:, 1]))).astype(float)
    weights, middle = random.random(40) + 0.5, np.array([0.1, 0.5, 0.2, 0.0])
    hold = np.array([1.0, 4.0, 4.0, 4.0])
    ours = learner.rising(*(torch.from_numpy(a) for a in (x, faults, weights, middle, hold))).numpy()
    assert ours == pytest.approx(plain_stack(x, faults, weights, middle, hold), abs=1e-3)
    assert (ours[1:] >= 0).all()


def test_without_evidence_the_stack_is_the_prior() -> None:
    middle = torch.tensor([0.3, 1.0, 0.5], dtype=torch.float64)
    none = torch.zeros(0, dtype=torch.float64)
    assert torch.equal(learner.rising(torch.zeros(0, 2).double(), none, none, middle, torch.ones(3).double()), middle)
