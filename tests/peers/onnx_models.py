"""Small ONNX files, made node by node, and what onnxruntime answers to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.peers.packages import package

onnx, onnxruntime = package("onnx"), package("onnxruntime")
helper, numpy_helper = onnx.helper, onnx.numpy_helper


def graph(nodes: list[Any], x: tuple[Any, ...], weights: dict[str, np.ndarray], *, opset: int = 17, outputs: int = 1) -> Any:
    """A model from `x` (its sizes; text for one that varies) to `y`, which its last node gives."""
    names = [*nodes[-1].output][:outputs]
    made = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, list(x))],
        [helper.make_empty_tensor_value_info(name) for name in names],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def saved(model: Any, folder: Path, name: str = "net.onnx") -> str:
    onnx.save(model, str(folder / name))
    return f"onnx:{folder / name}"


def answers(model: Any, x: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})  # type: ignore[no-any-return]


def dense() -> Any:
    """x (n, 2) -> relu(x W + b) -> times V: by hand, [1, 2] gives [5, -3], [5, 0] and then [5, 10]."""
    nodes = [
        helper.make_node("Gemm", ["x", "hidden.weight", "hidden.bias"], ["a"], name="/hidden/Gemm", transB=1),
        helper.make_node("Relu", ["a"], ["b"], name="/act/Relu"),
        helper.make_node("Gemm", ["b", "last.weight", "last.bias"], ["y"], name="/last/Gemm", transB=1),
    ]
    weights = {
        "hidden.weight": np.array([[1, 2], [-1, -1]], np.float32), "hidden.bias": np.zeros(2, np.float32),
        "last.weight": np.array([[1, 0], [2, 1]], np.float32), "last.bias": np.zeros(2, np.float32),
    }  # fmt: skip
    return graph(nodes, ("n", 2), weights)
