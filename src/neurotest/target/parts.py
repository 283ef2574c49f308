"""A `.pt2` as modules: the flat graph is cut where modules were called, so that layers carry the names their author gave them.

No source is generated and nothing is compiled: a part keeps a list of steps and runs them one by one.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from neurotest.target.archive import Malformed
from neurotest.target.operators import Function, lookup
from neurotest.target.program import Device, Literal, Mode, Node, Program, Ref, Weight


@dataclass
class _RunningDevice:
    """Where the network runs at the moment."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


@dataclass(frozen=True)
class _Slot:
    """Where a part keeps a value while it runs."""

    number: int


@dataclass(frozen=True, eq=False)
class _HeldWeight:
    """A weight, looked up when it is needed: somebody may have put another tensor in its place."""

    owner: Part
    name: str
    parameter: bool
    full: str  # its path from the root


@dataclass
class _Call:
    """One operator, or one call of another part."""

    target: str
    function: Function | Part
    args: list[Any]
    kwargs: dict[str, Any]
    outputs: tuple[int | None, ...]
    unpack: bool
    modes: tuple[Mode, ...]
    last: tuple[int, ...] = ()  # slots that nobody needs afterwards

    def __getstate__(self) -> dict[str, Any]:
        """For copies: torch's operators cannot be copied, so they are looked up again."""
        return vars(self) | {"function": self.function if isinstance(self.function, Part) else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.function = state["function"] or _function(self.target)

    def run(self, values: list[Any], place: _RunningDevice) -> None:
        args = [_value(arg, values, place) for arg in self.args]
        kwargs = {name: _value(arg, values, place) for name, arg in self.kwargs.items()}
        if self.modes:
            with ExitStack() as modes:
                for mode in self.modes:
                    modes.enter_context(mode())
                result = self.function(*args, **kwargs)
        else:
            result = self.function(*args, **kwargs)
        if self.unpack:
            for slot, one in zip(self.outputs, result, strict=True):
                if slot is not None:
                    values[slot] = one
        elif self.outputs and self.outputs[0] is not None:
            values[self.outputs[0]] = result
        for slot in self.last:
            values[slot] = None


def _function(target: str) -> Function:
    """What a step calls, by its name."""
    if not target.startswith("onnx."):
        return lookup(target)
    from neurotest.target.onnx_tensors import FUNCTIONS

    return FUNCTIONS[target.removeprefix("onnx.")]


@dataclass
class _Body:
    """What a part does when it is called."""

    inputs: int
    slots: int
    steps: list[_Call]
    outputs: list[Any]
    text: str  # equal for two calls that do the same


def _value(arg: Any, values: list[Any], place: _RunningDevice) -> Any:
    kind = type(arg)
    if kind is _Slot:
        return values[arg.number]
    if kind is _HeldWeight:
        return (arg.owner._parameters if arg.parameter else arg.owner._buffers)[arg.name]
    if kind is list:
        return [_value(one, values, place) for one in arg]
    if kind is Literal:
        return arg.tensor
    return place.device if kind is Device else arg


class Part(nn.Module):
    """One module of an exported network."""

    def __init__(self, place: _RunningDevice) -> None:
        super().__init__()
        self._exported_place = place
        self._exported_body: _Body | None = None

    def forward(self, *args: Any) -> Any:
        body, place = self._exported_body, self._exported_place
        if body is None:
            raise RuntimeError("this module of the exported network only holds others")
        if len(args) != body.inputs:
            raise TypeError(f"{len(args)} inputs for a module that takes {body.inputs}")
        values = [*args, *[None] * (body.slots - body.inputs)]
        for step in body.steps:
            step.run(values, place)
        outputs = tuple(_value(output, values, place) for output in body.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def extra_repr(self) -> str:
        """A hash of what it computes: part of the fingerprint of a target."""
        body = self._exported_body
        return "" if body is None else hashlib.sha256(body.text.encode()).hexdigest()[:16]


class Exported(Part):
    """An exported network."""

    def __init__(self) -> None:
        super().__init__(_RunningDevice())
        self._exported_check: Callable[[tuple[int, ...]], None] | None = None  # called before inputs of a new size are run
        self._exported_sizes: set[tuple[int, ...]] = set()

    def forward(self, x: Tensor) -> Any:
        size = tuple(x.shape[1:])
        if size not in self._exported_sizes and self._exported_check is not None and x.device.type != "meta":
            self._exported_check(size)
            self._exported_sizes.add(size)
        self._exported_place.device = x.device
        return super().forward(x)

    def rehearse(self, x: Tensor) -> None:
        """Run without values: `x` lies on the meta device, where tensors have sizes only."""
        weights = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        shapes = {name: torch.empty_like(tensor, device="meta") for name, tensor in weights.items()}
        with torch.no_grad():
            torch.func.functional_call(self, shapes, (x,))


def build(program: Program, tensors: dict[str, Tensor]) -> Exported:
    """The modules of a program, with their weights."""
    return _Builder(program, tensors).root


class _Builder:
    def __init__(self, program: Program, tensors: dict[str, Tensor]) -> None:
        self.program, self.root = program, Exported()
        self.parts: dict[str, Part] = {"": self.root}
        self.held = {path: self.hold(path, tensors, *about) for path, about in program.weights.items()}
        self.uses = [
            dict.fromkeys(ref.number for ref in _refs([node.args, *node.kwargs.values()])) for node in program.nodes
        ]  # in order
        self.users: dict[int, list[int]] = {}  # of a value, in order; the network's output comes after all nodes
        for place, numbers in enumerate([*self.uses, [ref.number for ref in _refs(program.output)]]):
            for number in numbers:
                self.users.setdefault(number, []).append(place)
        self.root._exported_body = self.body(0, len(program.nodes), 0, [0], [program.output])

    def part(self, path: str) -> Part:
        """The module at a path, with those above it."""
        if path not in self.parts:
            above, _, name = path.rpartition(".")
            owner = self.part(above)
            self.parts[path] = child = Part(self.root._exported_place)
            owner.add_module(name, child)
        return self.parts[path]

    def hold(self, path: str, tensors: dict[str, Tensor], kind: str, saved: bool) -> _HeldWeight:
        if path not in tensors:
            raise Malformed(f"it has no bytes for {path!r}")
        above, _, name = path.rpartition(".")
        owner, tensor = self.part(above), tensors[path]
        if kind == "parameter":
            parameter = tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor, requires_grad=False)
            owner.register_parameter(name, parameter)
        else:
            owner.register_buffer(name, tensor.detach(), persistent=kind == "buffer" and saved)
        return _HeldWeight(owner, name, kind == "parameter", path)

    def body(self, start: int, stop: int, depth: int, inputs: list[int], results: list[Any]) -> _Body:
        """What one call of a module does: the nodes from `start` to `stop`, those of modules that it calls as one step each."""
        nodes = self.program.nodes
        slots = {number: slot for slot, number in enumerate(inputs)}
        steps: list[_Call] = []
        lines: list[str] = []
        place = start
        while place < stop:
            call = nodes[place].stack[: depth + 1]
            end = place + 1
            if len(call) > depth:
                while end < stop and nodes[end].stack[: depth + 1] == call:
                    end += 1
                step, line = self.call(place, end, depth + 1, slots)
            else:
                step, line = self.operator(nodes[place], slots)
            steps.append(step)
            lines.append(line)
            place = end
        outputs = [_local(result, slots, self.held) for result in results]
        _release(steps, outputs)
        return _Body(len(inputs), len(slots), steps, outputs, "\n".join([str(len(inputs)), *lines, _text(outputs)]))

    def operator(self, node: Node, slots: dict[int, int]) -> tuple[_Call, str]:
        args = [_local(arg, slots, self.held) for arg in node.args]
        kwargs = {name: _local(arg, slots, self.held) for name, arg in node.kwargs.items()}
        outputs = tuple(None if number is None else slots.setdefault(number, len(slots)) for number in node.outputs)
        line = f"{outputs} {node.unpack} = {node.target}({_text(args)}, {_text(kwargs)}) {[name for name, _ in node.modes]}"
        return _Call(node.target, node.function, args, kwargs, outputs, node.unpack, tuple(mode for _, mode in node.modes)), line

    def call(self, start: int, stop: int, depth: int, slots: dict[int, int]) -> tuple[_Call, str]:
        """A step that calls the module in which the nodes from `start` to `stop` ran."""
        nodes = self.program.nodes[start:stop]
        produced = dict.fromkeys(number for node in nodes for number in node.outputs if number is not None)
        needed = dict.fromkeys(number for used in self.uses[start:stop] for number in used if number not in produced)
        inputs = sorted(needed, key=self.is_number)  # tensors first: the first is taken for the module's input
        used = {number: place for number in produced if (place := self.next_use(number, stop)) is not None}
        outputs = sorted(used, key=lambda number: (self.is_number(number), used[number]))  # what is used first is meant
        body = self.body(start, stop, depth, inputs, [Ref(number) for number in outputs])
        path, part = self.same(nodes[0].stack[depth - 1][1], body)
        args: list[Any] = [_Slot(slots[number]) for number in inputs]
        results = tuple(slots.setdefault(number, len(slots)) for number in outputs)
        line = f"{results} = {path}({_text(args)})"
        return _Call(path, part, args, {}, results, len(results) != 1, ()), line

    def is_number(self, value: int) -> bool:
        return value not in self.program.tensors

    def next_use(self, value: int, place: int) -> int | None:
        users = self.users.get(value, [])
        later = bisect.bisect_left(users, place)
        return users[later] if later < len(users) else None

    def same(self, path: str, body: _Body) -> tuple[str, Part]:
        """The module at a path if it does the same in every call; else one of its own for this call, at PATH@1."""
        number, name = 0, path
        while True:
            part = self.part(name)
            if part._exported_body is None:
                part._exported_body = body
            if part._exported_body.text == body.text:
                return name, part
            number += 1
            name = f"{path}@{number}"


def _refs(value: Any) -> Iterator[Ref]:
    if type(value) is Ref:
        yield value
    elif type(value) in (list, tuple):
        for one in value:
            yield from _refs(one)


def _local(value: Any, slots: dict[int, int], held: dict[str, _HeldWeight]) -> Any:
    """An argument with values by their slot in the part, and weights where they are held."""
    if type(value) is list:
        return [_local(one, slots, held) for one in value]
    if type(value) is Ref:
        return _Slot(slots[value.number])
    return held[value.path] if type(value) is Weight else value


def _slots(value: Any) -> Iterator[int]:
    if type(value) is _Slot:
        yield value.number
    elif type(value) in (list, tuple):
        for one in value:
            yield from _slots(one)


def _release(steps: list[_Call], outputs: list[Any]) -> None:
    """Let every step forget the values that no later one needs."""
    needed = set(_slots(outputs))
    for step in reversed(steps):
        slots = {*_slots([step.args, *step.kwargs.values()]), *(slot for slot in step.outputs if slot is not None)}
        step.last = tuple(sorted(slots - needed))
        needed |= slots


def _text(value: Any) -> str:
    if type(value) in (list, tuple):
        return f"[{', '.join(map(_text, value))}]"
    if type(value) is dict:
        return f"{{{', '.join(f'{name}={_text(one)}' for name, one in value.items())}}}"
    if type(value) is _HeldWeight:
        return f"<{value.full}>"
    return f"%{value.number}" if type(value) is _Slot else repr(value)
