"""The graph of a `.pt2`, read from its JSON by a strict schema into plain nodes: what is not expected is not accepted.

Only what is needed to run the network is read: inputs, weights, operators with their arguments, and the modules in which they
ran. Names are keys of dictionaries here and nothing else; size expressions, remarks and stack traces are not looked at.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from neurotest.target import archive
from neurotest.target.archive import Malformed, Refused
from neurotest.target.operators import LARGEST_SIZE, Function, exportable, lookup

SCHEMA = 8  # the major version of the layout that torch.export.save writes
MOST_NODES, MOST_DEPTH = 200_000, 64

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,999}")
_PATH = re.compile(r"[A-Za-z0-9_@-]{1,200}(\.[A-Za-z0-9_@-]{1,200}){0,63}")
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"
_MEMORY = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d, 4: torch.preserve_format}
_FLOATS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
_MODES = {"torch.ops.higher_order.wrap_with_set_grad_enabled": 1, "torch.ops.higher_order.wrap_with_autocast": 4}

Mode = Callable[[], AbstractContextManager[Any]]
Module = tuple[str, str]  # one call of a module: its key, its path


@dataclass(frozen=True)
class Ref:
    """A value that a node computes or the network is given."""

    number: int


@dataclass(frozen=True)
class Weight:
    """A parameter, buffer or constant by its path."""

    path: str


@dataclass(frozen=True)
class Device:
    """Wherever the network runs; the device it was exported on is not asked for."""


@dataclass(frozen=True)
class Literal:
    """A small constant of integers or truth values: sizes, axes, indices. It stays on the CPU, wherever the network runs."""

    values: tuple[int | bool, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def tensor(self) -> torch.Tensor:
        return torch.tensor(self.values, dtype=self.dtype).reshape(self.shape)


@dataclass
class Node:
    target: str
    function: Function
    args: list[Any]
    kwargs: dict[str, Any]
    outputs: tuple[int | None, ...]
    unpack: bool  # whether the outputs are the elements of what the function returns
    stack: tuple[Module, ...]  # the modules in which it runs, outermost first
    modes: tuple[tuple[str, Mode], ...] = ()


@dataclass
class Program:
    nodes: list[Node] = field(default_factory=list)
    tensors: set[int] = field(default_factory=set)  # numbers of the values that are tensors
    values: int = 0
    weights: dict[str, tuple[str, bool]] = field(default_factory=dict)  # path -> parameter, buffer or constant; saved
    output: Any = None
    sizes: tuple[int | None, ...] = ()  # of the input; None: may vary


def read(content: Any) -> Program:
    """The program in the JSON of an archive."""
    if archive.field(archive.field(content, "schema_version", dict), "major", int) != SCHEMA:
        raise Malformed(f"its layout is not version {SCHEMA}")
    module = archive.field(content, "graph_module", dict)
    return _Reader().program(archive.field(module, "graph", dict), archive.field(module, "signature", dict), module)


class _Reader:
    def __init__(self) -> None:
        self.result = Program()
        self.stack: tuple[Module, ...] = ()  # of the node before: one that names no module belongs there

    def program(self, graph: dict[str, Any], signature: dict[str, Any], module: dict[str, Any]) -> Program:
        scope: dict[str, Any] = {}
        inputs = [name for spec in archive.field(signature, "input_specs", list) for name in self.input(spec, scope)]
        listed = [self.output_name(value) for value in archive.field(graph, "inputs", list)]
        if sorted(listed) != sorted(scope):
            raise Malformed("its signature does not fit its graph")
        if len(inputs) != 1:
            raise Inputs(len(inputs))
        metas = archive.field(archive.field(graph, "tensor_values", dict), inputs[0], dict)
        sizes = archive.field(metas, "sizes", list)
        self.result.sizes = tuple(None if _only(value)[0] == "as_expr" else archive.one_int(value) for value in sizes)
        self.nodes(graph, scope, ())
        self.result.output = self.network_output(signature, graph, module, scope)
        return self.result

    def input(self, spec: Any, scope: dict[str, Any]) -> list[str]:
        """Put an input of the graph into the scope; the names of those that a user gives."""
        kind, value = _only(spec)
        if kind == "user_input":
            tag, argument = _only(archive.field(value, "arg", dict))
            if tag != "as_tensor":
                return ["?"]
            name = _name(archive.field(argument, "name", str))
            self.define(scope, name, tensor=True)
            return [name]
        if kind not in ("parameter", "buffer", "tensor_constant"):
            if kind == "constant_input":
                return ["?"]
            raise Refused(f"it takes inputs of kind {kind[:40]!r}")
        path = _path(archive.field(value, f"{kind}_name", str))
        name = _name(archive.field(archive.field(value, "arg", dict), "name", str))
        if name in scope:
            raise Malformed(f"two values are called {name!r}")
        scope[name] = Weight(path)
        self.result.weights[path] = kind, kind != "buffer" or archive.field(value, "persistent", bool)
        return []

    def define(self, scope: dict[str, Any], name: str, *, tensor: bool) -> int:
        if name in scope:
            raise Malformed(f"two values are called {name!r}")
        number = self.result.values
        scope[name] = Ref(number)
        self.result.values += 1
        if tensor:
            self.result.tensors.add(number)
        return number

    def output_name(self, value: Any) -> str:
        tag, inner = _only(value)
        key = {"as_tensor": "name", "as_sym_int": "as_name", "as_sym_float": "as_name", "as_sym_bool": "as_name"}.get(tag)
        if key is None:
            raise Refused(f"a value of its graph is given {tag[:40]!r}")
        return _name(archive.field(inner, key, str))

    def network_output(self, signature: Any, graph: Any, module: Any, scope: dict[str, Any]) -> Any:
        specs = [_only(spec) for spec in archive.field(signature, "output_specs", list)]
        if other := [kind for kind, _ in specs if kind != "user_output"]:
            raise Refused(f"it has outputs of kind {other[0][:40]!r}, beside those of its forward")
        names = [self.output_name(value) for value in archive.field(graph, "outputs", list)]
        if len(names) != 1 or len(specs) != 1 or _only(archive.field(specs[0][1], "arg", dict))[0] != "as_tensor":
            raise Outputs(f"{len(specs)} values")
        calls = archive.field(module, "module_call_graph", list)
        for call in calls[:1]:  # what the network returns may be a dictionary or a tuple with one tensor
            layout = json.loads(archive.field(archive.field(call, "signature", dict), "out_spec", str))
            if type(layout) is not list or len(layout) != 2 or type(layout[1]) is not dict:
                raise Malformed("'out_spec' is no description of an output")
            if layout[1].get("type") is not None:
                raise Outputs(f"a {str(layout[1]['type'])[:80]}")
        return _defined(scope, names[0])

    # -- nodes

    def nodes(self, graph: dict[str, Any], scope: dict[str, Any], modes: tuple[tuple[str, Mode], ...]) -> None:
        for node in archive.field(graph, "nodes", list):
            if len(self.result.nodes) >= MOST_NODES or len(modes) > MOST_DEPTH:
                raise Malformed(f"its graph has more than {MOST_NODES} nodes, or is nested too deeply")
            self.stack = _stack(archive.field(node, "metadata", dict), self.stack)
            target = archive.field(node, "target", str)
            if target in _MODES:
                self.wrapped(target, node, scope, modes)
            else:
                self.node(target, node, scope, modes)

    def node(self, target: str, node: dict[str, Any], scope: dict[str, Any], modes: tuple[tuple[str, Mode], ...]) -> None:
        function, stack = lookup(target), self.stack
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in archive.field(node, "inputs", list):
            value = self.argument(archive.field(argument, "arg", dict), scope)
            if argument.get("kind") == 2:
                kwargs[_name(archive.field(argument, "name", str))] = value
            else:
                args.append(value)
        _check_types(target, function, args, kwargs)
        outputs, unpack = self.outputs(archive.field(node, "outputs", list), scope)
        self.result.nodes.append(Node(target, function, args, kwargs, outputs, unpack, stack, modes))

    def outputs(self, values: list[Any], scope: dict[str, Any]) -> tuple[tuple[int | None, ...], bool]:
        listed = len(values) == 1 and _only(values[0])[0] == "as_tensors"
        if listed:
            values = [{"as_tensor": value} for value in archive.field(values[0], "as_tensors", list)]
        numbers: list[int | None] = []
        for value in values:
            if _only(value)[0] == "as_none":
                numbers.append(None)
            else:
                numbers.append(self.define(scope, self.output_name(value), tensor="as_tensor" in value))
        return tuple(numbers), listed or len(numbers) > 1

    def wrapped(self, target: str, node: dict[str, Any], scope: dict[str, Any], modes: tuple[tuple[str, Mode], ...]) -> None:
        """A part that ran without gradients, or with autocast set: its nodes are taken over, each in that mode."""
        inputs = [_only(archive.field(argument, "arg", dict)) for argument in archive.field(node, "inputs", list)]
        count = _MODES[target]
        if len(inputs) <= count or inputs[count][0] != "as_graph":
            raise Malformed(f"{target} has no graph")
        settings = [self.argument({tag: value}, scope) for tag, value in inputs[:count]]
        graph = archive.field(inputs[count][1], "graph", dict)
        inner = {
            self.output_name(name): self.argument({tag: value}, scope)
            for name, (tag, value) in zip(archive.field(graph, "inputs", list), inputs[count + 1 :], strict=True)
        }
        self.nodes(graph, inner, (*modes, _mode(settings)))
        outputs = archive.field(node, "outputs", list)
        if len(outputs) == 1 and _only(outputs[0])[0] == "as_tensors":
            outputs = [{"as_tensor": value} for value in archive.field(outputs[0], "as_tensors", list)]
        for outer, value in zip(outputs, archive.field(graph, "outputs", list), strict=True):
            name = self.output_name(outer)
            if name in scope:
                raise Malformed(f"two values are called {name!r}")
            scope[name] = _defined(inner, self.output_name(value))

    def argument(self, argument: dict[str, Any], scope: dict[str, Any]) -> Any:
        tag, value = _only(argument)
        if tag in _PLAIN:
            return _PLAIN[tag](value)
        if tag in _LISTS:
            return [self.argument({_LISTS[tag]: one}, scope) for one in _list(value)]
        if tag == "as_tensor":
            return _defined(scope, archive.field(value, "name", str))
        if tag in ("as_sym_int", "as_sym_float", "as_sym_bool", "as_optional_tensor"):
            inner, content = _only(value)
            return _defined(scope, content) if inner == "as_name" else self.argument(value, scope)
        raise Refused(f"an operator of its graph is given {tag[:40]!r}")


class Inputs(Exception):
    """The network does not take one tensor."""


class Outputs(Exception):
    """The network does not return one tensor."""


# What an operator takes by a number inside: torch does not look whether there is such a one, and reads beyond its tables.
_EXACT = {"ScalarType": torch.dtype, "Layout": torch.layout, "MemoryFormat": torch.memory_format, "Device": Device, "str": str}
_COMPUTED = re.compile(r"(List\[)?(Optional\[)?(Tensor|int|number|bool|float|complex)\]*")
_NOT_GIVEN = "Generator"  # of random numbers


def _check_types(target: str, function: Function, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Refuse arguments of another type than the operator has; of tensors and numbers torch says so itself, with an error."""
    schema = getattr(function, "_schema", None)
    if schema is None:  # arithmetic on sizes looks at its numbers by itself
        return
    given = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
    for argument in schema.arguments:
        kind, value = str(argument.real_type), given.get(argument.name)
        optional = kind.startswith("Optional[")
        kind = kind[9:-1] if optional else kind
        if kind in _EXACT:
            fits = type(value) is _EXACT[kind] or (value is None and (optional or argument.has_default_value()))
        else:
            fits = _COMPUTED.fullmatch(kind) is not None or (kind == _NOT_GIVEN and value is None)
        if not fits:
            raise Malformed(f"{target[:120]} is given {argument.name}={str(value)[:40]!r}, which is no {kind[:40]}")
    if not exportable(function):
        raise Refused(f"its graph calls {target[:120]!r}, which is not among the operators that neurotest runs by itself")


def _mode(settings: list[Any]) -> tuple[str, Mode]:
    if len(settings) == 1 and type(settings[0]) is bool:
        return f"grad={settings[0]}", partial(torch.set_grad_enabled, settings[0])
    device, dtype, enabled, cache = settings if len(settings) == 4 else ("", None, None, None)
    fits = device in ("cpu", "cuda") and type(enabled) is bool and type(cache) in (bool, type(None))
    if not fits or dtype not in (None, torch.float16, torch.bfloat16, torch.float32):
        raise Malformed("a mode has settings that do not fit")
    return f"autocast={settings}", partial(torch.autocast, device, dtype=dtype, enabled=bool(enabled), cache_enabled=cache)


def _only(union: Any) -> tuple[str, Any]:
    """The one entry of an object that says by its key what it holds."""
    if type(union) is not dict or len(union) != 1:
        raise Malformed("an object does not hold exactly one entry")
    return next(iter(union.items()))


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise Refused(f"it has a variable called {text[:80]!r}")
    return text


def _path(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise Refused(f"it has a module called {text[:80]!r}, which is no module path")
    return text


def _defined(scope: dict[str, Any], name: Any) -> Any:
    if type(name) is not str or name not in scope:
        raise Malformed(f"{str(name)[:80]!r} is used before it is computed")
    return scope[name]


def _stack(metadata: dict[str, Any], before: tuple[Module, ...]) -> tuple[Module, ...]:
    text = metadata.get("nn_module_stack")
    if type(text) is not str or not text or text.startswith(_NO_MODULE):
        return before
    calls = [entry.split(",", 2) for entry in text.split(";")]
    if any(len(call) != 3 for call in calls) or len(calls) > MOST_DEPTH:
        raise Malformed("'nn_module_stack' is no list of modules")
    return tuple((_path(key), _path(path)) for key, path, _ in calls if path)


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise Malformed("a list is expected")
    return value


def _typed(kind: type, value: Any) -> Any:
    if type(value) is not kind or (isinstance(value, int) and abs(value) > LARGEST_SIZE * 2):
        raise Malformed(f"{str(value)[:40]!r} is no {kind.__name__}")
    return value


def _float(value: Any) -> float:
    if type(value) is str and value in _FLOATS:
        return _FLOATS[value]
    return float(value) if type(value) is int and abs(value) < LARGEST_SIZE else float(_typed(float, value))


def _strided(value: Any) -> torch.layout:
    if value != archive.STRIDED:
        raise Refused("it has sparse tensors")
    return torch.strided


def _format(value: Any) -> torch.memory_format:
    if type(value) is not int or value not in _MEMORY:
        raise Malformed("a memory format is unknown")
    return _MEMORY[value]


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "as_none": lambda _: None,
    "as_int": partial(_typed, int),
    "as_bool": partial(_typed, bool),
    "as_string": partial(_typed, str),
    "as_float": _float,
    "as_complex": lambda value: complex(_float(value.get("real")), _float(value.get("imag"))),
    "as_scalar_type": lambda value: archive.dtype_of(_typed(int, value)),
    "as_memory_format": _format,
    "as_layout": _strided,
    "as_device": lambda _: Device(),
}
_LISTS = {
    "as_ints": "as_int", "as_floats": "as_float", "as_bools": "as_bool", "as_strings": "as_string", "as_tensors": "as_tensor",
    "as_sym_ints": "as_sym_int", "as_sym_floats": "as_sym_float", "as_sym_bools": "as_sym_bool",
    "as_optional_tensors": "as_optional_tensor", "as_nested_tensors": "as_tensors", "as_int_lists": "as_ints",
    "as_float_lists": "as_floats",
}  # fmt: skip
