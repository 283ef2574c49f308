"""Weights in files of every kind: what is loaded, under which names, and how everything else is named."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from tests.refusals import refused
from torch import nn

from neurotest.target import load
from neurotest.target.weights import load_weights

pytestmark = pytest.mark.plain

MODEL = """
from torch import nn

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
"""


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path / "model.py"


def test_safetensors_and_state_dicts_are_loaded(tmp_path: Path, model: Path) -> None:
    state = net().state_dict()
    save_file(state, tmp_path / "w.safetensors")
    save_file(state, tmp_path / "misnamed.bin")
    torch.save(state, tmp_path / "w.pt")
    torch.save(state, tmp_path / "old.pth.tar", _use_new_zipfile_serialization=False)
    for name in ("w.safetensors", "misnamed.bin", "w.pt", "old.pth.tar"):
        target = load(f"py:{model}:build", weights=tmp_path / name)
        assert torch.equal(target.module[1].weight, state["1.weight"]), name


WRAPPED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "state_dict": lambda state: {"state_dict": state, "epoch": 3},
    "model": lambda state: {"model": state, "optimizer": {"state": {}, "param_groups": []}},
    "model_state_dict": lambda state: {"model_state_dict": state, "ema": {"1.weight": torch.zeros(3, 4)}},
    "nested": lambda state: {"model": {"state_dict": state, "config": {"width": 3}}},
    "unusual": lambda state: {"classifier_v2": state, "epoch": 3},
    "DataParallel": lambda state: {f"module.{name}": value for name, value in state.items()},
    "compiled": lambda state: {f"_orig_mod.{name}": value for name, value in state.items()},
    "both": lambda state: {"state_dict": {f"module._orig_mod.{name}": value for name, value in state.items()}},
    "Lightning": lambda state: {"state_dict": {f"model.{name}": value for name, value in state.items()}, "callbacks": {}},
}


@pytest.mark.parametrize("how", WRAPPED)
def test_checkpoints_and_wrappers(tmp_path: Path, model: Path, how: str) -> None:
    state = net().state_dict()
    torch.save(WRAPPED[how](dict(state)), tmp_path / "w.pt")
    target = load(f"py:{model}:build", weights=tmp_path / "w.pt")
    assert torch.equal(target.module[1].weight, state["1.weight"])
    assert torch.equal(target.module[1].bias, state["1.bias"])


def test_counters_of_batch_norm_may_be_missing(tmp_path: Path) -> None:
    """Files of old versions of torch have none; nothing that is tested depends on them."""
    network = nn.Sequential(nn.Conv2d(1, 3, 1), nn.BatchNorm2d(3))
    state = {f"module.{name}": value + 1 for name, value in network.state_dict().items() if "num_batches" not in name}
    torch.save({"state_dict": state}, tmp_path / "w.th")
    load_weights(network, tmp_path / "w.th")
    assert torch.equal(network[1].running_mean, torch.ones(3))  # type: ignore[arg-type]
    del state["module.1.running_var"]
    torch.save(state, tmp_path / "w.th")
    with refused("conflict", "weights", match=r"do not fit the network \(missing: .*running_var"):
        load_weights(network, tmp_path / "w.th")


def wrapped(inner: nn.Module, words: list[str]) -> nn.Module:
    for word in reversed(words):
        outer = nn.Sequential()
        outer.add_module(word, inner)
        inner = outer
    return inner


WORDS = st.lists(st.sampled_from(["module", "_orig_mod", "model", "net"]), max_size=3)


@given(WORDS, WORDS)
def test_any_wrapper_around_file_and_network(
    tmp_path_factory: pytest.TempPathFactory, saved: list[str], built: list[str]
) -> None:
    file = tmp_path_factory.getbasetemp() / "wrapped.safetensors"
    save_file(wrapped(net(), saved).state_dict(), file)
    into = wrapped(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), built)
    load_weights(into, file)
    assert all(torch.equal(a, b) for a, b in zip(into.state_dict().values(), net().state_dict().values(), strict=True))


def test_a_wrapper_is_taken_off_only_where_all_names_fit(tmp_path: Path) -> None:
    state = {f"module.{name}": value for name, value in net().state_dict().items()}
    save_file({**state, "head.weight": torch.zeros(2)}, tmp_path / "w.safetensors")
    with refused(
        "conflict", "weights", match=r"do not fit the network \(missing: 1\.weight, 1\.bias; unknown: head\.weight, module\.1"
    ):
        load_weights(net(), tmp_path / "w.safetensors")


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.witness,)


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_a_pickle_that_would_run_code_is_refused_and_does_not(tmp_path: Path, model: Path, how: str) -> None:
    witness, file = tmp_path / "witness", tmp_path / "w.pt"
    content = {**net().state_dict(), "extra": Bomb(witness)}
    if how == "torch":
        torch.save(content, file)
    else:
        file.write_bytes(pickle.dumps(content, protocol=2))
    with refused("untrusted", "weights", match="could run code: refused"):
        load(f"py:{model}:build", weights=file)
    assert not witness.exists()
    torch.load(file, weights_only=False) if how == "torch" else pickle.loads(file.read_bytes())
    assert witness.exists()  # so the file was dangerous


def test_a_whole_pickled_network_is_named(tmp_path: Path, model: Path) -> None:
    torch.save(net(), tmp_path / "whole.pt")
    with refused(
        "untrusted", "weights", match=r"a whole pickled network .*torch.save\(torch.load\('whole.pt', weights_only=False\)"
    ):
        load(f"py:{model}:build", weights=tmp_path / "whole.pt")
    torch.save({"state_dict": net().state_dict(), "path": Path("run")}, tmp_path / "objects.pt")
    with refused("untrusted", "weights", match=r"hold pickled objects \(pathlib.*\['state_dict'\]"):
        load(f"py:{model}:build", weights=tmp_path / "objects.pt")


def _kinds(folder: Path) -> dict[str, str]:
    """Files that are no weights, and what they are called."""
    torch.jit.script(net()).save(folder / "script.pt")
    program = torch.export.export(net(), (torch.zeros(2, 4),))
    torch.export.save(program, folder / "program.pt2")
    np.savez(folder / "arrays.npz", x=np.zeros((2, 4)))
    contents = {
        "keras.h5": b"\x89HDF\r\n\x1a\n\0\0", "net.onnx": b"\x08\x07\x12\x07pytorch", "net.pt.gz": gzip.compress(b"weights"),
        "notes.txt": b"accuracy 0.93\n", "page.pt": b"<!DOCTYPE html><html>Sign in</html>", "model.py": MODEL.encode(),
        "lfs.pt": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "empty.pt": b"",
    }  # fmt: skip
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    return {
        "script.pt": "TorchScript", "program.pt2": "write pt2:", "arrays.npz": "write npz:", "keras.h5": "Keras",
        "net.onnx": "write onnx:", "net.pt.gz": "gunzip", "notes.txt": r"text \(it begins 'accuracy 0.93'\)",
        "page.pt": "a web page", "model.py": "Python source; write py:", "lfs.pt": "git lfs pull",
        "empty.pt": "is empty", "folder": "is a folder",
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_every_other_kind_is_named(tmp_path: Path, model: Path) -> None:
    for name, words in _kinds(tmp_path).items():
        with refused(("unsupported", "not-a-file"), "weights", match=f"weights .*{name}.*{words}"):
            load(f"py:{model}:build", weights=tmp_path / name)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
@pytest.mark.parametrize("part", [0.0, 0.02, 0.5, 0.97])
def test_truncated_weights_are_refused(tmp_path: Path, model: Path, name: str, part: float) -> None:
    file = tmp_path / name
    save_file(net().state_dict(), file) if name.endswith("s") else torch.save(net().state_dict(), file)
    content = file.read_bytes()
    file.write_bytes(content[: int(part * len(content))])
    with refused(("unsupported", "damaged"), "weights"):
        load(f"py:{model}:build", weights=file)


def test_weights_of_another_network_are_refused(tmp_path: Path, model: Path) -> None:
    save_file(nn.Sequential(nn.Flatten(), nn.Linear(5, 3)).state_dict(), tmp_path / "size.safetensors")
    save_file({**net().state_dict(), "2.weight": torch.zeros(2)}, tmp_path / "more.safetensors")
    save_file({"1.weight": torch.zeros(3, 4)}, tmp_path / "less.safetensors")
    for name, match in (
        ("size", r"1\.weight has shape 3x5 in the file and 3x4 in the network"),
        ("more", r"unknown: 2\.weight"),
        ("less", r"missing: 1\.bias"),
    ):
        with refused(("wrong-shape", "conflict"), "weights", match=match):
            load(f"py:{model}:build", weights=tmp_path / f"{name}.safetensors")


def test_files_that_hold_no_weights(tmp_path: Path, model: Path) -> None:
    torch.save([1, 2, 3], tmp_path / "list.pt")
    torch.save({"a": 1}, tmp_path / "numbers.pt")
    for name in ("list.pt", "numbers.pt"):
        with refused("wrong-type", "weights", match="hold no state dict"):
            load(f"py:{model}:build", weights=tmp_path / name)
    with refused("not-found", "weights"):
        load(f"py:{model}:build", weights=tmp_path / "absent.pt")
