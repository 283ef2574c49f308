"""`onnx:FILE`: a network in ONNX, run as torch modules and compared with onnxruntime on the user's own inputs before use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurotest import registry
from neurotest.errors import BadInput
from neurotest.reading import reason, user_path
from neurotest.target import onnx_graph, parts
from neurotest.target.archive import Malformed
from neurotest.target.exported import ONE_TENSOR, input_shape, rehearse
from neurotest.target.extras import need
from neurotest.target.onnx_functions import Unsupported
from neurotest.target.onnx_model import read_model
from neurotest.target.target import Target

EXPORT = "torch.onnx.export(model.eval(), (x,), FILE, dynamic_shapes=({0: torch.export.Dim('batch')},), dynamo=True)"
# How far outputs may differ, as a share of the largest: both add up in float32, in another order.
TOLERANCE = 1e-3


@registry.register("target source", "onnx", paper="", cost="reads the file; one pass of a few inputs in onnxruntime, to compare")
def _from_onnx(place: str) -> Target:
    """`onnx:FILE`: a network in ONNX with a dynamic batch; its answers are compared with onnxruntime's before it is used.

    Nothing in the file is executed. Weights in further files are read from the folder of the file only. An operator that is not
    implemented is named, with its opset. Layers carry the author's names where the exporter kept them.
    """
    path = user_path(place, f"onnx:{place:.200}")
    if not path.is_file():
        raise BadInput("not-found", "target", f"onnx:{place}: there is no such file.")
    need("onnx", "onnx", f"onnx:{place}")
    need("onnxruntime", "onnx", f"onnx:{place}")
    model, opset = read_model(path)
    shape = _shape(model.graph, place)
    try:
        network = parts.build(*onnx_graph.read(model, opset))
    except onnx_graph.NoOperator as error:
        message = f"onnx:{place} uses the operator {error}, which is not supported: {_WAY_OUT}."
        raise BadInput("unsupported", "operator", message) from error
    except (Malformed, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        message = f"onnx:{place} cannot be read as a network: {reason(error)}. Is it damaged?"
        raise BadInput("damaged", "target", message) from error
    network.eval()
    network._exported_check = partial(_rehearse, network, place)
    if shape is not None:
        _rehearse(network, place, shape)
    return Target(network, shape=shape, reference=partial(_compare, path))


_WAY_OUT = "write it as a module of PyTorch that build() of py:FILE:build returns, or export it with torch.export.save as pt2:"


def _rehearse(network: parts.Exported, place: str, shape: tuple[int, ...]) -> None:
    try:
        rehearse(network, place, shape, "onnx")
    except BadInput as error:
        if isinstance(error.__cause__, Unsupported):
            message = f"onnx:{place} uses {error.__cause__}, which is not supported: {_WAY_OUT}."
            raise BadInput("unsupported", "operator", message) from error
        raise


def _shape(graph: Any, place: str) -> tuple[int, ...] | None:
    """The size of one input; None where it may vary."""
    weights = {one.name for one in graph.initializer}
    inputs = [one for one in graph.input if one.name not in weights]
    if len(inputs) != 1 or not inputs[0].type.HasField("tensor_type"):
        raise BadInput("unsupported", "inputs", f"onnx:{place} takes {len(inputs)} inputs; {ONE_TENSOR}")
    if len(graph.output) != 1:
        message = f"onnx:{place} returns {len(graph.output)} values; neurotest tests networks that return logits (n, classes)."
        raise BadInput("unsupported", "outputs", message)
    kind = inputs[0].type.tensor_type
    if kind.elem_type != 1:
        message = f"onnx:{place} takes inputs of ONNX type {kind.elem_type}, not float32: export it in float32."
        raise BadInput("unsupported", "dtype", message)
    sizes = [one.dim_value if one.HasField("dim_value") and one.dim_value > 0 else None for one in kind.shape.dim]
    return input_shape(f"onnx:{place}", sizes, EXPORT)


def _compare(path: Path, x: Tensor, run: Callable[[Tensor], Any]) -> float:
    """The largest difference between `run(x)` and onnxruntime's answer, as a share of the largest output; refused if large."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = torch.get_num_threads()
    try:
        session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
        (theirs,) = session.run(None, {session.get_inputs()[0].name: x.detach().cpu().contiguous().numpy()})
    except Exception as error:  # its errors have no common class
        message = f"onnx:{path}: onnxruntime cannot run it, so nothing could be compared: {reason(error)}"
        raise BadInput("failed", "onnxruntime", message) from error
    with torch.inference_mode():
        ours = run(x)
    ours = np.asarray(ours.detach().cpu().double() if isinstance(ours, Tensor) else ours, np.float64)
    theirs = np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape:
        message = f"onnx:{path}: converted it returns shape {ours.shape}, in onnxruntime {theirs.shape}: not to be trusted."
        raise BadInput("wrong-shape", "outputs", message)
    size = max(float(np.abs(theirs).max(initial=0.0)), 1e-30)
    difference = float(np.abs(ours - theirs).max(initial=0.0)) / size
    if not difference <= TOLERANCE:
        message = (
            f"onnx:{path}: converted to torch it gives other answers than onnxruntime on these inputs (they differ by "
            f"{100 * difference:.2g} % of the largest output), so nothing measured on it would be true of the file."
        )
        raise BadInput("changed", "outputs", message)
    return difference
