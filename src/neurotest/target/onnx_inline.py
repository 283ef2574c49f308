"""Functions of an ONNX file put where they are called; what that makes of a small file is added up before."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from neurotest.errors import BadInput
from neurotest.reading import check_unpacked, on_disk, reading
from neurotest.target.onnx_graph import DOMAINS, MOST_NODES
from neurotest.target.onnx_outside import DAMAGED, check_outside

# Bytes that functions may become in any file, and beyond that, how often what is on the disk. onnx holds the result several
# times, and nodes inside of nodes are counted twice here.
ALWAYS, TIMES = 128 << 20, 4
SUFFIX = 24  # bytes that make a name another one where a function stands a second time


def inlined(model: Any, path: Path) -> Any:
    """The model without functions. Weights beside the file are checked again: each call of a function reads its own."""
    from onnx import inliner

    if not model.functions:
        return model
    check_functions(model, path)
    with reading(path, "an ONNX file"):
        model = inliner.inline_local_functions(model)
    if not model.graph.node:  # so it answers if the result is too large for a protocol buffer
        raise BadInput(
            "damaged", "graph", f"onnx:{path} holds no graph once its functions stand where they are called: {DAMAGED}."
        )
    check_outside(model, path)
    return model


def check_functions(model: Any, path: Path) -> None:
    """Refuse functions that are too much, once each stands where it is called."""
    sizes = _Sizes(model, f"onnx:{path}")
    try:
        size = sizes.nodes(model.graph.node, ())
    except RecursionError:
        raise BadInput("damaged", "depth", f"onnx:{path}: its functions call each other too deeply: {DAMAGED}.") from None
    check_unpacked(f"onnx:{path}, functions where they are called", size.bytes, on_disk(path), always=ALWAYS, times=TIMES)


class _Size(NamedTuple):
    """refs: how often an attribute of the call is copied, by its name."""

    nodes: int
    bytes: int
    refs: Counter[str]


class _Sizes:
    def __init__(self, model: Any, what: str) -> None:
        self.what = what
        self.functions = {_key(one.domain, one.name, one): one for one in model.functions}
        if len(self.functions) < len(model.functions):
            raise BadInput("damaged", "names", f"{what}: two of its functions have one name: {DAMAGED}.")
        self.known: dict[str, _Size] = {}
        # A function's nodes name what the call gives them, so that each name may become the longest there is.
        everywhere = [model.graph.node, *(one.node for one in model.functions)]
        self.longest = SUFFIX + max((_longest(nodes) for nodes in everywhere), default=0)

    def nodes(self, nodes: Any, around: tuple[str, ...]) -> _Size:
        count, size, refs = 0, 0, Counter[str]()
        for node in nodes:
            one = self.node(node, around)
            count, size = count + one.nodes, size + one.bytes
            refs.update(one.refs)
            if count > MOST_NODES:
                raise BadInput(
                    "too-large",
                    "functions",
                    f"{self.what}: its functions are more than {MOST_NODES:,} nodes where they are called: {DAMAGED}.",
                )
        return _Size(count, size, refs)

    def node(self, node: Any, around: tuple[str, ...]) -> _Size:
        key = _key(node.domain, node.op_type, node)
        if key in around:
            raise BadInput("damaged", "recursion", f"{self.what}: its function {node.op_type!r:.80} calls itself: {DAMAGED}.")
        attributes, names = list(node.attribute), {attribute.name for attribute in node.attribute}
        if (function := self.functions.get(key)) is None:
            size = node.ByteSize() - sum(attribute.ByteSize() for attribute in attributes)
            start = _Size(1, size + self.longest * (1 + len(node.input) + len(node.output)), Counter(names))
        else:
            start = self.function(function, key, around)
            attributes += [one for one in function.attribute_proto if one.name not in names]
        count, size, refs = start.nodes, start.bytes, Counter[str]()
        for attribute in attributes:
            times, one = start.refs[attribute.name], self.attribute(attribute, around)
            count, size = count + times * one.nodes, size + times * one.bytes
            refs.update({name: times * number for name, number in one.refs.items()})
        return _Size(count, size, refs)

    def function(self, function: Any, key: str, around: tuple[str, ...]) -> _Size:
        if key not in self.known:
            body = self.nodes(function.node, (*around, key))
            about = sum(value.ByteSize() + self.longest for value in getattr(function, "value_info", ()))
            self.known[key] = body._replace(bytes=body.bytes + about)
        return self.known[key]

    def attribute(self, attribute: Any, around: tuple[str, ...]) -> _Size:
        count, size, refs = 0, attribute.ByteSize(), Counter[str]()
        if attribute.ref_attr_name:
            refs[attribute.ref_attr_name] = 1
        for graph in (attribute.g, *attribute.graphs):
            one = self.nodes(graph.node, around)
            count, size = count + one.nodes, size + one.bytes
            refs.update(one.refs)
        return _Size(count, size, refs)


def _key(domain: str, name: str, one: Any) -> str:
    """What onnx looks a function up by: one text, so that `f::x` is also the overload `x` of `f`."""
    overload = getattr(one, "overload", "")  # since onnx 1.16
    return "::".join(("" if domain in DOMAINS else domain, name, *([overload] if overload else ())))


def _longest(nodes: Any) -> int:
    """Bytes of the longest name of a value."""
    longest = 0
    for node in nodes:
        graphs = [graph for attribute in node.attribute for graph in (attribute.g, *attribute.graphs)]
        sizes = [len(name.encode()) for name in (*node.input, *node.output)]
        longest = max(longest, *sizes, *(_longest(graph.node) for graph in graphs), 0)
    return longest
