"""Which layers a network has, found by watching what runs: one surveyed forward pass, no isinstance.

A dispatch mode sees every operator and tags its result with what made it, in which module, and on which axis its channels
lie; a function mode sees which torch function called it. So functional activations, exported graphs and modules that run
twice are distinguished by what they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from neurotest.target.functions import Functions, function_name
from neurotest.target.layers import Layer, Survey
from neurotest.target.probe import first_tensor, watched

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
# Functions that are layers although they are no convolution, dense layer or activation; poolings are too.
OPERATIONS = {"add", "mul", "cat", "matmul", "bmm", "softmax", "scaled_dot_product_attention"}


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
    origin: int  # when the operator ran; views of its result keep it


@dataclass
class _Watch:
    """State of one survey: the stack of running module calls and the tag of every tensor seen."""

    tags: dict[int, _Tag] = field(default_factory=dict)
    alive: list[Tensor] = field(default_factory=list)  # keeps ids and storages from being reused
    stack: list[tuple[int, str, _Mark | None]] = field(default_factory=list)  # number, path, mark on the input
    calls: dict[str, int] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    marks: list[_Mark] = field(default_factory=list)
    marked: list[tuple[Layer, _Mark | None, _Mark]] = field(default_factory=list)  # layer, its input, its output
    functions: dict[int, list[Layer]] = field(default_factory=dict)  # by the origin of their result
    apart: list[str] = field(default_factory=list)  # what has no row per input
    activations: set[int] = field(default_factory=set)  # origins of those that are no layer so far
    kinds: set[str] = field(default_factory=set)  # of the operators that the running function called
    number: int = 0
    batch: int = 0  # how many inputs the network runs on
    time: int = 0
    last_spatial: int = 0

    def before(self, path: str, args: Any) -> None:
        self.number += 1
        source = first_tensor(args)
        if self.number == 1 and source is not None:
            self.batch = len(source)
        self.stack.append((self.number, path, None if source is None else self.mark(source)))

    def mark(self, tensor: Tensor) -> _Mark:
        self.alive.append(tensor)
        self.marks.append(_Mark(_storage(tensor)))
        return self.marks[-1]

    def after(self, path: str, args: Any, output: Any) -> None:
        number, _, source_mark = self.stack.pop()
        call = self.calls.get(path, 0)
        self.calls[path] = call + 1
        source, result = first_tensor(args), first_tensor(output)
        name = path if call == 0 else f"{path}#{call + 1}"
        if not self._rows(source, result):
            self.apart += [name] if source is not None and result is not None else []
            return
        assert source is not None
        assert result is not None
        tag = self.tag(result)
        made_here = tag.owner == number  # else it hands on what something inside it made, as a dropout in eval mode does
        if made_here:
            self.activations.discard(tag.origin)
            for layer in self.functions.pop(tag.origin, []):
                layer.alias = name
        made_by = tag.kind if made_here else "other"
        layer = Layer(name, path, call, made_by, *self._shapes(source, self.tag(source).axis, result), self.time)
        self._list(layer, source_mark, result)

    def function(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a torch function that was called in a module's forward, and list it if it is a layer."""
        source = first_tensor(args or tuple(kwargs.values()))
        mark, axis = (None, 0) if source is None else (self.mark(source), self.tag(source).axis)
        self.kinds = set()
        result = function(*args, **kwargs)
        word = function_name(function)
        if not isinstance(result, Tensor):
            return result
        tag = self.tag(result)
        kind = tag.kind if tag.kind in self.kinds and (tag.kind != "dense" or word == "linear") else "other"
        if kind == "other" and word not in OPERATIONS and not word.startswith(POOLS):
            return result
        if not self._rows(source, result):
            self.apart += [name] if source is not None else []
            return result
        assert source is not None
        layer = Layer(
            name, self.stack[-1][1], int(name.rstrip("()").rpartition("_")[2]) - 1, kind,
            *self._shapes(source, axis, result), self.time, function=word, in_place=result is source,
            apply=_again(function, args, kwargs),
        )  # fmt: skip
        self._list(layer, mark, result)
        self.functions.setdefault(tag.origin, []).append(layer)
        if kind == "activation":
            self.activations.discard(tag.origin)
        return result

    def _rows(self, source: Tensor | None, result: Tensor | None) -> bool:
        """Whether rows are the inputs; else (windows, or tokens first) there is no value per input and neuron."""
        return all(tensor is not None and tensor.ndim > 0 and len(tensor) == self.batch for tensor in (source, result))

    def _shapes(self, source: Tensor, axis: int, result: Tensor) -> tuple[tuple[int, ...], int, tuple[int, ...], int]:
        return tuple(result.shape[1:]), self.tag(result).axis, tuple(source.shape[1:]), axis

    def _list(self, layer: Layer, source: _Mark | None, result: Tensor) -> None:
        self.layers.append(layer)
        self.marked.append((layer, source, self.mark(result)))

    def finish(self, functions: dict[str, int]) -> Survey:
        for layer, source, result in self.marked:
            layer.overwritten = result.overwritten
            layer.input_overwritten = source is not None and source.overwritten
        return Survey(
            tuple(self.layers), self.calls, functions, len(self.activations), self.last_spatial, tuple(dict.fromkeys(self.apart))
        )

    def tag(self, tensor: Tensor) -> _Tag:
        return self.tags.get(id(tensor)) or _Tag("other", -1, _usual_axis(tensor.ndim), -1)

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        self.time += 1
        base = _base(func)
        result = first_tensor(out)
        if result is None:
            return
        sources = [t for t in _tensors(args) if t.ndim]
        if func._schema.is_mutable and sources:
            changed = _storage(sources[0])
            for mark in self.marks:
                mark.overwritten |= mark.storage == changed
        if base in CONVOLUTIONS or base.startswith(POOLS) or (base == "mean" and sources and self._pools(args, sources[0])):
            self.last_spatial = self.time
        self.alive.append(result)
        tag = self.tags[id(result)] = self._describe(base, args, sources, result)
        if base in CONVOLUTIONS | DENSE:
            self.kinds.add(tag.kind)
        elif base in ACTIVATIONS and (not base.startswith("clamp") or _from_zero(args)):
            self.kinds.add(tag.kind)
            self.activations.add(self.time)

    def _pools(self, args: tuple[Any, ...], source: Tensor) -> bool:
        """Whether a mean is over places: a mean over channels is a hand-written normalisation."""
        return source.ndim >= 3 and self.tag(source).axis not in _reduced(args, source)

    def _describe(self, base: str, args: tuple[Any, ...], sources: list[Tensor], result: Tensor) -> _Tag:
        owner = self.stack[-1][0] if self.stack else 0
        if base in CONVOLUTIONS:
            return _Tag("convolution", owner, 1, self.time)
        if base in DENSE:
            return _Tag("dense", owner, result.ndim - 1, self.time)
        source = next((t for t in sources if id(t) in self.tags), sources[0] if sources else result)
        tag, axis = self.tag(source), _carry(base, args, self.tag(source).axis, source, result)
        if base in ACTIVATIONS:
            return _Tag("activation", owner, axis, self.time)
        through = base in VIEWS | SAME | {"t", "transpose", "permute"} or (base == "add" and any(t.ndim == 1 for t in sources))
        if through and tag.owner == owner:
            return _Tag(tag.kind, owner, axis, tag.origin)
        return _Tag("other", owner, axis, self.time)


def _again(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Any], Any] | None:
    """The function with its settings, for another first argument; None where it takes further tensors."""
    if not args or len([*_tensors((args, *kwargs.values()))]) > 1:
        return None
    settings = args[1:]
    return lambda x: function(x, *settings, **kwargs)


def _from_zero(args: tuple[Any, ...]) -> bool:
    """Whether a clamp is a ReLU by another name, not a guard against small numbers."""
    return len(args) > 1 and isinstance(args[1], (int, float)) and args[1] == 0


class _Operators(TorchDispatchMode):
    """Calls `note` for every operator that runs."""

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
    """Where channels usually lie: (n, d), tokens (n, t, d), maps (n, c, h, w)."""
    return 2 if ndim == 3 else 1


def _reduced(args: tuple[Any, ...], source: Tensor) -> set[int]:
    """The axes a reduction takes away."""
    dims = args[1] if len(args) > 1 and args[1] is not None else range(source.ndim)
    return {d % source.ndim for d in ([dims] if isinstance(dims, int) else dims)}


def _carry(base: str, args: tuple[Any, ...], axis: int, source: Tensor, result: Tensor) -> int:
    """Where the channel axis of `source` lies in `result`."""
    if base in ("transpose", "permute", "t"):
        order = list(range(source.ndim))
        if base == "permute":
            order = [d % source.ndim for d in args[1]]
        else:
            first, second = (0, 1) if base == "t" else (args[1] % source.ndim, args[2] % source.ndim)
            order[first], order[second] = order[second], order[first]
        return order.index(axis) if axis in order else _usual_axis(result.ndim)
    if base in REDUCTIONS or base == "select":
        gone = _reduced(args, source)
        kept = result.ndim == source.ndim
        return _usual_axis(result.ndim) if axis in gone else axis - (0 if kept else sum(d < axis for d in gone))
    if base in VIEWS and axis < source.ndim:
        for new in range(result.ndim):
            if math.prod(result.shape[:new]) == math.prod(source.shape[:axis]) and result.shape[new] == source.shape[axis]:
                return new
        return _usual_axis(result.ndim)
    return axis if result.ndim == source.ndim else _usual_axis(result.ndim)


def survey(module: nn.Module, run: Callable[[], Any]) -> Survey:
    """Watch `run()`, one forward pass of `module`, and list its layers."""
    watch = _Watch()
    functions = Functions(module, watch.function)

    @functions.unseen
    def before(path: str, args: Any) -> None:
        functions.enter(path)
        watch.before(path, args)

    @functions.unseen
    def after(path: str, args: Any, output: Any) -> None:
        functions.leave()
        watch.after(path, args, output)

    with torch.no_grad(), watched(module, before, after), _Operators(watch.operator), functions:
        run()
    return watch.finish(functions.counts)
