"""A network that is not in the zoo: a builder without weights, a weights file, mean, std, class names, class folders.

Every command after the first works with nothing repeated, from another directory, and after the run was moved.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from tests import commands
from tests.commands import Command
from tests.e2e.stranger import FUZZ, MODEL, OPTIONS, absolute, batches, project_spec
from tests.waiting import until

from neurotest.runs.store import Run

Cli = Callable[..., Any]
SRC = Path(__file__).resolve().parents[2] / "src"


def test_every_command_after_the_first_needs_nothing_repeated(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Path.cwd()
    monkeypatch.chdir(project)
    first = cli(*FUZZ, "--iterations", 30, "--out", "run", "--json", "-q")
    assert first.code == 0, first.err
    assert json.loads(first.out)["faults"] > 0
    # Another directory, and the run moved there.
    monkeypatch.chdir(elsewhere)
    shutil.move(project / "run", "moved")
    number = json.loads(cli("families", "moved", "--json").out)["families"][0]["fault"]
    second = cli(
        "fuzz", project_spec(project), f"dir:{project / 'photos'}", *absolute(project), "--guide", "kmnc:10", "--train",
        f"dir:{project / 'photos'}", "--batch", 32, "--seed", 1, "--iterations", 20, "--out", "other", "--json", "-q",
    )  # fmt: skip
    assert second.code == 0, second.err
    for command in (
        ["fuzz", "--resume", "moved", "--iterations", 40, "--json", "-q"],
        ["status", "moved", "--json"],
        ["families", "moved", "--json"],
        ["replay", f"moved#{number}", "--json"],
        ["shrink", "moved", "--json", "-q"],
        ["merge", "moved", "other", "--out", "merged", "--json"],
        ["shrink", "merged", "--json", "-q"],
        ["explain", "moved", number, "--train", f"dir:{project / 'photos'}", "--json"],
        ["neurons", "moved", "--rounds", 2, "--pairs", 4, "--json", "-q"],
        ["evaluate", "moved", "--json", "-q"],
        ["report", "moved"],
    ):
        result = cli(*command)
        assert result.code == 0, (command, result.err)
    assert json.loads(cli("status", "moved", "--json").out)["runs"][0]["iterations"] >= 40


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("attack", ["--attack", "fgsm:eps=0.1", "--batch", "10"]),
        ("illuminate", ["--forwards", "60"]),
        ("swarm", ["--evaluations", "30", "--controls", "none"]),
    ],
)
def test_other_generators_remember_their_network(
    command: str, options: list[str], project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Path.cwd()
    monkeypatch.chdir(project)
    out = elsewhere / command
    first = cli(command, "py:models.py:cnn", "dir:photos", *OPTIONS, *options, "--limit", 30, "--out", out, "--json", "-q")
    assert first.code == 0, first.err
    monkeypatch.chdir(elsewhere)
    judged = cli("evaluate", command, "--json", "-q")
    assert judged.code == 0 or "no faults" in judged.err, judged.err
    with Run.open(command) as run:
        described = run["config"]["description"]
    assert described["weights"] == str((project / "cnn.safetensors").resolve())
    assert described["mean"] == [0.3]
    assert len(described["classes"]) == 10


def test_conditions_and_exit_codes_of_commands_on_a_run(run: Path, cli: Cli) -> None:
    number = json.loads(cli("families", run, "--json").out)["families"][0]["fault"]
    assert cli("replay", f"{run}#{number}", "-q").code == 0
    assert cli("replay", f"{run}#{number}", "--fail-if", f"fault=={number}").code == 1
    assert cli("status", run, "--fail-if", "runs.0.faults>0").code == 1
    assert cli("status", run, "--fail-if", "runs.1.faults>0").code == 2
    with Run.open(run, write=True) as opened, opened.transaction():
        opened.change("UPDATE mutant SET predicted = (predicted + 1) % 10 WHERE number = ?", [(number,)])
    changed = cli("replay", f"{run}#{number}")
    assert changed.code == 1
    assert "no longer fails that way" in changed.out


def kill(process: Command, run: Path) -> None:
    """Once a few batches are in the run."""
    until(lambda: batches(run) > 2, "three batches in the run", process)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_killed_and_resumed_without_a_word_about_the_network(project: Path, cli: Cli) -> None:
    run = Path.cwd() / "killed"
    kill(commands.start(*FUZZ, "--iterations", 4000, "--threads", 1, "--out", run, "-q", cwd=project), run)
    with Run.open(run) as opened:
        done = opened["progress"]["iterations"]
    result = cli("fuzz", "--resume", run, "--iterations", done + 10, "--json", "-q")
    assert result.code == 0, result.err
    assert json.loads(result.out)["iterations"] >= done + 10


# -- options that are repeated


@pytest.fixture
def run(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    elsewhere = Path.cwd()
    monkeypatch.chdir(project)
    assert cli(*FUZZ, "--iterations", 5, "--out", elsewhere / "small", "-q").code == 0
    monkeypatch.chdir(elsewhere)
    return elsewhere / "small"


def test_weights_that_have_changed_are_named_with_both_hashes(project: Path, run: Path, cli: Cli) -> None:
    old = (project / "cnn.safetensors").read_bytes()
    try:
        state = {name: value + 1 for name, value in load_file(project / "cnn.safetensors").items()}
        save_file(state, project / "cnn.safetensors")
        result = cli("shrink", run, "-q")
        assert result.code == 2
        assert str(project / "cnn.safetensors") in result.err
        assert result.err.count("sha256") == 1
        assert "now" in result.err
        assert "then" in result.err
        Path("moved.safetensors").write_bytes(old)
        assert cli("shrink", run, "--weights", "moved.safetensors", "-q").code == 0
    finally:
        (project / "cnn.safetensors").write_bytes(old)


def test_what_is_repeated_on_resume_is_used_or_refused(run: Path, cli: Cli) -> None:
    same = cli("fuzz", "--resume", run, "--guide", "kmnc:sections=10", "--seed", 0, "--mean", "0.3", "--iterations", 6, "-q")
    assert same.code == 0, same.err
    default = cli("fuzz", "--resume", run, "--tries", 64, "--mutations", "rules95:units=image", "--iterations", 7, "-q")
    assert default.code == 0, default.err  # spelled out, and what it was anyway
    other = cli("fuzz", "--resume", run, "--guide", "nlc", "--iterations", 7, "-q")
    assert other.code == 2
    assert "guide='nlc'" in other.err
    assert "kmnc:10" in other.err
    other = cli("fuzz", "--resume", run, "--tries", 3, "--iterations", 7, "-q")
    assert other.code == 2
    assert "tries=3" in other.err
    assert "started with 64" in other.err
    other = cli("fuzz", "--resume", run, "--mean", "0.9", "--iterations", 7, "-q")
    assert other.code == 2
    assert "not the one" in other.err


def test_a_selection_is_resumed_as_it_was_started(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(project / "photos", "photos")
    flat = Path("flat")
    flat.mkdir()
    for number, file in enumerate(sorted(Path("photos").glob("*/*.png"))):
        shutil.copy(file, flat / f"{number:03d}.png")
    options = [*absolute(project), "--method", "adaptive", "--budget", 8, "--out", "run", "-q"]
    assert cli("select", project_spec(project), "dir:flat", *options).code == 0
    Path("elsewhere").mkdir()
    run = Path("run").resolve()
    monkeypatch.chdir("elsewhere")
    again = cli("select", "--resume", run, "--budget", 5, "--json")
    assert again.code == 0, again.err
    assert "no images" not in again.err
    for option, value in (("--method", "deepgini"), ("--mean", "0.9"), ("--weights", "other.pt"), ("--seed", 3)):
        refused = cli("select", "--resume", run, option, value)
        assert refused.code == 2
        assert f"{option} with --resume" in refused.err
    assert cli("select", project_spec(project), "dir:flat", "--resume", run).code == 2


def test_a_run_from_elsewhere_runs_no_code_until_the_user_names_it(
    project: Path, run: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "another user's"))
    (project / "models.py").write_text(MODEL + "\nopen('ran', 'w').close()\n")
    try:
        refused = cli("shrink", run, "-q")
        assert refused.code == 2
        assert "--target" in refused.err
        refused = cli("shrink", run, "--target", project_spec(project), "-q")
        assert refused.code == 2
        assert "--weights" in refused.err
        assert not Path("ran").exists()
        (project / "models.py").write_text(MODEL)
        named = cli("shrink", run, "--target", project_spec(project), "--weights", project / "cnn.safetensors", "-q")
        assert named.code == 0, named.err
    finally:
        (project / "models.py").write_text(MODEL)


def test_changed_code_is_not_run(project: Path, run: Path, cli: Cli) -> None:
    try:
        (project / "models.py").write_text(MODEL + "\nopen('ran', 'w').close()\n")
        refused = cli("shrink", run, "-q")
        assert refused.code == 2
        assert "has changed" in refused.err
        assert not Path("ran").exists()
    finally:
        (project / "models.py").write_text(MODEL)


# -- weights that were never loaded


@pytest.mark.parametrize(
    "command",
    [
        ["doctor", "py:models.py:cnn", "dir:photos"],
        ["select", "py:models.py:cnn", "dir:photos", "--out", "{out}/select"],
        ["cover", "py:models.py:cnn", "dir:photos", "--criteria", "nac:layers=pre_activation"],
        ["attack", "py:models.py:cnn", "dir:photos", "--attack", "fgsm", "--keep-wrong", "--out", "{out}/attack"],
        [
            "fuzz",
            "py:models.py:cnn",
            "dir:photos",
            "--guide",
            "random",
            "--iterations",
            "1",
            "--keep-wrong",
            "--out",
            "{out}/fuzz",
        ],
    ],
)
def test_random_weights_are_noticed_by_every_command(
    command: list[str], project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(project)
    random = cli(*(word.format(out=tmp_path) for word in command), "--classes", "classes.txt", "--size", "1x28x28")
    where = random.out if command[0] == "doctor" else random.err  # there it is a finding
    assert "random weights" in where, random
    assert "--weights" in where
    loaded = cli(*(word.format(out=tmp_path / "2") for word in command), *OPTIONS)
    assert "random weights" not in loaded.out + loaded.err
