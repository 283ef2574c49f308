"""`neurotest bench`: ratios of our work to a bare forward pass, taken in one run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neurotest.cli import options as opt

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Speed as ratios taken in one run, never as absolute times.")

Subjects = Annotated[list[str] | None, typer.Option("--subject", help="A zoo network (repeat; default: all embedded).")]
Repeats = Annotated[int, typer.Option("--repeats", help="How often each pair is timed; the median counts.")]


@app.command("probe")
def probe(
    subject: Subjects = None, repeats: Repeats = 15, threads: opt.Threads = None, json: opt.Json = False, quiet: opt.Quiet = False
) -> None:
    """A probed forward pass (all conv and dense layers as channels) over a bare one."""
    _run("probe", subject, repeats, threads, json, quiet)


@app.command("nss")
def nss(
    subject: Subjects = None, repeats: Repeats = 7, threads: opt.Threads = None, json: opt.Json = False, quiet: opt.Quiet = False
) -> None:
    """NSS with originals over a pool, mutation included, over one bare pass (its floor is 2)."""
    _run("nss", subject, repeats, threads, json, quiet)


@app.command("coverage")
def coverage(
    subject: Subjects = None,
    repeats: Repeats = 7,
    peers: Annotated[
        bool, typer.Option("--peers", help="Install dnn-tip in a throwaway environment and measure it beside ours.")
    ] = False,
    threads: opt.Threads = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Updating a coverage state alone over a bare forward pass; with --peers, theirs over ours."""
    _run("coverage", subject, repeats, threads, json, quiet, peers=peers)


@app.command("select")
def select(
    subject: Subjects = None,
    repeats: Repeats = 5,
    peers: Annotated[
        bool, typer.Option("--peers", help="Install dnn-tip in a throwaway environment and measure its CAM beside ours.")
    ] = False,
    memory: Annotated[bool, typer.Option("--memory/--no-memory", help="Score a million generated inputs too.")] = True,
    threads: opt.Threads = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Selectors over the forward passes they need; memory for a million inputs; with --peers, dnn-tip's CAM over ours."""
    _run("select", subject, repeats, threads, json, quiet, peers=peers, memory=memory)


@app.command("fuzz")
def fuzz(
    subject: Subjects = None, repeats: Repeats = 5, threads: opt.Threads = None, json: opt.Json = False, quiet: opt.Quiet = False
) -> None:
    """A campaign guided by KMNC over the bare forward passes it makes, and the published one-by-one loop over ours."""
    _run("fuzz", subject, repeats, threads, json, quiet)


@app.command("nsgen")
def nsgen(
    subject: Subjects = None, repeats: Repeats = 5, threads: opt.Threads = None, json: opt.Json = False, quiet: opt.Quiet = False
) -> None:
    """Conductance of a path's layers over a bare forward pass (captum's beside, if installed), and an NSGen campaign over one."""
    _run("nsgen", subject, repeats, threads, json, quiet)


@app.command("swarm")
def swarm(
    subject: Subjects = None, repeats: Repeats = 5, threads: opt.Threads = None, json: opt.Json = False, quiet: opt.Quiet = False
) -> None:
    """Swarms over the bare forward passes they make, and over one pass per position."""
    _run("swarm", subject, repeats, threads, json, quiet)


@app.command("attack")
def attack(
    subject: Subjects = None, repeats: Repeats = 9, threads: opt.Threads = None, json: opt.Json = False, quiet: opt.Quiet = False
) -> None:
    """A PGD step with the diversity regulariser over a plain one, by layer; the limit is 1.15."""
    _run("attack", subject, repeats, threads, json, quiet)


def _run(
    work: str,
    subjects: list[str] | None,
    repeats: int,
    threads: int | None,
    json: bool,
    quiet: bool,
    *,
    peers: bool = False,
    memory: bool = False,
) -> None:
    from neurotest.cli import show

    opt.at_least("repeats", repeats)
    opt.set_threads(threads)
    from neurotest.bench import machine, run

    with show.ticking(f"bench {work}", quiet=quiet) as progress:
        measured = run(work, subjects, repeats=repeats, progress=progress)
    theirs: dict[str, Any] = {}
    if peers:
        from neurotest.bench.peers import measure

        theirs = measure(repeats, work)
    content: dict[str, Any] = {
        "ratios": {key: ratio.median for key, ratio in measured.items()},
        "spread": {key: [ratio.low, ratio.high] for key, ratio in measured.items()},
        "repeats": repeats,
        "machine": machine(),
    }
    if peers:
        content["peers"] = theirs
    if memory:
        from neurotest.bench.selection import memory as held

        content["memory"] = held()
    if json:
        show.print_json(content)
        return
    if memory:
        kept = [[name, f"{m['peak_megabytes']:.1f} MB", f"{m['bytes_per_input']:.1f}"] for name, m in content["memory"].items()]
        show.table("memory for a million generated inputs", ["method", "peak", "bytes per input"], kept)
    if peers:
        told = [[key, f"{value:.4g}"] for key, value in theirs.items()]
        show.table("cost of theirs over ours, in one process", ["", "number"], told)
    rows = [[key, f"{r.median:.2f}x", f"{r.low:.2f} .. {r.high:.2f}"] for key, r in measured.items()]
    show.table(f"cost over a bare forward pass, median of {repeats}", ["work / subject / setting", "ratio", "middle half"], rows)
