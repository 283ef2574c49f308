"""From a spec such as `zoo:fashion-lenet5` or `py:model.py:build` to a target."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neurotest import registry
from neurotest.checks import shown
from neurotest.errors import BadInput, Remark, near
from neurotest.images import Preprocess
from neurotest.public import public
from neurotest.reading import reason, refuse_untrusted, resolved, user_path
from neurotest.settings import TargetSettings
from neurotest.target.code import from_text, noting_imports, run_file
from neurotest.target.target import Target, WeightsFile
from neurotest.target.weights import load_weights

LARGEST_INPUT = 1 << 32  # values of one input
# What a target knows of itself.
_DECLARED = ("bounds", "mean", "std", "shape", "classes", "outputs", "layout", "precision", "weights", "preprocess", "reference")
_WEIGHTS = "weights need the network they are for; write py:FILE:build, where build() returns it, and --weights {0}"
_OTHER = "networks of PyTorch are tested; rebuild it as a module that build() of py:FILE:build returns"
FILES = {
    **dict.fromkeys((".pt", ".pth", ".safetensors", ".ckpt", ".bin", ".tar"), _WEIGHTS),
    **dict.fromkeys((".h5", ".keras", ".pb", ".tflite", ".pkl", ".joblib"), _OTHER),
}
RANDOM_WEIGHTS = "{} has random weights: two calls give different ones, so nothing measured on it repeats. Pass --weights FILE."


@public(TargetSettings)
def load(spec: str | nn.Module | Target, **settings: Any) -> Target:
    """Load the network under test; what is given here overrides what the source says of itself.

    settings: the fields of `TargetSettings`. span, bins: of outputs="regression", the range of the value and into how many
    classes it is cut (25 by default). tolerance: how far it may be off before that is a fault, in its unit or a share of the
    span such as 5% (default: a class wide). resize, crop, grey, interpolation: how images of any size become its inputs, see
    `neurotest.images.Preprocess`. rate: samples a second of the audio it takes.
    layout, precision: `channels_last`, `bfloat16`: faster on some processors, with other rounding.
    device: where it runs; by default a target stays where it is and everything else goes to the CPU.
    trust_pickle: open a `.pt2` even if it could run code.
    """
    described = TargetSettings(**settings)
    options, fitting, weights = described.arguments("target"), described.arguments("preprocess"), described.weights
    options |= {name: read(options[name]) for name, read in READ.items() if name in options}
    device = _device(described.device or (str(spec.device) if isinstance(spec, Target) else "cpu"))
    if isinstance(spec, Target) and not options and not fitting and weights is None and spec.device == torch.device(device):
        return spec
    text, trust_pickle = spec if isinstance(spec, str) else "", bool(described.trust_pickle)
    file = None if weights is None else resolved(user_path(weights, f"weights {weights}"))
    network = _source(spec, trust_pickle, file) if isinstance(spec, str) else spec
    origin: dict[str, Any] = {"spec": text, "device": device, "trust_pickle": trust_pickle}
    if fitting:
        options["preprocess"] = Preprocess(**{**(vars(network.preprocess) if isinstance(network, Target) else {}), **fitting})
    if file is not None:
        load_weights(network.module if isinstance(network, Target) else network, file)
        origin |= {"weights": WeightsFile(file, sha256(file)), "reference": None}
    if isinstance(network, Target):
        declared = {**{name: getattr(network, name) for name in _DECLARED}, **_declared_bins(network, options)}
        origin["spec"] = text or (network.spec if network.loaded else "")
        return Target(network.module, **{**declared, **origin, **options})
    if text:
        network.eval()  # built for this run alone; a module somebody else holds is refused in training mode instead
    return Target(network, **origin, **options)


def _declared_bins(target: Target, options: Mapping[str, Any]) -> dict[str, Any]:
    """The bins of a target that predicts a regression value, unless it is described anew; their names follow from them."""
    if target.bins is None or options.get("outputs", "regression") != "regression":
        return {}
    names = {"classes": None} if target.classes == target.bins.names else {}
    bins = target.bins
    tolerance = None if bins.tolerance == bins.width else bins.tolerance
    return {"span": (bins.low, bins.high), "bins": bins.count, "tolerance": tolerance, **names}


def sha256(file: Path) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def parse_size(size: str | Sequence[int] | None) -> tuple[int, ...] | None:
    """`1x28x28` or a sequence as a tuple."""
    if size is None:
        return None
    try:
        shape = tuple(int(part) for part in (size.lower().split("x") if isinstance(size, str) else size))
    except (TypeError, ValueError, OverflowError):
        shape = ()
    if not 0 < len(shape) <= 8 or min(shape) < 1 or math.prod(shape) > LARGEST_INPUT:
        raise BadInput("syntax", "size", f"size={shown(size)}: expected channels x height x width, for example 1x28x28.")
    return shape


def _classes(classes: Any) -> Any:
    from neurotest.target.class_names import read_classes  # from a run, perhaps

    return read_classes(classes)


READ: dict[str, Callable[[Any], Any]] = {"shape": parse_size, "classes": _classes}  # arguments that may be text


def _device(device: str) -> str:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise BadInput("unsupported", "device", f"device={device!r} is not available here: {reason(error)}") from error
    return device


def _source(spec: str, trust_pickle: bool, weights: Path | None) -> nn.Module | Target:
    prefix, colon, rest = spec.partition(":")
    if not colon or prefix not in registry.names("target source"):
        raise BadInput("missing", "source", _no_source(spec))
    source = registry.find("target source", prefix)
    if not rest:
        raise BadInput("missing", "target", f"{spec!r} names nothing after {prefix}: {source.summary}")
    refuse_untrusted(spec, f"the network {shown(spec)}")
    options: dict[str, Any] = {"trust_pickle": trust_pickle, "weights": weights}
    options = {name: options[name] for name in inspect.signature(source.make).parameters if name in options}
    before = torch.get_rng_state()
    network: nn.Module | Target = source.make(rest, **options)
    # Whoever drew no random number has no random weights; others are built once more, to see whether they are the same.
    drew = not torch.equal(before, torch.get_rng_state())
    if weights is None and prefix == "py" and drew and _differ(network, source.make(rest)):
        warnings.warn(RANDOM_WEIGHTS.format(spec), Remark, stacklevel=3)
    return network


def _differ(one: nn.Module | Target, other: nn.Module | Target) -> bool:
    first, second = (n.module if isinstance(n, Target) else n for n in (one, other))
    pairs = zip(first.parameters(), second.parameters(), strict=False)
    return any(a.shape != b.shape or not torch.equal(a, b) for a, b in pairs)


def _no_source(spec: str) -> str:
    from neurotest import zoo

    if ":" in spec and spec.partition(":")[0] in registry.names("data source"):
        return f"{spec!r} is data, not a network: the target comes first and the data second; are they swapped?"
    if (suffix := Path(spec).suffix.lower()) in FILES:
        return f"{spec!r} has no source: {FILES[suffix].format(spec)}."
    name = spec.rpartition(":")[2] or spec
    spellings = [f"zoo:{name}"] if name in zoo.names() else []
    if name.endswith(".py") or Path(spec).suffix == ".py":
        spellings.append(f"py:{spec}:build")
    if (suffix := Path(spec).suffix) in (".pt2", ".onnx"):
        spellings.append(f"{suffix[1:]}:{spec}")
    spellings = spellings or [f"py:{name}:build", f"zoo:{zoo.nearest(name)}"]
    sources = ", ".join(f"{name}:" for name in registry.entries("target source"))
    return f"{spec!r} has no source (known: {sources}). Did you mean {' or '.join(spellings)} ?"


@registry.register("target source", "zoo", paper="", cost="reads one small file")
def _from_zoo(name: str) -> Target:
    """`zoo:NAME`: a network trained by this project (`neurotest zoo list`)."""
    from neurotest import zoo

    subject = zoo.find(name)
    module = subject.load()
    fitting = Preprocess(rate=subject.rate)
    described: dict[str, Any] = {"shape": subject.shape, "bounds": subject.bounds, "preprocess": fitting}
    if subject.span is not None:
        return Target(module, outputs="regression", span=subject.span, tolerance=zoo.TOLERANCE, **described)
    return Target(module, classes=subject.classes, **described)


@registry.register("target source", "py", paper="", cost="runs your code")
def _from_python(place: str) -> nn.Module | Target:
    """`py:FILE_OR_MODULE:CALLABLE`: your own code; the callable takes nothing and returns an nn.Module or a neurotest.Target."""
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        message = f"py:{place} lacks its callable: write py:{place.strip(':')}:build, where build() returns the network."
        raise BadInput("missing", "callable", message)
    # A file finds its neighbours, as when Python runs it; a module is looked for in the current directory too.
    if is_file(where):
        where = str(user_path(where, f"py:{place!r:.200}" if "\0" in place else f"py:{place:.200}"))
    with (
        on_path(resolved(where).parent, 0) if is_file(where) else on_path(Path.cwd()),
        from_text(),
        noting_imports(where, is_file(where)),
    ):
        build = _callable(where, name)
        try:
            network = build()
        except (Exception, SystemExit) as error:  # a stranger's code may raise anything
            raise BadInput("failed", "callable", f"py:{place}: {name}() failed: {type(error).__name__}: {error}") from error
    if not isinstance(network, (nn.Module, Target)):
        message = f"py:{place}: {name}() returned a {type(network).__name__}; expected an nn.Module or a neurotest.Target."
        raise BadInput("wrong-type", "callable", message)
    return network


def is_file(where: str) -> bool:
    return where.endswith(".py") or os.path.isfile(where)  # os.path: text that cannot be a path is no file, and no error


@contextmanager
def on_path(folder: Path, place: int | None = None) -> Iterator[None]:
    """Let Python look for modules in a folder, by default after all others."""
    sys.path.insert(len(sys.path) if place is None else place, str(folder))
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(str(folder))


def _callable(where: str, name: str) -> Callable[[], Any]:
    try:
        code = run_file(Path(where)) if is_file(where) else importlib.import_module(where)
    except BadInput:
        raise
    except (Exception, SystemExit) as error:  # a stranger's code may raise anything
        raise BadInput("failed", "import", f"py:{where}: cannot be imported: {type(error).__name__}: {error}") from error
    build = getattr(code, name, None)
    if not callable(build):
        defined = {n: value for n, value in vars(code).items() if getattr(value, "__module__", "") == code.__name__}
        callables = [n for n, value in defined.items() if callable(value) and not n.startswith("_")]
        raise BadInput("unknown-name", "callable", f"py:{where} has no callable {name!r}. {near(name, callables)}")
    return build  # type: ignore[no-any-return]
