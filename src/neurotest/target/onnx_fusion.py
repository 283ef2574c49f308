"""Activations that exporters write as several ONNX operators, joined again, so that they are found as what they are.

GELU is x/sqrt(2) -> Erf -> +1 -> *x -> *0.5 before opset 20, SiLU x * Sigmoid(x), hard swish x * HardSigmoid(x).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np


def fuse(nodes: list[Any], constants: dict[str, np.ndarray], outputs: list[str]) -> list[Any]:
    """The nodes with each such group replaced by one operator, at the place of the group's last node."""
    return _Fusion(nodes, constants, outputs).run()


class _Fusion:
    def __init__(self, nodes: list[Any], constants: dict[str, np.ndarray], outputs: list[str]) -> None:
        self.nodes, self.constants = nodes, constants
        self.producer = {name: node for node in nodes for name in node.output}
        self.uses = Counter([name for node in nodes for name in node.input] + outputs)

    def run(self) -> list[Any]:
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
