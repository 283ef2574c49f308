"""Bombs in files of networks: weights, exported programs, ONNX."""

from __future__ import annotations

import functools
import io
import itertools
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

from tests.fuzz.bombs.inputs import pour
from tests.fuzz.bombs.registry import bomb, fine, zeros
from tests.fuzz.bombs.thrift import varint

MB = 1 << 20


def state(folder: Path) -> object:
    from neurotest.target.weights import read_state

    return read_state(next(folder.glob("w.*")))


def network(folder: Path) -> object:
    from neurotest.target.load import load

    file = next(file for file in folder.iterdir() if file.suffix in (".pt2", ".onnx"))
    return load(f"{file.suffix[1:]}:{file}")


# -- weights


def checkpoint(folder: Path, size: int, method: int = zipfile.ZIP_DEFLATED, content: bytes | None = None) -> None:
    """A state dict of one tensor of zeros of so many bytes as torch saves it; content: another pickle."""
    import torch

    out = io.BytesIO()
    torch.save({"w": torch.zeros(1_000_003, dtype=torch.uint8)}, out)
    with zipfile.ZipFile(out) as small, zipfile.ZipFile(folder / "w.pt", "w", method, compresslevel=1) as archive:
        for name in small.namelist():
            if name.endswith("data.pkl"):
                text = small.read(name).replace(pickle.dumps(1_000_003, 2)[2:-1], pickle.dumps(size, 2)[2:-1])
                archive.writestr(name, text if content is None else content)
            elif name.endswith("data/0"):
                with archive.open(name, "w", force_zip64=True) as storage:
                    pour(storage, size)
            else:
                archive.writestr(name, small.read(name))


@bomb("weights of 1.2 GB, deflated", state)
def deflated(folder: Path) -> None:
    checkpoint(folder, 1200 * MB)


@fine("weights of 90 MB, deflated", state)
def deflated_fine(folder: Path) -> None:
    checkpoint(folder, 90 * MB)


@bomb("weights, a pickle that makes 1.5 GB", state)
def bytearrays(folder: Path) -> None:
    made = b"cbuiltins\nbytearray\n" + b"J" + struct.pack("<i", 1_500_000_000) + b"\x85R"
    checkpoint(folder, 8, content=b"\x80\x02}X\x01\x00\x00\x00w" + made + b"s.")


@bomb("weights, a pickle that doubles a text 25 times", state)
def doubled(folder: Path) -> None:
    words = b"X\x40\x00\x00\x00" + b"a" * 64 + b"X\x05\x00\x00\x00ascii\x86R"
    inner = b"c_codecs\nencode\n" * 26 + words + b"X\x03\x00\x00\x00hex\x86R" * 25
    checkpoint(folder, 8, content=b"\x80\x02}X\x01\x00\x00\x00w" + inner + b"s.")


@bomb("weights of 1.5 GB, safetensors with holes", state)
def safetensors(folder: Path) -> None:
    about = json.dumps({"w": {"dtype": "U8", "shape": [1500 * MB], "data_offsets": [0, 1500 * MB]}}).encode()
    zeros(folder / "w.safetensors", 8 + len(about) + 1500 * MB, struct.pack("<Q", len(about)) + about)


@bomb("weights of 1.5 GB, an old pickle with holes", state)
def old(folder: Path) -> None:
    zeros(folder / "w.pt", 1500 * MB, b"\x80\x02")


# -- exported programs


def program(folder: Path, **changes: Any) -> None:
    """An exported network, deflated; changes: sizes of zeros, or texts, in place of members by the end of their names."""
    import torch
    from torch import nn

    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()
    shapes = ({0: torch.export.Dim("batch")},)
    exported = io.BytesIO()
    torch.export.save(torch.export.export(net, (torch.zeros(2, 1, 4, 4),), dynamic_shapes=shapes), exported)
    with (
        zipfile.ZipFile(exported) as small,
        zipfile.ZipFile(folder / "n.pt2", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        for name in small.namelist():
            other = next((value for end, value in changes.items() if name.endswith(end.replace("__", "."))), None)
            if isinstance(other, int):
                with archive.open(name, "w", force_zip64=True) as out:
                    pour(out, other)
            else:
                archive.writestr(name, small.read(name) if other is None else other)


@bomb("pt2 of 1.2 GB, deflated", network)
def pt2(folder: Path) -> None:
    program(folder, weight_0=1200 * MB)


@bomb("pt2, a graph of 20 million lists, deflated", network)
def pt2_lists(folder: Path) -> None:
    program(folder, model__json="[" + "[]," * (20 * MB) + "[]]")


@bomb("pt2, a graph of 10 million lists, deflated", network)
def pt2_fewer_lists(folder: Path) -> None:
    program(folder, model__json="[" + "[]," * (10 * MB) + "[]]")


@fine("pt2, deflated", network)
def pt2_fine(folder: Path) -> None:
    program(folder)


# -- ONNX

onnx_bomb = functools.partial(bomb, read=network, needs=("onnx", "onnxruntime"))


def graph(folder: Path, initialisers: list[Any], nodes: list[Any] | None = None, **more: Any) -> None:
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    steps = nodes or [helper.make_node("Add", ["x", "w0"], ["y"])]
    inner = helper.make_graph(steps, "g", [x], [y], initialisers, sparse_initializer=more.pop("sparse", []))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("here", 1)]
    model = helper.make_model(inner, opset_imports=opsets, ir_version=8, **more)
    (folder / "n.onnx").write_bytes(model.SerializeToString())


def function(name: str, nodes: list[Any], overload: str = "", **more: Any) -> Any:
    """A function of the domain `here`, from `a` to `b`."""
    from onnx import helper

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("here", 1)]
    made = helper.make_function("here", name, ["a"], ["b"], nodes, opsets, **more)
    made.overload = overload
    return made


def calls(name: str, times: int, start: str = "x", end: str = "y", overload: str = "", **attributes: Any) -> list[Any]:
    """Nodes that call a function so often, each with what the one before returns."""
    from onnx import helper

    names = [start, *(f"{start}{n}" for n in range(1, times)), end]
    nodes = [helper.make_node(name, [a], [b], domain="here", **attributes) for a, b in itertools.pairwise(names)]
    for node in nodes:
        node.overload = overload
    return nodes


def numbers(size: int, name: str = "value", **more: Any) -> Any:
    """A constant of so many bytes; ref: it is an attribute of the call."""
    from onnx import AttributeProto, TensorProto, helper

    if "ref" in more:
        node = helper.make_node("Constant", [], ["c"])
        node.attribute.add(name=name, ref_attr_name=more["ref"], type=AttributeProto.TENSOR)
        return node
    tensor = helper.make_tensor("v", TensorProto.UINT8, [size], bytes(size), raw=True)
    return helper.make_node("Constant", [], ["c"], value=tensor)


def outside(name: str, dims: list[int], **entries: Any) -> Any:
    """A tensor whose values lie in the file beside."""
    from onnx import TensorProto

    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "w.bin", **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


@onnx_bomb("ONNX, 30 numbers that name a file of 1 GB with holes")
def onnx_outside(folder: Path) -> None:
    zeros(folder / "w.bin", 1024 * MB)
    graph(folder, [outside(f"w{n}", [1]) for n in range(30)])


@onnx_bomb("ONNX, 30 numbers that say they have 1 GB")
def onnx_length(folder: Path) -> None:
    zeros(folder / "w.bin", 1024 * MB)
    graph(folder, [outside(f"w{n}", [1], offset=0, length=1024 * MB) for n in range(30)])


@onnx_bomb("ONNX, weights of 1 GB in a file with holes")
def onnx_holes(folder: Path) -> None:
    zeros(folder / "w.bin", 1024 * MB)
    graph(folder, [outside("w0", [64 * MB, 4], length=1024 * MB)])


@bomb("ONNX, weights of 250 MB in a file with holes", network, refused=None, needs=("onnx", "onnxruntime"))
def onnx_some(folder: Path) -> None:
    zeros(folder / "w.bin", 240 * MB)
    graph(folder, [outside("w0", [15 * MB, 4], length=240 * MB)])


@onnx_bomb("ONNX, a weight of 60 million numbers one by one")
def onnx_numbers(folder: Path) -> None:
    from onnx import TensorProto

    def field(number: int, content: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(content)) + content

    graph(folder, [], [])
    tensor = b"\x08" + varint(60 * MB) + b"\x10" + varint(TensorProto.INT64) + field(7, bytes(60 * MB)) + field(8, b"w0")
    with open(folder / "n.onnx", "ab") as out:
        out.write(field(7, field(5, tensor)))  # a second graph is joined to the first


@onnx_bomb("ONNX, 40 weights of 60 MB that are one place of a file")
def onnx_shared(folder: Path) -> None:
    (folder / "w.bin").write_bytes(bytes(60 * MB))
    graph(folder, [outside(f"w{n}", [15 * MB], length=60 * MB) for n in range(40)])


@onnx_bomb("ONNX, a sparse weight that names a file")
def onnx_sparse(folder: Path) -> None:
    from onnx import SparseTensorProto, TensorProto, helper

    zeros(folder / "w.bin", 1024 * MB)
    indices = helper.make_tensor("i", TensorProto.INT64, [1], [0])
    sparse = SparseTensorProto(values=outside("w1", [1]), indices=indices, dims=[4])
    graph(folder, [helper.make_tensor("w0", TensorProto.FLOAT, [4], [0.0] * 4)], sparse=[sparse])


@onnx_bomb("ONNX, a branch whose weight names a file")
def onnx_branch(folder: Path) -> None:
    from onnx import TensorProto, helper

    zeros(folder / "w.bin", 1024 * MB)
    out = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    inner = helper.make_graph([helper.make_node("Identity", ["v"], ["z"])], "b", [], [out], [outside("v", [1])])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)]
    graph(folder, [helper.make_tensor("c", TensorProto.BOOL, [], [True])], nodes)


@onnx_bomb("ONNX, functions that call each other twice, 30 deep")
def onnx_functions(folder: Path) -> None:
    from onnx import helper

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("here", 1)]
    functions = [helper.make_function("here", "f0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opsets)]
    for n in range(1, 30):
        calls = [helper.make_node(f"f{n - 1}", [a], [b], domain="here") for a, b in (("a", "m"), ("m", "b"))]
        functions.append(helper.make_function("here", f"f{n}", ["a"], ["b"], calls, opsets))
    graph(folder, [], [helper.make_node("f29", ["x"], ["y"], domain="here")], functions=functions)


@onnx_bomb("ONNX, 10 million nodes in functions behind small ones of the same name")
def onnx_overloads(folder: Path) -> None:
    from onnx import helper

    relu = helper.make_node("Relu", ["a"], ["b"])
    functions = [function("f0", [relu], "x")]
    functions += [function(f"f{n}", calls(f"f{n - 1}", 10, "a", "b", "x"), "x") for n in range(1, 8)]
    graph(folder, [], calls("f7", 1, overload="x"), functions=[*functions, *(function(f"f{n}", [relu]) for n in range(8))])


@onnx_bomb("ONNX, 10 million nodes in functions that are called as overloads")
def onnx_joined_names(folder: Path) -> None:
    from onnx import helper

    functions = [function("f0::x", [helper.make_node("Relu", ["a"], ["b"])])]
    functions += [function(f"f{n}::x", calls(f"f{n - 1}", 10, "a", "b", "x")) for n in range(1, 8)]
    graph(folder, [], calls("f7", 1, overload="x"), functions=functions)


@onnx_bomb("ONNX, a constant of 1 MB in a function that is called 3,000 times")
def onnx_constant(folder: Path) -> None:
    from onnx import helper

    body = [numbers(MB), helper.make_node("Relu", ["a"], ["b"])]
    graph(folder, [], calls("f", 3000), functions=[function("f", body)])


@onnx_bomb("ONNX, an attribute of 1 MB that a function uses 1,500 times")
def onnx_attribute(folder: Path) -> None:
    from onnx import helper

    inner = function("f", [*([numbers(0, ref="v")] * 30), helper.make_node("Relu", ["a"], ["b"])], attributes=["v"])
    outer = function("g", calls("f", 50, "a", "b"), attributes=["v"])
    for node in outer.node:
        node.attribute.add().CopyFrom(inner.node[0].attribute[0])
        node.attribute[0].name = "v"
    value = numbers(MB).attribute[0].t
    graph(folder, [], calls("g", 1, v=value), functions=[inner, outer])


@onnx_bomb("ONNX, a name of 1 MB that a function uses 1,500 times")
def onnx_name(folder: Path) -> None:
    from onnx import helper

    body = [helper.make_node("Sum", ["a"] * 1500, ["b"])]
    first = helper.make_node("Relu", ["x"], ["n" * MB])
    graph(folder, [], [first, *calls("f", 1, "n" * MB)], functions=[function("f", body)])


@onnx_bomb("ONNX, a function called 500 times with a weight of 4 MB in a file beside it")
def onnx_function_outside(folder: Path) -> None:
    from onnx import helper

    (folder / "w.bin").write_bytes(bytes(4 * MB))
    weight = helper.make_node("Constant", [], ["c"], value=outside("v", [MB], offset=0, length=4 * MB))
    body = [weight, helper.make_node("Relu", ["a"], ["b"])]
    graph(folder, [], calls("f", 500), functions=[function("f", body)])


@fine("ONNX, functions inside of functions, with attributes", network, needs=("onnx", "onnxruntime"))
def onnx_functions_fine(folder: Path) -> None:
    from onnx import AttributeProto, helper

    leaky = helper.make_node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT)
    inner = function("f", [leaky], "x", attributes=["slope"])
    outer = function("f", calls("f", 40, "a", "b", "x", slope=0.5))
    graph(folder, [], calls("f", 40), functions=[inner, outer])


@onnx_bomb("ONNX, 8 million empty nodes")
def onnx_nodes(folder: Path) -> None:
    graph(folder, [], [])
    with open(folder / "n.onnx", "ab") as out:
        out.write(b"\x3a" + varint(16 * MB) + b"\x0a\x00" * (8 * MB))  # field 1 of a graph: a node of no bytes


@fine("ONNX, weights of 40 MB in a file beside it", network, needs=("onnx", "onnxruntime"))
def onnx_fine(folder: Path) -> None:
    from onnx import helper

    nodes = [helper.make_node("MatMul", ["x", "w0"], ["h"]), helper.make_node("MatMul", ["h", "w1"], ["y"])]
    side = 4 * 10 * MB // 32
    first, second = outside("w0", [4, side], length=16 * side), outside("w1", [side, 4], offset=16 * side, length=16 * side)
    (folder / "w.bin").write_bytes(bytes(32 * side))
    graph(folder, [first, second], nodes)


# -- folders of transformers

VIT: dict[str, Any] = {
    "model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 1, "intermediate_size": 8, "image_size": 8, "patch_size": 4, "num_channels": 3,
}  # fmt: skip


def transformer(folder: Path, **changes: Any) -> None:
    """A folder whose weights are a single number."""
    about = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "config.json").write_text(json.dumps(VIT | changes))
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": {"height": 8, "width": 8}}))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(about)) + about + bytes(4))


def transformer_folder(folder: Path) -> object:
    from neurotest.target.load import load

    return load(f"hf:{folder}")


@bomb("hf, layers of 7,000 numbers and weights of one", transformer_folder, needs=("transformers",))
def hf_wide(folder: Path) -> None:
    transformer(folder, hidden_size=7000, intermediate_size=7000)  # more than the memory, less than the addresses


@bomb("hf, 20,000 layers and weights of one number", transformer_folder, needs=("transformers",))
def hf_deep(folder: Path) -> None:
    transformer(folder, num_hidden_layers=20_000)
