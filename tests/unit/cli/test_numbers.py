"""What --fail-if may name: the numbers that results have, refused before the work if it is none of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from neurotest.cli import check, cover, fuzz, gate, generate, robustness, select, suspects
from neurotest.cli import options as opt
from neurotest.errors import BadInput

TARGET, DATA = "zoo:mnist-lenet1", "zoo:mnist/test[:12]"


def numbers(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, (dict, list)):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(one, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


def run(command: Any, *args: str) -> Any:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(args))


COMMANDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "fuzz": (fuzz.fuzz, (TARGET, DATA, "--forwards", "200", "--tries", "8")),
    "attack": (generate.attack, (TARGET, DATA, "--steps", "2")),
    "swarm": (generate.swarm, (TARGET, "zoo:mnist/test[:3]", "--evaluations", "40")),
    "diff": (generate.diff, (TARGET, "zoo:mnist-lenet5", "--seeds", "zoo:mnist/test[:4]")),
    "illuminate": (generate.illuminate, (TARGET, DATA, "--forwards", "300")),
    "robustness": (robustness.robustness, (TARGET, "zoo:mnist/test[:2]", "--samples", "4", "--batches", "10")),
    "gate": (gate.gate, (TARGET, "zoo:mnist-lenet5", DATA, "--max-loss", "1")),
    "check": (check.check, (TARGET, DATA, "--time", "2s", "--skip", "campaign")),
    "suspects": (suspects.suspects, (TARGET, DATA)),
    "cover": (cover.cover, (TARGET, DATA, "--criteria", "tknc:1", "--criteria", "kmnc:10", "--train", DATA)),
    "select": (select.select, (TARGET, "zoo:mnist/test[:60]", "--method", "deepgini", "--method", "ces", "--budget", "20%")),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_number_of_the_result_may_be_named(name: str, tmp_path: Path) -> None:
    command, args = COMMANDS[name]
    result = run(command, *args, "--out", str(tmp_path / "run"), "--json", "-q")
    assert result.exit_code == 0, result.output
    patterns = command.numbers
    unnamed = [path for path in numbers(json.loads(result.stdout)) if not any(fnmatchcase(path, p) for p in patterns)]
    assert unnamed == []


@pytest.mark.parametrize("name", COMMANDS)
def test_any_other_is_refused_before_the_work(name: str, tmp_path: Path) -> None:
    command, args = COMMANDS[name]
    result = run(command, *args, "--out", str(tmp_path / "run"), "--fail-if", "fautls>0")
    assert isinstance(result.exception, BadInput)
    sentence = str(result.exception)
    assert "the result has no number 'fautls'" in sentence
    assert all(number in sentence for number in command.numbers)
    assert ("Did you mean faults" in sentence) == ("faults" in command.numbers)
    assert not (tmp_path / "run").exists()


def test_a_command_that_does_not_say_is_checked_afterwards() -> None:
    @opt.reports_result
    def count() -> opt.Result:
        return {"count": 3}, lambda: print("counted")

    result = run(count, "--fail-if", "size>0")
    assert result.stdout == "counted\n"
    assert "no number 'size'" in str(result.exception)
