"""Settings, budgets, the corpus and the seeds of the fuzzing loop, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.refusals import refused
from tests.unit.generate.subjects import Net, images, predictions, seeds

from neurotest import oracles
from neurotest.data.source import ArraySource
from neurotest.generate.fuzz import Budget, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.corpus import Corpus
from neurotest.generate.fuzz.guides import GuideBatch, _BitsBatch
from neurotest.measure.context import Context
from neurotest.target import Probe, Target

pytestmark = pytest.mark.by_hand

# -- settings and budgets


def test_the_smallest_settings_are_allowed_and_the_defaults_stay() -> None:
    Settings(tries=1, batch=1, chunk=1, max_depth=1, capacity=1)
    usual = Settings()
    assert (usual.tries, usual.batch, usual.chunk, usual.max_depth, usual.capacity, usual.seed) == (64, 256, 16, 5, 4096, 0)
    assert (usual.energy, usual.priority, usual.accept) == ("constant", "uses", "first")
    assert (usual.reuse_failures, usual.every_fault) == (False, True)
    for name in ("tries", "batch", "chunk", "max_depth", "capacity"):
        for value in (0, -1, True, 2.0, None):
            with refused("out-of-range", name):
                Settings(**{name: value})
    for name, word in (
        ("energy", "constant or potential"),
        ("priority", "uses, deephunter, uniform or recent"),
        ("accept", "first or all"),
    ):
        with refused("out-of-range", name, match=f"expected {word}"):
            Settings(**{name: "x"})  # type: ignore[arg-type]
    for energy in ("constant", "potential"):
        for accept in ("first", "all"):
            for priority in ("uses", "deephunter", "uniform", "recent"):
                Settings(energy=energy, accept=accept, priority=priority)  # type: ignore[arg-type]


def test_a_budget_is_spent_when_a_limit_is_reached() -> None:
    budget = Budget(iterations=5, seconds=2.5, faults=1)
    assert budget.to_dict() == {"iterations": 5, "seconds": 2.5, "faults": 1}
    assert budget.spent({"iterations": 4, "seconds": 2.4, "faults": 0}) is None
    assert budget.spent({"iterations": 5, "seconds": 0.0, "faults": 0}) == "iterations"
    assert budget.spent({"iterations": 0, "seconds": 2.5, "faults": 0}) == "seconds"
    assert budget.spent({"faults": 1}) == "faults"
    assert budget.spent({}) is None
    for options in (
        {"seconds": 0},
        {"seconds": float("inf")},
        {"seconds": True},
        {"seconds": "1"},
        {"faults": True},
        {"forwards": 0},
    ):
        with refused("out-of-range", next(iter(options))):
            Budget(**options)  # type: ignore[arg-type]
    assert Budget(seconds=0.5).to_dict() == {"seconds": 0.5}
    assert Budget(seconds=3, outputs=1, forwards=1).to_dict() == {"forwards": 1, "seconds": 3, "outputs": 1}


# -- the corpus


def corpus(n: int = 4, **options: Any) -> Corpus:
    return Corpus(seeds(n), Settings(**options))


def test_a_uniform_number_picks_by_weight() -> None:
    kept = corpus(4)
    kept.entries[1].uses = 5  # 0.01 of the weight of a fresh one
    kept.entries[2].uses = 4  # 0.2
    edges = np.cumsum([1, 0.01, 0.2, 1]) / 2.21
    uniforms = np.array([0.0, edges[0] - 1e-9, edges[0] + 1e-9, edges[1] + 1e-9, edges[2] - 1e-9, edges[2] + 1e-9, 1 - 1e-12])
    assert [entry.number for entry in kept.pick(uniforms)] == [0, 0, 1, 2, 2, 3, 3]
    assert [entry.uses for entry in kept.entries] == [0, 5, 4, 0]
    assert kept.weights().tolist() == pytest.approx([1, 0.01, 0.2, 1])
    assert [entry.number for entry in kept.pick(np.array([edges[0], 1.0]))] == [1, 3]  # an edge belongs to the next


def test_other_priorities() -> None:
    assert corpus(4, priority="uniform").weights().tolist() == [1, 1, 1, 1]
    assert corpus(7, priority="recent").weights() == pytest.approx([1 / 7] * 2 + [1 + 1 / 7] * 5)
    hunter = corpus(4, priority="deephunter")
    hunter.pick(np.array([0.1, 0.1, 0.9]))
    assert [entry.uses for entry in hunter.entries] == [2, 0, 0, 1]  # every turn counts
    assert hunter.weights() == pytest.approx([0.4, 0.8, 0.8, 0.6])


def test_a_seed_that_gives_nothing_valid_gets_few_turns() -> None:
    kept = corpus(3)
    kept.mark_exhausted(kept.entries[0])
    kept.entries[1].uses = 9
    kept.mark_exhausted(kept.entries[1])
    assert [entry.uses for entry in kept.entries] == [5, 9, 0]
    other = corpus(3, priority="uniform")
    other.mark_exhausted(other.entries[0])
    assert other.entries[0].uses == 0


def test_the_most_used_go_the_oldest_of_them_first_but_never_the_newest_or_those_in_use() -> None:
    kept = corpus(3, capacity=5)
    x = kept.seeds.x[0]
    for _ in range(4):
        kept.add(0, x, x, False, ())
    for entry, uses in zip(kept.entries, [1, 3, 3, 0, 3, 0, 8], strict=True):
        entry.uses = uses
    kept.trim({1})
    assert [entry.number for entry in kept.entries] == [0, 1, 3, 5, 6]  # 2 and 4 had three turns, as 1 had; 6 is new
    kept.trim(set())
    assert len(kept) == 5
    assert kept.add(0, x, x, False, ()).number == 7
    assert len(corpus(3, capacity=1)) == 3  # there is always room for the seeds


def test_entries_are_dropped_by_number() -> None:
    kept = corpus(4)
    kept.drop(set())
    assert [entry.number for entry in kept.entries] == [0, 1, 2, 3]
    kept.drop({0, 2, 9})
    assert [entry.number for entry in kept.entries] == [1, 3]


@pytest.mark.parametrize("criterion", ["kmnc:5", "nbc", "nac:0.1"])
def test_a_batch_read_by_bits_keeps_what_one_by_one_keeps(criterion: str) -> None:
    """The same rows, and the same state when the batch is over: bits, counts and the ranges that were seen."""
    target = Target(Net().eval(), shape=(1, 8, 8))
    states = [
        build_guide(criterion).start(Context(target=target, train=ArraySource(images(10, 3))), ArraySource(images(4)))
        for _ in range(2)
    ]
    quick, plain = states
    for seed in (5, 6):
        x = torch.from_numpy(np.repeat(images(6, seed), 2, axis=0)).float() / 255  # every second row has nothing new
        with Probe(target, *quick.wants) as probe:
            trace = probe(x)
        batches = [quick.start_batch(trace), GuideBatch(plain, trace)]
        assert isinstance(batches[0], _BitsBatch)
        for rows in ([0], [1], [1, 2, 3], [3, 2, 4], [5, 6], [7], [8, 9, 10, 11]):
            picked = [batch.keep_first(list(rows)) for batch in batches]
            assert picked[0] == picked[1]
        for batch in batches:
            batch.close()
        ours, theirs = quick.arrays(), plain.arrays()
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def test_the_room_that_is_left_for_change() -> None:
    kept = corpus(2, energy="potential", tries=10)
    beta = kept.settings.validity.beta
    reference = np.zeros((1, 8, 8), dtype=np.uint8)
    reference[0, 0, :4] = 100
    changed = reference.copy()
    changed[0, 0, 0] += 51  # a fifth of the range
    entry = kept.add(0, changed, reference, False, ())
    assert entry.potential == pytest.approx(beta * 4 - 0.2)
    assert kept.potential(np.full_like(reference, 255), reference) == 0
    for one, potential in zip(kept.entries, (1.0, 3.0, 8.0), strict=True):
        one.potential = potential
    assert [kept.energy(one) for one in kept.entries] == [8, 8, 20]  # 2.5, 7.5 and 20 of 10; at least 8
    kept.entries[2].potential = 1e9
    kept.entries[0].potential = kept.entries[1].potential = 0.0
    assert Corpus(kept.seeds, Settings(energy="potential", tries=200)).energy(kept.entries[2]) == 256
    assert kept.energy(kept.entries[0]) == 8
    assert corpus(2, tries=10).energy(entry) == 10
    assert corpus(2).potential(changed, reference) == 0  # not needed, not computed


def test_room_in_other_bounds() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (6, 1, 8, 8)).astype(np.float32)
    target = Target(Net().eval(), shape=(1, 8, 8), bounds=(-1.0, 1.0))
    chosen = choose_seeds(target, ArraySource(x), oracles.build_oracles(target, "metamorphic"))
    kept = Corpus(chosen, Settings(energy="potential"))
    reference = np.full((1, 8, 8), -1.0, dtype=np.float32)
    reference[0, 0, :5] = 0.0
    changed = reference.copy()
    changed[0, 0, 0] = 0.5  # a quarter of the range
    assert kept.potential(changed, reference) == pytest.approx(kept.settings.validity.beta * 5 - 0.25)


# -- seeds


def test_what_is_stored_is_what_is_tested() -> None:
    chosen = seeds(20)
    assert len(chosen) == 20
    unit = chosen.unit(chosen.x)
    assert torch.equal(unit, torch.from_numpy(chosen.x).float() / 255)
    assert np.array_equal(chosen.stored(unit), chosen.x)
    assert chosen.stored(torch.tensor([0.0, 0.5 / 255 + 1e-4, 1.0])).tolist() == [0, 1, 255]
    assert (chosen.set_aside, chosen.classes, chosen.positions.tolist()) == (0, 3, list(range(20)))
    assert chosen.roots.predicted.tolist() == chosen.roots.labels.tolist() == predictions(chosen.x).tolist()


def test_labels_beyond_the_classes_and_other_oracles() -> None:
    target = Target(Net().eval(), shape=(1, 8, 8))
    x = images(6)
    labels = predictions(x)
    with refused("out-of-range", "labels"):
        choose_seeds(target, ArraySource(x, np.where(labels == labels[0], 3, labels)), oracles.build_oracles(target, "label"))
    unlabelled = choose_seeds(target, ArraySource(x), oracles.build_oracles(target, "metamorphic"), batch=4)
    assert unlabelled.roots.labels.tolist() == [-1] * 6
    assert unlabelled.roots.predicted.tolist() == labels.tolist()
    # A label that is not predicted is no seed, whatever the oracle; the others keep their place in the data.
    wrong = labels.copy()
    wrong[[0, 3]] = (wrong[[0, 3]] + 1) % 3
    some = choose_seeds(target, ArraySource(x, wrong), oracles.build_oracles(target, "metamorphic"))
    assert (some.positions.tolist(), some.set_aside) == ([1, 2, 4, 5], 2)
    assert np.array_equal(some.x, x[[1, 2, 4, 5]])
    assert some.roots.labels.tolist() == wrong[[1, 2, 4, 5]].tolist()
