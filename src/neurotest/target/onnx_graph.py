"""The graph of an ONNX file as the program that `parts.build` turns into modules: nodes, weights, and the modules they belong to.

Exporters keep the author's module names in several ways: torch writes them beside each node, or (older) into the node's name as
a path; where there is none, each node is a module called by its own name.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from typing import Any

import numpy as np
import torch

from neurotest.target.archive import Malformed
from neurotest.target.onnx_tensors import FUNCTIONS
from neurotest.target.program import Device, Literal, Node, Program, Ref, Weight

SCOPES = "pkg.torch.onnx.name_scopes"  # what torch's exporter notes beside a node: the modules around it, outermost first
DOMAINS = ("", "ai.onnx")
VERSIONED = ("Softmax", "LogSoftmax", "Resize", "Upsample")  # their meaning changed with the opset
# Inputs that are sizes, axes and bounds: constants there are plain numbers.
PLAIN = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "Slice": (1, 2, 3, 4), "Squeeze": (1,), "Unsqueeze": (1,), "Split": (1,),
    "Pad": (1, 2, 3), "Clip": (1, 2), "Resize": (1, 2, 3), "Upsample": (1,), "ConstantOfShape": (0,), "Range": (0, 1, 2),
    "TopK": (1,), "CumSum": (1,), "Dropout": (1, 2),
}  # fmt: skip
SCALARS = ("Add", "Sub", "Mul", "Div", "Pow", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal", "Where")
MOST_LITERAL = 64  # integers that count as sizes or indices and not as data
MOST_NODES = 200_000


class NoOperator(Exception):
    """An operator that is not implemented."""


class _Reader:
    def __init__(self, graph: Any, opset: int) -> None:
        from onnx import numpy_helper

        self.graph, self.opset, self.result = graph, opset, Program()
        self.array = numpy_helper.to_array
        self.constants: dict[str, np.ndarray] = {one.name: self.array(one) for one in graph.initializer}
        self.refs: dict[str, Ref] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.paths: dict[str, str] = {}  # constant -> path of the weight
        if len(graph.node) > MOST_NODES:
            raise Malformed(f"it has more than {MOST_NODES} nodes")

    def program(self) -> Program:
        inputs = [one for one in self.graph.input if one.name not in self.constants]
        self.define(inputs[0].name)
        nodes = []
        for node in self.graph.node:
            if node.op_type == "Constant" and node.domain in DOMAINS:
                self.constants[node.output[0]] = self.constant(node)
            else:
                nodes.append(node)
        for node in _Fusion(nodes, self.constants, [one.name for one in self.graph.output]).run():
            self.node(node)
        self.result.output = self.value(self.graph.output[0].name)
        return self.result

    def define(self, name: str) -> int:
        if name in self.refs:
            raise Malformed(f"two values are called {name!r}")
        self.refs[name] = Ref(self.result.values)
        self.result.tensors.add(self.result.values)
        self.result.values += 1
        return self.refs[name].number

    def constant(self, node: Any) -> np.ndarray:
        from onnx import helper

        values = [helper.get_attribute_value(one) for one in node.attribute]
        if len(values) != 1:
            raise Malformed("a constant without its value")
        value = values[0]
        if hasattr(value, "data_type"):
            return self.array(value)  # type: ignore[no-any-return]
        dtype = np.int64 if node.attribute[0].name in ("value_int", "value_ints") else np.float32
        return np.asarray(value, dtype)

    def node(self, node: Any) -> None:
        if node.domain not in DOMAINS or node.op_type not in FUNCTIONS:
            where = f"{node.domain}." if node.domain not in DOMAINS else ""
            raise NoOperator(f"{where}{node.op_type} (opset {self.opset}, node {node.name!r:.80})")
        stack = modules(node)
        home = stack[-1][1] if stack else ""
        args = [self.argument(node.op_type, place, name, home) for place, name in enumerate(node.input)]
        kwargs = self.attributes(node)
        outputs = tuple(self.define(name) if name else None for name in node.output)
        unpack = node.op_type in ("Split", "TopK")
        if node.op_type == "Split":
            kwargs["outputs"] = len(outputs)
        if not unpack:  # further outputs (of a dropout, a norm) are those of training
            outputs = outputs[:1]
        function = FUNCTIONS[node.op_type]
        self.result.nodes.append(Node(f"onnx.{node.op_type}", function, args, kwargs, outputs, unpack, stack))

    def attributes(self, node: Any) -> dict[str, Any]:
        from onnx import helper

        values: dict[str, Any] = {}
        for attribute in node.attribute:
            value = helper.get_attribute_value(attribute)
            if isinstance(value, bytes):
                value = value.decode("utf-8", "replace")
            elif hasattr(value, "data_type"):
                value = self.array(value).reshape(-1)[0].item()
            elif not isinstance(value, (int, float)):
                value = [*value]
                if any(not isinstance(one, (int, float)) for one in value):
                    raise NoOperator(f"{node.op_type} with {attribute.name} (opset {self.opset})")
            values[attribute.name] = value
        if node.op_type in VERSIONED:
            values["opset"] = self.opset
        if node.op_type == "ConstantOfShape" and isinstance(values.get("value", 0.0), float):
            values["device"] = Device()
        return values

    def argument(self, operator: str, place: int, name: str, home: str) -> Any:
        if not name:
            return None
        if name not in self.constants:
            return self.value(name)
        array = self.constants[name]
        if place in PLAIN.get(operator, ()):
            return array.tolist()
        if operator in SCALARS and array.ndim == 0:
            return array.item()
        if array.dtype.kind in "iub" and array.size <= MOST_LITERAL:
            dtype = torch.bool if array.dtype.kind == "b" else torch.int64
            return Literal(tuple(array.reshape(-1).tolist()), array.shape, dtype)
        return Weight(self.weight(name, array, home))

    def value(self, name: str) -> Any:
        if name in self.refs:
            return self.refs[name]
        if name in self.constants:
            return Weight(self.weight(name, self.constants[name], ""))
        raise Malformed(f"{name!r:.80} is used and nothing computes it")

    def weight(self, name: str, array: np.ndarray, home: str) -> str:
        """The path of a weight: the author's, where it is one, else in the module that uses it first."""
        if name not in self.paths:
            path = (
                name if re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+", name) else ".".join(filter(None, [home, _word(name)]))
            )
            while path in self.tensors:
                path += "_"
            if array.dtype.kind not in "fiub":
                raise NoOperator(f"a constant of type {array.dtype}")
            tensor = torch.from_numpy(np.array(array))
            self.tensors[path], self.paths[name] = tensor, path
            self.result.weights[path] = ("parameter" if tensor.is_floating_point() else "buffer"), True
        return self.paths[name]


def read(model: Any, opset: int) -> tuple[Program, dict[str, torch.Tensor]]:
    """The program of an onnx.ModelProto whose functions are inlined and whose data are loaded, and its weights by path."""
    reader = _Reader(model.graph, opset)
    return reader.program(), reader.tensors


def modules(node: Any) -> tuple[tuple[str, str], ...]:
    """The modules in which a node runs, outermost first: (key, path)."""
    for entry in node.metadata_props:
        if entry.key == SCOPES:
            names = _scopes(entry.value)
            if names is not None:
                return _stack(_unfused(node, _paths(names[:-1])) if names and "norm" in names[-1] else _paths(names[:-1]))
    if "/" in node.name:
        *outer, _ = [part for part in node.name.split("/") if part]
        return _stack(_nested(outer))
    name = _word(node.name)
    return ((name, name),) if name else ()


def _scopes(text: str) -> list[str] | None:
    """The modules around a node as torch's exporter wrote them: a list of texts, the last of which is the node itself."""
    if len(text) > 100_000:
        return None
    try:
        names = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return names


def _paths(names: list[str]) -> list[str]:
    return [".".join(_word(part) for part in name.split(".")) for name in names if name]


def _unfused(node: Any, paths: list[str]) -> list[str]:
    """A convolution that took up the norm after it is noted in that norm's place; its weight still says whose it is."""
    if node.op_type not in ("Conv", "ConvTranspose") or not paths or len(node.input) < 2:
        return paths
    owner, _, last = ".".join(_paths([node.input[1]])).rpartition(".")
    beside = owner.rpartition(".")[0] == paths[-1].rpartition(".")[0]
    return [*paths[:-1], owner] if last == "weight" and owner and beside else paths


def _nested(parts: list[str]) -> list[str]:
    """Paths from `layer1/layer1.0/conv1`: a part that repeats the one before is a numbered child of it."""
    paths: list[str] = []
    before = ""
    for part in parts:
        name = part[len(before) + 1 :] if before and part.startswith(f"{before}.") else part
        name = ".".join(_word(one) for one in name.split(".") if one)
        paths.append(f"{paths[-1]}.{name}" if paths else name)
        before = part
    return paths


def _stack(paths: list[str]) -> tuple[tuple[str, str], ...]:
    return tuple((path, path) for path in paths if path)


def _word(name: str) -> str:
    """A name as a module may have it; underscores of the author's stay.

    >>> _word("_fc"), _word("/fc/MatMul:0/")
    ('_fc', 'fc_MatMul_0')
    """
    return re.sub(r"[^A-Za-z0-9_-]+", " ", name).strip().replace(" ", "_")[:200]


class _Fusion:
    """Activations that exporters write as several operators, joined again, so that they are found as what they are.

    GELU is x/sqrt(2) -> Erf -> +1 -> *x -> *0.5 before opset 20, SiLU x * Sigmoid(x), hard swish x * HardSigmoid(x).
    """

    def __init__(self, nodes: list[Any], constants: dict[str, np.ndarray], outputs: list[str]) -> None:
        self.nodes, self.constants = nodes, constants
        self.producer = {name: node for node in nodes for name in node.output}
        self.uses = Counter([name for node in nodes for name in node.input] + outputs)

    def run(self) -> list[Any]:
        """The nodes with each such group replaced by one operator, at the place of the group's last node."""
        gone: set[int] = set()
        instead: dict[int, Any] = {}
        for node in self.nodes:
            if node.op_type != "Mul":
                continue
            group = self.gelu(node) or self.gated(node)
            if group is not None:
                inner, replacement = group
                gone.update(id(one) for one in inner)
                instead[id(node)] = replacement
        return [instead.get(id(node), node) for node in self.nodes if id(node) not in gone]

    def number(self, name: str, value: float) -> bool:
        constant = self.constants.get(name)
        return constant is not None and constant.size == 1 and math.isclose(float(constant.reshape(-1)[0]), value, rel_tol=1e-5)

    def single(self, name: str, operator: str) -> Any:
        """The node that computes a value that is used once, if it is such an operator."""
        node = self.producer.get(name)
        return node if node is not None and node.op_type == operator and self.uses[name] == 1 else None

    def with_number(self, name: str, operator: str, value: float) -> tuple[Any, str] | None:
        """A node of a tensor and a number, in either order: the node and the tensor's name."""
        node = self.single(name, operator)
        if node is None:
            return None
        for one, other in (tuple(node.input), tuple(reversed(node.input))):
            if self.number(one, value):
                return node, other
        return None

    def gated(self, node: Any) -> tuple[list[Any], Any] | None:
        """x * Sigmoid(x), x * HardSigmoid(x)."""
        for gate_name, x in (tuple(node.input), tuple(reversed(node.input))):
            for operator, name in (("Sigmoid", "Swish"), ("HardSigmoid", "HardSwish")):
                gate = self.single(gate_name, operator)
                if gate is not None and list(gate.input) == [x]:
                    slope = next((one.f for one in gate.attribute if one.name == "alpha"), 0.2)
                    if operator == "Sigmoid" or math.isclose(slope, 1 / 6, rel_tol=1e-5):
                        return [gate], _made(name, x, node, gate)
        return None

    def gelu(self, node: Any) -> tuple[list[Any], Any] | None:
        """The last product of a GELU: 0.5 * (x * (1 + erf)), or (0.5 * x) * (1 + erf)."""
        for one, other in (tuple(node.input), tuple(reversed(node.input))):
            if self.number(one, 0.5):
                product = self.single(other, "Mul")
                factors = None if product is None else tuple(product.input)
            else:
                half = self.with_number(one, "Mul", 0.5)
                product, factors = (None, None) if half is None else (half[0], (half[1], other))
            for x, plus in (factors, tuple(reversed(factors))) if factors else ():
                inner = self.error_function(plus, x)
                if inner is not None:
                    return [product, *inner], _made("Gelu", x, node, inner[0])
        return None

    def error_function(self, plus: str, x: str) -> list[Any] | None:
        """The nodes of 1 + erf(x / sqrt(2))."""
        added = self.with_number(plus, "Add", 1.0)
        erf = None if added is None else self.single(added[1], "Erf")
        if added is None or erf is None:
            return None
        scaled = self.with_number(erf.input[0], "Mul", math.sqrt(0.5))
        division = self.single(erf.input[0], "Div")
        if division is not None and self.number(division.input[1], math.sqrt(2)):
            scaled = division, division.input[0]
        return None if scaled is None or scaled[1] != x else [scaled[0], erf, added[0]]


def _made(operator: str, x: str, last: Any, inner: Any) -> Any:
    from onnx import helper

    node = helper.make_node(operator, [x], list(last.output), name=inner.name)
    node.metadata_props.extend(inner.metadata_props)
    return node
