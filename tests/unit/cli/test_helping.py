"""Help: every command in a group, whole sentences, the usual options first; and faults in both spellings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from neurotest.cli import options as opt
from neurotest.cli.app import application
from neurotest.cli.fuzz import USUAL
from neurotest.cli.helping import ALL, GROUPS, first_sentence

LONGEST = 30  # words of a sentence


def asked(*words: str) -> str:
    return " ".join(CliRunner().invoke(application(list(words)), list(words)).output.split())


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(application())
    return dict(group.commands)


def test_every_command_is_in_one_group(commands: dict[str, Any]) -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(commands)


def test_the_list_cuts_no_sentence(commands: dict[str, Any]) -> None:
    text = asked("--help")
    for title in GROUPS:
        assert f"{title}:" in text
    for name, command in commands.items():
        help = "" if name in ("study", "bench") else first_sentence(command.help)  # listed in words of the library's own
        assert help in text
        assert len(first_sentence(command.help).split()) <= LONGEST


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One thing. Another.", "One thing"),
        ("Attacks (PGD, CW, ...) and more. Then", "Attacks (PGD, CW, ...) and more"),
        ("A share of 0.5 is half.", "A share of 0.5 is half"),
        (None, ""),
    ],
)
def test_first_sentences(text: str | None, first: str) -> None:
    assert first_sentence(text) == first


def options(command: Any, *, usual: bool) -> set[str]:
    rare = command._rare()
    return {param.name for param in command.params if param.param_type_name == "option" and (param.name not in rare) == usual}


def test_fuzz_shows_twelve_options_and_the_rest_when_asked(commands: dict[str, Any]) -> None:
    assert len(USUAL) == 12
    assert options(commands["fuzz"], usual=True) == set(USUAL)
    few, all_of_them = asked("fuzz", "--help"), asked("fuzz", ALL)
    hidden = options(commands["fuzz"], usual=False)
    assert len(hidden) > 20
    for param in commands["fuzz"].params:
        if param.name in hidden:
            assert f" {param.opts[0]} " not in few
            assert f" {param.opts[0]} " in all_of_them or f"{param.opts[0]}," in all_of_them
    assert f"{ALL} Show {len(hidden)} more options" in few
    assert ALL not in all_of_them


def test_other_commands_hide_what_describes_the_network(commands: dict[str, Any]) -> None:
    hidden = options(commands["cover"], usual=False)
    assert {"mean", "std", "bounds", "device", "threads"} <= hidden
    assert not {"weights", "criteria", "train"} & hidden


def test_help_all_is_text_behind_two_dashes() -> None:
    seen: list[str] = []

    def command(word: str) -> None:
        seen.append(word)

    from neurotest.cli.helping import Command

    app = typer.Typer()
    app.command(cls=Command)(command)
    assert CliRunner().invoke(app, ["--", ALL]).exit_code == 0
    assert seen == [ALL]


@pytest.mark.parametrize(
    ("run", "fault", "expected"),
    [
        ("my run", None, ("my run", None)),
        ("my run", 541, ("my run", 541)),
        ("my run#541", None, ("my run", 541)),
        ("my run#541", 7, ("my run#541", 7)),
        ("my#run", None, ("my#run", None)),
        ("here#12", None, ("here#12", None)),  # a folder of that name
    ],
)
def test_faults_in_both_spellings(
    run: str, fault: int | None, expected: tuple[str, int | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here#12").mkdir()
    assert opt.run_and_fault(run, fault) == (Path(expected[0]), expected[1])


def test_the_example_of_fail_if_is_a_number_of_the_command(commands: dict[str, Any]) -> None:
    for name, command in commands.items():
        numbers = [number for number in getattr(command.callback, "numbers", ()) if "*" not in number]
        if numbers:
            assert f"e.g. '{numbers[0]}>0'" in asked(name, ALL), name
