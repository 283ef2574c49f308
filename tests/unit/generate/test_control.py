"""The control of a campaign: random, alone with its corpus and its streams, and level in forward passes."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest.generate.fuzz import Budget, Fuzzer, Mutant
from neurotest.generate.fuzz.control import PURPOSE, Control
from neurotest.generate.fuzz.guides import KeepAll
from neurotest.generate.fuzz.mutants import Seen, Tally
from neurotest.generate.outcome import class_name, interval, spread

pytestmark = pytest.mark.by_hand

_spec = importlib.util.spec_from_file_location("test_fuzz", Path(__file__).with_name("test_fuzz.py"))
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
fuzzer, summaries = _module.fuzzer, _module.summaries


def drive(loop: Fuzzer) -> list[list[Any]]:
    """The contents the control output, batch by batch."""
    contents = []
    with loop:
        while loop.spent() is None:
            loop.step()
            assert loop.control is not None
            contents.append(loop.control.follow(loop.tally.forwards))
    return contents


def record(control: Control) -> list[int]:
    """How large its batches are asked to be, from now on."""
    sizes: list[int] = []
    advance = control.fuzzer.advance

    def noted(batch: int | None = None) -> list[Mutant]:
        sizes.append(int(batch or 0))
        return advance(batch)

    setattr(control.fuzzer, "advance", noted)  # noqa: B010
    return sizes


@pytest.mark.parametrize("guide", ["kmnc:20", "nlc", "deephunter"])
def test_the_control_is_level_in_forward_passes(guide: str) -> None:
    loop = fuzzer(guide, Budget(forwards=600), batch=32).controlled()
    drive(loop)
    assert loop.control is not None
    assert abs(loop.control.tally.forwards - loop.tally.forwards) <= 32
    assert loop.control.tally.accepted > 0.8 * loop.control.tally.outputs  # all but faults run after their turn had ended


def test_the_seconds_of_a_control_are_a_part_of_those_that_passed() -> None:
    began = time.perf_counter()
    loop = fuzzer("random", Budget(forwards=100), batch=32).controlled()
    drive(loop)
    assert loop.control is not None
    assert 0 < loop.control.tally.seconds < time.perf_counter() - began


def test_the_control_is_a_random_campaign_of_its_own() -> None:
    """Fed with the same sizes of batches, a fuzzer with the random guide does the same: nothing comes from the guided one."""
    loop = fuzzer("nlc", Budget(iterations=80), batch=32).controlled()
    control = loop.control
    assert control is not None
    sizes = record(control)
    drive(loop)
    other = fuzzer("random", batch=32)
    alone = Fuzzer(
        other.target, other.seeds, KeepAll(), other.oracles, other.settings, Budget(iterations=10**6), purpose=PURPOSE
    )  # fmt: skip
    with alone:
        for size in sizes:
            alone.step(size)
    assert {**alone.tally.plain(), "seconds": 0} == {**control.tally.plain(), "seconds": 0}


def test_the_guided_campaign_does_not_notice_its_control() -> None:
    results = []
    for controlled in (False, True):
        loop = fuzzer("nlc", Budget(iterations=60), batch=32)
        if controlled:
            loop.controlled()
        outputs = []
        with loop:
            while loop.spent() is None:
                outputs += loop.step()
                if loop.control is not None:
                    loop.control.follow(loop.tally.forwards)
        results.append(summaries(outputs))
    assert results[0] == results[1]


def test_a_restored_control_goes_on_as_if_nothing_had_happened() -> None:
    loop = fuzzer("nlc", Budget(iterations=150), batch=32).controlled()
    control = loop.control
    assert control is not None
    keys: list[int] = []
    for forwards in (100, 200, 300):
        keys += control.follow(forwards)
    saved = control.plain()
    other = Control(fuzzer("nlc", batch=32))
    other.restore(saved, keys)
    for forwards in (400, 500, 600):
        assert control.follow(forwards) == other.follow(forwards)
    assert {**control.tally.plain(), "seconds": 0} == {**other.tally.plain(), "seconds": 0}


def test_beside_a_guide_that_runs_the_network_itself_the_control_makes_two_mutants_for_each_of_its() -> None:
    loop = fuzzer("random", Budget(forwards=100), batch=32).controlled()
    control = loop.control
    assert control is not None
    assert control.level(Tally(tested=100, forwards=130)) == 130  # some were run again: no difference
    assert control.level(Tally(tested=100, forwards=2200)) == 200


def test_a_guide_that_runs_the_network_far_ahead_does_not_make_a_batch_too_large() -> None:
    loop = fuzzer("nlc", batch=16).controlled()
    control = loop.control
    assert control is not None
    sizes = record(control)
    control.follow(100)
    assert max(sizes) == 32
    assert abs(control.tally.forwards - 100) <= 16


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=40), max_size=6), st.booleans())
def test_seen_is_a_set(parts: list[list[int]], at_once: bool) -> None:
    seen = Seen()
    plain: set[int] = set()
    for part in parts:
        keys = list(dict.fromkeys([*part, 7, *list(plain)[:3]]))
        assert seen.new(keys) == [key not in plain for key in keys]
        if at_once:
            seen.update(part)
        else:
            for key in part:
                if key not in plain:
                    seen.add(key)
                plain.add(key)
        plain.update(part)
    assert len(seen) == len(plain)


def test_names_intervals_and_evenness_by_hand() -> None:
    assert class_name(-1, ("a",)) == "non-finite"
    assert class_name(0, ("a",)) == "a"
    assert class_name(1, ("a",)) == "1"
    assert interval(0, 0) is None
    low, high = interval(5, 10) or (0, 0)
    assert low == pytest.approx(0.2366, abs=1e-4)
    assert high == pytest.approx(0.7634, abs=1e-4)
    assert spread([5, 5], 2) == pytest.approx(1)
    assert spread([10], 2) == 0
    assert spread([5, 5], 4) == pytest.approx(0.5)
    assert spread([], 4) is None
