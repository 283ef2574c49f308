"""What an ONNX file would take in memory, checked before it is loaded: messages, and weights in files beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from neurotest.errors import BadInput
from neurotest.reading import check_unpacked, on_disk, reading, resolved, user_path
from neurotest.target.onnx_tensors import TYPES

MOST_MESSAGES = 1 << 20  # nodes, attributes, names: each takes some hundred bytes, and may be two in the file
MOST_NUMBERS = 1 << 25  # bytes of integers that stand in the file one by one: each becomes eight
TIMES = 2  # weights may be shared by two tensors; more than that does not occur in exported networks
DAMAGED = "it is damaged or something else"


def read_model(path: Path, largest: int) -> Any:
    """The file as an onnx.ModelProto, without what it names beside it."""
    import onnx

    size = path.stat().st_size
    if size > largest:
        raise BadInput(
            "too-large", "file", f"onnx:{path} is larger than an ONNX file can be ({largest >> 30} GB without its weights)."
        )
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
                raise BadInput(
                    "too-large", "nodes", f"{what} holds more than {MOST_MESSAGES:,} nodes, attributes and names: {DAMAGED}."
                )
            if numbers > MOST_NUMBERS:
                raise BadInput(
                    "too-large",
                    "integers",
                    f"{what} holds more than {MOST_NUMBERS:,} bytes of integers one by one: export them as raw data.",
                )


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


def tensors(graph: Any) -> Iterator[Any]:
    """All tensors of a graph, and of those inside its nodes."""
    yield from graph.initializer
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for graph in (attribute.g, *attribute.graphs):
                yield from tensors(graph)


def _all_tensors(model: Any) -> Iterator[Any]:
    """Those that onnxruntime would load from the same file, too: in functions and in what is for training."""
    yield from tensors(model.graph)
    for function in model.functions:
        yield from _of_nodes(function.node)
    for training in model.training_info:
        yield from tensors(training.initialization)
        yield from tensors(training.algorithm)


def _sparse(graph: Any) -> Iterator[Any]:
    yield from graph.sparse_initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor"):
                yield attribute.sparse_tensor
            yield from attribute.sparse_tensors
            for inner in (attribute.g, *attribute.graphs):
                yield from _sparse(inner)


class Place(NamedTuple):
    """Where the bytes of a tensor lie."""

    file: Path
    offset: int
    size: int


def check_outside(model: Any, path: Path) -> None:
    """Refuse weights in files of which more would be read than the tensors need, or than is on the disk."""
    for sparse in _sparse(model.graph):
        if any(is_outside(tensor) for tensor in (sparse.values, sparse.indices)):
            raise BadInput(
                "untrusted", "sparse", f"onnx:{path}: a sparse weight names a file, which is not read: export it dense."
            )
    places = [place_of(tensor, path) for tensor in _all_tensors(model) if is_outside(tensor)]
    if places:
        stored = sum(on_disk(file) for file in {place.file for place in places})
        check_unpacked(f"onnx:{path}, weights beside it", sum(place.size for place in places), stored, times=TIMES)


def is_outside(tensor: Any) -> bool:
    return bool(tensor.data_location == type(tensor).EXTERNAL)


def place_of(tensor: Any, path: Path) -> Place:
    """The bytes that a tensor names: in the folder of the file, also by way of links, and as many as its shape needs."""
    folder, what = resolved(path).parent, f"onnx:{path}"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    file = user_path(location or ".", what) if not location.startswith("~") else Path("/")
    if not location or file.is_absolute() or not resolved(folder / file).is_relative_to(folder):
        raise BadInput(
            "untrusted",
            "location",
            f"{what} names the file {location!r:.200} for its weights, which is not in its folder: it is refused.",
        )
    if not (folder / file).is_file():
        raise BadInput("not-found", "location", f"{what}: the file {location!r:.200} with its weights is not beside it.")
    if tensor.data_type not in TYPES or any(side < 0 for side in tensor.dims):
        form = f"type {tensor.data_type} and shape {list(tensor.dims)!s:.80}"
        raise BadInput(
            "unsupported", "weights", f"{what}: {tensor.name!r:.80} has {form}, which is not read: export it in float32."
        )
    there = (folder / file).stat().st_size
    offset = _number(entries.get("offset", "0"))
    length = _number(entries.get("length", str(there - offset)))
    size = math.prod(tensor.dims) * TYPES[tensor.data_type].itemsize
    if length != size or offset + length > there:
        raise BadInput(
            "damaged",
            "weights",
            f"{what}: {tensor.name!r:.80} needs {size:,} bytes by its shape; it names {length:,} from {offset:,} on of the "
            f"{there:,} in {location!r:.200}. Are all files those of one export?",
        )
    return Place(folder / file, offset, size)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 19 else -1


def load_outside(graph: Any, path: Path) -> None:
    """Put the bytes of the files beside it into the tensors of a graph."""
    for tensor in tensors(graph):
        if is_outside(tensor):
            place = place_of(tensor, path)
            with reading(place.file, "weights of an ONNX file"), open(place.file, "rb") as stream:
                stream.seek(place.offset)
                tensor.raw_data = stream.read(place.size)
                tensor.data_location = type(tensor).DEFAULT
