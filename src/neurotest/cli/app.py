"""`neurotest`: commands, exit codes and how errors are reported."""

from __future__ import annotations

import copy
import os
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from neurotest import __version__, interrupts
from neurotest.cli import (
    check,
    cover,
    describe,
    evaluate,
    explain,
    fuzz,
    gate,
    generate,
    init,
    labels,
    neurons,
    repair,
    robustness,
    score,
    select,
    serve,
    show,
    suspects,
    tools,
)
from neurotest.cli.helping import Command, GroupedCommands
from neurotest.errors import BadInput, Interrupted, NeurotestError, Remark, visible

# Before torch is imported: with another busy process on the machine, spinning threads make a step 5 to 8 times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")


class _Commands(GroupedCommands):
    """typer would end an interrupted command with 130 and no word; a library that is being imported makes other errors of it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (NeurotestError, typer.Exit, typer.Abort):
            raise
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt) and not interrupts.raised():
                raise
            from neurotest.jobs.life import NOTHING_KEPT

            raise Interrupted(NOTHING_KEPT) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,  # its help costs half of the start-up
    pretty_exceptions_enable=False,
    help="Test trained neural networks from the inside.",
)
COMMANDS = (
    tools.demo, init.init, check.check, tools.doctor, cover.cover, describe.describe, select.select, score.score,
    suspects.suspects,
    generate.attack,
    generate.diff, generate.illuminate, generate.swarm, neurons.neurons, evaluate.evaluate, robustness.robustness, gate.gate,
    labels.labels,
    explain.explain, labels.export, fuzz.fuzz, fuzz.status, fuzz.families, fuzz.replay, fuzz.shrink, fuzz.merge, tools.report,
    repair.repair, serve.label, serve.serve,
)  # fmt: skip
for command in COMMANDS:
    app.command(command.__name__, cls=Command)(command)
app.command("list", cls=Command)(tools.list_kind)
app.add_typer(tools.zoo, name="zoo")
app.add_typer(tools.data, name="data")
app.add_typer(tools.runs, name="runs")


# What neurotest-lab brings, and how it is listed whether it is there or not.
LAB = {
    "study": "Rerun a paper's tables: ours beside theirs, random, intervals (neurotest-lab).",
    "bench": "Speed as ratios taken in one run, never as absolute times (neurotest-lab).",
}


def _version(wanted: bool) -> None:
    if wanted:
        print(f"neurotest {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    return None


def main() -> None:
    """Run a command; bad input is one sentence and exit 2, an interrupt exit 3, a bug exit 4."""
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", Remark)
    with show.plain_output():
        _run()


def _run() -> None:
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        from neurotest.memory import keep_freed

        keep_freed()
    try:
        with interrupts.listening():
            asked = application(None if "_NEUROTEST_COMPLETE" in os.environ else sys.argv[1:])
            code = asked(prog_name="neurotest", standalone_mode=False)  # or typer would print usage errors in a form of its own
        if code:
            raise SystemExit(code)
    except NeurotestError as error:
        fail(str(error), error.exit_code)
    except KeyboardInterrupt:  # between the commands and here
        fail("interrupted.", Interrupted.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 2)
    except MemoryError as error:
        fail(f"there is not enough memory ({error}): use fewer --layers, --neuron channel, a smaller --batch or less data.", 2)
    except typer.Abort:
        fail("nothing was done.", 1)
    except Exception as error:
        if hasattr(error, "format_message"):
            _misused(error)
        from neurotest.cli.bug import bug_report

        fail(f"internal error ({type(error).__name__}: {error}); {bug_report(error)}", 4)


def application(words: list[str] | None = None) -> typer.Typer:
    """All commands. Only those among these words have options (None: all): reading those of all doubles the start-up."""

    def wanted(name: str | None) -> bool:
        return words is None or name in words

    asked = copy.copy(app)
    asked.registered_commands = [info if wanted(info.name) else _listed(info) for info in app.registered_commands]
    asked.registered_groups = [info if wanted(info.name) else _empty(info) for info in app.registered_groups]
    for name in LAB:
        _add_lab(asked, name, asked_for=wanted(name))
    return asked


def _add_lab(asked: typer.Typer, name: str, *, asked_for: bool) -> None:
    """A command or group of neurotest-lab; where that is not installed, one that says how to get it."""
    from neurotest import plugins

    command = next(iter(plugins.load("command", name)), None) if asked_for else None
    if isinstance(command, typer.Typer):
        asked.add_typer(command, name=name)
    elif command is not None:
        asked.command(name, cls=Command)(command)
    else:
        anything = {"allow_extra_args": True, "ignore_unknown_options": True}
        asked.command(name, help=LAB[name], context_settings=anything, add_help_option=False)(_missing(name))


def _missing(name: str) -> Callable[[], None]:
    def missing() -> None:
        from neurotest.zoo import LAB as how

        raise BadInput("not-installed", name, f"`neurotest {name}` comes with neurotest-lab: {how}.")

    return missing


def _listed(info: Any) -> Any:
    def nothing() -> None:
        return None

    nothing.__doc__ = info.callback.__doc__
    listed = copy.copy(info)
    listed.callback = nothing
    return listed


def _empty(info: Any) -> Any:
    empty = copy.copy(info)
    empty.typer_instance = copy.copy(info.typer_instance)
    empty.typer_instance.registered_commands = []
    return empty


def _misused(error: Any) -> None:
    """What is wrong with the command line, in one sentence with the next step. Whoever typed nothing gets the help."""
    words = " ".join(error.format_message().split())
    command = getattr(getattr(error, "ctx", None), "command_path", "neurotest")
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        raise SystemExit(error.exit_code)
    fail(f"{words[:1].lower()}{words[1:].rstrip('.?')}{'?' if words.endswith('?') else '.'} See `{command} --help`.", 2)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: str | None = None
) -> None:
    """Our own are for the user; those of libraries are for whoever maintains this, and say where they come from."""
    place = "" if issubclass(category, Remark) else f"{filename}:{lineno}: {category.__name__}: "
    text = visible(str(message)) if issubclass(category, Remark) else str(message)
    print(f"neurotest: {place}{text}", file=sys.stderr)


def fail(message: str, code: int) -> None:
    """Say what went wrong on standard error, and as the one JSON object with --json."""
    print(f"neurotest: {visible(message)}", file=sys.stderr)
    if "--json" in sys.argv:
        import json

        print(json.dumps({"error": message, "exit": code}))
    raise SystemExit(code)


if __name__ == "__main__":
    main()
