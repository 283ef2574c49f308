"""A setting of a command is declared once. Each survives the command line, Python, a run, resuming, the file and pasting."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from neurotest.cli import options as opt
from neurotest.cli.settings_file import plain_settings
from neurotest.errors import BadInput
from neurotest.jobs.life import resumed
from neurotest.public import public
from neurotest.runs.rows import plain
from neurotest.runs.store import Run
from neurotest.settings import CommandSettings, Declared, declared, of_commands
from neurotest.settings.declared import PYTHON, Batch, Choice, Flag, Integer, Listed, Number, Place, Several, by_name
from neurotest.settings.kinds import Amount, Duration

COMMANDS = of_commands()
FIELDS = [
    (command, name)
    for command, settings in COMMANDS.items()
    for name, one in declared(settings).items()
    if one.flag != PYTHON and name not in ("out", "resume", "status")  # places of runs
]


def other(one: Declared) -> list[str]:
    """Words on the command line for a value that is not the usual one."""
    kind = one.kind
    if isinstance(kind, Choice):
        return [one.option, next(word for word in kind.among if word != one.usual or len(kind.among) == 1)]
    if isinstance(kind, Flag):
        return kind.words(one.option, not one.usual)
    if isinstance(kind, Duration):
        return [one.option, "90s"]
    if isinstance(kind, Batch | Integer):
        return [one.option, str((one.usual or 6) + 1)]
    if isinstance(kind, Number):
        most = kind.most if kind.most is not None else kind.below
        return [one.option, "0.125" if most is not None else "3.5"]
    if isinstance(kind, Listed):
        return [one.option, "noise"]
    if isinstance(kind, Several):
        return [one.option, "one", one.option, "two"]
    return [one.option, "7%" if isinstance(kind, Amount) else "some words"]


def typed(command: str, settings: type[CommandSettings], *words: str) -> opt.Call:
    """What a command with these settings gets that is started with these words."""
    calls: list[opt.Call] = []

    def stub(*, call: opt.Call) -> opt.Result:
        calls.append(call)
        return {"done": 1}, lambda: None

    stub.__name__ = command
    app = typer.Typer()
    app.command()(opt.command(settings, on="")(stub))
    outcome = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return calls[0]


def taken(settings: type[CommandSettings], **given: Any) -> CommandSettings:
    """What a function of Python with these settings makes of its keywords."""

    @public(settings)
    def function(**keywords: Any) -> CommandSettings:
        return settings.of(keywords)

    shown = inspect.signature(function).parameters
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    assert {name: shown[name].default for name in given} == {name: defaults[name] for name in given}
    return function(**given)


@pytest.mark.parametrize(("command", "name"), FIELDS)
def test_every_setting_survives(command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings, one = COMMANDS[command], declared(COMMANDS[command])[name]
    call = typed(command, settings, *other(one))
    assert call.typed == {name}
    value = call.settings[name]
    assert plain(value) != plain(one.usual) or isinstance(one.kind, Choice)
    chosen = taken(settings, **{name: value})
    assert getattr(chosen, name) == value
    if name in by_name(settings):
        config = json.loads(json.dumps(plain(chosen.stored())))
        assert name in config
        _survives_a_run(settings, one, value, config, tmp_path)
        value = type(value)(config[name]) if not isinstance(one.kind, Place) else value
    again = typed(command, settings, *one.words(value))
    assert plain(again.settings[name]) == plain(value)
    if one.parameter in plain_settings(settings):
        _survives_the_file(command, settings, one, value)


def _survives_a_run(settings: type[CommandSettings], one: Declared, value: Any, config: dict[str, Any], place: Path) -> None:
    """Read back as it was; said again it is taken, and another value is refused unless it may change."""
    run = Run.create(place / "run", "select", {})
    try:
        for given in ({}, {one.name: None}, {one.name: value}):
            assert plain(getattr(resumed(settings, run, config, given), one.name)) == plain(value)
        before = dict(config)
        del config[one.name]  # a run of before this setting was there
        assert plain(getattr(resumed(settings, run, config, {}), one.name)) == plain(getattr(settings(), one.name))
        changed = {**before, one.name: plain(one.usual)}
        if plain(one.usual) == plain(value):
            return
        if one.changes:
            assert plain(getattr(resumed(settings, run, changed, {one.name: value}), one.name)) == plain(value)
        else:
            with pytest.raises(BadInput, match=f"{one.name}=.*was started with"):
                resumed(settings, run, changed, {one.name: value})
        config |= before
    finally:
        run.close()


def _survives_the_file(command: str, settings: type[CommandSettings], one: Declared, value: Any) -> None:
    """What would be typed, as TOML writes it."""
    if isinstance(one.kind, Flag):
        said: Any = next(flag for flag in (True, False) if one.kind.parse(one.name, flag) == value)
    else:
        said = other(one)[1]
        if isinstance(one.kind, Number | Integer) and not isinstance(one.kind, Duration):
            said = json.loads(said)
    Path("neurotest.toml").write_text(f"[{command}]\n{one.parameter} = {json.dumps(said)}\n")
    call = typed(command, settings)
    assert call.typed == set()
    assert plain(call.settings[one.name]) == plain(value)
    Path("neurotest.toml").unlink()


def test_a_command_without_options_has_the_settings_of_python() -> None:
    for command, settings in COMMANDS.items():
        call = typed(command, settings)
        assert call.settings.keys() <= {"out"}
        assert settings.of({}) == settings()


@dataclasses.dataclass(frozen=True)
class Toml:
    text: str
    says: str


REFUSED = {
    "a command that there is not": Toml("[fuz]\nforwards = 3\n", "there is 'fuz'"),
    "a misspelt key": Toml("[fuzz]\nforward = 3\n", r"\[fuzz\] has no key 'forward'. Did you mean forwards"),
    "data": Toml('[select]\noriginals = "dir:photos"\n', r"\[select\] has no key 'originals'"),
    "methods": Toml('[select]\nmethod = ["deepgini"]\n', r"\[select\] has no key 'method'"),
    "code": Toml('[fuzz]\njudge = "py:evil.py:build"\n', r"\[fuzz\] has no key 'judge'"),
    "files": Toml('[cover]\nprofile = "profile.npz"\n', r"\[cover\] has no key 'profile'"),
    "places": Toml('[fuzz]\nout = "elsewhere"\n', r"\[fuzz\] has no key 'out'"),
    "another type": Toml('[fuzz]\nforwards = "many"\n', "forwards = 'many': expected an integer"),
    "text for a flag": Toml('[fuzz]\nkeep_wrong = "yes"\n', "keep_wrong = 'yes': expected true or false"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_file_may_not_say(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever command is started: what nobody may say there is refused, not ignored."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "neurotest.toml").write_text(REFUSED[case].text)
    with pytest.raises(BadInput, match=REFUSED[case].says):
        typed("fuzz", COMMANDS["fuzz"])


def test_the_file_says_what_is_not_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fuzz = COMMANDS["fuzz"]
    (tmp_path / "neurotest.toml").write_text("[fuzz]\nforwards = 20000\nkeep_wrong = true\n\n[select]\nbudget = 30\n")
    call = typed("fuzz", fuzz, "--forwards", "100")
    assert (call.settings["forwards"], call.settings["keep_wrong"], call.typed) == (100, True, {"forwards"})
    assert typed("select", COMMANDS["select"]).settings["budget"] == "30"
    assert typed("attack", COMMANDS["attack"]).settings.keys() <= {"out"}  # it has no section


def test_a_run_that_is_resumed_keeps_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "neurotest.toml").write_text("[fuzz]\nforwards = 20000\n[select]\nbudget = 30\n")
    assert "forwards" not in typed("fuzz", COMMANDS["fuzz"], "--resume", "run").settings
    assert "budget" not in typed("select", COMMANDS["select"], "--status", "run").settings


def test_a_value_out_of_range_is_refused_in_the_words_of_the_command_line() -> None:
    with pytest.raises(BadInput, match=r"^--limit 0: expected an integer >= 1") as error:
        typed("cover", COMMANDS["cover"], "--limit", "0")
    assert (error.value.code, error.value.argument) == ("out-of-range", "limit")


def test_what_is_used_of_the_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from neurotest.cli.settings_file import settings_of_file

    monkeypatch.chdir(tmp_path)
    (tmp_path / "neurotest.toml").write_text("[fuzz]\nforwards = 20000\n")
    assert settings_of_file("fuzz", {"forwards": None}) == {"forwards": 20000}
    assert capsys.readouterr().err == "neurotest: forwards from ./neurotest.toml\n"
    assert settings_of_file("fuzz", {"forwards": 3}) == {}
    assert capsys.readouterr().err == ""
