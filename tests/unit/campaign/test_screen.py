"""What a campaign shows while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neurotest.cli import screen as screens
from neurotest.cli.screen import Screen, advice, elapsed, goals_line
from neurotest.generate.fuzz.mutants import Tally
from neurotest.generate.fuzz.settings import Budget


def fuzzer(**counts: Any) -> Any:
    tally = Tally(**counts)
    tally.families.update({(0, 1, "blur"): 3, (2, 1, "scale"): 1})
    tally.predicted.update({1: 4, -1: 1})
    tally.tried.update({"blur": 10, "scale": 5})
    tally.operators.update({"blur": 3, "scale": 1})
    control = Tally(forwards=290, faults=3)
    control.families.update({(0, 1, "blur"): 3})
    guide = SimpleNamespace(details=dict, expected=lambda: None)
    return SimpleNamespace(
        tally=tally, control=SimpleNamespace(tally=control), corpus=[1, 2, 3], guide=guide, path=Path("runs/one"),
        budget=Budget(forwards=3000), value=lambda: 0.25, about=dict,
    )  # fmt: skip


def test_goals_reached_and_expected_in_words() -> None:
    facts = {"goals": {"family": 1200, "seed": 3}, "expected_goals": 7.4}
    assert goals_line(facts) == "goals reached: family 1,200, seed 3; about 7 more in the next 1,000 passes; "
    assert "too early" in goals_line({**facts, "expected_goals": None})
    assert goals_line({"goals": None}) == ""


def test_elapsed_time_and_budgets_in_words() -> None:
    assert elapsed({"elapsed": 65.4, "of": {"forwards": [317, 3000]}}) == "1:05, 317 of 3,000 forwards"
    assert elapsed({"elapsed": 3723, "of": {}}) == "1:02:03"
    assert elapsed({"elapsed": 0, "of": {"faults": [12, 10], "seconds": [0.4, 60.0]}}) == "0:00, 10 of 10 faults, 0 of 60 seconds"


MUTANT: Any = SimpleNamespace(family=(2, 1, "scale"), number=7)


def test_advice_by_how_many_families_were_seen_once() -> None:
    assert "too early" in advice(10, 0.5)
    assert "too early" in advice(0, None)
    assert "worth going on" in advice(500, 0.1)
    assert "consider stopping" in advice(500, 0.01)


def test_lines_when_there_is_no_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screens, "LINES", 0.0)
    monkeypatch.setattr("neurotest.cli.screen.time.monotonic", lambda: 100.0)
    shown = Screen(json=False, quiet=False, classes=("a", "b", "c"), live=False)
    shown(fuzzer(forwards=300, faults=4, iterations=20), [MUTANT], [MUTANT])
    text = capsys.readouterr().err
    assert "0:00, 300 of 3,000 forwards; 20 iterations, 300 forwards" in text
    assert text.endswith("; run: runs/one\n")
    assert "4 faults in 2 families (random: 3 in 1), 1 classes, coverage 0.25" in text


def test_json_events_go_to_standard_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screens, "LINES", 0.0)
    Screen(json=True, quiet=False)(fuzzer(forwards=300), [MUTANT], [MUTANT])
    out, err = capsys.readouterr()
    events = [json.loads(line) for line in err.splitlines()]
    assert out == ""
    assert [e["event"] for e in events] == ["family", "progress"]
    assert events[0]["family"] == [2, 1, "scale"]


def test_the_live_view_names_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setattr("neurotest.cli.screen.time.monotonic", lambda: 100.0)
    shown = Screen(json=False, quiet=False, classes=("ant", "bee", "cat"), live=True)
    fuzzed = fuzzer(forwards=300, faults=4)
    shown.newest = ["cat taken for bee after scale"]
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(shown.picture(fuzzed, shown.facts(fuzzed)))
    text = console.export_text()
    for word in (
        "forwards/s",
        "operators that pay",
        "blur 30%",
        "ant as bee 3",
        "cat taken for bee after scale",
        "go on?",
        "random found",
        "0:00, 300 of 3,000 forwards",
        "runs/one",
    ):
        assert word in text
    shown.close()


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screens, "LINES", 0.0)
    Screen(json=False, quiet=True)(fuzzer(), [], [])
    Screen(json=True, quiet=True)(fuzzer(), [MUTANT], [MUTANT])
    assert capsys.readouterr().err == ""
