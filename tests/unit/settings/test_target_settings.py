"""A setting of a target is declared once. Each survives the command line, a run, reopening, TOML, the plug-in and pasting."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

import neurotest_pytest
from neurotest.cli import options as opt
from neurotest.cli.settings_file import read_toml
from neurotest.errors import BadInput
from neurotest.jobs.stored import described, target_config
from neurotest.runs.store import Run
from neurotest.settings import TargetSettings, declared
from neurotest.settings.declared import Choice, Flag, Integer, Kind
from neurotest.settings.kinds import Names, Pair
from neurotest.settings.target import in_toml
from neurotest.target import Target
from neurotest.target.load import load
from neurotest.target.spec import TargetSpec, target_settings

SETTINGS = declared(TargetSettings)
SPEC = "py:net.py:build"
CODE = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 1))
"""
# Values that only fit together: one network takes them all. Every other setting has a value by its kind.
TOGETHER: dict[str, Any] = {
    "weights": "weights.safetensors", "bounds": [0.0, 2.0], "mean": [0.123456789], "std": [0.25], "size": [1, 8, 8],
    "classes": ["low", "middle, but high", "high"], "outputs": "regression", "span": [-0.4, 0.5], "bins": 3, "tolerance": 0.05,
    "resize": "9x10", "rate": 16000, "device": "cpu",
}  # fmt: skip


def example(name: str) -> Any:
    kind = SETTINGS[name].kind
    if name in TOGETHER:
        return TOGETHER[name]
    if isinstance(kind, Choice):
        return kind.among[-1]
    if isinstance(kind, Flag):
        return True
    return {Integer: 3, Pair: [0.0, 2.0]}.get(type(kind), "8")


VALUES = {name: example(name) for name in SETTINGS}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a network, its weights and its classes; commands are started there."""
    import runpy

    from safetensors.torch import save_file

    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(CODE)
    save_file(runpy.run_path("net.py")["build"]().state_dict(), "weights.safetensors")
    (tmp_path / "names.txt").write_text("\n".join(VALUES["classes"]))
    return tmp_path


def words(values: dict[str, Any]) -> list[str]:
    values = {**values, "classes": "names.txt"}
    return [word for name, value in values.items() for word in SETTINGS[name].kind.words(SETTINGS[name].option, value)]


def typed(*options: str) -> dict[str, Any]:
    """What a command gets that is started with these options."""
    given: list[dict[str, Any]] = []

    def command(description: dict[str, Any]) -> None:
        given.append(description)

    app = typer.Typer()
    app.command()(opt.takes_target(command))
    outcome = CliRunner().invoke(app, list(options), catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return given[0]


def told(target: Target) -> dict[str, Any]:
    """All settings as the target has them, in the form of JSON."""
    stored: dict[str, Any] = json.loads(json.dumps(TargetSpec.of(target).plain()))
    return {name: stored.get(name) for name in SETTINGS} | {"device": str(target.device)}


def expected(place: Path) -> dict[str, Any]:
    return {**VALUES, "weights": str((place / "weights.safetensors").resolve())}


def test_every_setting_survives_the_command_line(place: Path) -> None:
    assert told(load(SPEC, **typed(*words(VALUES)))) == expected(place)


def test_every_setting_survives_a_run_and_a_pasted_command(place: Path) -> None:
    target = load(SPEC, **typed(*words(VALUES)))
    Run.create(place / "my run", "select", target_config(target)).close()
    with Run.open(place / "my run") as run:
        config = run["config"]
    reopened = TargetSpec.read(config["description"], place).open()
    assert told(reopened) == expected(place)
    assert reopened.fingerprint == target.fingerprint
    command = shlex.join(described(config, place / "my run"))
    assert "FILE" not in command
    pasted = load(SPEC, **typed(*shlex.split(command)))
    stays_here = {"device": "cpu", "trust_pickle": True}  # of this machine and this person: a run may not say it for them
    assert {**told(pasted), **stays_here} == expected(place)
    assert "--trust-pickle" not in command


def test_every_setting_overrides_that_of_a_run(place: Path) -> None:
    given: list[Any] = []

    def command(run: str, network: Any = None) -> None:
        given.append(network)

    app = typer.Typer()
    app.command()(opt.overrides_target(command))
    Run.create(place / "run", "select", {"target": SPEC}).close()
    assert CliRunner().invoke(app, ["run", "--target", SPEC, *words(VALUES)], catch_exceptions=False).exit_code == 0
    stored = TargetSpec(spec=SPEC)
    assert told(given[0].over(stored).open()) == expected(place)


def test_every_setting_survives_the_settings_file(place: Path) -> None:
    lines = [f"{name} = {json.dumps(VALUES[name])}" for name in in_toml()]
    (place / "neurotest.toml").write_text("\n".join(["[target]", *lines]))
    said = read_toml(Path("neurotest.toml"))
    assert said == {name: VALUES[name] for name in in_toml()}
    assert set(SETTINGS) - set(in_toml()) == {"device", "trust_pickle"}  # a file found by chance must not say these
    left = {name: VALUES[name] for name in SETTINGS if name not in said}
    assert told(load(SPEC, **said, **left)) == expected(place)
    assert told(load(SPEC, **typed(*words({name: VALUES[name] for name in left} | {"classes": ""})))) == expected(place)


def test_every_setting_survives_the_pytest_plug_in(place: Path) -> None:
    class Group:
        options: dict[str, str]

        def __init__(self) -> None:
            self.options = {}

        def addoption(self, option: str, dest: str = "", **more: Any) -> None:
            self.options[dest] = option

    group = Group()
    parser: Any = type("Parser", (), {"getgroup": lambda self, *words: group})()
    neurotest_pytest.pytest_addoption(parser)
    assert {f"neurotest_{name}" for name in SETTINGS} <= group.options.keys()
    texts = {name: " ".join(SETTINGS[name].kind.words("", value)[1:]) or "true" for name, value in VALUES.items()}
    assert told(neurotest_pytest._target(SPEC, {**texts, "classes": "names.txt"})) == expected(place)


def test_options_that_are_not_given_pass_through_the_plug_in(place: Path) -> None:
    target = neurotest_pytest._target(SPEC, {"size": (1, 8, 8), "bins": None, "mean": None, "trust_pickle": None})
    assert target.shape == (1, 8, 8)


@pytest.mark.parametrize("name", SETTINGS)
def test_what_does_not_fit_is_refused_by_name(name: str, place: Path) -> None:
    """In a file and in a run: a value of another type never reaches the network."""
    wrong: Any = {"a": 1}
    assert not SETTINGS[name].kind.fits(wrong)
    with pytest.raises(BadInput, match=rf"{name}=.*does not fit"):
        TargetSpec.read({"spec": SPEC, name: wrong}, place)
    if name in in_toml():
        (place / "neurotest.toml").write_text(f"[target]\n{name} = {{a = 1}}")
        with pytest.raises(BadInput, match=rf"{name} = .*: expected "):
            read_toml(Path("neurotest.toml"))


@pytest.mark.parametrize("name", [name for name, one in SETTINGS.items() if isinstance(one.kind, Names | Pair)])
def test_a_run_holds_values_and_no_files(name: str, place: Path) -> None:
    """A run that somebody sent must not have a file read that it names."""
    with pytest.raises(BadInput, match="does not fit"):
        TargetSpec.read({"spec": SPEC, name: "names.txt"}, place)


def test_usual_settings_are_not_said() -> None:
    target = load("zoo:fashion-lenet5")
    said = {name: one.words(target_settings(target).get(name)) for name, one in SETTINGS.items()}
    assert {name for name, words in said.items() if words} == {"size", "classes"}


@pytest.mark.parametrize("text", ["0.1", "1e-09", "-3", "0.30000000000000004"])
def test_numbers_are_written_so_that_they_read_back(text: str) -> None:
    from neurotest.settings.declared import written

    assert written(float(text)) == text
    assert Kind().words("--size", "a b") == ["--size", "a b"]


def test_pictures_are_read_as_the_settings_say(place: Path) -> None:
    """End to end: options of preprocessing reach the pixels."""
    Image.fromarray(np.full((16, 12, 3), 200, np.uint8)).save(place / "picture.png")
    from neurotest.jobs.opening import open_data

    target = load(SPEC, **typed(*words(VALUES)))
    assert open_data(target, f"dir:{place}").shape == (1, 8, 8)
