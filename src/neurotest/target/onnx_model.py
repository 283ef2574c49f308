"""The model in an ONNX file. What it would take in memory is checked first: messages, weights in files beside it, functions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from neurotest.errors import BadInput
from neurotest.reading import check_unpacked, on_disk, reading, resolved, user_path
from neurotest.target.onnx_graph import DOMAINS, MOST_NODES
from neurotest.target.onnx_tensors import TYPES

MOST_MESSAGES = 1 << 20  # nodes, attributes, names: each takes some hundred bytes, and may be two in the file
MOST_NUMBERS = 1 << 25  # bytes of integers that stand in the file one by one: each becomes eight
LARGEST_FILE = 2 << 30  # bytes of the file itself: what a protocol buffer can hold
SHARED = 2  # weights may be shared by two tensors; more than that does not occur in exported networks
DAMAGED = "it is damaged or something else"


def read_model(path: Path) -> tuple[Any, int]:
    """The file with what it keeps in others, functions inlined; and the version of its operators."""
    model = _unpacked(path)
    _check_outside(model, path)
    model = _inlined(model, path)
    _load_outside(model.graph, path)
    versions = [one.version for one in model.opset_import if one.domain in DOMAINS]
    return model, max(versions, default=1)


def _unpacked(path: Path) -> Any:
    """The file as an onnx.ModelProto, without what it names beside it."""
    import onnx

    size = path.stat().st_size
    if size > LARGEST_FILE:
        message = f"onnx:{path} is larger than an ONNX file can be ({LARGEST_FILE >> 30} GB without its weights)."
        raise BadInput("too-large", "file", message)
    check_unpacked(f"onnx:{path}", size, on_disk(path))
    with reading(path, "an ONNX file", hint="It is damaged or something else."):
        content = path.read_bytes()
        _check_messages(memoryview(content), onnx.ModelProto.DESCRIPTOR, f"onnx:{path}")
        model = onnx.ModelProto.FromString(content)
    if not model.graph.node:
        raise BadInput("damaged", "graph", f"onnx:{path} holds no graph: {DAMAGED}.")
    return model


def _check_messages(content: memoryview, kind: Any, what: str) -> None:
    """Count what a protocol buffer would be unpacked to; it is not unpacked for that."""
    messages, numbers, left = 0, 0, [(content, kind)]
    while left:
        part, kind = left.pop()
        inner = {field.number: field.message_type for field in kind.fields if field.message_type is not None}
        texts = [field.number for field in kind.fields if field.type == field.TYPE_STRING]
        integers = [field.number for field in kind.fields if field.cpp_type in (1, 2, 3, 4) and field.is_packed]
        at = 0
        while at < len(part):
            key, at = _varint(part, at)
            wire = key & 7
            if wire == 0:
                _, at = _varint(part, at)
            elif wire in (1, 5):
                at += 8 if wire == 1 else 4
            elif wire == 2:
                length, at = _varint(part, at)
                if key >> 3 in inner:
                    messages += 1
                    left.append((part[at : at + length], inner[key >> 3]))
                elif key >> 3 in integers:
                    numbers += length
                elif key >> 3 in texts:
                    str(part[at : at + length], "utf-8")  # raises: protobuf would give bytes, which nothing here expects
                at += length
            else:
                raise ValueError(f"a field of wire type {wire}")
            if messages > MOST_MESSAGES:
                message = f"{what} holds more than {MOST_MESSAGES:,} nodes, attributes and names: {DAMAGED}."
                raise BadInput("too-large", "nodes", message)
            if numbers > MOST_NUMBERS:
                message = f"{what} holds more than {MOST_NUMBERS:,} bytes of integers one by one: export them as raw data."
                raise BadInput("too-large", "integers", message)


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(content):
            raise ValueError("it ends in the middle of a field")
        byte = content[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("a number without an end")


def _tensors(nodes: Any, weights: Any = ()) -> Iterator[Any]:
    """Weights of a graph, and tensors inside its nodes."""
    yield from weights
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for graph in (attribute.g, *attribute.graphs):
                yield from _tensors(graph.node, graph.initializer)


def _all_tensors(model: Any) -> Iterator[Any]:
    """Those that onnxruntime would load from the same file, too: in functions and in what is for training."""
    training = [graph for info in model.training_info for graph in (info.initialization, info.algorithm)]
    for graph in (model.graph, *training):
        yield from _tensors(graph.node, graph.initializer)
    for function in model.functions:
        yield from _tensors(function.node)


def _sparse(graph: Any) -> Iterator[Any]:
    yield from graph.sparse_initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor"):
                yield attribute.sparse_tensor
            yield from attribute.sparse_tensors
            for inner in (attribute.g, *attribute.graphs):
                yield from _sparse(inner)


class _Place(NamedTuple):
    """Where the bytes of a tensor lie."""

    file: Path
    offset: int
    size: int


def _check_outside(model: Any, path: Path) -> None:
    """Refuse weights in files of which more would be read than the tensors need, or than is on the disk."""
    for sparse in _sparse(model.graph):
        if any(_is_outside(tensor) for tensor in (sparse.values, sparse.indices)):
            message = f"onnx:{path}: a sparse weight names a file, which is not read: export it dense."
            raise BadInput("untrusted", "sparse", message)
    places = [_place_of(tensor, path) for tensor in _all_tensors(model) if _is_outside(tensor)]
    if places:
        stored = sum(on_disk(file) for file in {place.file for place in places})
        check_unpacked(f"onnx:{path}, weights beside it", sum(place.size for place in places), stored, times=SHARED)


def _is_outside(tensor: Any) -> bool:
    return bool(tensor.data_location == type(tensor).EXTERNAL)


def _place_of(tensor: Any, path: Path) -> _Place:
    """The bytes that a tensor names: in the folder of the file, also by way of links, and as many as its shape needs."""
    folder, what = resolved(path).parent, f"onnx:{path}"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    file = user_path(location or ".", what) if not location.startswith("~") else Path("/")
    if not location or file.is_absolute() or not resolved(folder / file).is_relative_to(folder):
        message = f"{what} names the file {location!r:.200} for its weights, which is not in its folder: it is refused."
        raise BadInput("untrusted", "location", message)
    if not (folder / file).is_file():
        raise BadInput("not-found", "location", f"{what}: the file {location!r:.200} with its weights is not beside it.")
    if tensor.data_type not in TYPES or any(side < 0 for side in tensor.dims):
        form = f"type {tensor.data_type} and shape {list(tensor.dims)!s:.80}"
        message = f"{what}: {tensor.name!r:.80} has {form}, which is not read: export it in float32."
        raise BadInput("unsupported", "weights", message)
    there = (folder / file).stat().st_size
    offset = _number(entries.get("offset", "0"))
    length = _number(entries.get("length", str(there - offset)))
    size = math.prod(tensor.dims) * TYPES[tensor.data_type].itemsize
    if length != size or offset + length > there:
        message = (
            f"{what}: {tensor.name!r:.80} needs {size:,} bytes by its shape; it names {length:,} from {offset:,} on of the "
            f"{there:,} in {location!r:.200}. Are all files those of one export?"
        )
        raise BadInput("damaged", "weights", message)
    return _Place(folder / file, offset, size)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 19 else -1


def _load_outside(graph: Any, path: Path) -> None:
    """Put the bytes of the files beside it into the tensors of a graph."""
    for tensor in _tensors(graph.node, graph.initializer):
        if _is_outside(tensor):
            place = _place_of(tensor, path)
            with reading(place.file, "weights of an ONNX file"), open(place.file, "rb") as stream:
                stream.seek(place.offset)
                tensor.raw_data = stream.read(place.size)
                tensor.data_location = type(tensor).DEFAULT


# -- functions put where they are called; what that makes of a small file is added up before

# Bytes that functions may become in any file, and beyond that, how often what is on the disk. onnx holds the result several
# times, and nodes inside of nodes are counted twice here.
INLINED, INLINED_TIMES = 128 << 20, 4
SUFFIX = 24  # bytes that make a name another one where a function stands a second time


def _inlined(model: Any, path: Path) -> Any:
    """The model without functions. Weights beside the file are checked again: each call of a function reads its own."""
    from onnx import inliner

    if not model.functions:
        return model
    _check_functions(model, path)
    with reading(path, "an ONNX file"):
        model = inliner.inline_local_functions(model)
    if not model.graph.node:  # so it answers if the result is too large for a protocol buffer
        message = f"onnx:{path} holds no graph once its functions stand where they are called: {DAMAGED}."
        raise BadInput("damaged", "graph", message)
    _check_outside(model, path)
    return model


def _check_functions(model: Any, path: Path) -> None:
    """Refuse functions that are too much, once each stands where it is called."""
    sizes = _Sizes(model, f"onnx:{path}")
    try:
        size = sizes.nodes(model.graph.node, ())
    except RecursionError:
        raise BadInput("damaged", "depth", f"onnx:{path}: its functions call each other too deeply: {DAMAGED}.") from None
    check_unpacked(
        f"onnx:{path}, functions where they are called", size.bytes, on_disk(path), always=INLINED, times=INLINED_TIMES
    )


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
                message = f"{self.what}: its functions are more than {MOST_NODES:,} nodes where they are called: {DAMAGED}."
                raise BadInput("too-large", "functions", message)
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
