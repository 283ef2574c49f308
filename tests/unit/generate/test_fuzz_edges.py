"""Edges of the fuzzing loop, where one changed sign or word went unnoticed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.unit.generate.subjects import Net, fuzzer, images, outputs, predictions
from torch import Tensor, nn

from neurotest import oracles, registry
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.generate.fuzz import Budget, Fuzzer, Mutant, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.control import Control
from neurotest.generate.fuzz.guides import GuideState
from neurotest.generate.fuzz.mutants import Seen
from neurotest.measure.context import Context
from neurotest.target import Probe, Target, Trace


class FirstClass(GuideState):
    """Keeps what is more of the first class than of the second, whatever was kept before; three passes for each it looks at."""

    shrinking = True

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        self.forwards += 3 * len(trace.logits)
        return (trace.logits[:, 0] - trace.logits[:, 1]).numpy().astype(np.float64)

    def keep(self, trace: Trace) -> None:
        assert len(trace.logits) == 1


class OncePerClass(GuideState):
    """Keeps one mutant of every predicted class: what is kept takes the others' gain away."""

    shrinking = True

    def __init__(self) -> None:
        self.classes: list[int] = []

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        return np.array([float(number not in self.classes) for number in trace.logits.argmax(1).tolist()])

    def keep(self, trace: Trace) -> None:
        self.classes += trace.logits.argmax(1).tolist()


def guided_by(guide: GuideState, budget: Budget, **options: Any) -> Fuzzer:
    target, source = Target(Net().eval(), shape=(1, 8, 8)), ArraySource(images(60), predictions(images(60)))
    judges = oracles.build_oracles(target, "label")
    return Fuzzer(target, choose_seeds(target, source, judges), guide, judges, Settings(**options), budget)


# -- the control


def test_a_control_that_is_level_does_nothing() -> None:
    control = Control(fuzzer("nlc", Budget(iterations=20), batch=16))
    for forwards in (0, -5):
        assert control.follow(forwards) == []
        assert (control.tally.batches, control.tally.forwards) == (0, 0)
    control.follow(40)
    batches = control.tally.batches
    for behind in (0, -1, -100):
        assert control.follow(control.tally.forwards + behind) == []
    assert control.tally.batches == batches
    control.follow(control.tally.forwards + 1)  # by a single pass
    assert control.tally.batches == batches + 1


def test_a_control_names_the_contents_of_its_outputs() -> None:
    control = Control(fuzzer("nlc", Budget(iterations=20), batch=16))
    contents: list[int] = []
    advance = control.fuzzer.advance

    def noted(batch: int | None = None) -> list[Mutant]:
        mutants = advance(batch)
        contents.extend(int(mutant.content, base=16) for mutant in mutants)
        return mutants

    setattr(control.fuzzer, "advance", noted)  # noqa: B010
    assert control.follow(60) == contents
    assert contents


def test_a_damaged_control_is_refused() -> None:
    control = Control(fuzzer("nlc", Budget(iterations=20), n=6, batch=16))
    keys = control.follow(60)
    saved = control.plain()
    for root in (6, -1):
        entries = [[number, root if not place else old, chain] for place, (number, old, chain) in enumerate(saved["entries"])]
        with pytest.raises(BadInput, match="names seeds that are not there: the run is damaged"):
            control.restore({**saved, "entries": entries}, keys)
    control.restore(saved, keys)


# -- batches and turns


def test_what_was_run_after_a_turn_had_ended_is_not_counted_as_its() -> None:
    """Sixteen at once or one by one: the same mutants come out, and the same number of them was needed."""
    results = []
    for size in (1, 16):
        options: dict[str, Any] = {"tries": 20, "max_depth": 1, "priority": "uniform", "every_fault": False}
        loop = guided_by(FirstClass(), Budget(iterations=25), batch=size, chunk=size, **options)
        mutants = sorted((m.iteration, m.content, m.accepted, m.fault) for m in outputs(loop))
        results.append((mutants, loop.tally.iterations, loop.tally.tested, loop.tally.rejected))
    assert results[0] == results[1]
    assert results[0][2] > len(results[0][0]) > 10


@pytest.mark.parametrize("accept", ["first", "all"])
def test_what_is_kept_first_takes_the_gain_of_what_comes_after_it_in_the_same_batch(accept: str) -> None:
    guide = OncePerClass()
    loop = guided_by(guide, Budget(iterations=40), batch=64, tries=8, accept=accept, every_fault=False)
    with loop:
        first = loop.step()  # all of them in one batch
        rest = [m for batch in loop.run() for m in batch]
    accepted = [m.predicted for m in first + rest if m.accepted]
    assert sorted(accepted) == sorted(guide.classes) == sorted(set(guide.classes))
    assert len(first) > 1


def test_a_seed_has_been_used_as_often_as_a_mutant_of_it_was_accepted() -> None:
    loop = fuzzer("random", Budget(iterations=24), n=12, batch=8, max_depth=1, every_fault=False)
    accepted = Counter(m.root for m in outputs(loop))
    assert {entry.root: entry.uses for entry in loop.corpus.entries} == {root: accepted[root] for root in range(12)}
    assert max(accepted.values()) > 1


def test_passes_of_the_guide_itself_are_counted() -> None:
    loop = guided_by(FirstClass(), Budget(iterations=20), batch=16, tries=8, every_fault=False)
    module: Any = loop.target.module
    before = module.inputs
    outputs(loop)
    assert loop.guide.forwards > 0
    assert loop.tally.forwards == module.inputs - before + loop.guide.forwards


def test_a_batch_is_never_larger_than_it_may_be() -> None:
    loop = fuzzer("kmnc:20", Budget(iterations=200), batch=24, tries=30)
    ran = []
    with loop:
        while loop.spent() is None:
            before = loop.tally.valid
            loop.step()
            ran.append(loop.tally.valid - before)
        assert max(ran) == 24
        before = loop.tally.valid
        loop.budget = Budget(iterations=400)
        loop.step(5)
        assert 0 < loop.tally.valid - before <= 5


@pytest.mark.parametrize("limit", ["outputs", "faults"])
def test_a_budget_of_outputs_or_faults_ends_within_a_batch(limit: str) -> None:
    loop = fuzzer("random", Budget(**{limit: 3}), batch=64, every_fault=False)
    mutants = outputs(loop)
    assert {"outputs": len(mutants), "faults": sum(m.fault for m in mutants)}[limit] == 3
    assert loop.spent() == limit


def test_where_all_that_gain_are_kept_nothing_that_gains_is_left_out() -> None:
    loop = fuzzer("kmnc:20", Budget(iterations=60), batch=64, tries=20, accept="all")
    context = Context(target=loop.target, train=ArraySource(images(10, 3)))
    state: Any = build_guide("kmnc:20").start(context, ArraySource(images(20)))
    refused = 0
    mutants = outputs(loop)
    with Probe(loop.target, registry.build("criterion", "kmnc:20").want) as probe:
        for m in mutants:
            trace = probe(torch.from_numpy(m.x[None]).float() / 255)
            assert (float(state.gain(trace)[0]) > 0) == m.accepted
            refused += not m.accepted
            if m.accepted:
                state.keep(trace)
    assert 0 < refused < len(mutants)


def test_inputs_of_floats_in_other_bounds() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (12, 1, 8, 8)).astype(np.float32)
    target = Target(Net().eval(), shape=(1, 8, 8), bounds=(-1.0, 1.0))
    judges = oracles.build_oracles(target, "metamorphic")
    seeds = choose_seeds(target, ArraySource(x), judges)
    state = build_guide("random").start(Context(target=target), ArraySource(x))
    loop = Fuzzer(target, seeds, state, judges, Settings(batch=16, tries=6), Budget(iterations=30))
    mutants = outputs(loop)
    assert mutants
    for m in mutants:
        assert m.x.dtype == np.float32
        assert np.abs(m.x).max() <= 1
        assert m.distance[2] == pytest.approx(np.abs(m.x - seeds.x[m.root]).max() / 2, abs=1e-5)
        with torch.inference_mode():
            assert m.predicted == int(target.logits(torch.from_numpy(m.x[None])).argmax())


class Overheating(Net):
    """Bright images have an infinite logit."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        bright = x.flatten(1).mean(1) > 0.55
        return torch.where(bright[:, None] & (torch.arange(3) == 0), torch.inf, logits)


def test_every_oracle_s_faults_are_run_again() -> None:
    target, source = Target(Overheating().eval(), shape=(1, 8, 8)), ArraySource(images(20), predictions(images(20)))
    judges = oracles.build_oracles(target, "label")
    state = build_guide("random").start(Context(target=target), source)
    loop = Fuzzer(target, choose_seeds(target, source, judges), state, judges, Settings(batch=32), Budget(iterations=100))
    kinds = Counter(m.oracle for m in outputs(loop) if m.fault)
    assert len(kinds) == 2  # no numbers, and another class
    assert loop.tally.forwards - loop.tally.valid >= loop.tally.faults == kinds.total()


# -- seeds, settings, and what was seen


class Overflowing(nn.Module):
    """One logit of a bright image is infinite."""

    def forward(self, x: Tensor) -> Tensor:
        bright = x.flatten(1).mean(1)
        return torch.stack([bright, 1 - bright, torch.where(bright > 0.8, torch.inf, 0.0)], dim=1)


def test_a_seed_whose_logits_are_no_numbers_is_of_no_class() -> None:
    x = np.stack([np.full((1, 2, 2), grey, dtype=np.uint8) for grey in (30, 250, 150)])
    target = Target(Overflowing().eval(), shape=(1, 2, 2))
    judges = oracles.build_oracles(target, "label")
    kept = choose_seeds(target, ArraySource(x, np.array([1, 2, 0])), judges, keep_wrong=True)
    assert kept.roots.predicted.tolist() == [1, -1, 0]
    assert kept.set_aside == 0
    right = choose_seeds(target, ArraySource(x, np.array([1, 2, 0])), judges)
    assert (right.positions.tolist(), right.set_aside) == ([0, 2], 1)
    wrong = choose_seeds(target, ArraySource(x, np.array([0, 0, 0])), judges, keep_wrong=True)
    assert (len(wrong), wrong.roots.labels.tolist()) == (3, [0, 0, 0])
    with pytest.raises(BadInput, match=r"none of the 2 seeds .*is classified correctly"):
        choose_seeds(target, ArraySource(x[:2], np.array([0, 0])), judges)


def test_settings_say_what_is_usual() -> None:
    for name, hint in (
        ("tries", "the published code uses 64"),
        ("batch", "256 is quick on two cores"),
        ("chunk", "16 wastes little"),
        ("max_depth", "5 keeps mutants recognisable"),
        ("capacity", "4096 seeds are kept in memory"),
    ):
        with pytest.raises(BadInput, match=rf"\({hint}\)"):
            Settings(**{name: 0})


def test_large_numbers_close_to_each_other_are_different() -> None:
    start = 2**62
    seen = Seen(start + i for i in range(0, 100, 2))
    assert seen.new([start + i for i in range(100)]) == [i % 2 == 1 for i in range(100)]
    assert seen.new([]) == []
    assert Seen().new([3, 2**64 - 1]) == [True, True]
