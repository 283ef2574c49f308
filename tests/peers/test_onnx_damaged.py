"""ONNX files that are cut short or have a byte changed: a network or a sentence, never an error of our own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.peers.packages import package

from neurotest.errors import BadInput
from neurotest.target import onnx_file
from neurotest.target.load import load

for name in ("onnx", "onnxruntime"):  # first: a module whose import a skip cuts short stays half loaded
    package(name)

from tests.peers.onnx_models import helper, onnx  # noqa: E402

pytestmark = [pytest.mark.peer("onnx"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(scope="module")
def content() -> bytes:
    """A small network with a function that is called twice."""
    weight = onnx.numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("x", 4), ("y", 3)))
    nodes = [helper.make_node("f", [a], [b], domain="here") for a, b in (("x", "h"), ("h", "i"))]
    nodes.append(helper.make_node("MatMul", ["i", "w"], ["y"]))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("here", 1)]
    function = helper.make_function("here", "f", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opsets[:1])
    inner = helper.make_graph(nodes, "g", [x], [y], [weight])
    return bytes(helper.make_model(inner, functions=[function], opset_imports=opsets, ir_version=8).SerializeToString())


@pytest.fixture(autouse=True)
def _without_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would be run once in a process of its own: a second for every byte."""
    monkeypatch.setattr(onnx_file, "rehearse", lambda *args: None)


def opened(content: bytes, file: Path) -> bool:
    """Whether it is a network; an exception that is no BadInput is passed on."""
    file.write_bytes(content)
    try:
        load(f"onnx:{file}")
    except BadInput:
        return False
    return True


def test_every_beginning_of_a_file_is_refused_in_a_sentence(content: bytes, tmp_path: Path) -> None:
    assert opened(content, tmp_path / "n.onnx")
    for length in range(len(content)):
        opened(content[:length], tmp_path / "n.onnx")


def changed(content: bytes) -> Iterator[bytes]:
    for place in range(min(200, len(content))):
        for value in (0, 1, 0x7F, 0x80, 0xFF, content[place] ^ 1, content[place] ^ 8):
            yield content[:place] + bytes([value]) + content[place + 1 :]


def test_a_changed_byte_is_a_network_or_a_sentence(content: bytes, tmp_path: Path) -> None:
    assert sum(opened(one, tmp_path / "n.onnx") for one in changed(content)) > 100  # in names, and where nothing is changed


def test_a_single_byte_ends_in_the_middle_of_a_field(tmp_path: Path) -> None:
    (tmp_path / "n.onnx").write_bytes(b"\x0a")
    with pytest.raises(BadInput, match="it ends in the middle of a field"):
        load(f"onnx:{tmp_path / 'n.onnx'}")
