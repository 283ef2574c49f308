"""The fuzzing loop: sequential semantics, guides, corpus, budgets, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import Tensor, nn

from neurotest import registry
from neurotest.data.source import ArraySource
from neurotest.generate.fuzz import Budget, Fuzzer, Mutant, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.corpus import Corpus
from neurotest.generate.fuzz.proposals import Turn, TurnStream
from neurotest.measure.context import Context
from neurotest.mutate import chain as chains
from neurotest.mutate.rules import Rules95
from neurotest.mutate.validity import Validity
from neurotest.oracles import build_oracles
from neurotest.target import Target

pytestmark = pytest.mark.by_hand


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.act = nn.ReLU()
        self.fc = nn.Linear(4 * 64, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.act(self.conv(x)).flatten(1))
        return out


def target() -> Target:
    """Untrained, but every class is predicted about equally often."""
    torch.manual_seed(0)
    module = Net().eval()
    with torch.no_grad():
        out = module(torch.from_numpy(np.random.default_rng(1).integers(0, 200, (200, 1, 8, 8))).float() / 255)
        module.fc.weight /= out.std(0)[:, None]
        module.fc.bias.copy_((module.fc.bias - out.mean(0)) / out.std(0))
    return Target(module, shape=(1, 8, 8), classes=("left", "middle", "right"))


def source(n: int = 30, wrong: int = 0) -> ArraySource:
    x = np.random.default_rng(0).integers(0, 200, (n, 1, 8, 8), dtype=np.uint8)
    tested = target()
    with torch.inference_mode():
        labels = tested.logits(tested.prepare(x)).argmax(1).numpy()
    labels[:wrong] = (labels[:wrong] + 1) % 3
    return ArraySource(x, labels)


def fuzzer(guide: str = "kmnc:20", budget: Budget | None = None, seeds: ArraySource | None = None, **options: object) -> Fuzzer:
    tested, data = target(), seeds or source()
    judges = build_oracles(tested, "label")
    chosen = choose_seeds(tested, data, judges)
    state = build_guide(guide).start(Context(target=tested, train=source(10)), data.take(chosen.positions))
    return Fuzzer(tested, chosen, state, judges, Settings(**options), budget or Budget(iterations=60))  # type: ignore[arg-type]


def outputs(loop: Fuzzer) -> list[Mutant]:
    with loop:
        return [mutant for batch in loop.run() for mutant in batch]


def summaries(mutants: list[Mutant]) -> list[tuple[object, ...]]:
    return [(m.iteration, m.root, m.content, m.chain, m.predicted, m.oracle, m.accepted) for m in mutants]


@pytest.mark.parametrize("guide", ["kmnc:20", "nlc", "random", "cc:0.5"])
def test_the_size_of_a_chunk_does_not_change_results(guide: str) -> None:
    """One turn at a time: whether its mutants are run singly or sixteen at once, the same ones are accepted."""
    results = []
    for chunk, batch in ((1, 1), (16, 16)):
        loop = fuzzer(guide, every_fault=False, chunk=chunk, batch=batch, tries=20)
        loop.schedule.chunk = lambda chunk=chunk: chunk  # type: ignore[attr-defined]
        results.append(summaries(outputs(loop)))
    assert results[0] == results[1]
    assert results[0]


@pytest.mark.parametrize(
    "guide", [*registry.entries("guide"), *(n for n in registry.entries("criterion") if n not in ("cac", "npc"))]
)
def test_every_guide_runs_and_gives_the_same_twice(guide: str) -> None:
    first, second = (outputs(fuzzer(guide, Budget(iterations=20), tries=8)) for _ in range(2))
    assert summaries(first) == summaries(second)


@pytest.mark.parametrize("guide", ["cac:4", "npc"])
def test_guides_that_run_the_network_themselves(guide: str) -> None:
    assert outputs(fuzzer(guide, Budget(iterations=6), tries=4)) is not None


def test_what_is_accepted_raised_the_criterion_and_is_within_validity() -> None:
    loop = fuzzer("kmnc:20", mutations=Rules95())
    before = loop.guide.value()
    mutants = outputs(loop)
    assert loop.guide.value() > before
    assert all(m.gain > 0 for m in mutants if m.accepted)
    for mutant in mutants:
        pixel = [s for s in mutant.chain if not loop.settings.mutations.find(s.operator).once]
        affine = [s for s in mutant.chain if loop.settings.mutations.find(s.operator).once]
        assert len(affine) <= 1
        assert len(mutant.chain) <= 5
        if pixel and not affine:
            unit = loop.seeds.unit(np.stack([mutant.x]))
            assert Validity().check(unit, loop.seeds.unit(loop.seeds.x[mutant.root][None])).all()


def test_chains_of_all_outputs_replay_and_faults_are_faults() -> None:
    loop = fuzzer("random", Budget(iterations=150))
    mutants = outputs(loop)
    roots = loop.seeds.unit(loop.seeds.x[[m.root for m in mutants]])
    again = loop.seeds.stored(chains.replay(loop.settings.mutations, roots, [m.chain for m in mutants]))
    assert all(np.array_equal(a, m.x) for a, m in zip(again, mutants, strict=True))
    logits = loop.target.logits(loop.target.prepare(again))
    assert logits.argmax(1).tolist() == [m.predicted for m in mutants]
    assert all((m.predicted != m.label) == m.fault for m in mutants)
    assert len({m.content for m in mutants}) == len(mutants)


def test_faults_are_no_seeds_unless_asked() -> None:
    for reuse in (False, True):
        loop = fuzzer("random", Budget(iterations=200), reuse_failures=reuse)
        faults = {m.content for m in outputs(loop) if m.fault}
        from neurotest.data.source import content_ids

        alive = set(content_ids(np.stack([e.x for e in loop.corpus.entries])).tolist())
        assert bool(faults & alive) == reuse


def test_wrong_seeds_are_set_aside_and_counted() -> None:
    data = source(wrong=4)
    chosen = choose_seeds(target(), data, build_oracles(target(), "label"))
    assert (len(chosen), chosen.set_aside) == (26, 4)
    every = choose_seeds(target(), data, build_oracles(target(), "label"), keep_wrong=True)
    assert (len(every), every.set_aside) == (30, 0)


def test_priorities_by_hand() -> None:
    loop = fuzzer()
    corpus: Corpus = loop.corpus
    corpus.entries[0].uses, corpus.entries[1].uses = 2, 9
    assert corpus.weights()[:3].tolist() == pytest.approx([0.6, 0.01, 1.0])
    hunter = Corpus(loop.seeds, Settings(priority="deephunter"))
    hunter.entries[0].uses, hunter.entries[1].uses = 1, 7
    assert hunter.weights()[:3].tolist() == pytest.approx([0.6, 0.3, 0.8])


def test_energy_follows_the_potential() -> None:
    loop = fuzzer(energy="potential", tries=64)
    assert loop.corpus.energy(loop.corpus.entries[0]) == pytest.approx(64, abs=4)
    changed = loop.corpus.add(0, np.zeros_like(loop.seeds.x[0]), loop.seeds.x[0], False, ())
    assert loop.corpus.energy(changed) == 8


def test_a_full_corpus_lets_the_most_used_go() -> None:
    loop = fuzzer("random", Budget(iterations=300), capacity=20)
    outputs(loop)
    assert len(loop.corpus) == len(loop.seeds)
    assert len({e.number for e in loop.corpus.entries}) == len(loop.corpus)


def test_lanes_look_ahead_without_losing_draws() -> None:
    entry = fuzzer().corpus.entries[0]
    whole, parts = (Turn(3, entry, 100, TurnStream("test", 7, 3)) for _ in range(2))
    rows = whole.peek(12).copy()
    assert np.array_equal(parts.peek(5), rows[:5])
    assert parts.take([True, False, True, True, True], 2) == [0, 2]
    assert np.array_equal(parts.peek(4), rows[3:7])
    resumed = Turn(3, entry, 100, TurnStream("test", 7, 3), drawn=parts.drawn)
    assert np.array_equal(resumed.peek(4), rows[3:7])


@pytest.mark.parametrize("budget", [{"iterations": 37}, {"outputs": 25}, {"faults": 3}])
def test_budgets_are_exact(budget: dict[str, int]) -> None:
    loop = fuzzer("random", Budget(**budget))
    outputs(loop)
    ((name, limit),) = budget.items()
    reached = getattr(loop.tally, name)
    assert reached == limit if name == "iterations" else limit <= reached <= limit + 16


def test_forwards_and_seconds_end_it_after_a_batch() -> None:
    loop = fuzzer("random", Budget(forwards=500))
    outputs(loop)
    assert 500 <= loop.tally.forwards <= 500 + 2 * 256


def test_nan_logits_are_faults_of_their_own_kind() -> None:
    class Fragile(Net):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            return torch.where(x.amax((1, 2, 3))[:, None] > 0.97, torch.nan, out)

    torch.manual_seed(0)
    tested = Target(Fragile().eval(), shape=(1, 8, 8))
    data = source()
    judges = build_oracles(tested, "label")
    chosen = choose_seeds(tested, data, judges)
    state = build_guide("nlc").start(Context(target=tested), data)
    loop = Fuzzer(tested, chosen, state, judges, Settings(), Budget(iterations=60))
    mutants = outputs(loop)
    bad = [m for m in mutants if m.oracle == "nonfinite"]
    assert bad
    assert {m.predicted for m in bad} == {-1}
    assert not any(m.accepted for m in bad)


def test_float_inputs_outside_the_unit_range() -> None:
    torch.manual_seed(0)
    tested = Target(Net().eval(), shape=(1, 8, 8), bounds=(-1.0, 1.0))
    x = np.random.default_rng(0).uniform(-1, 0.5, (20, 1, 8, 8)).astype(np.float32)
    with torch.inference_mode():
        labels = tested.logits(torch.from_numpy(x)).argmax(1).numpy()
    judges = build_oracles(tested, "label")
    chosen = choose_seeds(tested, ArraySource(x, labels), judges)
    loop = Fuzzer(
        tested,
        chosen,
        build_guide("random").start(Context(target=tested), ArraySource(x)),
        judges,
        Settings(),
        Budget(iterations=40),
    )
    mutants = outputs(loop)
    assert mutants
    assert all(m.x.dtype == np.float32 and m.x.min() >= -1 and m.x.max() <= 1 for m in mutants)


@pytest.mark.parametrize(
    "options",
    [
        {"tries": 0}, {"batch": 0}, {"max_depth": 0}, {"energy": "much"}, {"priority": "x"}, {"accept": "none"}, {"capacity": 0},
    ],
)  # fmt: skip
def test_bad_settings(options: dict[str, object]) -> None:
    with refused("out-of-range", next(iter(options))):
        Settings(**options)  # type: ignore[arg-type]


def test_bad_budgets() -> None:
    with refused("missing", "budget"):
        Budget()
    for options in ({"iterations": 0}, {"seconds": -1}, {"outputs": 1.5}):
        with refused("out-of-range", next(iter(options))):
            Budget(**options)  # type: ignore[arg-type]


def test_no_seed_is_right() -> None:
    data = source(wrong=30)
    with refused("empty", "seeds"):
        choose_seeds(target(), data, build_oracles(target(), "label"))


def test_a_guide_that_needs_a_profile_without_training_data() -> None:
    with refused("missing", "train"):
        build_guide("kmnc").start(Context(target=target()), source())


def test_no_valid_mutant() -> None:
    with refused("empty", "validity"):
        outputs(fuzzer("random", Budget(iterations=5000), validity=Validity(mode="and", alpha=0.0, check_once=True)))


def test_unknown_guides_and_vectors() -> None:
    with refused("unknown-name", "guide"):
        build_guide("kmncc")
    with refused("conflict", "layers"):
        build_guide("random", layers="conv")
    with refused("out-of-range", "threshold"):
        build_guide("tensorfuzz:-1")
    with refused("no-labels", "seeds"):
        choose_seeds(target(), source().without_labels(), build_oracles(target(), "label"))
