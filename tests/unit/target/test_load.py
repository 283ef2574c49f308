"""From a spec and a weights file to a target, and what is refused on the way."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from tests.refusals import refused
from torch import nn

from neurotest import zoo
from neurotest.target import Target, load

pytestmark = pytest.mark.plain

CODE = """
from torch import nn
from neurotest.target import Target

WIDTH = 3

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, WIDTH))

def described():
    return Target(build().eval(), bounds=(-1, 1), mean=[0.5], std=[0.25], shape=(1, 2, 2), classes=["a", "b", "c"])

def broken():
    raise RuntimeError("no GPU here")

def number():
    return 7
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "my_model.py"
    file.write_text(CODE)
    return file


def net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))


# -- py:


def test_a_python_file(model: Path) -> None:
    target = load(f"py:{model}:build")
    assert target.spec == f"py:{model}:build"
    assert not target.module.training
    assert target.logits(torch.zeros(2, 1, 2, 2)).shape == (2, 3)


def test_a_python_module(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(model.parent)
    try:
        assert isinstance(load("py:my_model:build").module, nn.Sequential)
    finally:
        sys.modules.pop("my_model", None)


def test_a_python_module_of_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed command does not have the current directory on its path; a user expects it."""
    (tmp_path / "model_right_here.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    try:
        assert isinstance(load("py:model_right_here:build").module, nn.Sequential)
    finally:
        sys.modules.pop("model_right_here", None)
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize("where", ["top", "inside"])
def test_a_file_may_import_its_neighbours(tmp_path: Path, where: str) -> None:
    neighbour = f"neighbour_{where}"
    (tmp_path / f"{neighbour}.py").write_text("from torch import nn\nmodule = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))\n")
    line = f"from {neighbour} import module"
    (tmp_path / "main.py").write_text(
        f"{line}\ndef build():\n    return module\n" if where == "top" else f"def build():\n    {line}\n    return module\n"
    )
    before = list(sys.path)
    try:
        assert load(f"py:{tmp_path / 'main.py'}:build").logits(torch.zeros(1, 4)).shape == (1, 2)
    finally:
        sys.modules.pop(neighbour, None)
    assert sys.path == before


def test_what_the_call_says_wins_over_what_the_source_says(model: Path) -> None:
    own = load(f"py:{model}:described")
    assert (own.bounds, own.mean, own.shape, own.classes) == ((-1.0, 1.0), (0.5,), (1, 2, 2), ("a", "b", "c"))
    target = load(f"py:{model}:described", bounds=(0, 1), classes=["x", "y", "z"], size="1x2x2")
    assert (target.bounds, target.mean, target.classes) == ((0.0, 1.0), (0.5,), ("x", "y", "z"))


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("biuld", ("unknown-name", "callable")),
        ("WIDTH", ("unknown-name", "callable")),
        ("broken", ("failed", "callable")),
        ("number", ("wrong-type", "callable")),
    ],
)
def test_bad_callables(model: Path, name: str, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        load(f"py:{model}:{name}")


def test_bad_places(tmp_path: Path, model: Path) -> None:
    with refused("not-found", "target"):
        load(f"py:{tmp_path / 'absent.py'}:build")
    with refused("failed", "import"):
        load("py:no_such_module_anywhere:build")
    with refused("missing", "callable"):
        load("py:build")
    (tmp_path / "wrong.py").write_text("def build(:\n")
    with refused("failed", "import"):
        load(f"py:{tmp_path / 'wrong.py'}:build")


# -- specs


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ("resnet18", ("missing", "source")),
        ("mnist-lenet5", ("missing", "source")),
        ("model.py", ("missing", "source")),
        ("hub:lenet", ("missing", "source")),
        ("py:", ("missing", "target")),
        ("zoo:mnist-lenet6", ("unknown-name", "network")),
    ],
)
def test_a_spec_that_cannot_be_read_shows_spellings(spec: str, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        load(spec)


@pytest.mark.parametrize("size", ["28", "1x28x28", "3X32x32", (1, 2, 2)])
def test_sizes(size: object) -> None:
    expected = {"28": (28,), "1x28x28": (1, 28, 28), "3X32x32": (3, 32, 32)}.get(str(size), size)
    assert load(net().eval(), size=size).shape == expected


@pytest.mark.parametrize("size", ["", "x", "0x2x2", "1x-2x2", "1,28,28", ()])
def test_bad_sizes(size: object) -> None:
    with refused("syntax", "size"):
        load(net().eval(), size=size)


def test_class_names_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text("cat\ndog\n\nbird\n")
    assert load(net().eval(), classes=file).classes == ("cat", "dog", "bird")
    with refused("not-found"):
        load(net().eval(), classes=tmp_path / "absent.txt")


def test_a_device_that_is_not_here() -> None:
    with refused("unsupported", "device"):
        load(net().eval(), device="nonsense")


def test_a_target_passes_through_and_stays_on_its_device() -> None:
    target = Target(net().eval(), shape=(1, 2, 2))
    assert load(target) is target
    elsewhere = Target(net().eval(), device="meta")
    assert load(elsewhere) is elsewhere
    assert load(elsewhere, size="1x2x2").device == torch.device("meta")


def test_a_module_of_the_caller_is_not_switched_to_eval_mode() -> None:
    module = net().train()
    target = load(module, size="1x2x2")
    assert module.training
    with refused("unsuitable", "training"):
        target.survey()


# -- zoo:


@pytest.mark.parametrize(("name", "parameters"), [("mnist-lenet1", 7_206), ("mnist-lenet4", 69_362), ("fashion-lenet5", 107_786)])
def test_a_network_of_the_zoo(name: str, parameters: int) -> None:
    if zoo.find(name).weights is None:
        pytest.skip(f"{name} has no weights in this copy")
    target = load(f"zoo:{name}")
    assert sum(p.numel() for p in target.module.parameters()) == parameters
    assert (target.spec, target.shape, target.bounds, len(target.classes)) == (f"zoo:{name}", (1, 28, 28), (0.0, 1.0), 10)
    assert target.check_outputs(torch.rand(2, 1, 28, 28)) == 10
    assert load(f"zoo:{name}").fingerprint == target.fingerprint


def test_a_network_of_the_zoo_without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "folders", lambda: (tmp_path,))
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path))
    with refused("not-found", "weights"):
        load("zoo:mnist-lenet1")
