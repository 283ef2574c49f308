"""Adaptive selection: what it proposes, what it learns, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from neurotest import rng, zoo
from neurotest.data.source import ArraySource
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.mutate.nss import nss_pool
from neurotest.select import compare, select
from neurotest.select.adaptive import Adaptive, loop
from neurotest.select.adaptive.features import Facts
from neurotest.select.adaptive.learning import Loop
from neurotest.select.adaptive.remaining import Draw, sampled
from neurotest.stats.bootstrap import wilson
from neurotest.stats.faults import fdr

pytestmark = pytest.mark.by_hand

N, CLASSES = 300, 4


def facts(seed: int = 0, n: int = N) -> tuple[Facts, np.ndarray]:
    """A network that takes every input of one region for another class, and is sure of it: only labels can tell."""
    random = rng.stream("test.adaptive", seed)
    x = (5 * random.normal(size=(n, 5))).astype(np.float32)
    labels = random.integers(0, CLASSES, n)
    predicted = np.where(x[:, 0] > 3, (labels + 1) % CLASSES, labels)
    logits = random.normal(size=(n, CLASSES)).astype(np.float32)
    logits[np.arange(n), predicted] += 3
    return Facts(x, logits), labels


def run(scanned: Facts, labels: np.ndarray, rounds: int, size: int = 15) -> list[np.ndarray]:
    learner, picks = Loop(scanned), []
    for _ in range(rounds):
        picks.append(learner.propose(size))
        learner.tell(picks[-1], labels[picks[-1]])
    return picks


def test_it_finds_the_region_where_the_network_errs() -> None:
    scanned, labels = facts(n=1000)
    wrong = labels != scanned.logits.argmax(1)
    picks = np.concatenate(run(scanned, labels, 8, size=25))
    plain = np.argsort(-Loop(scanned).gini.numpy(), kind="stable")[:200]
    assert wrong[picks].mean() > wrong[plain].mean() + 0.15
    assert wrong[picks[125:]].mean() > wrong[plain[125:]].mean() + 0.3  # once it has learned


def test_the_first_proposal_is_deepgini() -> None:
    scanned, _ = facts()
    learner = Loop(scanned)
    assert np.array_equal(learner.propose(20), np.argsort(-learner.gini.numpy(), kind="stable")[:20])


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 5))
def test_proposals_are_distinct_and_unseen(sizes: list[int], seed: int) -> None:
    scanned, labels = facts(seed)
    learner, seen = Loop(scanned), set()
    for size in sizes:
        batch = learner.propose(size)
        assert len(set(batch.tolist())) == size
        assert not seen & set(batch.tolist())
        seen |= set(batch.tolist())
        learner.tell(batch, labels[batch])


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_the_order_of_telling_changes_nothing(seed: int) -> None:
    scanned, labels = facts()
    one, other = Loop(scanned), Loop(scanned)
    for _ in range(3):
        batch = one.propose(12)
        assert np.array_equal(batch, other.propose(12))
        one.tell(batch, labels[batch])
        for position in np.random.default_rng(seed).permutation(batch):
            other.tell([position], [labels[position]])
    assert np.array_equal(one.propose(12), other.propose(12))


def test_restored_equals_uninterrupted() -> None:
    scanned, labels = facts()
    whole = Loop(scanned)
    for _ in range(4):
        batch = whole.propose(10)
        whole.tell(batch, labels[batch])
    back = Loop(scanned)
    back.restore(whole.labels, whole.evidence)
    assert np.array_equal(back.propose(10), whole.propose(10))
    assert back.remaining() == whole.remaining()


def test_fault_probabilities_are_calibrated_on_the_rest() -> None:
    scanned, labels = facts(1)
    learner = Loop(scanned)
    for _ in range(8):
        batch = learner.propose(15)
        learner.tell(batch, labels[batch])
    wrong = labels != scanned.logits.argmax(1)
    rest = learner.remaining()
    assert rest.low <= wrong[learner.left].sum() <= rest.high
    assert 0 <= learner.expected_rate(15) <= 1


def test_faults_left_by_random_labels_by_hand() -> None:
    """Two draws among ten candidates, two labels known before the second: 10 x 1/2 - 2 found and 8 x 1/2 - 1 found, averaged."""
    draws = [Draw((0, 1), frozenset()), Draw((4, 5), frozenset({0, 1}))]
    faulty = {0: True, 1: False, 4: True, 5: False}
    left = sampled(draws, faulty, 10, 6)
    share = wilson(2, 4)
    assert left.value == pytest.approx(((10 * 0.5 - 2) + (8 * 0.5 - 1)) / 2)
    assert (left.low, left.high) == pytest.approx((max(0, 9 * share.low - 1.5), min(6, 9 * share.high - 1.5)))
    assert left.random == 4
    assert sampled(draws, {}, 10, 10) is None
    assert sampled([Draw((0,), frozenset())], {0: False}, 10, 9).low == 0


@pytest.mark.parametrize("audit", [0.1, 0.5])
def test_random_labels_measure_what_is_left(audit: float) -> None:
    """Whatever the network believes: here it is sure of everything, so the model's guess is that hardly a fault is left."""
    scanned, labels = facts(3)
    sure = Facts(scanned.features, 50 * scanned.logits)
    inside = []
    for seed in range(20):
        learner = Loop(sure, seed=seed, audit=audit)
        for _ in range(5):
            batch = learner.propose(20)
            assert len(set(batch.tolist())) == 20
            learner.tell(batch, labels[batch])
        rest = learner.remaining()
        assert rest.random == 5 * round(20 * audit)
        inside.append(rest.low <= (labels != scanned.logits.argmax(1))[learner.left].sum() <= rest.high)
    assert np.mean(inside) >= 0.85
    back = Loop(sure, seed=19, audit=audit)
    back.restore(learner.labels, learner.evidence, learner.draws)
    assert back.remaining() == learner.remaining()
    assert np.array_equal(back.propose(20), learner.propose(20))


def test_where_the_learner_has_earned_no_trust_deepgini_decides() -> None:
    """Faults at random: there is nothing to learn, and the picks stay DeepGini's."""
    scanned, _ = facts(4)
    random = np.random.default_rng(0)
    predicted = scanned.logits.argmax(1)
    labels = np.where(random.random(len(scanned)) < 0.5, predicted, (predicted + 1) % scanned.logits.shape[1])
    learner, picked = Loop(scanned), []
    for _ in range(3):
        batch = learner.propose(15)
        picked += batch.tolist()
        learner.tell(batch, labels[batch])
    assert picked == np.argsort(-learner.gini.numpy(), kind="stable")[:45].tolist()


def test_unclear_inputs_are_neither_learned_from_nor_proposed_again() -> None:
    scanned, _ = facts()
    learner = Loop(scanned)
    batch = learner.propose(10)
    learner.tell(batch, np.full(10, -1))
    assert len(learner.labelled) == 0
    assert not set(batch.tolist()) & set(learner.propose(20).tolist())


def test_planted_label_errors_are_pointed_out() -> None:
    random = rng.stream("test.suspects", 0)
    labels = random.integers(0, CLASSES, N)
    x = (np.eye(CLASSES)[labels] * 5 + random.normal(0, 0.3, (N, CLASSES))).astype(np.float32)
    logits = (np.eye(CLASSES)[labels] * 8).astype(np.float32)
    learner = Loop(Facts(x, logits))
    wrong = labels[:40].copy()
    wrong[:5] = (wrong[:5] + 1) % CLASSES
    learner.tell(np.arange(40), wrong)
    assert learner.suspects().tolist() == [0, 1, 2, 3, 4]
    learner.evidence = {0: (5.0, 5.0), 3: (-5.0, -5.0)}  # input 0 was proposed as a fault: the network's word is no proof
    assert learner.suspects().tolist() == [1, 2, 3, 4]


def test_where_a_fault_was_foreseen_the_network_does_not_speak_against_the_label() -> None:
    """All five labels differ from what the network and all neighbours say; of the first three that was expected."""
    random = rng.stream("test.suspects", 0)
    classes = random.integers(0, CLASSES, N)
    x = (np.eye(CLASSES)[classes] * 5 + random.normal(0, 0.3, (N, CLASSES))).astype(np.float32)
    learner = Loop(Facts(x, (np.eye(CLASSES)[classes] * 8).astype(np.float32)))
    labels = {p: int(classes[p] + (p < 5)) % CLASSES for p in range(40)}
    foreseen = {p: (2.0, 2.0) if p < 3 else (-2.0, -2.0) for p in range(4)}  # the log-odds before the labels came
    learner.restore(labels, foreseen)
    assert learner.suspects().tolist() == [3, 4]
    learner.restore(labels, {})
    assert learner.suspects().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("indices", "labels", "refusal"),
    [([N], [0], ("out-of-range", "index")), ([-1], [0], ("out-of-range", "index")), ([0], [CLASSES], ("out-of-range", "label")),
     ([0, 1], [0], ("wrong-count", "labels")), ([0, 0], [1, 2], ("conflict", "label")), ([0.5], [1], ("wrong-type", "labels"))],
)  # fmt: skip
def test_bad_labels_are_refused_and_nothing_is_taken(indices: list[int], labels: list[int], refusal: tuple[str, str]) -> None:
    learner = Loop(facts()[0])
    with refused(*refusal):
        learner.tell(indices, labels)
    assert not learner.labels


def test_a_contradiction_is_refused() -> None:
    learner = Loop(facts()[0])
    learner.tell([3], [1])
    learner.tell([3], [1])
    with refused("conflict", "label"):
        learner.tell([3], [2])


def test_an_exhausted_pool_and_bad_sizes() -> None:
    scanned, labels = facts()
    learner = Loop(scanned)
    with refused("out-of-range", "n"):
        learner.propose(0)
    learner.tell(np.arange(N), labels)
    with refused("empty", "pool"):
        learner.propose(1)
    assert learner.expected_rate(5) == 0


@pytest.mark.parametrize("options", [{"stop": 2}, {"ridge": 0}, {"round": 0}, {"round": "x"}])
def test_bad_settings(options: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        Adaptive(**options)  # type: ignore[arg-type]


def odd_pool(seed: int, n: int) -> ArraySource:
    if zoo.find("mnist-lenet1").weights is None:
        pytest.skip("the weights of mnist-lenet1 are not here")
    try:
        test = data("zoo:mnist/test")
    except BadInput:
        pytest.skip("the embedded MNIST images were removed")
    return nss_pool(source=test.take(np.arange(1, 2 * n, 2)), seed=seed)  # type: ignore[return-value]


def test_quality_it_beats_deepgini_on_a_pool_of_mnist() -> None:
    pool = odd_pool(7, 2000)
    selections = compare("zoo:mnist-lenet1", pool, ["deepgini", "adaptive"], "10%")
    gini, ours = (selections[m].quality.fdr.value for m in ("deepgini", "adaptive"))  # type: ignore[union-attr]
    assert ours > gini + 0.08


def test_with_shuffled_labels_the_gain_vanishes() -> None:
    pool = odd_pool(8, 1500)
    mixed = ArraySource(pool.read(np.arange(1500)), rng.stream("test.shuffle", 0).permutation(pool.labels))
    selection = select("zoo:mnist-lenet1", mixed, "adaptive", "10%")
    wrong = mixed.labels != selection.predictions
    assert abs(fdr(wrong[selection.order], 150) - wrong.mean()) < 0.06


def test_labels_given_in_a_file_steer_the_next_picks() -> None:
    pool = odd_pool(9, 600)
    blind = ArraySource(pool.read(np.arange(600)))
    first = select("zoo:mnist-lenet1", blind, "adaptive", 30)
    labels = {int(p): int(pool.labels[p]) for p in first.indices}
    second = select("zoo:mnist-lenet1", blind, "adaptive", 30, labels=labels)
    assert not set(first.indices.tolist()) & set(second.indices.tolist())
    assert any("30 labels" in note for note in second.notes)


def test_a_loop_from_python() -> None:
    pool = odd_pool(10, 400)
    learner = loop("zoo:mnist-lenet1", ArraySource(pool.read(np.arange(400))))
    batch = learner.propose(10)
    learner.tell(batch, pool.labels[batch])
    assert len(learner.propose(10)) == 10


def test_features_of_any_kind_of_network() -> None:
    """Dense layers on vectors: no maps, no pictures."""
    from neurotest.target import Target

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()
    source = ArraySource(rng.stream("test.vectors", 0).normal(size=(50, 6)).astype(np.float32))
    learner = loop(Target(net, shape=(6,), bounds=(-10.0, 10.0)), source)
    assert learner.facts.features.shape[0] == 50
    assert np.isfinite(learner.facts.features).all()
