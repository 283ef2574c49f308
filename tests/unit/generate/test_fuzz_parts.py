"""The pieces of the fuzzing loop by hand, and its counters against plain counting."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from neurotest import oracles, registry
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.generate.fuzz import Budget, Fuzzer, Mutant, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.corpus import Corpus
from neurotest.generate.fuzz.mutants import Tally
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.measure.context import Context
from neurotest.target import Probe, Target


class Net(nn.Module):
    """Three classes about equally often; counts the inputs it runs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.act, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Linear(4 * 64, 3)
        with torch.no_grad():
            out = self(torch.from_numpy(np.random.default_rng(1).integers(0, 200, (200, 1, 8, 8))).float() / 255)
            self.fc.weight /= out.std(0)[:, None]
            self.fc.bias.copy_((self.fc.bias - out.mean(0)) / out.std(0))

    def forward(self, x: Tensor) -> Tensor:
        self.inputs = getattr(self, "inputs", 0) + len(x)
        logits: Tensor = self.fc(self.act(self.conv(x)).flatten(1))
        return logits


def images(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 200, (n, 1, 8, 8), dtype=np.uint8)


def predictions(x: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return np.asarray(Net().eval()(torch.from_numpy(x).float() / 255).argmax(1).numpy())


def seeds(n: int = 20, x: np.ndarray | None = None) -> Seeds:
    x = images(n) if x is None else x
    target = Target(Net().eval(), shape=(1, 8, 8))
    labels = predictions(x) if x.dtype == np.uint8 else None
    judges = oracles.build_oracles(target, "label" if labels is not None else "metamorphic")
    return choose_seeds(target, ArraySource(x, labels), judges)


def fuzzer(guide: str, budget: Budget, n: int = 20, train: int | None = 10, **options: Any) -> Fuzzer:
    target = Target(Net().eval(), shape=(1, 8, 8))
    source = ArraySource(images(n), predictions(images(n)))
    judges = oracles.build_oracles(target, "label")
    chosen = choose_seeds(target, source, judges)
    context = Context(target=target, train=None if train is None else ArraySource(images(train, 3)))
    return Fuzzer(target, chosen, build_guide(guide).start(context, source), judges, Settings(**options), budget)


def outputs(loop: Fuzzer) -> list[Mutant]:
    with loop:
        return [mutant for batch in loop.run() for mutant in batch]


# -- settings and budgets


def test_the_smallest_settings_are_allowed_and_the_defaults_stay() -> None:
    Settings(tries=1, batch=1, chunk=1, max_depth=1, capacity=1)
    usual = Settings()
    assert (usual.tries, usual.batch, usual.chunk, usual.max_depth, usual.capacity, usual.seed) == (64, 256, 16, 5, 4096, 0)
    assert (usual.energy, usual.priority, usual.accept) == ("constant", "uses", "first")
    assert (usual.reuse_failures, usual.every_fault) == (False, True)
    for name in ("tries", "batch", "chunk", "max_depth", "capacity"):
        for value in (0, -1, True, 2.0, None):
            with pytest.raises(BadInput, match=f"^{name}={value!r}: expected an integer >= 1"):
                Settings(**{name: value})
    for name, word in (
        ("energy", "constant or potential"),
        ("priority", "uses, deephunter, uniform or recent"),
        ("accept", "first or all"),
    ):
        with pytest.raises(BadInput, match=f"^{name}='x': expected {word}"):
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
        with pytest.raises(BadInput, match=f"^{next(iter(options))}="):
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
    with pytest.raises(BadInput, match=r"has label 3, but the target has 3 classes \(0 to 2\)"):
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
    assert (tally.outputs, tally.accepted, tally.faults, tally.accepted_faults) == (4, 2, 3, 1)
    assert (tally.last_family, tally.roots, dict(tally.predicted)) == (30, {4, 5}, {2: 2, 1: 1})
    assert sorted(tally.families.values()) == [1, 2]
    assert sum(tally.operators.values()) == 3
    assert tally.unseen == pytest.approx(1 / 3)
    again = Tally.read(tally.plain())
    assert again.plain() == tally.plain()
    assert again.families == tally.families
    assert again.counts() == tally.counts()


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
    assert tally.rejected <= tally.tested
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


@pytest.mark.parametrize("guide", ["random", "kmnc:20", "nlc", "tensorfuzz:0.01"])
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
        with pytest.raises(BadInput, match="threshold"):
            type(guide)(threshold=threshold)  # type: ignore[call-arg]
