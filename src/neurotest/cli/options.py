"""Options that mean the same in every command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
Out = Annotated[Path | None, typer.Option("--out", help="Directory of the run (default: ./neurotest-runs/COMMAND-TIME).")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of every random choice.")]
Limit = Annotated[int | None, typer.Option("--limit", help="Use only the first so many inputs.")]
Batch = Annotated[int, typer.Option("--batch", help="Inputs per forward pass.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Threads of the forward pass (default: torch's choice).")]
Device = Annotated[str, typer.Option("--device", help="Where the network runs: cpu, cuda, mps.")]
Layers = Annotated[str | None, typer.Option("--layers", help="Globs over layer names, pre_activation or post_activation.")]
Neuron = Annotated[str | None, typer.Option("--neuron", help="channel (one value per map) or unit (every element).")]
Strict = Annotated[bool, typer.Option("--strict", help="Fail on a corrupt or odd-sized file instead of skipping it.")]
FailIf = Annotated[
    list[str] | None, typer.Option("--fail-if", help="Exit 1 if this holds, e.g. 'fdr>0.05' (any number of the JSON).")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no remarks.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Say more.")]

Weights = Annotated[
    Path | None, typer.Option("--weights", help="State dict for a py: target (safetensors, or a plain torch file).")
]
TrustPickle = Annotated[bool, typer.Option("--trust-pickle", help="Open a pt2: archive even if it could run code.")]
Bounds = Annotated[tuple[float, float] | None, typer.Option("--bounds", help="Range of the inputs, e.g. 0 1.")]
Mean = Annotated[str | None, typer.Option("--mean", help="Preprocessing: mean per channel, comma separated.")]
Std = Annotated[str | None, typer.Option("--std", help="Preprocessing: standard deviation per channel, comma separated.")]
Size = Annotated[str | None, typer.Option("--size", help="Size of one input, e.g. 1x28x28.")]
Classes = Annotated[Path | None, typer.Option("--classes", help="File with one class name per line.")]
Outputs = Annotated[str | None, typer.Option("--outputs", help="What the network returns: logits, probs or sigmoid.")]


_TARGET: dict[str, tuple[Any, Any]] = {
    "weights": (Weights, None),
    "trust_pickle": (TrustPickle, False),
    "bounds": (Bounds, None),
    "mean": (Mean, None),
    "std": (Std, None),
    "size": (Size, None),
    "classes": (Classes, None),
    "outputs": (Outputs, None),
    "device": (Device, "cpu"),
    "threads": (Threads, None),
}


def takes_target(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that describe a target; the command gets them as `described`, ready for `load(spec, **described)`.

    One that the command declares itself is its own.
    """
    own = inspect.signature(command, eval_str=True).parameters.values()
    target = {name: option for name, option in _TARGET.items() if name not in {p.name for p in own}}
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=d, annotation=a) for name, (a, d) in target.items()]

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        said = {name: given.pop(name) for name in target}
        rest = {name: said.pop(name) for name in ("trust_pickle", "device") if name in said}
        set_threads(said.pop("threads", None))
        command(**given, described={**describe(**said), **rest})

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own if p.name != "described"] + added
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


def describe(**said: Any) -> dict[str, Any]:
    """A target's description: what the command line says, over what ./neurotest.toml says under [target]."""
    import sys
    import tomllib

    from neurotest.errors import BadInput, near

    for key in ("mean", "std"):
        if said.get(key) is not None:
            said[key] = numbers(key, said[key])
    told = {key: value for key, value in said.items() if value is not None}
    file = Path("neurotest.toml")
    if not file.is_file():
        return told
    try:
        found = tomllib.loads(file.read_text()).get("target", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"neurotest.toml cannot be read: {error}") from error
    for key in found:
        if key not in said:  # a target to load is not among them: a file found by chance must not run code
            raise BadInput(f"neurotest.toml: [target] has no key {key!r}. {near(key, said)}")
    used = sorted(set(found) - set(told))
    if used:
        print(f"neurotest: {', '.join(used)} from ./neurotest.toml", file=sys.stderr)
    return {**found, **told}


def numbers(name: str, text: str) -> list[float]:
    from neurotest.errors import BadInput

    try:
        return [float(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise BadInput(f"--{name} {text!r}: expected numbers separated by commas, for example 0.5,0.5,0.5.") from None


def set_threads(threads: int | None) -> None:
    """Fix the number of threads of the forward pass, if asked to."""
    if threads is None:
        return
    from neurotest.errors import BadInput

    if threads < 1:
        raise BadInput(f"--threads {threads}: expected an integer >= 1.")
    import torch

    torch.set_num_threads(threads)


def at_least(name: str, value: int | None, least: int = 1) -> None:
    from neurotest.errors import BadInput

    if value is not None and value < least:
        raise BadInput(f"--{name} {value}: expected an integer >= {least}.")
