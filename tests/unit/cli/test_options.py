"""What every command gets from the decorators: checked before the work, printed once, JSON on demand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from tests.refusals import refused
from typer.testing import CliRunner

from neurotest.cli import options as opt
from neurotest.cli import settings_file
from neurotest.errors import BadInput
from neurotest.settings.declared import Named, setting
from neurotest.settings.shared import Batched, Limited, Resumable, Trained


def counter(*, own_json: bool = False) -> tuple[typer.Typer, list[dict[str, Any]]]:
    """A command that counts to `n`, and what it was called with."""
    calls: list[dict[str, Any]] = []

    def plain(n: int = 3, *, call: opt.Call) -> opt.Result:
        """Count."""
        calls.append({"n": n, "limit": call.settings.get("limit"), "quiet": call.quiet})
        return {"count": n, "deep": {"half": n / 2}, "notes": ["a note"]}, lambda: print(f"counted to {n}")

    def with_json(n: int = 3, json: opt.Json = False) -> opt.Result:
        """Count."""
        calls.append({"n": n, "json": json})
        return {"count": n}, lambda: print(n)

    app = typer.Typer()
    app.command()(opt.reports_result(with_json) if own_json else opt.command(Limited, on="")(plain))
    return app, calls


def run(app: typer.Typer, *args: str) -> Any:
    return CliRunner().invoke(app, list(args))


def test_people_get_the_text_and_the_notes() -> None:
    app, calls = counter()
    result = run(app, "--n", "4")
    assert (result.stdout, result.stderr) == ("counted to 4\n", "neurotest: a note\n")
    assert calls == [{"n": 4, "limit": None, "quiet": False}]
    assert run(app, "-q").stderr == ""


def test_json_is_one_object_on_standard_output() -> None:
    app, calls = counter()
    result = run(app, "--json")
    assert json.loads(result.stdout) == {"count": 3, "deep": {"half": 1.5}, "notes": ["a note"]}
    assert result.stderr == "neurotest: a note\n"
    assert "json" not in calls[0]  # only a command that declares it receives it


def test_what_a_command_declares_it_gets() -> None:
    app, calls = counter(own_json=True)
    run(app, "--json")
    assert calls == [{"n": 3, "json": True}]


@pytest.mark.parametrize(("condition", "code"), [("count>2", 1), ("count>3", 0), ("deep.half<2", 1), ("deep.half>=2", 0)])
def test_fail_if(condition: str, code: int) -> None:
    assert run(counter()[0], "--fail-if", condition).exit_code == code


@pytest.mark.parametrize(("code", "args"), [(0, ()), (1, ()), (1, ("--json",))])
def test_a_command_may_end_with_its_own_exit_code(code: int, args: tuple[str, ...]) -> None:
    app = typer.Typer()

    @app.command()
    @opt.reports_result
    def judge() -> opt.Result:
        return {"right": 1}, lambda: print("judged"), code

    result = run(app, *args)
    assert result.exit_code == code
    assert result.stdout == ('{"right": 1}\n' if args else "judged\n")


@pytest.mark.parametrize(("args", "says"), [(("--fail-if", "count!!"), "--fail-if 'count!!'"), (("--limit", "0"), "--limit 0")])
def test_mistakes_are_reported_before_the_work(args: tuple[str, ...], says: str) -> None:
    app, calls = counter()
    result = run(app, *args)
    assert isinstance(result.exception, BadInput)
    assert says in str(result.exception)
    assert calls == []


def test_a_command_starts_or_resumes() -> None:
    def call(**settings: Any) -> opt.Call:
        return opt.Call("fuzz", settings, frozenset(settings), {}, None, quiet=False)

    call().needs(target="zoo:x", seeds="dir:seeds")
    call(resume=Path("run")).needs(target=None, seeds=None)
    with refused("missing", "seeds"):
        call().needs(target="zoo:x", seeds=None)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("[target\n", ("unreadable", "")),
        ("[targets]\nmean = [0.5]\n", ("unknown-option", "targets")),
        ("mean = [0.5]\n", ("unknown-option", "mean")),
        ("target = 3\n", ("unknown-option", "target")),
        ('[target]\nspec = "py:evil.py:build"\n', ("unknown-option", "spec")),
        ("[target]\nweights = 3\n", ("wrong-type", "weights")),
        ('[data]\npool = "dir:photos"\n', ("unknown-option", "pool")),
        ('[data]\ntrain = "py:evil.py:load"\n', ("wrong-type", "train")),
        ('[data]\nholdout = ["dir:a"]\n', ("wrong-type", "holdout")),
        ('[target]\ntrain = "dir:photos"\n', ("unknown-option", "train")),
    ],
)
def test_a_file_that_would_be_ignored_is_refused(
    text: str, refusal: tuple[str, str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "neurotest.toml").write_text(text)
    with refused(*refusal):
        settings_file.read_description(mean=None)
    assert settings_file.read_description(mean="0.5", toml=False) == {"mean": [0.5]}


def test_the_command_line_goes_over_the_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "neurotest.toml").write_text("[target]\nmean = 0.1\nstd = 0.2\n")
    assert settings_file.read_description(mean="0.5", std=None) == {"mean": [0.5], "std": 0.2}


@dataclass(frozen=True, kw_only=True)
class Learn(Resumable, Trained, Batched):
    holdout: Any = setting(Named(), "Labelled inputs.")


def learner() -> tuple[typer.Typer, list[dict[str, Any]]]:
    """A command with data and a batch, and what it was called with."""
    calls: list[dict[str, Any]] = []

    @opt.command(Learn)
    def learn(target: opt.Target = None, *, call: opt.Call) -> opt.Result:
        calls.append({name: call.settings.get(name) for name in ("train", "holdout", "batch")})
        return {"done": 1}, lambda: None

    app = typer.Typer()
    app.command()(learn)
    return app, calls


def test_data_of_the_file_are_used_where_none_are_typed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app, calls = learner()
    (tmp_path / "neurotest.toml").write_text('[data]\ntrain = "dir:training"\nholdout = "npz:held.npz#x,y"\n')
    for words in (["--train", "none"], ["--train", "none", "--holdout", "none"], [], ["--train", "dir:other"]):
        result = run(app, "zoo:x", *words)
        assert result.exit_code == 0, result.exception
    assert [(call["train"], call["holdout"]) for call in calls] == [
        (None, "npz:held.npz#x,y"), (None, None), ("dir:training", "npz:held.npz#x,y"), ("dir:other", "npz:held.npz#x,y")
    ]  # fmt: skip
    assert "neurotest: holdout npz:held.npz#x,y from ./neurotest.toml (--holdout none: without)" in result.stderr


def test_a_run_that_goes_on_has_its_own_data_and_batch(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(opt, "same_threads", lambda path: None)
    (tmp_path / "neurotest.toml").write_text('[data]\ntrain = "dir:training"\n')
    app, calls = learner()
    for words in ([], ["--batch", "auto"], ["--batch", "250"]):
        assert run(app, "--resume", "run", *words).exit_code == 0
    assert calls == [{"train": None, "holdout": None, "batch": batch} for batch in (None, None, 250)]


def test_an_automatic_batch_is_that_of_the_command_and_its_help_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    app, calls = learner()
    for words in ([], ["--batch", "auto"], ["--batch", "7"]):
        assert run(app, "zoo:x", *words).exit_code == 0
    assert [call["batch"] for call in calls] == [None, None, 7]  # None: as declared
    shown = run(app, "--help").stdout
    assert "<int|auto>" in shown
    assert "auto: 250" in shown


@pytest.mark.parametrize(("own", "used"), [(None, "dir:training"), ("dir:its own", None)])
def test_training_data_of_a_run_come_before_those_of_the_file(
    own: str | None, used: str | None, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neurotest.runs.store import Run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "neurotest.toml").write_text('[data]\ntrain = "dir:training"\n')
    Run.create(tmp_path / "run", "fuzz", {"train": own}).close()
    calls: list[str | None] = []

    @opt.overrides_target
    @opt.reports_result
    def explain(run: Path, train: Annotated[str | None, typer.Option("--train")] = None, *, network: Any) -> opt.Result:
        calls.append(train)
        return {"done": 1}, lambda: None

    app = typer.Typer()
    app.command()(explain)
    result = run(app, "run")
    assert result.exit_code == 0, result.exception
    assert calls == [used]
