"""One ONNX operator each: its name, the size of its input, further inputs that are constants, and its attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.peers.onnx_models import graph, helper

MAPS = (3, 4, 6, 6)


def noise(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return np.random.default_rng(0).uniform(low, high, shape).astype(np.float32)


def single(
    operator: str, shape: tuple[int, ...], *further: Any, opset: int = 17, outputs: int = 1, low: float = -2.0, **options: Any
) -> Any:
    """A model of one operator on x and further constants, and an input for it."""
    names = [f"c{place}" if value is not None else "" for place, value in enumerate(further)]
    node = helper.make_node(operator, ["x", *names], [f"y{i}" for i in range(outputs)], name=f"/one/{operator}", **options)
    weights = {name: value for name, value in zip(names, further, strict=True) if value is not None}
    return graph([node], ("n", *shape[1:]), weights, opset=opset, outputs=1), noise(*shape, low=low)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


W = noise(5, 4, 3, 3)
CASES: dict[str, Any] = {
    **{
        name: (name, MAPS)
        for name in (
            "Relu",
            "LeakyRelu",
            "Elu",
            "Selu",
            "Celu",
            "Sigmoid",
            "HardSigmoid",
            "HardSwish",
            "Tanh",
            "Softplus",
            "Softsign",
            "Abs",
            "Neg",
            "Exp",
            "Reciprocal",
            "Floor",
            "Ceil",
            "Round",
            "Sign",
            "Sin",
            "Cos",
            "Tan",
            "Atan",
            "Sinh",
            "Cosh",
            "Erf",
            "Identity",
            "ThresholdedRelu",
            "GlobalAveragePool",
            "GlobalMaxPool",
            "Flatten",
            "Dropout",
            "Transpose",
        )
    },
    "Gelu": ("Gelu", MAPS, {"opset": 20}),
    "Gelu tanh": ("Gelu", MAPS, {"opset": 20, "approximate": "tanh"}),
    "Mish": ("Mish", MAPS, {"opset": 18}),
    "Log": ("Log", MAPS, {"low": 0.1}),
    "Sqrt": ("Sqrt", MAPS, {"low": 0.1}),
    "LeakyRelu slope": ("LeakyRelu", MAPS, {"alpha": 0.3}),
    "PRelu": ("PRelu", MAPS, noise(4, 1, 1)),
    "Clip": ("Clip", MAPS, np.float32(0), np.float32(1.5)),
    "Clip below": ("Clip", MAPS, None, np.float32(1)),
    "Clip old": ("Clip", MAPS, {"opset": 10, "min": -1.0, "max": 1.0}),
    "Softmax": ("Softmax", MAPS),
    "Softmax axis": ("Softmax", MAPS, {"axis": 1}),
    "LogSoftmax": ("LogSoftmax", MAPS),
    "Softmax old": ("Softmax", MAPS, {"opset": 11, "axis": 2}),
    "Conv": ("Conv", MAPS, W, noise(5)),
    "Conv same": ("Conv", MAPS, W, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "Conv lower": ("Conv", MAPS, W, {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "Conv uneven": ("Conv", MAPS, W, {"pads": [0, 1, 2, 1], "strides": [2, 1]}),
    "Conv group": ("Conv", MAPS, noise(4, 1, 3, 3), {"group": 4, "dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    "Conv 1d": ("Conv", (3, 4, 9), noise(2, 4, 3), noise(2)),
    "Conv 3d": ("Conv", (2, 2, 4, 4, 4), noise(3, 2, 2, 2, 2)),
    "ConvTranspose": ("ConvTranspose", MAPS, noise(4, 3, 3, 3), noise(3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "Gemm": ("Gemm", (3, 4), noise(4, 5), noise(5)),
    "Gemm scaled": ("Gemm", (3, 4), noise(5, 4), noise(5), {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    "MatMul": ("MatMul", (3, 4, 6), noise(6, 5)),
    "Einsum": ("Einsum", (3, 4, 6), noise(6, 5), {"equation": "bij,jk->bik"}),
    "MaxPool": ("MaxPool", MAPS, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "MaxPool ceil": ("MaxPool", MAPS, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "MaxPool same": ("MaxPool", MAPS, {"kernel_shape": [2, 2], "strides": [1, 1], "auto_pad": "SAME_UPPER"}),
    "AveragePool": ("AveragePool", MAPS, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "AveragePool pads": ("AveragePool", MAPS, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "AveragePool uneven": ("AveragePool", MAPS, {"kernel_shape": [3, 3], "pads": [0, 1, 2, 1], "strides": [2, 2]}),
    "AveragePool counted": ("AveragePool", MAPS, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    "BatchNormalization": ("BatchNormalization", MAPS, noise(4), noise(4), noise(4), noise(4, low=0.5)),
    "InstanceNormalization": ("InstanceNormalization", MAPS, noise(4), noise(4)),
    "LayerNormalization": ("LayerNormalization", (3, 4, 6), noise(6), noise(6)),
    "LayerNormalization axes": ("LayerNormalization", (3, 4, 6), noise(4, 6), {"axis": 1}),
    "GroupNormalization": ("GroupNormalization", MAPS, noise(4), noise(4), {"num_groups": 2, "opset": 21}),
    "LRN": ("LRN", MAPS, {"size": 3}),
    "LpNormalization": ("LpNormalization", (3, 4, 6), {"axis": 2}),
    **{
        f"{name} 17": (name, MAPS, {"axes": [2, 3], "keepdims": 0})
        for name in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
    },
    **{f"{name} 18": (name, MAPS, i64(2, 3), {"opset": 18}) for name in ("ReduceMean", "ReduceMax", "ReduceL2")},
    "ReduceSum": ("ReduceSum", MAPS, i64(1)),
    "ReduceSum old": ("ReduceSum", MAPS, {"opset": 11, "axes": [1]}),
    "ReduceMean all": ("ReduceMean", (3, 4)),
    "Add": ("Add", MAPS, noise(4, 1, 1)),
    "Sub": ("Sub", MAPS, noise(6)),
    "Mul": ("Mul", MAPS, np.float32(0.3)),
    "Div": ("Div", MAPS, np.float32(7)),
    "Pow": ("Pow", MAPS, np.float32(2)),
    "Min": ("Min", MAPS, noise(6)),
    "Max": ("Max", MAPS, noise(6), noise(1)),
    "Sum": ("Sum", MAPS, noise(6), noise(6)),
    "Mean": ("Mean", MAPS, noise(6)),
    "Mod": ("Mod", MAPS, noise(6, low=1.0), {"fmod": 1}),
    "Reshape": ("Reshape", MAPS, i64(0, -1, 6)),
    "Flatten 2": ("Flatten", MAPS, {"axis": 2}),
    "Flatten -1": ("Flatten", MAPS, {"axis": -1}),
    "Squeeze": ("Squeeze", (3, 1, 5), i64(1)),
    "Squeeze old": ("Squeeze", (3, 1, 5), {"opset": 11, "axes": [1]}),
    "Unsqueeze": ("Unsqueeze", (3, 5), i64(1, -1)),
    "Unsqueeze old": ("Unsqueeze", (3, 5), {"opset": 11, "axes": [1]}),
    "Transpose perm": ("Transpose", MAPS, {"perm": [0, 2, 3, 1]}),
    "Expand": ("Expand", (3, 1, 5), i64(1, 4, 1)),
    "Tile": ("Tile", (3, 4), i64(1, 2)),
    "Concat": ("Concat", (3, 4), noise(2, 4), {"axis": 0}),
    "Split": ("Split", (3, 6), i64(2, 4), {"axis": 1, "outputs": 2}),
    "Split even": ("Split", (3, 6), {"axis": 1, "outputs": 3}),
    "Split 18": ("Split", (3, 7), {"axis": 1, "outputs": 3, "num_outputs": 3, "opset": 18}),
    "Split old": ("Split", (3, 6), {"axis": 1, "outputs": 2, "split": [2, 4], "opset": 11}),
    "Slice": ("Slice", MAPS, i64(1, 0), i64(3, 2**62), i64(1, 2), i64(1, 2)),
    "Slice back": ("Slice", MAPS, i64(-1), i64(-(2**62)), i64(3), i64(-1)),
    "Slice back to": ("Slice", MAPS, i64(4), i64(1), i64(2), i64(-2)),
    "Slice old": ("Slice", MAPS, {"opset": 9, "starts": [1], "ends": [-1], "axes": [2]}),
    "Gather": ("Gather", MAPS, i64(2, -1), {"axis": 1}),
    "Gather one": ("Gather", MAPS, np.array(1), {"axis": 2}),
    "GatherElements": ("GatherElements", (3, 4), np.array([[0, -1], [1, 1]]), {"axis": 1}),
    "Pad": ("Pad", MAPS, i64(0, 0, 1, 2, 0, 0, 0, 1), np.float32(0.5)),
    "Pad edge": ("Pad", MAPS, i64(0, 0, 1, 2, 0, 0, 0, 1), {"mode": "edge"}),
    "Pad reflect": ("Pad", MAPS, i64(0, 0, 1, 2, 0, 0, 0, 1), {"mode": "reflect"}),
    "Pad old": ("Pad", MAPS, {"opset": 10, "pads": [0, 0, 1, 1, 0, 0, 1, 1], "value": 2.0}),
    "Pad axes": ("Pad", MAPS, i64(1, 2), None, i64(-1), {"opset": 18}),
    "DepthToSpace": ("DepthToSpace", MAPS, {"blocksize": 2}),
    "DepthToSpace CRD": ("DepthToSpace", MAPS, {"blocksize": 2, "mode": "CRD"}),
    "SpaceToDepth": ("SpaceToDepth", MAPS, {"blocksize": 2}),
    "CumSum": ("CumSum", (3, 4), np.array(1)),
    "TopK": ("TopK", (3, 6), i64(2), {"outputs": 2}),
    "ArgMax": ("ArgMax", (3, 6), {"axis": 1}),
    "ArgMin": ("ArgMin", (3, 6), {"axis": 1}),
    "Resize linear": ("Resize", MAPS, None, None, i64(3, 4, 9, 12), {"mode": "linear"}),
    "Resize corners": (
        "Resize",
        MAPS,
        None,
        None,
        i64(3, 4, 9, 12),
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    "Resize nearest": (
        "Resize",
        MAPS,
        None,
        np.array([1, 1, 2, 2], np.float32),
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "Resize cubic": ("Resize", MAPS, None, None, i64(3, 4, 9, 12), {"mode": "cubic"}),
    "Upsample": ("Upsample", MAPS, np.array([1, 1, 2, 2], np.float32), {"opset": 9}),
    "Cast": ("Cast", (3, 4), {"to": 7}),
    "Shape": ("Shape", (3, 4)),
    "Size": ("Size", (3, 4)),
    "Greater": ("Greater", (3, 4), np.float32(0)),
    "Less": ("Less", (3, 4), noise(4)),
    "GreaterOrEqual": ("GreaterOrEqual", (3, 4), noise(4)),
    "LessOrEqual": ("LessOrEqual", (3, 4), noise(4)),
    "IsNaN": ("IsNaN", (3, 4)),
}
