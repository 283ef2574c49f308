"""Options that mean the same in every command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from neurotest.cli.settings_file import data_of_file, read_description, settings_of_file
from neurotest.settings import CommandSettings, Declared, TargetSettings, declared
from neurotest.settings.declared import PYTHON
from neurotest.settings.shared import Written

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
Out = Annotated[Path | None, typer.Option("--out", help="Directory of the run (default: ./neurotest-runs/COMMAND-TIME).")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of every random choice.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Threads of the forward pass (default: torch's choice).")]
Device = Annotated[str, typer.Option("--device", help="Where the network runs: cpu, cuda, mps.")]
Plan = Annotated[
    bool,
    typer.Option("--estimate", "--plan", help="Estimate passes, memory and minutes from a small part of the work, and stop."),
]
NoReport = Annotated[
    bool, typer.Option("--no-report", help="Write no page (RUN/report.html) at the end; `neurotest report RUN` can later.")
]
Track = Annotated[
    str | None,
    typer.Option("--track", help="Hand the finished run to mlflow or wandb; with an experiment or project: mlflow:nightly."),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no remarks.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Say more.")]


Target = Annotated[
    str | None,
    typer.Argument(
        help="zoo:NAME, py:FILE_OR_MODULE:CALLABLE, pt2:, onnx:, timm:, torchvision:, hf: (none: --resume)", show_default=False
    ),
]
Seeds = Annotated[str | None, typer.Argument(help="Inputs to start from, labelled if possible.", show_default=False)]
TargetAgain = Annotated[
    str | None, typer.Option("--target", help="The target, if the run may not name it itself (made elsewhere, moved).")
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", help="Share the work among N processes; their number does not change the result (fuzz: up to 8)."),
]
Ray = Annotated[
    str | None,
    typer.Option("--ray", help="Workers of a Ray cluster instead: local, auto, HOST:PORT or ray://HOST:PORT."),
]

# What a command returns: the result as JSON, a function that prints it for people and, if it may be other than 0, the exit code.
Result = tuple[dict[str, Any], Callable[[], None]] | tuple[dict[str, Any], Callable[[], None], int]

_REPORT: dict[str, tuple[Any, Any]] = {"fail_if": (list[str] | None, None), "json": (Json, False), "quiet": (Quiet, False)}
_WORKERS: dict[str, tuple[Any, Any]] = {"workers": (Workers, None), "ray": (Ray, None)}
_CONTEXT: dict[str, tuple[Any, Any]] = {"context": (typer.Context, inspect.Parameter.empty)}
_OF_RUN = ("resume", "status")  # options of a run, which has its settings and its data
_HAS_DATA = (*_OF_RUN, "profile")  # and of what stands for training data


def _derived(settings: type) -> dict[str, tuple[Any, Any]]:
    """The options of declared settings; None: not typed."""
    return {
        one.parameter: (Annotated[one.kind.typed, _option(one)], None)
        for one in declared(settings).values()
        if one.flag != PYTHON
    }


def _option(one: Declared) -> Any:
    text = f"{one.help.removesuffix('.')} (default {one.default})." if one.default else one.help
    return typer.Option(one.flag or one.option, help=text, metavar=one.kind.metavar, show_default=False)


_TARGET: dict[str, tuple[Any, Any]] = {**_derived(TargetSettings), "threads": (Threads, None)}


@dataclass
class Call:
    """What was typed of a command beside its arguments.

    settings: those that its class declares, by their names in Python; neurotest.toml may add some that were not typed.
    description: what describes the target. network: what is to override the target of a run.
    """

    command: str
    settings: dict[str, Any]
    typed: frozenset[str]  # names of the settings that are not of neurotest.toml
    description: dict[str, Any]
    network: Any
    quiet: bool

    @property
    def resume(self) -> Path | None:
        return self.settings.get("resume")

    def open_target(self, spec: str | None) -> Any:
        """The target: loaded or, for a run that is resumed, what overrides its stored description."""
        return open_target(spec, self.description, self.resume)

    def ticking(self, doing: str, **more: Any) -> Any:
        """Progress on the screen, while it is being done."""
        from neurotest.cli import show

        return show.ticking(doing, quiet=self.quiet, **more)

    def work(self, function: Callable[..., Any], doing: str, **arguments: Any) -> Any:
        """The function's result for the arguments, of which the first is the target, and the settings, with progress on the
        screen. Either all arguments are there, or a run is resumed."""
        self.needs(**arguments)
        spec, *others = arguments.values()
        target = self.open_target(spec)
        with self.ticking(doing) as progress:
            return function(target, *others, **self.settings, progress=progress)

    def needs(self, written: Mapping[str, str] | None = None, /, **arguments: Any) -> None:
        """Refuse a start without the arguments. written: how one is typed, where that is not its name in capitals."""
        from neurotest.errors import BadInput

        if self.resume is None and not all(arguments.values()):
            *names, last = [(written or {}).get(name, name.upper()) for name in arguments]
            raise BadInput(
                "missing",
                next(name for name, value in arguments.items() if not value),
                f"{self.command} needs {', '.join(names)} and {last}, or --resume RUN.",
            )


def command(
    settings: type[CommandSettings],
    *,
    on: Literal["target", "run", ""] = "target",
    workers: bool = False,
    reports: bool = True,
    numbers: Sequence[str] = (),
    unless: tuple[str, ...] = (),
) -> Callable[[Callable[..., Result | None]], Callable[..., None]]:
    """A command from a function of its arguments and a `Call`: options are derived from the settings, the result is reported.

    on: whether it loads a target, works on the target of a run, or neither. reports: False if it returns nothing.
    numbers: those in its JSON, so that --fail-if is refused before the work; `*` stands for names of its own.
    unless: options that make another result of it.
    """

    def decorate(function: Callable[..., Result | None]) -> Callable[..., None]:
        run = _takes(settings, function)
        if reports:
            if numbers:
                run.numbers, run.unless = numbers, unless  # type: ignore[attr-defined]
            run = reports_result(run)
        if workers:
            run = takes_workers(run)
        return {"target": takes_target, "run": overrides_target}.get(on, lambda same: same)(run)

    return decorate


def _takes(settings: type[CommandSettings], function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that the settings declare; an argument of the function that has the name of one takes its place."""
    added = _without_own(function, {**_derived(settings), "quiet": (Quiet, False)})

    def run(description: Any = None, network: Any = None, **values: Any) -> Any:
        typed = {name: values.pop(name) for name in added}
        quiet = bool(typed.pop("quiet", values.get("quiet", False)))
        chosen = _read(settings, typed)
        named = frozenset(chosen)
        if all(typed.get(name) is None for name in _OF_RUN):
            chosen = {**_read(settings, settings_of_file(function.__name__, typed)), **chosen}
        if issubclass(settings, Written):
            chosen.setdefault("out", None)
        return function(**values, call=Call(function.__name__, chosen, named, description or {}, network, quiet))

    run = with_options(function, run, added, hidden=("call",), first=True)
    run.makes_run = issubclass(settings, Written)  # type: ignore[attr-defined]
    return run


def _read(settings: type[CommandSettings], typed: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed, as Python takes it; what no command takes is refused in the words of the command line."""
    values = {}
    for name, one in declared(settings).items():
        value = typed.get(one.parameter)
        value = None if value is None or value == [] else one.kind.parse(one.option.removeprefix("--"), value)
        if value is not None:
            _check(one, value)
            values[name] = value
    return values


def _check(one: Declared, value: Any) -> None:
    """Refuse a value in the words of the command line: `--limit 0`, not `limit=0`."""
    from neurotest.errors import BadInput

    try:
        one.kind.check(one.name, value)
    except BadInput as error:
        raise error.reworded(str(error).replace(f"{one.name}=", f"{one.option} ", 1)) from None


def takes_target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe a target; the command gets them as `description`, for `open_target`.

    An option that the command declares itself is not added. With --resume, what is not on the command line is None.
    """
    added = _without_own(command, _TARGET)

    def run(context: typer.Context, **values: Any) -> Any:
        resume = values.get("resume")
        if resume is not None:
            values = explicit(context, values)
        if all(values.get(name) is None for name in _HAS_DATA):
            values |= data_of_file(values)
        options = {name: values.pop(name) for name in added}
        threads = options.pop("threads", None)
        if resume is not None and threads is None and values.get("threads") is None:
            same_threads(resume)
        set_threads(threads)
        return command(**values, description=read_description(**options, toml=resume is None))

    return _describing(with_options(command, run, {**added, **_CONTEXT}, hidden=("description",)), added)


def _describing(command: Callable[..., Any], added: Iterable[str]) -> Callable[..., Any]:
    """Say which options describe the target: the help of a command leaves them out."""
    command.describing = tuple(added)  # type: ignore[attr-defined]
    return command


def takes_workers(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --workers and --ray: what the command does is done by them."""

    def run(**values: Any) -> Any:
        workers, ray = (values.pop(name) for name in _WORKERS)
        if workers is None and ray is None:
            return command(**values)
        from neurotest.scale.opening import workers as sharing

        set_threads(values.get("threads"))  # workers share them
        with sharing(workers, ray=ray):
            return command(**values)

    return with_options(command, run, _WORKERS)


def overrides_target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --target and the options that describe one to a command on a run; the command gets `network`, a TargetSpec or None.

    What is not on the command line is taken from the run.
    """
    added = {"target": (TargetAgain, None), **_without_own(command, _TARGET)}

    def run(context: typer.Context, **values: Any) -> Any:
        options = {name: value for name, value in explicit(context, values).items() if name in added}
        set_threads(options.pop("threads", None))
        spec = options.pop("target")
        others = {name: value for name, value in values.items() if name not in added}
        others |= data_of_file(others, stored=lambda: _names_training(others.get("run")))
        return command(**others, network=override(spec, read_description(**options, toml=False)))

    return _describing(with_options(command, run, {**added, **_CONTEXT}, hidden=("network",)), added)


def reports_result(command: Callable[..., Result]) -> Callable[..., None]:
    """Add --fail-if, --json and --quiet to a command that returns a `Result`, and --no-report and --track where it makes a run.

    The runs that it finishes get their page here, those that it changes a new one if they had one. Mistakes in conditions and
    sizes are reported before the work; notes in the JSON become remarks. A command that declares one of the options itself
    receives its value.
    """
    added = _without_own(command, {**_REPORT, "fail_if": (_fail_if(command), None)})
    if getattr(command, "makes_run", False) or ("out" in _own(command) and _own(command)["out"].annotation == Out):
        added |= {"no_report": (NoReport, False), "track": (Track, None)}

    def run(**values: Any) -> None:
        from neurotest.cli import show
        from neurotest.cli.pages import with_pages

        fail_if, as_json, quiet = (values.get(name) for name in _REPORT)
        if quiet:
            import warnings

            from neurotest.errors import Remark

            warnings.simplefilter("ignore", Remark)
        others = any(values.get(name) is not None for name in getattr(command, "unless", ()))
        show.check_names(fail_if, None if others else getattr(command, "numbers", None))
        if values.get("track") is not None:
            from neurotest.report.track import check_tracker

            check_tracker(values["track"])
        own = {name: value for name, value in values.items() if name not in added}
        content, print_result, *code = with_pages(lambda: command(**own), values, quiet=bool(quiet))
        for note in content.get("notes", ()):
            show.remark(note, quiet=bool(quiet))
        if as_json:
            show.print_json(content)
        else:
            print_result()
        show.check_fail_if(fail_if, content)
        if any(code):
            raise typer.Exit(code[0])

    return with_options(command, run, added)


def _fail_if(command: Callable[..., Any]) -> Any:
    """--fail-if with a number that the command has."""
    number = next((name for name in getattr(command, "numbers", ()) if "*" not in name), None)
    example = f", e.g. '{number}>0'" if number else ""
    return Annotated[
        list[str] | None,
        typer.Option("--fail-if", help=f"Exit 1 if this holds{example}. Every number in the JSON output can be named."),
    ]


@functools.cache  # each command is asked several times, and evaluating its annotations is most of the start-up
def _own(command: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(command, eval_str=True).parameters


def _without_own(command: Callable[..., Any], options: dict[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    own = _own(command)
    return {name: option for name, option in options.items() if name not in own}


def with_options(
    command: Callable[..., Any],
    run: Callable[..., Any],
    added: dict[str, tuple[Any, Any]],
    hidden: tuple[str, ...] = (),
    *,
    first: bool = False,
) -> Callable[..., Any]:
    """`run` with the command's name, text and parameters, those that are `added`, and none that are `hidden`.

    first: the help shows those that are added before the command's own.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [p.replace(kind=keyword) for name, p in _own(command).items() if name not in hidden]
    others = [inspect.Parameter(name, keyword, default=d, annotation=a) for name, (a, d) in added.items()]
    parameters = [*others, *own] if first else [*own, *others]
    functools.update_wrapper(run, command)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def explicit(context: typer.Context, values: dict[str, Any]) -> dict[str, Any]:
    """The values with None for everything that is only a default."""
    sources = {name: getattr(context.get_parameter_source(name), "name", "") for name in values}
    return {name: None if sources[name].startswith("DEFAULT") else value for name, value in values.items()}


def open_target(spec: str | None, description: dict[str, Any], resume: Path | None = None) -> Any:
    """The target a command works on: loaded or, for a run that is resumed, what overrides its stored description."""
    if resume is not None:
        return override(spec, description)
    if spec is None:
        return None
    from neurotest.target.load import load

    return load(spec, **description)


def override(spec: str | None, description: dict[str, Any]) -> Any:
    """What is to override a run's description of its target; None if nothing is."""
    from neurotest.target.class_names import read_classes
    from neurotest.target.load import parse_size
    from neurotest.target.spec import TargetSpec

    if spec is None and not description:
        return None
    values: dict[str, Any] = dict(description)
    if "weights" in values:
        from neurotest.reading import resolved, user_path

        values["weights"] = str(resolved(user_path(values["weights"], f"--weights {values['weights']}")))
    for name, read in (("size", parse_size), ("classes", read_classes)):
        if name in values:
            values[name] = read(values[name])
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return TargetSpec(spec=spec, **values)


def run_and_fault(run: str | Path, fault: Any) -> tuple[Path, Any]:
    """A run and a fault of it, which may be written RUN 541 or RUN#541."""
    text, mark, number = str(run).rpartition("#")
    if fault is None and mark and number.isdecimal() and not Path(run).exists():
        return Path(text), int(number)
    return Path(run), fault


def _names_training(path: Any) -> bool:
    """Whether a run says itself which training data it was made with."""
    if path is None:
        return False
    from neurotest.runs.store import Run

    with Run.open(path) as run:
        config = run["config"]
    return isinstance(config, dict) and config.get("train") is not None


def set_threads(threads: int | None) -> None:
    """Fix the number of threads of the forward pass, unless None."""
    if threads is None:
        return
    from neurotest.errors import BadInput

    if threads < 1:
        raise BadInput("out-of-range", "threads", f"--threads {threads}: expected an integer >= 1.")
    import torch

    torch.set_num_threads(threads)


def same_threads(path: Path) -> None:
    """Equal results need equal threads: a resumed campaign takes those it was started with."""
    from neurotest.runs.store import Run

    with Run.open(path) as run:
        config = run["config"]
    threads = config.get("threads") if isinstance(config, dict) else None
    if isinstance(threads, int) and 0 < threads <= 1024:
        set_threads(threads)
