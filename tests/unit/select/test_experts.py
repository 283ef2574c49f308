"""The loop with a prior: proposals, resuming, large batches, faults left."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest import rng
from neurotest.select.adaptive import prior as priors
from neurotest.select.adaptive.experts import EXPLORED, LARGE_BATCH, LOOSER, PriorLoop, _diverse
from neurotest.select.adaptive.remaining import WIDER_SELF, Draw, combined

from .test_prior import bank, scanned

pytestmark = pytest.mark.by_hand


def begun(seed: int = 5, n: int = 800, **options: float) -> tuple[PriorLoop, np.ndarray]:
    pool, labels, _ = scanned(n, 0.3, seed)
    learned = priors.learn(bank(600), pool)
    return PriorLoop(pool, prior=learned, **options), labels  # type: ignore[arg-type]


def test_labels_correct_what_was_foreseen() -> None:
    """The network's faults in the pool are elsewhere than in the bank: it is found out, and paid for in the first rounds only."""
    pool, labels, _ = scanned(1500, 0.3, 6)
    twisted = pool.features.copy()
    twisted[:, 1] *= -1
    learned = priors.learn(bank(), type(pool)(twisted, pool.logits))
    loop = PriorLoop(pool, prior=learned)
    wrong = labels != loop.predictions.numpy()
    rates = []
    for _ in range(8):
        batch = loop.propose(25)
        loop.tell(batch, labels[batch])
        rates.append(wrong[batch].mean())
    assert np.mean(rates[4:]) > 0.6  # by chance 0.15
    assert loop.compared().labels == 200


def test_what_deepgini_would_have_found_is_counted_by_labels_and_guessed_elsewhere() -> None:
    loop, labels = begun()
    for _ in range(4):
        batch = loop.propose(25)
        loop.tell(batch, labels[batch])
    wrong = labels != loop.predictions.numpy()
    first = np.argsort(-loop.gini.numpy(), kind="stable")[:100]
    seen = np.isin(first, loop.labelled)
    compared = loop.compared()
    assert (compared.labels, compared.faults, compared.shared) == (100, wrong[loop.labelled].sum(), seen.sum())
    assert 0 < seen.sum() < 100
    assert compared.deepgini == pytest.approx(wrong[first[seen]].sum() + loop.posterior.chance[first[~seen]].sum().item())
    assert abs(compared.deepgini - wrong[first].sum()) < 10  # a tenth of the labels


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(1, 90), min_size=1, max_size=4), st.integers(0, 3))
def test_proposals_are_distinct_and_unseen(sizes: list[int], seed: int) -> None:
    loop, labels = begun(seed, 500)
    seen: set[int] = set()
    for size in sizes:
        batch = loop.propose(size)
        assert len(set(batch.tolist())) == size
        assert not seen & set(batch.tolist())
        seen |= set(batch.tolist())
        loop.tell(batch, labels[batch])


@pytest.mark.parametrize("size", [20, LARGE_BATCH + 20])
def test_restored_equals_uninterrupted_and_the_order_of_telling_changes_nothing(size: int) -> None:
    loop, labels = begun(audit=0.1)
    back, _ = begun(audit=0.1)
    for _ in range(3):
        batch = loop.propose(size)
        for p in reversed(batch.tolist()):
            loop.tell([p], [labels[p]])
    back.restore(loop.labels, loop.evidence, loop.draws, loop.batches)
    assert back.remaining() == loop.remaining()
    assert np.array_equal(back.propose(size), loop.propose(size))


def test_experts_are_judged_within_a_large_batch_only() -> None:
    loop, labels = begun()
    batch = loop.propose(LARGE_BATCH)
    loop.tell(batch, labels[batch])
    numbers = torch.from_numpy(labels[loop.labelled])
    assert loop._crossed(loop.labelled, numbers) == {}
    batch = loop.propose(LARGE_BATCH + 1)
    loop.tell(batch, labels[batch])
    crossed = loop._crossed(loop.labelled, torch.from_numpy(labels[loop.labelled]))
    assert set(crossed) == set(batch.tolist())
    p = batch.tolist()[0]
    assert crossed[p][:2] == pytest.approx(loop.evidence[p][:2])  # what never changes


def test_labels_of_a_large_batch_are_learned_from_with_a_third_of_the_ridge() -> None:
    """Re-derived: the same loop with a third of the ridge and nothing large; not where DeepGini is the start."""
    loop, labels = begun()
    batch = loop.propose(LARGE_BATCH + 1)
    before = loop.large_batches
    loop.tell(batch, labels[batch])
    assert (before, loop.large_batches) == (False, True)
    small, _ = begun(ridge=loop.ridge / LOOSER)
    for some in (batch[:LARGE_BATCH], batch[LARGE_BATCH:]):
        small.record_odds(some)
        small.tell(some, labels[some])
    assert small.large_batches is False
    assert torch.allclose(loop.posterior.experts, small.posterior.experts, atol=1e-9)
    assert loop.prior is not None
    natural = PriorLoop(loop.facts, prior=dataclasses.replace(loop.prior, guarded=True))
    natural.restore(loop.labels, loop.evidence, loop.draws, loop.batches)
    assert natural.large_batches is False


def test_a_batch_that_is_small_beside_earlier_labels_is_not_crossed() -> None:
    loop, labels = begun(n=1500)
    sizes = [LARGE_BATCH + 10] * 4  # the last is less than half of what came before
    for size in sizes:
        batch = loop.propose(size)
        loop.tell(batch, labels[batch])
    crossed = loop._crossed(loop.labelled, torch.from_numpy(labels[loop.labelled]))
    assert set(crossed) == {p for batch in loop.batches[:3] for p in batch}


def test_a_large_first_batch_explores_with_a_share_of_it() -> None:
    loop, _ = begun()
    n = LARGE_BATCH + 40
    top = torch.argsort(-loop.posterior.odds, stable=True).numpy()[:n]
    batch = loop.propose(n)
    odds = loop.posterior.odds[batch]
    assert bool((odds[:-1] >= odds[1:]).all())  # best first
    kept = n - round(EXPLORED * n)
    assert set(top[:kept].tolist()) <= set(batch.tolist())
    assert set(batch.tolist()) != set(top.tolist())


def test_a_large_batch_of_a_pool_that_looks_natural_is_deepginis() -> None:
    loop, _ = begun()
    assert loop.prior is not None
    loop.prior = dataclasses.replace(loop.prior, guarded=True, stack=(0.0, 1.0, 0.0))
    n = LARGE_BATCH + 40
    assert np.array_equal(loop.propose(n), np.argsort(-loop.gini.numpy(), kind="stable")[:n])


def test_a_diverse_batch_by_hand() -> None:
    """Three alike, one apart with lower odds: with diversity the other comes second, without it last."""
    odds = torch.tensor([3.0, 2.9, 2.8, 2.7], dtype=torch.float64)
    x = torch.tensor([[0.0], [0.0], [0.0], [9.0]], dtype=torch.float64)
    same = torch.zeros(4, dtype=torch.int64)
    assert _diverse(odds, x, same, 2, 1.0).tolist() == [0, 3]
    assert _diverse(odds, x, same, 2, 0.0).tolist() == [0, 1]
    assert _diverse(odds, x, torch.arange(4), 2, 1.0).tolist() == [0, 1]  # of other classes: not alike


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30))
def test_a_batch_without_weight_on_diversity_is_the_top(seed: int, n: int) -> None:
    random = rng.stream("test.diverse", seed)
    odds, x = torch.from_numpy(random.normal(size=40)), torch.from_numpy(random.normal(size=(40, 3)))
    classes = torch.from_numpy(random.integers(0, 3, 40))
    assert _diverse(odds, x, classes, n, 0.0).tolist() == torch.argsort(-odds, stable=True)[:n].tolist()
    spread = _diverse(odds, x, classes, n, 0.5).tolist()
    assert len(set(spread)) == n


# -- faults left


def test_faults_left_by_two_models_by_hand() -> None:
    """Models that agree on 20: the spread is 0.35, so a factor of exp(1.96 x 0.35) either way, and the noise of coin tosses."""
    chance = torch.full((100,), 0.2, dtype=torch.float64)
    rest = combined(chance, chance, [], {})
    noise = 3 + 2 * 4
    assert rest.value == pytest.approx(20, rel=0.02)
    assert (rest.low, rest.high) == pytest.approx((max(0.0, 20 * np.exp(-0.686) - noise), 20 * np.exp(0.686) + noise), rel=0.03)


def test_a_prior_without_true_labels_is_less_sure_of_the_faults_left() -> None:
    """By hand: the factor's logarithm lies within 2.571 x 0.35 instead of 1.96 x 0.35; the estimate stays."""
    chance = torch.full((2000,), 0.5, dtype=torch.float64)
    sure, unsure = combined(chance, chance, [], {}), combined(chance, chance, [], {}, WIDER_SELF)
    assert unsure.value == sure.value
    noise = 3 + 2 * np.sqrt(500)
    assert unsure.low == pytest.approx(1000 * np.exp(-2.571 * 0.35) - noise, rel=0.03)
    assert unsure.low < sure.low
    assert sure.high <= unsure.high == 2000


def test_random_labels_move_the_guess_as_a_plain_sum_over_factors_says() -> None:
    head, mixed = torch.full((200,), 0.05).double(), torch.full((200,), 0.2).double()
    draws = [Draw((0, 1, 2), frozenset(), 0.3), Draw((3, 4), frozenset({0, 1, 2}), 0.2)]
    faulty = {0: True, 1: True, 2: False, 3: True, 4: True}
    rest = combined(head, mixed, draws, faulty)
    spread = 0.35 + 0.35 * np.log(4)
    factors = np.exp(np.linspace(-4 * spread, 4 * spread, 20_001))
    chance = np.exp(-0.5 * (np.log(factors) / spread) ** 2)
    for expected, faults in ((0.3, 2), (0.2, 2)):
        chance = chance * (factors * expected) ** faults * np.exp(-factors * expected)
    shares = np.cumsum(chance) / chance.sum()
    assert rest.value == pytest.approx(20 * factors[np.searchsorted(shares, 0.5)], rel=0.05)
    assert rest.random == 5
    assert rest.value > combined(head, mixed, [], {}).value


@settings(max_examples=20, deadline=None)
@given(st.floats(0.001, 0.9), st.floats(0.001, 0.9), st.integers(0, 20), st.integers(0, 20))
def test_the_interval_holds_the_estimate_and_stays_in_the_pool(a: float, b: float, faults: int, others: int) -> None:
    n = faults + others
    draws = [Draw(tuple(range(n)), frozenset(), 0.1 * n)] if n else []
    rest = combined(torch.full((50,), a).double(), torch.full((50,), b).double(), draws, {i: i < faults for i in range(n)})
    assert 0 <= rest.low <= rest.value <= rest.high <= 50
