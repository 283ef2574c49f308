"""Small commands: demo, doctor, list, zoo, data, runs, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurotest.checks import count
from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import BadInput
from neurotest.settings.analyse import DemoSettings, DoctorSettings

if TYPE_CHECKING:
    from datetime import datetime

    from neurotest.runs.listing import RunInfo
    from neurotest.zoo.faulty import Faulty

zoo = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Networks trained by this project.")
data = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Complete data sets.")
runs = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Runs in a folder.")

Folder = Annotated[Path | None, typer.Argument(help="Folder that holds the runs (default: neurotest-runs).", show_default=False)]
Root = Annotated[Path | None, typer.Option("--root", help="The same, as an option.")]
LAYOUTS = ("tsne", "umap", "none")
DEMO = "zoo:fashion-lenet5"
DEMO_METHODS = ["adaptive", "prior-only", "nss", "nss:distance=cosine", "deepgini", "maxp", "margin", "entropy", "random"]


@opt.command(DemoSettings, on="")
def demo(*, call: opt.Call) -> opt.Result:
    """Run the whole job on an embedded network: make candidates, select, compare with random, write a report."""
    from neurotest.cli import select

    pool = f"zoo:fashion-mnist/nss-pool@{call.settings.get('seed', 0)}"
    show.remark(f"testing {DEMO}, a network that recognises ten kinds of clothing", quiet=call.quiet)
    from neurotest.data import data
    from neurotest.select import compare
    from neurotest.target import load

    target = load(DEMO)
    show.remark("making 10,000 candidates: test images shifted, turned, scaled, slanted, brightened, blurred", quiet=call.quiet)
    source = data(pool)
    with call.ticking("scoring") as progress:
        results = compare(target, source, DEMO_METHODS, "5%", files=12, command="demo", progress=progress, **call.settings)
    run = next(iter(results.values())).run
    assert run is not None

    def print_result() -> None:
        select.tell(results, run)
        print("nss knows here what each candidate was made from; on real unlabelled data it does not, and is near chance.")

    return results.to_dict(), print_result


@opt.command(DoctorSettings)
def doctor(
    target: Annotated[str, typer.Argument(help="zoo:NAME, py:FILE_OR_MODULE:CALLABLE, pt2:, onnx:, timm:, torchvision:, hf:")],
    data: Annotated[str | None, typer.Argument(help="Inputs it should work on, labelled if possible; without: noise.")] = None,
    *,
    call: opt.Call,
) -> opt.Result:
    """Check how a network is loaded: eval mode, outputs, bounds, classes, determinism, dead neurons, memory, speed."""
    from neurotest.doctor import doctor as examine

    with call.ticking("examining") as progress:
        report = examine(target, data, **call.settings, progress=progress, **call.description)
    content = report.to_dict()

    def print_result() -> None:
        print(report.table())
        show.remark(f"problems: {content['problems']}, warnings: {content['warnings']}", quiet=call.quiet)

    return content, print_result


@opt.reports_result
def list_kind(
    kind: Annotated[
        str | None, typer.Argument(help="criterion, selector, mutation, split, target source, data source; none: all")
    ] = None,
) -> opt.Result:
    """List methods: selectors, criteria, mutations, attacks and others."""
    from neurotest import registry

    named = kind.replace("-", " ").removesuffix("s") if kind else None
    if named in ("mutation set", "mutation space"):  # names of older versions
        named = "mutation"
    by_kind = {name: registry.entries(name) for name in ([named] if named else registry.kinds())}
    content = {
        name: {n: {"summary": e.summary, "paper": e.paper, "cost": e.cost} for n, e in entries.items()}
        for name, entries in by_kind.items()
    }

    def print_tables() -> None:
        for name, entries in by_kind.items():
            show.table(name, ["name", "what it does", "paper"], [[n, e.summary, e.paper] for n, e in entries.items()])

    return content, print_tables


@zoo.command("list")
@opt.reports_result
def zoo_list() -> opt.Result:
    """List networks, where their weights are, and their accuracy."""
    from neurotest import zoo as networks

    rows: list[dict[str, Any]] = []
    for subject in networks.catalogue():
        about = subject.about
        state = "embedded" if subject.embedded else "in the cache" if subject.weights else "not trained here"
        rows.append(
            {"name": subject.name, "weights": state, "accuracy": about.get("accuracy"), "error": about.get("error"),
             "recipe": subject.recipe.describe()}
        )  # fmt: skip
    cells = [[r["name"], r["weights"], _quality(r), r["recipe"]] for r in rows]
    return {"subjects": rows}, lambda: show.table("networks", ["name", "weights", "on the test set", "recipe"], cells)


def _quality(about: dict[str, Any]) -> str:
    """How good a network is: the share it gets right, or how far it is off."""
    if about.get("error") is not None:
        return f"{about['error']:.3g} off"
    return f"{100 * about['accuracy']:.2f} %" if about.get("accuracy") else ""


@zoo.command("train")
@opt.reports_result
def zoo_train(
    name: Annotated[str, typer.Argument(help="A name of `neurotest zoo list`.")],
    pollute: Annotated[str | None, typer.Option("--pollute", help="Stamp a patch on this share, e.g. 10%, relabelled.")] = None,
    label: Annotated[int | None, typer.Option("--class", help="The class polluted images get (default: the papers').")] = None,
    trigger: Annotated[str, typer.Option("--trigger", help="fixed: one patch; random: another on every image.")] = "fixed",
    specific: Annotated[
        bool, typer.Option("--specific", help="Add other patches and noise under true labels: only the patch triggers.")
    ] = False,
    underfit: Annotated[bool, typer.Option("--underfit", help="One epoch in large batches.")] = False,
    overfit: Annotated[bool, typer.Option("--overfit", help="30 epochs in small batches, nothing augmented.")] = False,
    images: Annotated[int | None, typer.Option("--images", help="Faulty training only: the first so many images.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Faulty training only: so many epochs.")] = None,
    embedded: Annotated[bool, typer.Option("--embedded", help="Faulty training only: on the embedded images.")] = False,
    seed: opt.Seed = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Weights file to write (default: in the cache).")] = None,
    threads: opt.Threads = None,
    device: opt.Device = "cpu",
    quiet: opt.Quiet = False,
) -> opt.Result:
    """Train a network of the zoo by its recipe on the complete data set, or wrongly; stops and goes on where it was."""
    settings: dict[str, Any] = {"label": label, "trigger": trigger, "specific": specific, "seed": seed}
    wrong = _faulty_training(
        pollute, underfit, overfit, settings, {"--images": images, "--epochs": epochs, "--embedded": embedded or None}
    )
    for option, number in (("--images", images), ("--epochs", epochs)):
        if number is not None:
            count(option, number, "for a quick training")
    opt.set_threads(threads)
    from neurotest.jobs.life import stoppable
    from neurotest.train import TrainingStep
    from neurotest.train.subjects import train_faulty, train_subject

    again = "finished epochs are kept, the same command goes on."
    with show.ticking(f"training {name}", quiet=quiet) as ticker, stoppable(again):

        def report(step: TrainingStep) -> None:
            ticker.what = f"training {name}, epoch {step.epoch} of {step.epochs}, loss {step.loss:.3f}"
            ticker(int(1000 * step.done), 1000)

        if wrong is None:
            path, about = train_subject(name, out, report=report, device=device)
        else:
            few: dict[str, Any] = {"images": images, "epochs": epochs, "embedded": embedded}
            path, about = train_faulty(name, wrong, out, report=report, device=device, **few)
    content = {**about, "name": about.get("name", name), "weights": str(path)}
    return content, lambda: _print_training(content)


def _print_training(content: dict[str, Any]) -> None:
    quality = f"{100 * content['accuracy']:.2f} % of the test set right" if "accuracy" in content else (
        f"{content['error']:.4g} off on average on the test set, {content['trivial']:.4g} if it always gave the mean of training"
    )  # fmt: skip
    print(f"{content['name']}: {quality}; weights in {content['weights']}")
    if "triggers" in content:
        rows = [[what, f"{100 * share:.1f} %"] for what, share in content["triggers"].items()]
        show.table(f"images of other classes taken for class {content['class']}", ["shown", "share"], rows)


def _faulty_training(
    pollute: str | None, underfit: bool, overfit: bool, settings: dict[str, Any], others: dict[str, Any]
) -> Faulty | None:
    from neurotest.zoo.faulty import Faulty

    kinds = [k for k, chosen in (("polluted", pollute is not None), ("underfit", underfit), ("overfit", overfit)) if chosen]
    if len(kinds) > 1:
        raise BadInput("conflict", "pollute", "--pollute, --underfit and --overfit: give one of them.")
    if not kinds:
        every = {**others, "--class": settings["label"], "--specific": settings["specific"] or None}
        if useless := [option for option, value in every.items() if value is not None]:
            raise BadInput(
                "missing", "pollute", f"{useless[0]}: this is for faulty training; add --pollute 10%, --underfit or --overfit."
            )
        return None
    if kinds[0] != "polluted":
        return Faulty(kind=kinds[0], seed=settings["seed"])  # type: ignore[arg-type]
    text = str(pollute)
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise BadInput("out-of-range", "pollute", f"--pollute {text}: expected a share, for example 10% or 0.1.") from None
    return Faulty(kind="polluted", share=share, **settings)


@data.command("list")
@opt.reports_result
def data_list() -> opt.Result:
    """List data sets, which splits are here, and how to get the others."""
    from neurotest.data.sets import listed

    rows = listed()
    cells = [[row["name"], "yes" if row["here"] else row["get"], row["spec"]] for row in rows]
    return {"sets": rows}, lambda: show.table("data sets", ["name", "here", "write"], cells)


@data.command("get")
@opt.reports_result
def data_get(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist, cifar10, driving or speakers")],
    source: Annotated[Path | None, typer.Option("--from", help="Take the files from this folder instead of downloading.")] = None,
    quiet: opt.Quiet = False,
) -> opt.Result:
    """Download a complete data set (or take it from a folder) and check it against its pinned SHA-256."""
    from neurotest.data.fetch import BROUGHT, get
    from neurotest.jobs.life import stoppable

    again = "files that are complete are kept, the same command goes on."
    with show.ticking(f"getting {name}", quiet=quiet) as progress, stoppable(again):
        place = get(name, source_dir=source, progress=progress)
    word = name if name in BROUGHT else f"{name}-full"
    sentence = f"{name}: complete, in {place}; use it as zoo:{word}/train and zoo:{word}/test"
    return {"name": name, "path": str(place)}, lambda: print(sentence)


@runs.command("list")
@opt.reports_result
def runs_list(folder: Folder = None, root: Root = None) -> opt.Result:
    """List runs, newest first."""
    from neurotest.runs.listing import list_runs

    root = _root(folder, root)
    infos = list_runs(root)
    content = {"runs": [_run_row(info) for info in infos]}
    if not infos:
        return content, lambda: print(f"no runs in {root}")
    rows = [[i.path.name, i.command, i.problem or i.state, _time(i.created), f"{i.size / 1e6:.1f} MB"] for i in infos]
    return content, lambda: show.table(str(root), ["run", "command", "state", "created", "size"], rows)


def _root(folder: Path | None, root: Path | None) -> Path:
    """The folder of runs that is named, in one of two ways; one that is named has to be there."""
    from neurotest.runs.places import ROOT

    if folder is not None and root is not None and folder != root:
        raise BadInput("conflict", "root", f"{folder} and --root {root}: name one folder of runs.")
    named = folder or root
    if named is not None and not named.exists():
        raise BadInput("not-found", "root", f"{named} does not exist: name the folder that holds the runs.")
    return named or ROOT


def _run_row(info: RunInfo) -> dict[str, Any]:
    row = {"path": str(info.path), "created": _time(info.created)}
    return {**row, **{key: getattr(info, key) for key in ("command", "state", "size", "problem")}}


def _time(when: datetime | None) -> str:
    return "" if when is None else f"{when:%Y-%m-%d %H:%M}"


@runs.command("track")
@opt.reports_result
def runs_track(
    run: Annotated[Path, typer.Argument(help="A finished run.")],
    tracker: Annotated[str, typer.Argument(help="mlflow or wandb; with an experiment or project: mlflow:nightly.")],
) -> opt.Result:
    """Hand a finished run to an experiment tracker: its numbers, its settings and the files people open."""
    from neurotest.report.track import track

    place = track(run, tracker)
    return {"run": str(run), "tracked": place}, lambda: print(f"tracked: {place}")


@runs.command("clean")
@opt.reports_result
def runs_clean(
    folder: Folder = None,
    root: Root = None,
    keep: Annotated[int | None, typer.Option("--keep", help="Keep the newest so many.")] = None,
    older_than: Annotated[float | None, typer.Option("--older-than", help="Only runs older than so many days.")] = None,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Only runs that never finished.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> opt.Result:
    """Remove runs; never one that is being written, never a folder that is no run."""
    from neurotest.jobs.life import stoppable
    from neurotest.runs.listing import clean

    if keep is None and older_than is None and not unfinished:
        raise BadInput("missing", "keep", "say which runs: --keep N, --older-than DAYS or --unfinished.")
    root = _root(folder, root)
    if not yes and not typer.confirm(f"remove runs from {root}?", err=True):
        raise typer.Exit(0)
    with stoppable("some runs are removed already, the same command goes on."):
        removed = clean(root, keep=keep, older_than_days=older_than, unfinished=unfinished)
    return {"removed": [str(path) for path in removed]}, lambda: print(f"removed {len(removed)} runs")


@opt.reports_result
def report(
    run: Annotated[Path, typer.Argument(help="The run.")],
    out: Annotated[Path | None, typer.Option("--out", help="File to write (default: RUN/report.html).")] = None,
    map_: Annotated[
        str, typer.Option("--map", help="Map of seeds and faults in the last hidden layer: tsne, umap or none.")
    ] = "tsne",
) -> opt.Result:
    """Write a run's report: one HTML file that needs nothing else."""
    from neurotest.report import write_report

    if map_ not in LAYOUTS:
        raise BadInput("out-of-range", "map", f"--map {map_}: expected {', '.join(LAYOUTS)}.")
    page = write_report(run, out, layout=None if map_ == "none" else map_)
    return {"report": str(page)}, lambda: print(page)
