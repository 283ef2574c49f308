"""Networks in ONNX files: every operator against onnxruntime, names of layers, refusals, and the comparison before use."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.peers.packages import package

from neurotest.errors import BadInput
from neurotest.target.load import load
from neurotest.target.spec import TargetSpec

for name in (
    "onnx",
    "onnxruntime",
):  # first: a module whose import a skip cuts short stays half loaded
    package(name)

from tests.peers.onnx_cases import CASES, MAPS, noise, single  # noqa: E402
from tests.peers.onnx_models import answers, dense, graph, helper, onnx, saved  # noqa: E402

pytestmark = [pytest.mark.peer("onnxruntime"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.mark.parametrize("name", CASES)
def test_an_operator_computes_what_onnxruntime_does(name: str, tmp_path: Path) -> None:
    operator, shape, *further = CASES[name]
    options = further.pop() if further and isinstance(further[-1], dict) else {}
    model, x = single(operator, shape, *further, **options)
    target = load(saved(model, tmp_path))
    (theirs,) = answers(model, x)
    with torch.inference_mode():
        ours = target.module(torch.from_numpy(x)).numpy()
    assert ours.shape == theirs.shape
    # Both sum in float32; the longest sum here has 36 terms of at most 4, and norms divide by what is rarely below 0.1.
    np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=1e-4, atol=1e-4)


@settings(max_examples=25)
@given(
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    pads=st.lists(st.integers(0, 3), min_size=4, max_size=4),
)
def test_any_setting_of_a_convolution(kernel: int, stride: int, dilation: int, pads: list[int], tmp_path_factory: Any) -> None:
    options = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": pads}
    model, x = single("Conv", MAPS, noise(2, 4, kernel, kernel), **options)
    target = load(saved(model, tmp_path_factory.mktemp("conv")))
    (theirs,) = answers(model, x)
    np.testing.assert_allclose(target.module(torch.from_numpy(x)).detach().numpy(), theirs, rtol=1e-4, atol=1e-4)


def test_a_network_by_hand(tmp_path: Path) -> None:
    target = load(saved(dense(), tmp_path), bounds=(-9, 9))
    assert target.shape == (2,)
    assert target.logits(torch.tensor([[1.0, 2.0]])).tolist() == [[5.0, 10.0]]
    assert [layer.name for layer in target.survey().find("pre_activation")] == ["hidden", "last"]
    assert [layer.name for layer in target.survey().find("post_activation")] == ["act"]
    assert sorted(target.module.state_dict()) == ["hidden.bias", "hidden.weight", "last.bias", "last.weight"]
    target.check_reference(torch.rand(3, 2))
    assert target.deviation is not None
    assert target.deviation < 1e-6


def test_what_a_run_stores_opens_the_same_network(tmp_path: Path) -> None:
    target = load(saved(dense(), tmp_path), bounds=(-9, 9))
    description = TargetSpec.of(target)
    assert description.open().fingerprint == target.fingerprint
    twin = copy.deepcopy(target.module)
    twin.hidden.weight.data.mul_(2)
    x = torch.rand(3, 2)
    assert not torch.equal(twin(x), target.module(x))
    (tmp_path / "net.onnx").write_bytes((tmp_path / "net.onnx").read_bytes() + b"\x00")
    with pytest.raises(BadInput, match="has changed since the run was made"):
        description.open()


def test_gradients_reach_inputs_and_weights(tmp_path: Path) -> None:
    target = load(saved(dense(), tmp_path), bounds=(-9, 9))
    x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    target.logits(x)[0, 1].backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2.0, 4.0]]  # 2 relu(x1 + 2 x2) + relu(-x1 - x2)


def gelu_nodes(order: bool) -> list[Any]:
    last = [
        helper.make_node("Mul", ["x", "e"], ["f"], name="/act/Mul"),
        helper.make_node("Mul", ["f", "half"], ["y"], name="/act/Mul_1"),
    ]
    halves = [
        helper.make_node("Mul", ["half", "x"], ["f"], name="/act/Mul"),
        helper.make_node("Mul", ["e", "f"], ["y"], name="/act/Mul_1"),
    ]
    return [
        helper.make_node("Div", ["x", "root"], ["a"], name="/act/Div"), helper.make_node("Erf", ["a"], ["b"], name="/act/Erf"),
        helper.make_node("Add", ["one", "b"], ["e"], name="/act/Add"), *(last if order else halves),
    ]  # fmt: skip


NUMBERS = {"root": np.float32(math.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)}


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        (gelu_nodes(True), NUMBERS),
        (gelu_nodes(False), NUMBERS),
        (
            [
                helper.make_node("Sigmoid", ["x"], ["s"], name="/act/Sigmoid"),
                helper.make_node("Mul", ["s", "x"], ["y"], name="/act/Mul"),
            ],
            {},
        ),
        (
            [
                helper.make_node("HardSigmoid", ["x"], ["s"], name="/act/HardSigmoid", alpha=1 / 6),
                helper.make_node("Mul", ["x", "s"], ["y"], name="/act/Mul"),
            ],
            {},
        ),
    ],
)
def test_activations_in_pieces_are_one_layer(nodes: list[Any], weights: dict[str, Any], tmp_path: Path) -> None:
    model = graph(nodes, ("n", 6), weights)
    target = load(saved(model, tmp_path), bounds=(-9, 9))
    x = noise(3, 6)
    np.testing.assert_allclose(target.module(torch.from_numpy(x)).numpy(), answers(model, x)[0], rtol=1e-5, atol=1e-6)
    assert [layer.name for layer in target.survey().find("post_activation")] == ["act"]


def test_a_gelu_whose_pieces_are_used_elsewhere_stays_in_pieces(tmp_path: Path) -> None:
    nodes = [
        *gelu_nodes(True)[:-1],
        helper.make_node("Mul", ["f", "half"], ["g"], name="/act/Mul_1"),
        helper.make_node("Add", ["g", "b"], ["y"], name="/out/Add"),
    ]
    model = graph(nodes, ("n", 6), NUMBERS)
    x = noise(3, 6)
    np.testing.assert_allclose(
        load(saved(model, tmp_path)).module(torch.from_numpy(x)).numpy(), answers(model, x)[0], rtol=1e-5, atol=1e-6
    )


def test_names_as_exporters_keep_them(tmp_path: Path) -> None:
    model = dense()
    for node, path in zip(model.graph.node, ("layer1.0.fc", "layer1.0.act", "head"), strict=True):
        node.name = f"node_{node.op_type}_{path[-1]}"
        scopes = ["", *([] if path == "head" else ["layer1", "layer1.0"]), path, "op"]
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(scopes))
    names = [layer.name for layer in load(saved(model, tmp_path)).survey().layers]
    assert names == ["layer1.0.fc", "layer1.0.act", "layer1.0", "layer1", "head", ""]
    model = dense()
    for node, name in zip(
        model.graph.node, ("/layer1/layer1.0/layer1.0.1/Gemm", "/layer1/layer1.0/act/Relu", "Gemm_7"), strict=True
    ):
        node.name = name
    names = [layer.name for layer in load(saved(model, tmp_path)).survey().layers]
    assert names == ["layer1.0.1", "layer1.0.act", "layer1.0", "layer1", "Gemm_7", ""]


# -- what is refused


def refusal(model: Any, folder: Path) -> str:
    with pytest.raises(BadInput) as error:
        load(saved(model, folder))
    return str(error.value)


def test_an_unknown_operator_is_named_with_its_opset(tmp_path: Path) -> None:
    assert "operator NonZero (opset 17, node '/one/NonZero')" in refusal(single("NonZero", (3, 4))[0], tmp_path)
    model = single("Relu", (3, 4))[0]
    model.graph.node[0].domain = "my.company"
    assert "operator my.company.Relu (opset 17" in refusal(model, tmp_path)
    assert "AveragePool with dilations" in refusal(
        single("AveragePool", MAPS, opset=19, kernel_shape=[2, 2], dilations=[2, 2])[0], tmp_path
    )


def test_sizes_that_do_not_fit(tmp_path: Path) -> None:
    model = dense()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    assert "exported for batches of exactly 1" in refusal(model, tmp_path)
    assert "dynamic_shapes" in refusal(model, tmp_path)
    model = dense()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 7
    assert "does not run on inputs of size 7" in refusal(model, tmp_path)
    model = dense()
    model.graph.input.append(helper.make_tensor_value_info("z", 1, ["n", 2]))
    assert "takes 2 inputs" in refusal(model, tmp_path)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "link.bin", ""])
def test_weights_are_read_from_the_folder_of_the_file_only(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    assert "not in its folder" in refusal(outside(location), folder)


def outside(location: str) -> Any:
    model = dense()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return model


def test_weights_beside_the_file(tmp_path: Path) -> None:
    onnx.save(dense(), str(tmp_path / "net.onnx"), save_as_external_data=True, location="net.data", size_threshold=0)
    target = load(f"onnx:{tmp_path / 'net.onnx'}", bounds=(-9, 9))
    assert target.logits(torch.tensor([[1.0, 2.0]])).tolist() == [[5.0, 10.0]]
    (tmp_path / "net.data").unlink()
    with pytest.raises(BadInput, match="is not beside it"):
        load(f"onnx:{tmp_path / 'net.onnx'}")


@pytest.mark.parametrize("content", [b"", b"\x08\x07\x12\x07pytorch", b"PK\x03\x04rest", b"no network at all"])
def test_files_that_are_no_networks(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(BadInput, match=r"net\.onnx"):
        load(f"onnx:{tmp_path / 'net.onnx'}")
    with pytest.raises(BadInput, match="there is no such file"):
        load("onnx:gone.onnx")


@settings(max_examples=60)
@given(places=st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 255)), min_size=1, max_size=6), cut=st.integers(0, 400))
def test_damaged_files_give_a_network_or_a_sentence(places: list[tuple[int, int]], cut: int, tmp_path_factory: Any) -> None:
    content = bytearray(dense().SerializeToString())
    for place, value in places:
        content[place % len(content)] = value
    file = tmp_path_factory.mktemp("damaged") / "net.onnx"
    file.write_bytes(content[: len(content) - cut] if cut < 200 else content)
    sentence = ""
    try:
        load(f"onnx:{file}")
    except BadInput as error:
        sentence = str(error)
    assert "\n" not in sentence


def test_sizes_that_nobody_has(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Range", ["zero", "many", "one"], ["r"], name="/r/Range"),
        helper.make_node("Cast", ["r"], ["c"], name="/c/Cast", to=1),
        helper.make_node("Add", ["x", "c"], ["y"], name="/a/Add"),
    ]
    weights = {"zero": np.array(0), "many": np.array(2**40), "one": np.array(1)}
    assert "Range of more than" in refusal(graph(nodes, ("n", 4), weights), tmp_path)


def test_a_conversion_that_differs_is_refused(tmp_path: Path) -> None:
    target = load(saved(dense(), tmp_path), bounds=(-9, 9))
    target.module.hidden.weight.data[0, 0] += 0.5  # stands for an operator that is implemented wrongly
    with pytest.raises(BadInput, match="other answers than onnxruntime"):
        target.check_reference(torch.rand(3, 2))


def test_other_weights_are_another_network(tmp_path: Path) -> None:
    spec = saved(dense(), tmp_path)
    state = {name: 2 * tensor for name, tensor in load(spec).module.state_dict().items()}
    torch.save(state, tmp_path / "new.pt")
    target = load(spec, weights=tmp_path / "new.pt")
    target.check_reference(torch.rand(3, 2))  # there is nothing to compare with
    assert target.deviation is None
