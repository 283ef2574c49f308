"""The fuzzing loop at work: its counters against plain counting, turns, resuming, and guides."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.refusals import refused
from tests.unit.generate.subjects import Net, fuzzer, images, outputs, predictions

from neurotest import oracles, registry
from neurotest.data.source import ArraySource
from neurotest.generate.fuzz import Budget, Fuzzer, Mutant, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.mutants import Tally
from neurotest.measure.context import Context
from neurotest.target import Probe, Target

pytestmark = pytest.mark.by_hand

# -- counters


def mutant(number: int, expected: int, predicted: int, *, root: int = 0, accepted: bool = False, fault: bool = True) -> Mutant:
    loop = fuzzer("random", Budget(iterations=1), tries=1)
    chain = outputs(loop)[0].chain
    return Mutant(
        number=number, batch=1, iteration=1, root=root, content="0", x=images(1)[0], chain=chain, label=expected,
        expected=expected, predicted=predicted, oracle="label" if fault else None, accepted=accepted, gain=0.0,
        distance=(0.0, 0.0, 0.0),
    )  # fmt: skip


def test_counting_by_hand() -> None:
    tally = Tally(forwards=10)
    assert tally.unseen is None
    assert tally.add(mutant(0, 1, 2, root=4, accepted=True))
    tally.forwards = 20
    assert not tally.add(mutant(1, 1, 2, root=5))
    assert not tally.add(mutant(2, 0, 0, fault=False, accepted=True))
    tally.forwards = 30
    assert tally.add(mutant(3, 2, 1, root=4))
    assert tally.add(mutant(4, 0, 1, root=4))
    assert (tally.outputs, tally.accepted, tally.faults, tally.accepted_faults) == (5, 2, 4, 1)
    assert (tally.last_family, tally.roots, dict(tally.predicted)) == (30, {4, 5}, {2: 2, 1: 2})
    assert sorted(tally.families.values()) == [1, 1, 2]
    assert sum(tally.operators.values()) == 4
    assert tally.unseen == pytest.approx(2 / 4)
    again = Tally.read(tally.plain())
    assert again.plain() == tally.plain()
    assert again.families == tally.families
    assert again.counts() == tally.counts()


def test_the_passes_of_oracles_count(tmp_path: Path) -> None:
    """A second network runs every mutant too: twice as many passes as mutants."""
    (tmp_path / "other.py").write_text("from tests.unit.generate.subjects import Net\n\ndef build():\n    return Net().eval()\n")
    target = Target(Net().eval(), shape=(1, 8, 8))
    source = ArraySource(images(10), predictions(images(10)))
    judges = oracles.build_oracles(target, f"differential:py:{tmp_path / 'other.py'}:build")
    guide = build_guide("random").start(Context(target=target), source)
    loop = Fuzzer(target, choose_seeds(target, source, judges), guide, judges, Settings(batch=16), Budget(iterations=40))
    with loop:
        for _ in loop.run():
            pass
    assert loop.tally.tested >= 40
    assert loop.tally.forwards == 2 * loop.tally.tested


@pytest.mark.parametrize("guide", ["random", "kmnc:20", "nlc"])
def test_counters_are_what_was_done(guide: str) -> None:
    loop = fuzzer(guide, Budget(iterations=80), batch=32, tries=12)
    module: Any = loop.target.module
    before = module.inputs
    mutants, batches, iterations = [], 0, []
    with loop:
        for batch in loop.run():
            mutants += batch
            batches += 1
            iterations.append(loop.tally.iterations)
    tally = loop.tally
    assert tally.forwards == module.inputs - before
    assert tally.batches == batches
    assert tally.iterations == iterations[-1] == 80
    assert iterations == sorted(iterations)
    assert [m.number for m in mutants] == list(range(tally.outputs))
    assert tally.accepted == sum(m.accepted for m in mutants)
    assert tally.faults == sum(m.fault for m in mutants)
    assert tally.accepted_faults == sum(m.fault and m.accepted for m in mutants)
    assert tally.families == Counter(m.family for m in mutants if m.fault)
    assert tally.roots == {m.root for m in mutants if m.fault}
    assert tally.operators == Counter(m.operator for m in mutants if m.fault)
    assert sum(tally.tried.values()) == tally.valid <= tally.forwards - tally.faults  # faults are run again
    assert tally.accepted <= tally.tested <= tally.valid <= tally.drawn
    assert 0 < tally.rejected < tally.tested  # some mutants fail, some are fine
    assert tally.rounds >= tally.batches
    assert all(1 <= m.batch <= tally.batches and 0 <= m.iteration < 80 for m in mutants)


@pytest.mark.parametrize("guide", ["random", "kmnc:20"])
def test_what_an_output_says_of_itself(guide: str) -> None:
    loop = fuzzer(guide, Budget(iterations=60), tries=12)
    for m in outputs(loop):
        seed = loop.seeds.x[m.root]
        apart = np.abs(m.x.astype(float) - seed.astype(float)) / 255
        assert m.distance == pytest.approx(((apart > 0).mean(), np.sqrt((apart**2).sum()), apart.max()), abs=1e-5)
        assert m.label == m.expected == loop.seeds.roots.labels[m.root]
        assert m.predicted == predictions(m.x[None])[0]
        assert m.family == (m.expected, m.predicted, m.chain[-1].operator)


def test_without_labels_the_prediction_for_the_seed_is_expected() -> None:
    target = Target(Net().eval(), shape=(1, 8, 8))
    source = ArraySource(images(10))
    judges = oracles.build_oracles(target, "metamorphic")
    state = build_guide("random").start(Context(target=target), source)
    loop = Fuzzer(target, choose_seeds(target, source, judges), state, judges, Settings(), Budget(iterations=40))
    for m in outputs(loop):
        assert (m.label, m.expected) == (-1, predictions(loop.seeds.x[m.root][None])[0])
        assert m.fault == (m.predicted != m.expected)


# -- turns


def test_how_many_a_turn_keeps() -> None:
    first = Counter(m.iteration for m in outputs(fuzzer("kmnc:50", Budget(iterations=60), tries=20)) if m.accepted)
    assert set(first.values()) == {1}
    every = Counter(m.iteration for m in outputs(fuzzer("kmnc:50", Budget(iterations=60), tries=20, accept="all")) if m.accepted)
    assert max(every.values()) > 1


def test_faults_without_gain_only_if_wanted_and_chains_end() -> None:
    for wanted in (True, False):
        mutants = outputs(fuzzer("kmnc:20", Budget(iterations=150), tries=20, every_fault=wanted, max_depth=2))
        assert any(not m.accepted for m in mutants) == wanted
        assert all(m.fault for m in mutants if not m.accepted)
        assert max(len(m.chain) for m in mutants) == 2
    assert {len(m.chain) for m in outputs(fuzzer("random", Budget(iterations=60), max_depth=1))} == {1}


def test_no_image_comes_out_twice_and_none_is_a_seed() -> None:
    loop = fuzzer("random", Budget(iterations=400), n=4)
    contents = [m.content for m in outputs(loop)]
    assert len(set(contents)) == len(contents)
    assert not set(contents) & set(loop.seeds.contents.tolist())


def test_rules_that_are_used_up_end_a_campaign() -> None:
    """One seed, no mutants of mutants, a finite number of rules: after them there is nothing left to run."""
    loop = fuzzer("random", Budget(iterations=10**6), n=1, max_depth=1, batch=16, tries=4)
    mutants = outputs(loop)
    assert loop.spent() == "mutants"
    assert 0 < len(mutants) <= 95
    assert loop.tally.idle == 200


def test_budgets_count_what_was_spent_beside() -> None:
    loop = fuzzer("random", Budget(seconds=10.0))
    assert loop.spent() is None
    assert loop.spent(9.9) is None
    assert loop.spent(10.0) == "seconds"
    loop.tally.seconds = 4.0
    assert loop.spent(6.0) == "seconds"
    assert loop.spent(5.9) is None


GOALS = "goals(first_batch=8, batch=16, start_random=16, goals=('family', 'pair', 'seed', 'smaller', 'neuron'), coverage='nlc')"


@pytest.mark.parametrize("guide", ["random", "kmnc:20", "nlc", "tensorfuzz:0.01", GOALS])
def test_a_saved_loop_goes_on_as_if_nothing_had_happened(guide: str) -> None:
    def fresh() -> Fuzzer:
        return fuzzer(guide, Budget(iterations=90), batch=16, tries=12)

    whole, stopped, resumed = fresh(), fresh(), fresh()
    expected = outputs(whole)
    with stopped:
        before = [m for _ in range(6) for m in stopped.step()]
    seen = [int(m.content, 16) for m in before]
    # Copies, with nothing that was remembered to save work.
    entries = {
        number: type(entry)(entry.number, entry.root, entry.x.copy(), entry.reference.copy(), entry.used, entry.chain)
        for number, entry in {
            **{e.number: e for e in stopped.corpus.entries},
            **{turn.entry.number: turn.entry for turn in stopped.turns},
        }.items()
    }
    resumed.restore(stopped.plain(), entries, seen)
    resumed.guide.restore(stopped.guide.arrays())
    after = outputs(resumed)
    assert [m.content for m in before + after] == [m.content for m in expected]
    assert [(m.number, m.batch, m.iteration, m.accepted, m.oracle) for m in before + after] == [
        (m.number, m.batch, m.iteration, m.accepted, m.oracle) for m in expected
    ]
    assert resumed.tally.plain() == whole.tally.plain()


# -- guides


def test_tensorfuzz_keeps_what_is_far_from_everything_kept() -> None:
    loop = fuzzer("tensorfuzz:0.05", Budget(iterations=80), tries=12)
    kept = list(loop.seeds.roots.logits.astype(float))
    refused = 0
    for m in outputs(loop):
        with torch.inference_mode():
            logits = Net().eval()(torch.from_numpy(m.x[None]).float() / 255)[0].double().numpy()
        apart = min(((logits - row) ** 2).sum() for row in kept)
        if m.accepted:
            assert m.gain == pytest.approx(apart - 0.05, abs=1e-4)
            assert m.gain > 0
            kept.append(logits)
        else:
            refused += 1
    assert len(kept) > 70  # the array of 64 has grown
    assert loop.guide.value() == len(kept)
    assert refused > 0


@pytest.mark.parametrize("criterion", ["kmnc:20", "nbc", "nlc", "cc:0.5"])
def test_the_gain_of_what_is_accepted_is_that_of_a_criterion_fed_one_by_one(criterion: str) -> None:
    loop = fuzzer(criterion, Budget(iterations=60), batch=64, tries=12)
    context = Context(target=loop.target, train=ArraySource(images(10, 3)))
    state: Any = build_guide(criterion).start(context, ArraySource(images(20)))
    assert state.value() == loop.guide.value()
    accepted = [m for m in outputs(loop) if m.accepted]
    assert accepted
    with Probe(loop.target, registry.build("criterion", criterion).want) as probe:
        for m in sorted(accepted, key=lambda m: m.number):
            trace = probe(torch.from_numpy(m.x[None]).float() / 255)
            gain = float(state.gain(trace)[0])
            # Alone and in a batch float32 sums differ by a millionth or so of the activations.
            assert gain == pytest.approx(m.gain, rel=1e-4, abs=1e-5 if criterion == "nlc" else 1e-9)
            assert gain > 0
            state.keep(trace)
    assert state.value() == pytest.approx(loop.guide.value(), rel=1e-4)


def test_where_guides_begin() -> None:
    """Published fuzzers start with what the training data covers (without it: the seeds), or with nothing."""
    target = Target(Net().eval(), shape=(1, 8, 8))
    train, start = ArraySource(images(10, 3)), ArraySource(images(5))
    for text, warm in (("nlc", True), ("tknc:2", True), ("cc:0.5", False), ("tknp:2", False)):
        state = build_guide(text).start(Context(target=target, train=train), start)
        criterion = registry.build("criterion", text).start(Context(target=target, train=train))
        if warm:
            with Probe(target, criterion.want) as probe:
                criterion.update(probe(torch.from_numpy(images(10, 3)).float() / 255))
        assert state.value() == pytest.approx(criterion.value().value)
    alone, both = (build_guide("nlc").start(Context(target=target, train=t), start).value() for t in (None, train))
    assert alone != both


def test_layers_and_neurons_of_a_guide() -> None:
    target = Target(Net().eval(), shape=(1, 8, 8))
    conv = build_guide("nc:0.2", layers="conv").start(Context(target=target), ArraySource(images(5)))
    whole = build_guide("nc:0.2", layers="conv", neuron="unit").start(Context(target=target), ArraySource(images(5)))
    assert conv.want is not None
    assert whole.want is not None
    assert (conv.want.layers, conv.want.neuron) == ("conv", "channel")
    assert whole.want.neuron == "unit"
    criterion = registry.build("criterion", "nc:0.2")
    assert build_guide(criterion).start(Context(target=target), ArraySource(images(5))).value() is not None
    guide = build_guide("tensorfuzz")
    assert build_guide(guide) is guide
    for threshold in (-1, True, "x", float("nan")):
        with refused("out-of-range", "threshold"):
            type(guide)(threshold=threshold)  # type: ignore[call-arg]
