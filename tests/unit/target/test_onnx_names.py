"""Which modules a node of an ONNX file belongs to, by what torch's exporters write beside it; no onnx is needed for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from neurotest.target.onnx_graph import SCOPES, modules

pytestmark = pytest.mark.plain


def node(operator: str, weight: str, scopes: list[str] | None = None, name: str = "n") -> Any:
    noted = [] if scopes is None else [SimpleNamespace(key=SCOPES, value=str(scopes))]
    return SimpleNamespace(op_type=operator, input=["x", weight], name=name, metadata_props=noted)


def paths(node: Any) -> list[str]:
    return [path for _, path in modules(node)]


def test_names_keep_the_underscores_of_their_author() -> None:
    assert paths(node("Conv", "", ["", "_blocks.0", "_blocks.0._conv", "conv2d"])) == ["_blocks.0", "_blocks.0._conv"]
    assert paths(node("Conv", "", name="/_blocks.0/_conv/Conv")) == ["_blocks.0", "_blocks.0._conv"]


@pytest.mark.parametrize(
    ("operator", "weight", "innermost"),
    [
        ("Conv", "layer1.conv1.weight", "layer1.conv1"),  # the norm after it was folded into it
        ("ConvTranspose", "layer1.up.weight", "layer1.up"),
        ("BatchNormalization", "layer1.conv1.weight", "layer1.bn1"),
        ("Conv", "layer2.conv1.weight", "layer1.bn1"),  # of another block: shared
        ("Conv", "layer1.conv1.table", "layer1.bn1"),
        ("Conv", "val_17", "layer1.bn1"),
    ],
)
def test_a_convolution_that_took_up_a_norm_keeps_its_own_name(operator: str, weight: str, innermost: str) -> None:
    assert paths(node(operator, weight, ["", "layer1", "layer1.bn1", "batch_norm"])) == ["layer1", innermost]


def test_a_weight_that_is_shared_renames_nobody() -> None:
    assert paths(node("Conv", "conv1.weight", ["", "conv2", "conv2d"])) == ["conv2"]


def test_names_are_cleaned() -> None:
    assert paths(node("Conv", "we ird\x1b[31m/x.weight", ["", "bn1", "batch_norm"])) == ["we_ird_31m_x"]


def test_a_weight_without_a_module_changes_nothing() -> None:
    assert paths(node("Conv", "weight", ["", "bn1", "batch_norm"])) == ["bn1"]
    assert paths(node("Conv", "conv.weight", ["", "conv2d"])) == []
