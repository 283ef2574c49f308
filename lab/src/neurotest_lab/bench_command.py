"""`neurotest bench`: ratios of our work to a bare forward pass, taken in one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from neurotest.checks import count
from neurotest.cli import options as opt
from neurotest.cli import show

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Speed as ratios taken in one run, never as absolute times.")

Subjects = Annotated[list[str] | None, typer.Option("--subject", help="A zoo network (repeat; default: all embedded).")]
Peers = Annotated[bool, typer.Option("--peers", help="Measure dnn-tip, too (if it is installed).")]
Memory = Annotated[bool, typer.Option("--memory/--no-memory", help="Score a million generated inputs too.")]
Methods = Annotated[list[str] | None, typer.Option("--method", help="Only this method (repeat; default: all).")]
Peak = Annotated[bool, typer.Option("--peak/--no-peak", help="Measure the memory, in a process of its own, too.")]
Rounds = Annotated[bool, typer.Option("--rounds/--no-rounds", help="Time a round of adaptive among 100,000 inputs too.")]

# name: how often each pair is timed, what is measured, and options of its own
MEASURED: dict[str, tuple[int, str, dict[str, tuple[Any, Any]]]] = {
    "probe": (15, "A probed forward pass (all conv and dense layers as channels) over a bare one.", {}),
    "nss": (7, "NSS with originals over a pool, mutation included, over one bare pass (its floor is 2).", {}),
    "coverage": (
        7, "Updating a coverage state alone over a bare forward pass; with --peers, theirs over ours.", {"peers": (Peers, False)},
    ),
    "select": (
        5, "Selectors over the forward passes they need; memory for a million inputs; a round of adaptive among 100,000; with "
        "--peers, dnn-tip's CAM over ours.",
        {"peers": (Peers, False), "memory": (Memory, True), "rounds": (Rounds, True), "method": (Methods, None)},
    ),
    "fuzz": (5, "A campaign guided by KMNC over the bare passes it makes, and the published one-by-one loop over ours.", {}),
    "attack": (9, "A PGD step with the diversity regulariser over a plain one, by layer; the limit is 1.15.", {}),
    "clever": (
        3, "CLEVER over the bare backward passes it makes; the adversarial-robustness-toolbox's over ours, if installed.", {},
    ),
    "nsgen": (
        5, "Conductance of a path's layers over a bare forward pass (captum's beside, if installed), and an NSGen campaign.", {},
    ),
    "swarm": (5, "Swarms over the bare forward passes they make, and over one pass per position.", {}),
    "imagenet": (
        3, "DeepGini and KMNC on inputs of the size of photographs, over a bare forward loop (limit 1.15), and the memory "
        "they take (limit 2 GB).", {"peak": (Peak, True)},
    ),
}  # fmt: skip


def _command(work: str) -> Callable[..., None]:
    usual, about, own = MEASURED[work]

    def measured(
        subject: Subjects = None,
        repeats: Annotated[int, typer.Option("--repeats", help="How often each pair is timed; the median counts.")] = usual,
        threads: opt.Threads = None,
        quiet: opt.Quiet = False,
        **extra: Any,
    ) -> opt.Result:
        count("repeats", repeats, "the median of them counts")
        opt.set_threads(threads)
        return _measure(work, subject, repeats, quiet, **extra)

    measured.__name__, measured.__doc__ = work, about
    return opt.reports_result(opt.with_options(measured, lambda **options: measured(**options), own, hidden=("extra",)))


for _work in MEASURED:
    app.command(_work)(_command(_work))


@app.command("scale")
@opt.reports_result
def scale(
    images: Annotated[int, typer.Option("--images", help="How many are scored.")] = 20_000,
    repeats: Annotated[int, typer.Option("--repeats", help="How often each is timed; the median counts.")] = 3,
    ray: Annotated[bool | None, typer.Option("--ray/--no-ray", help="Workers of a local Ray, too (if it is installed).")] = None,
    subject: Annotated[str, typer.Option("--subject", help="A zoo network.")] = "cifar10-resnet20",
    quiet: opt.Quiet = False,
) -> opt.Result:
    """Throughput of two workers over one, one thread each, start-up excluded, and what is moved; on paper for many images."""
    count("images", images, "20000 by default")
    count("repeats", repeats, "the median of them counts")
    from neurotest_lab.bench.scale import extrapolated, measure

    with show.ticking("bench scale", quiet=quiet):
        content = measure(images, repeats, subject, ray=ray)
    rows = extrapolated(content)

    def tables() -> None:
        spread = content["spread"]
        cells = [[k, f"{r:.2f}x", f"{spread[k][0]:.2f} .. {spread[k][1]:.2f}"] for k, r in content["ratios"].items()]
        title = f"throughput over one worker, {images:,} images, median of {repeats}"
        show.table(title, ["work / subject / workers", "ratio", "middle half"], cells)
        show.table("on paper", list(rows[0]), [list(row.values()) for row in rows])

    return {**content, "on_paper": rows}, tables


def _measure(
    work: str, subjects: list[str] | None, repeats: int, quiet: bool, *, peers: bool = False, memory: bool = False,
    rounds: bool = False, method: list[str] | None = None, peak: bool = False,
) -> opt.Result:  # fmt: skip
    from neurotest_lab.bench import machine, run

    with show.ticking(f"bench {work}", quiet=quiet) as progress:
        measured = run(work, subjects, repeats=repeats, progress=progress, only=_settings(method))
    content: dict[str, Any] = {
        "ratios": {key: ratio.median for key, ratio in measured.items()},
        "spread": {key: [ratio.low, ratio.high] for key, ratio in measured.items()},
        "repeats": repeats,
        "machine": machine(),
    }
    if peers:
        from neurotest_lab.bench.peers import measure

        content["peers"] = measure(repeats, work)
    if memory:
        from neurotest_lab.bench.selection import memory as measure_memory

        content["memory"] = measure_memory()
    if rounds:
        from neurotest_lab.bench.rounds import measure as measure_rounds

        content["rounds"] = measure_rounds()
    if peak:
        from neurotest_lab.bench.imagenet import memory as measure_peak

        content["peak"] = measure_peak()
    return content, lambda: _print(content)


def _settings(methods: list[str] | None) -> list[str]:
    """Names of selectors that are measured, or none: all."""
    from neurotest.errors import BadInput, near
    from neurotest_lab.bench.selection import SCORED

    for name in methods or ():
        if name not in SCORED:
            raise BadInput("unknown-name", "method", f"--method {name}: bench select does not measure it. {near(name, SCORED)}")
    return methods or []


def _print(content: dict[str, Any]) -> None:
    if "memory" in content:
        kept = [[name, f"{m['peak_megabytes']:.1f} MB", f"{m['bytes_per_input']:.1f}"] for name, m in content["memory"].items()]
        show.table("memory for a million generated inputs", ["method", "peak", "bytes per input"], kept)
    if "rounds" in content:
        rounds = [[name, f"{r['labels']:,}", f"{r['seconds']:.2f} s"] for name, r in content["rounds"].items()]
        pool, batch = (f"{next(iter(content['rounds'].values()))[key]:,}" for key in ("pool", "batch"))
        title = f"processor time of a round of adaptive: {batch} labels, learned from, the next {batch} of {pool} proposed"
        show.table(title, ["pool", "labels so far", "round"], rounds)
    if "peers" in content:
        numbers = [[key, f"{value:.4g}"] for key, value in content["peers"].items()]
        show.table("cost of theirs over ours, in one process", ["", "number"], numbers)
    if "peak" in content:
        most = content["peak"]
        show.table("memory", ["inputs", "peak"], [[f"{most['images']:,}", f"{most['peak_megabytes']:,.0f} MB"]])
    spread = content["spread"]
    rows = [[k, f"{ratio:.2f}x", f"{spread[k][0]:.2f} .. {spread[k][1]:.2f}"] for k, ratio in content["ratios"].items()]
    title = f"cost over a bare forward pass, median of {content['repeats']}"
    show.table(title, ["work / subject / setting", "ratio", "middle half"], rows)
