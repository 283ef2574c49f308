"""Which layers a network has, found by watching what runs: one surveyed forward pass, no isinstance.

A dispatch mode sees every operator and tags the tensors it makes with what made them, in which module, and on which axis
their channels lie. So functional activations, exported graphs and modules that run twice are told apart by what they do.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from neurotest.errors import BadInput, near
from neurotest.target.probe import _tensor, watched

CONVOLUTIONS = {"convolution", "_convolution", "conv1d", "conv2d", "conv3d", "mkldnn_convolution", "cudnn_convolution"}
DENSE = {"addmm", "mm", "linear", "bmm", "baddbmm", "matmul", "mkldnn_linear"}
ACTIVATIONS = {
    "relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "elu", "selu", "celu", "hardtanh", "hardswish",
    "hardsigmoid", "mish", "softplus", "prelu", "_prelu_kernel", "rrelu_with_noise", "threshold", "clamp_min", "clamp",
    "log_sigmoid_forward",
}  # fmt: skip
VIEWS = {"view", "_unsafe_view", "reshape", "_reshape_alias", "flatten", "unflatten", "unsqueeze", "squeeze", "expand"}
SAME = {"alias", "detach", "clone", "contiguous", "dropout", "_to_copy", "lift_fresh"}
POOLS = ("max_pool", "avg_pool", "adaptive_max_pool", "_adaptive_avg_pool", "adaptive_avg_pool")
REDUCTIONS = {"mean", "sum", "amax"}
PRESETS = ("pre_activation", "post_activation", "features", "last_hidden")


@dataclass
class Layer:
    """One call of one module: `name` is its path, with `#2` for the second call."""

    name: str
    module: str
    call: int
    made_by: str  # convolution, dense, activation or other
    shape: tuple[int, ...]  # of one item's output
    axis: int  # of the channels in the batched output
    input_shape: tuple[int, ...]
    input_axis: int
    time: int  # how many operators had run
    overwritten: bool = False  # an in-place operator writes into the output later
    input_overwritten: bool = False

    def neurons(self, neuron: str = "channel", *, inputs: bool = False) -> int:
        shape, axis = (self.input_shape, self.input_axis) if inputs else (self.shape, self.axis)
        return math.prod(shape) if neuron == "unit" or not shape else shape[axis - 1]


@dataclass(frozen=True)
class Survey:
    """Everything one surveyed forward pass told: all layers in the order in which they finished."""

    layers: tuple[Layer, ...]
    calls: dict[str, int]  # module path -> calls per forward pass
    functional: int  # activations that are no module's output
    last_spatial: int  # when the last convolution or pooling ran

    def find(self, layers: str) -> tuple[Layer, ...]:
        """The layers a preset or comma-separated globs stand for."""
        if layers in ("features", "last_hidden"):
            return (self._features(last=layers == "last_hidden"),)
        if layers in PRESETS:
            return self._preset(layers)
        found: dict[str, Layer] = {}
        for glob in (part.strip() for part in layers.split(",")):
            hits = [layer for layer in self.layers if fnmatch.fnmatchcase(layer.name, glob)]
            if not hits:
                names = [layer.name for layer in self.layers if layer.name]
                raise BadInput(f"layers={glob!r} matches no layer. {near(glob, [*names, *PRESETS])}")
            found.update((layer.name, layer) for layer in hits)
        return tuple(layer for layer in self.layers if layer.name in found)

    def _preset(self, preset: str) -> tuple[Layer, ...]:
        kinds = {"pre_activation": ("convolution", "dense"), "post_activation": ("activation",)}
        found = tuple(layer for layer in self.layers if layer.made_by in kinds[preset])
        if found:
            return found
        other = "pre_activation" if preset == "post_activation" else "post_activation"
        works = [p for p in (other,) if any(layer.made_by in kinds[p] for layer in self.layers)]
        why = f" ({self.functional} activations are functions, not modules)" if self.functional else ""
        hint = f"use --layers {works[0]}" if works else "name layers with --layers GLOB"
        raise BadInput(f"layers={preset!r}: no module of this network gives such an output{why}; {hint}.")

    def _features(self, *, last: bool = False) -> Layer:
        """The dense layer whose input is what the encoder found: the first on vectors after the last convolution or pooling;
        with `last`, the one whose input is the last hidden layer."""
        dense = [layer for layer in self.layers if layer.made_by == "dense" and len(layer.input_shape) == 1]
        if not dense:
            preset = "last_hidden" if last else "features"
            raise BadInput(f"layers={preset!r}: this network has no dense layer on vectors; name a layer with --layers GLOB.")
        after = [layer for layer in dense if layer.time > self.last_spatial]
        return after[0] if after and self.last_spatial and not last else dense[-1]


@dataclass
class _Mark:
    """Remembers a storage, and whether an in-place operator wrote into it since."""

    storage: int
    overwritten: bool = False


@dataclass(frozen=True)
class _Tag:
    kind: str
    owner: int  # number of the module call in which the operator ran
    axis: int


@dataclass
class _Watch:
    """State of one survey: the stack of running module calls and the tag of every tensor seen."""

    tags: dict[int, _Tag] = field(default_factory=dict)
    alive: list[Tensor] = field(default_factory=list)  # keeps ids and storages from being reused
    stack: list[tuple[int, _Mark | None]] = field(default_factory=list)  # module call, mark on its input
    calls: dict[str, int] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    marks: list[_Mark] = field(default_factory=list)
    marked: list[tuple[Layer, _Mark | None, _Mark]] = field(default_factory=list)  # layer, its input, its output
    activations: dict[int, None] = field(default_factory=dict)
    number: int = 0
    batch: int = 0  # how many inputs the network was given
    time: int = 0
    last_spatial: int = 0

    def before(self, path: str, args: Any) -> None:
        self.number += 1
        given = _tensor(args)
        if self.number == 1 and given is not None:
            self.batch = len(given)
        self.stack.append((self.number, None if given is None else self.mark(given)))

    def mark(self, tensor: Tensor) -> _Mark:
        self.alive.append(tensor)
        self.marks.append(_Mark(_storage(tensor)))
        return self.marks[-1]

    def after(self, path: str, args: Any, output: Any) -> None:
        me, given_mark = self.stack.pop()
        call = self.calls.get(path, 0)
        self.calls[path] = call + 1
        given, made = _tensor(args), _tensor(output)
        if made is None or given is None or made.ndim == 0:
            return
        if len(made) != self.batch or given.ndim == 0 or len(given) != self.batch:
            return  # its rows are not the inputs (windows, or tokens first): one value per input and neuron cannot be told
        tag = self.tag(made)
        if tag.owner == me:  # a dropout that does nothing hands on what a function made: still no activation module's output
            self.activations.pop(id(made), None)
        layer = Layer(
            name=path if call == 0 else f"{path}#{call + 1}", module=path, call=call,
            made_by=tag.kind if tag.owner == me else "other",
            shape=tuple(made.shape[1:]), axis=tag.axis,
            input_shape=tuple(given.shape[1:]), input_axis=self.tag(given).axis, time=self.time,
        )  # fmt: skip
        self.layers.append(layer)
        self.marked.append((layer, given_mark, self.mark(made)))

    def finish(self) -> Survey:
        for layer, given, made in self.marked:
            layer.overwritten = made.overwritten
            layer.input_overwritten = given is not None and given.overwritten
        return Survey(tuple(self.layers), self.calls, len(self.activations), self.last_spatial)

    def tag(self, tensor: Tensor) -> _Tag:
        return self.tags.get(id(tensor)) or _Tag("other", -1, _usual_axis(tensor.ndim))

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        self.time += 1
        base = _base(func)
        made = _tensor(out)
        if made is None:
            return
        given = [t for t in _tensors(args) if t.ndim]
        if func._schema.is_mutable and given:
            changed = _storage(given[0])
            for mark in self.marks:
                mark.overwritten |= mark.storage == changed
        if base in CONVOLUTIONS or base.startswith(POOLS) or (base == "mean" and given and self._pools(args, given[0])):
            self.last_spatial = self.time
        self.alive.append(made)
        self.tags[id(made)] = self._describe(base, args, given, made)
        if base in ACTIVATIONS:
            self.activations[id(made)] = None

    def _pools(self, args: tuple[Any, ...], source: Tensor) -> bool:
        """Whether a mean is over places: a mean over channels is a hand-written normalisation."""
        return source.ndim >= 3 and self.tag(source).axis not in _reduced(args, source)

    def _describe(self, base: str, args: tuple[Any, ...], given: list[Tensor], made: Tensor) -> _Tag:
        owner = self.stack[-1][0] if self.stack else 0
        if base in CONVOLUTIONS:
            return _Tag("convolution", owner, 1)
        if base in DENSE:
            return _Tag("dense", owner, made.ndim - 1)
        source = next((t for t in given if id(t) in self.tags), given[0] if given else made)
        tag, axis = self.tag(source), _carry(base, args, self.tag(source).axis, source, made)
        if base in ACTIVATIONS:
            return _Tag("activation", owner, axis)
        through = base in VIEWS | SAME | {"t", "transpose", "permute"} or (base == "add" and any(t.ndim == 1 for t in given))
        return _Tag(tag.kind if through and tag.owner == owner else "other", owner, axis)


class _Operators(TorchDispatchMode):
    """Tells `note` of every operator that runs."""

    def __init__(self, note: Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.note = note

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.note(func, args, kwargs or {}, out)
        return out


def _base(func: Any) -> str:
    """The operator's name without the mark of its in-place form."""
    name: str = func._schema.name.split("::")[-1]
    return name if name.startswith("_") else name.rstrip("_")


def last_operator(run: Callable[[], Any]) -> str:
    """The last operator of `run()` that computes something: views and copies do not count."""
    names: list[str] = []
    with torch.no_grad(), _Operators(lambda func, *_: names.append(_base(func))):
        run()
    return next((name for name in reversed(names) if name not in VIEWS | SAME), "")


def _tensors(args: Any) -> Iterator[Tensor]:
    for value in args:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _usual_axis(ndim: int) -> int:
    """Channels when nothing better is known: (n, d), tokens (n, t, d), maps (n, c, h, w)."""
    return 2 if ndim == 3 else 1


def _reduced(args: tuple[Any, ...], source: Tensor) -> set[int]:
    """The axes a reduction takes away."""
    dims = args[1] if len(args) > 1 and args[1] is not None else range(source.ndim)
    return {d % source.ndim for d in ([dims] if isinstance(dims, int) else dims)}


def _carry(base: str, args: tuple[Any, ...], axis: int, source: Tensor, made: Tensor) -> int:
    """Where the channel axis of `source` lies in `made`."""
    if base in ("transpose", "permute", "t"):
        order = list(range(source.ndim))
        if base == "permute":
            order = [d % source.ndim for d in args[1]]
        else:
            first, second = (0, 1) if base == "t" else (args[1] % source.ndim, args[2] % source.ndim)
            order[first], order[second] = order[second], order[first]
        return order.index(axis) if axis in order else _usual_axis(made.ndim)
    if base in REDUCTIONS or base == "select":
        gone = _reduced(args, source)
        kept = made.ndim == source.ndim
        return _usual_axis(made.ndim) if axis in gone else axis - (0 if kept else sum(d < axis for d in gone))
    if base in VIEWS and axis < source.ndim:
        for new in range(made.ndim):
            if math.prod(made.shape[:new]) == math.prod(source.shape[:axis]) and made.shape[new] == source.shape[axis]:
                return new
        return _usual_axis(made.ndim)
    return axis if made.ndim == source.ndim else _usual_axis(made.ndim)


def survey(module: nn.Module, run: Callable[[], Any]) -> Survey:
    """Watch `run()`, one forward pass of `module`, and list its layers."""
    watch = _Watch()
    with torch.no_grad(), watched(module, watch.before, watch.after), _Operators(watch.operator):
        run()
    return watch.finish()
