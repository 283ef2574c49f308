"""Campaigns in islands: what they tell each other, that nothing is counted twice, and that they go on where they were cut."""

from __future__ import annotations

import importlib.util
import itertools
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

from neurotest import workers
from neurotest.campaign import FuzzResult, families, fuzz, replay, shrink, status
from neurotest.campaign.islands import Islands
from neurotest.errors import Interrupted
from neurotest.generate.fuzz.corpus import Shard
from neurotest.runs.store import Run
from neurotest.scale.processes import Process, Processes
from neurotest.target import Target

_spec = importlib.util.spec_from_file_location("campaign_tests", Path(__file__).with_name("test_campaign.py"))
assert _spec is not None
assert _spec.loader is not None
_tests = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_tests)
rows = _tests.rows

OPTIONS: dict[str, Any] = {"guide": "nlc", "islands": 4, "forwards": 400, "batch": 32, "tries": 8}
GOALS = "goals:first_batch=16,start_random=16"


def start(target: Any, seeds: str, out: Path | bool, **options: Any) -> FuzzResult:
    return fuzz(target, seeds, train=seeds, out=out, **{**OPTIONS, **options})


def test_shards_are_all_seeds_once_and_numbers_never_meet() -> None:
    shards = [Shard(i, 3) for i in range(3)]
    assert [list(shard.rows(8)) for shard in shards] == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert list(Shard().rows(3)) == [0, 1, 2]


def test_the_number_of_islands_belongs_to_the_campaign(target: Target, seeds: str, tmp_path: Path) -> None:
    """Two islands are another campaign than four; all the usual commands work on it with nothing repeated."""
    four = start(target, seeds, tmp_path / "four")
    two = start(target, seeds, tmp_path / "two", islands=2, control=False)
    assert rows(four.run)[0] != rows(two.run)[0]
    assert abs(four.tally.forwards - 400) <= 4 * 16
    assert abs(four.control.forwards - 400) <= 4 * 16  # type: ignore[union-attr]
    assert status(tmp_path / "four")["forwards"] == four.tally.forwards
    stored, counted = rows(four.run)
    assert counted["faults"] == four.faults > 0
    assert len({row[4] for row in stored}) == len(stored) == counted["outputs"]
    assert {row[3] % 4 for row in stored} == {0, 1, 2, 3}  # seeds of every island
    family = families(tmp_path / "four").families[0].representative
    assert replay(f"{tmp_path / 'four'}#{family.number}", target).fails
    assert shrink(tmp_path / "four", target)["families"]
    with refused("changed", "islands"):
        fuzz(target, resume=tmp_path / "four", islands=2)


def test_more_islands_than_seeds(target: Target, seeds: str) -> None:
    assert start(target, f"{seeds}[:3]", False, islands=64, forwards=60, control=False).islands <= 3
    with refused("out-of-range", "islands"):
        start(target, seeds, False, islands=0)


@pytest.mark.parametrize("guide", ["nlc", "cc", GOALS])
def test_interrupted_and_resumed_is_the_same_as_in_one_go(guide: str, target: Target, seeds: str, tmp_path: Path) -> None:
    whole = start(target, seeds, tmp_path / "whole", guide=guide)
    answers = iter([False] * 25 + [True] + [False] * 15 + [True])
    with pytest.raises(Interrupted, match="--resume"):
        start(target, seeds, tmp_path / "parts", guide=guide, stop=lambda: next(answers))
    with pytest.raises(Interrupted):
        fuzz(target, resume=tmp_path / "parts", stop=lambda: next(answers))
    again = fuzz(target, resume=tmp_path / "parts")
    assert rows(tmp_path / "parts") == rows(whole.run)
    assert again.coverage == whole.coverage
    assert again.details == whole.details


@pytest.mark.parametrize("snapshots", [False, True])
def test_rounds_after_the_snapshot_are_repeated_exactly(
    snapshots: bool, target: Target, seeds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kill leaves: rows and counters of every round, a snapshot of an earlier one or none; with other limits since."""
    whole = start(target, seeds, tmp_path / "whole", guide=GOALS)
    if snapshots:
        _a_second_per_look(monkeypatch, "neurotest.campaign.driver.time", "neurotest.campaign.rounds.time")
        monkeypatch.setattr("neurotest.campaign.driver.SHARE", 0)
        monkeypatch.setattr("neurotest.campaign.driver.PAUSE", 1)
    else:
        monkeypatch.setattr("neurotest.campaign.driver.PAUSE", 1e9)
    with pytest.raises(ZeroDivisionError):
        start(target, seeds, tmp_path / "killed", guide=GOALS, watch=_tests._explode(3))
    with Run.open(tmp_path / "killed") as opened:
        assert bool(opened.rows("SELECT * FROM snapshot")) == snapshots
        assert len(opened["rounds"]) == (1 if snapshots else 3)
    fuzz(target, resume=tmp_path / "killed")
    assert rows(tmp_path / "killed") == rows(whole.run)


def test_a_finished_campaign_goes_on_with_a_larger_budget(target: Target, seeds: str, tmp_path: Path) -> None:
    short = start(target, seeds, tmp_path / "run", forwards=150, control=False)
    longer = fuzz(target, resume=tmp_path / "run", forwards=300)
    assert longer.tally.forwards >= 290 > short.tally.forwards
    turns = start(target, seeds, tmp_path / "turns", forwards=None, iterations=30, control=False)
    assert 30 <= turns.tally.iterations <= 40
    assert fuzz(target, resume=tmp_path / "turns", iterations=60).tally.iterations >= 60


def _a_second_per_look(monkeypatch: pytest.MonkeyPatch, *modules: str) -> itertools.count[int]:
    """Clocks that only go on when somebody looks at them, so that no machine is too slow or too quick."""
    looks = itertools.count()
    clock = SimpleNamespace(**dict.fromkeys(("monotonic", "perf_counter", "time"), lambda: float(next(looks))))
    for module in modules:
        monkeypatch.setattr(module, clock)
    return looks


def test_budgets_of_outputs_faults_and_seconds(target: Target, seeds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = start(target, seeds, False, forwards=None, faults=9, control=False)
    assert few.stopped == "faults"
    assert 9 <= few.faults <= 9 + 4 * 8  # a turn per island
    some = start(target, seeds, False, forwards=None, outputs=20, control=False)
    assert 20 <= some.tally.outputs <= 20 + 4 * 8
    looks = _a_second_per_look(
        monkeypatch, *(f"neurotest.campaign.{name}.time" for name in ("clock", "driver", "island", "rounds"))
    )
    assert start(target, seeds, False, forwards=None, seconds=300, control=False).stopped == "seconds"
    assert 200 < next(looks) < 400
    with refused("unsuitable", "until_dry"):
        start(target, seeds, False, until_dry=5.0)


def test_a_worker_that_is_killed_costs_its_leg(
    target: Target, seeds: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = start(target, seeds, tmp_path / "whole", control=False)
    rounds: list[int] = []
    killed: list[int] = []
    with workers(2) as executor:
        assert isinstance(executor, Processes)
        wait = executor.wait

        def kill(busy: list[Process], seconds: float) -> list[Process]:
            """One in the second and one in the third round, as soon as both have a leg."""
            if len(killed) < len(rounds) < 3 and len(busy) == 2 and all(job.tries == 1 for job in executor._busy.values()):
                pid = busy[0]._process.pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            return wait(busy, seconds)

        monkeypatch.setattr(executor, "wait", kill)
        start(target, seeds, tmp_path / "killed", watch=lambda *_: rounds.append(1), control=False)
    assert len(killed) == 2
    assert rows(tmp_path / "killed") == rows(whole.run)


def test_entries_go_to_islands_that_have_fewer(target: Target, seeds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has one island at a time, a turn keeps its entry, and what moved still knows where it came from."""
    moved: list[int] = []
    sizes: list[list[int]] = []
    give, take = Islands._give, Islands.take

    def counted(number: int, giver: Any, taker: Any) -> None:
        moved.append(number)
        give(number, giver, taker)

    def checked(self: Islands, results: Any) -> Any:
        news = take(self, results)
        numbers = [number for state in self.states for number in state.fuzzer.entries]
        assert len(set(numbers)) == len(numbers)
        for state in self.states:
            assert sorted(number for number, _ in state.fuzzer.plain["uses"]) == sorted(state.fuzzer.entries)
            assert {turn["entry"] for turn in state.fuzzer.plain["turns"]} <= state.fuzzer.entries.keys()
        sizes.append([len(state.fuzzer.entries) for state in self.states])
        return news

    monkeypatch.setattr(Islands, "_give", staticmethod(counted))
    monkeypatch.setattr(Islands, "take", checked)
    start(target, seeds, False, control=False)
    assert moved
    assert max(sizes[-1]) - min(sizes[-1]) < max(sizes[-1]) / 2


def test_the_same_content_of_two_islands_counts_once(target: Target, seeds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that every island repeats for the first one adds nothing more."""
    take = Islands.take

    def twice(self: Islands, results: Any) -> Any:
        import dataclasses

        first = results[0]
        others = [dataclasses.replace(result, batches=first.batches) for result in results[1:]]
        return take(self, [first, *others])

    monkeypatch.setattr(Islands, "take", twice)
    result = start(target, seeds, False, forwards=200, control=False)
    numbers = result.tally
    assert numbers.outputs > 10
    assert numbers.faults == sum(numbers.families.values())
    assert {root % 4 for root in numbers.roots} == {0}  # the first island's alone


def test_a_run_of_one_island_does_not_change_with_workers(target: Target, seeds: str, tmp_path: Path) -> None:
    """Without --islands and without workers everything is as it was; resuming it with workers says that they cannot help."""
    alone = start(target, seeds, tmp_path / "alone", islands=None, forwards=100, control=False)
    assert alone.islands == 1
    with workers(2):
        again = fuzz(target, resume=tmp_path / "alone", forwards=150)
    assert again.islands == 1
    assert "1 island" in again.notes[0]


def test_damaged_snapshots_are_refused(target: Target, seeds: str, tmp_path: Path) -> None:
    import json
    import sqlite3
    import zlib

    start(target, seeds, tmp_path / "run", forwards=100)
    file = tmp_path / "run" / "run.sqlite"

    def damage(change: Any) -> None:
        with sqlite3.connect(file) as database:
            (content,) = database.execute("SELECT content FROM snapshot WHERE name = 'plain'").fetchone()
            plain = json.loads(zlib.decompress(content))
            change(plain)
            database.execute("UPDATE snapshot SET content = ? WHERE name = 'plain'", (zlib.compress(json.dumps(plain).encode()),))

    for change in (lambda plain: plain["islands"].pop(), lambda plain: plain.pop("islands")):
        damage(change)
        with refused("damaged", "snapshot"):
            fuzz(target, resume=tmp_path / "run", forwards=400)


def test_the_driver_says_how_it_stands(target: Target, seeds: str, tmp_path: Path) -> None:
    from neurotest.cli.screen import Screen

    screen, lines = Screen(json=False, quiet=True), []

    def watch(campaign: Any, outputs: Any, new: Any) -> None:
        lines.append(screen.line(screen.facts(campaign)))

    start(target, seeds, tmp_path / "run", watch=watch, guide=GOALS, forwards=200, control=False)
    assert "4 islands on 1 worker, round 1;" in lines[0]
    assert "goals reached" in lines[-1]
    assert np.all([f"run: {tmp_path / 'run'}" in line for line in lines])
