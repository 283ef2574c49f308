"""Exported networks that we run by ourselves: the same numbers and layers as torch's own loader gives."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.refusals import refused
from tests.unit.target.exportable import NETWORKS, SHAPE, Twice, save
from torch import Tensor, nn

from neurotest import zoo
from neurotest.target import Probe, Target, Want, load
from neurotest.zoo import architectures

WAYS = ("plain", "strict", "core")
SUBJECTS = sorted({(subject.shape, subject.name.partition("-")[2]) for subject in zoo.catalogue()})


def assert_same(path: Path, shape: tuple[int, ...]) -> Target:
    """Logits and gradients bit for bit as torch's, for several batches; copies compute the same."""
    target, reference = load(f"pt2:{path}"), torch.export.load(path).module()
    assert target.shape == shape
    torch.manual_seed(0)
    for n in (2, 5):
        x, again = (torch.rand(n, *shape) for _ in range(2))
        again.data = x.data.clone()
        for tensor in (x, again):
            tensor.requires_grad_()
        ours, theirs = target.module(x), reference(again)
        assert torch.equal(ours, theirs)
        if ours.requires_grad:
            ours.sum().backward()
            theirs.sum().backward()
            assert (x.grad is None) == (again.grad is None)
            assert x.grad is None or torch.equal(x.grad, again.grad)
        for twin in (copy.deepcopy(target.module), pickle.loads(pickle.dumps(target.module))):
            assert torch.equal(twin(x), ours)
    return target


def slow(values: list[Any], quick: Callable[[Any], bool]) -> list[Any]:
    """Exporting takes seconds: some of each kind in every run, all of them with the slow tests."""
    return [value if quick(value) else pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.mark.parametrize("kind", slow([(name, way) for name in NETWORKS for way in WAYS], lambda kind: kind[1] == "plain"))
def test_numbers_are_those_of_torch(tmp_path: Path, kind: tuple[str, str]) -> None:
    name, way = kind
    torch.manual_seed(1)
    target = assert_same(save(NETWORKS[name](), tmp_path / "net.pt2", way=way), SHAPE)
    assert target.survey().layers


@pytest.mark.parametrize("architecture", slow(SUBJECTS, lambda kind: "lenet" in kind[1] or "conv" in kind[1]))
def test_every_zoo_architecture(tmp_path: Path, architecture: tuple[tuple[int, ...], str]) -> None:
    shape, name = architecture
    subject = next(s for s in zoo.catalogue() if (s.shape, s.name.partition("-")[2]) == architecture)
    module = architectures.build(subject.family, name).eval()
    target = assert_same(save(module, tmp_path / "net.pt2", shape), shape)
    original = Target(module, shape=shape)
    names = [[layer.name for layer in t.survey().find("pre_activation")] for t in (original, target)]
    assert names[0] == names[1]
    x = torch.rand(3, *shape)
    values = []
    for one in (original, target):
        with Probe(one, Want(keep="map")) as maps, Probe(one, Want()) as means:
            values.append((maps(x).values, means(x).values))
    for layer in names[0]:
        assert torch.equal(values[0][0][layer], values[1][0][layer])
        torch.testing.assert_close(values[0][1][layer], values[1][1][layer])  # an original's may be taken from its input
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "static.pt2")
    with refused("unsupported", "batch"):
        load(f"pt2:{tmp_path / 'static.pt2'}")


@pytest.mark.parametrize("name", ["vision", "norms", "modes", "tied"])
def test_layers_are_those_of_the_module(tmp_path: Path, name: str) -> None:
    """Modules of the original, in order, with their shapes; an archive does not hold identities and the inside of attention."""
    torch.manual_seed(1)
    module = NETWORKS[name]().eval()
    exported = load(f"pt2:{save(module, tmp_path / 'net.pt2')}")
    ours = [(la.name, la.shape, la.axis) for la in exported.survey().layers if not la.function]
    theirs = [(la.name, la.shape, la.axis) for la in Target(module, shape=SHAPE).survey().layers if not la.function]
    assert [layer for layer in ours if layer in theirs] == ours


def test_a_module_that_differs_between_calls_has_two_names(tmp_path: Path) -> None:
    target = load(f"pt2:{save(Twice(), tmp_path / 'net.pt2')}")
    names = [layer.name for layer in target.survey().layers if not layer.function]
    assert {"conv", "conv#2", "act", "act#2", "scaled", "scaled@1", "scaled.conv#4", "head"} <= set(names)


def test_sizes_may_vary(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(16, 5)).eval()
    sizes = dict.fromkeys((0, 2, 3), torch.export.Dim.AUTO)
    torch.export.save(torch.export.export(module, (torch.rand(3, 3, 9, 9),), dynamic_shapes=(sizes,)), tmp_path / "net.pt2")
    target = load(f"pt2:{tmp_path / 'net.pt2'}")
    assert target.shape is None
    for size in (9, 14):
        x = torch.rand(4, 3, size, size)
        assert torch.equal(target.logits(x), module(x))


def test_memory_is_looked_at_for_every_size(tmp_path: Path) -> None:
    """The size is known only when an input comes: what it would need is estimated then, before it is asked for."""

    class Grows(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.repeat(1, 1, 200, 300).mean((2, 3))

    sizes = dict.fromkeys((0, 2, 3), torch.export.Dim.AUTO)
    torch.export.save(torch.export.export(Grows(), (torch.rand(3, 3, 9, 9),), dynamic_shapes=(sizes,)), tmp_path / "net.pt2")
    target = load(f"pt2:{tmp_path / 'net.pt2'}")
    assert target.logits(torch.rand(1, 3, 2, 2)).shape == (1, 3)
    with refused("failed", "size"):
        target.logits(torch.rand(1, 3, 64, 64))


def test_weights_of_another_file_and_their_names(tmp_path: Path) -> None:
    """Names in the state dict are the author's, so that --weights and repair fit."""
    torch.manual_seed(1)
    one, other = NETWORKS["norms"]().eval(), NETWORKS["norms"]().eval()
    path = save(one, tmp_path / "net.pt2")
    torch.save(other.state_dict(), tmp_path / "other.pt")
    target = load(f"pt2:{path}", weights=tmp_path / "other.pt")
    assert set(load(f"pt2:{path}").module.state_dict()) == set(one.state_dict())
    x = torch.rand(2, *SHAPE)
    assert torch.equal(target.logits(x), other(x))


def test_odd_tensors(tmp_path: Path) -> None:
    """Weights in channels-last order, of half precision, tied, empty, and constants of integers and truth values."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 5, 3)
            self.conv.weight.data = self.conv.weight.data.contiguous(memory_format=torch.channels_last)
            self.one, self.two = nn.Linear(5, 5), nn.Linear(5, 5)
            self.two.weight = self.one.weight
            self.register_buffer("factors", torch.rand(5).half())
            self.register_buffer("mask", torch.tensor([True, False, True, True, True]))
            self.register_buffer("order", torch.tensor([4, 3, 2, 1, 0]))
            self.register_buffer("none", torch.empty(0, 5))

        def forward(self, x: Tensor) -> Tensor:
            x = self.two(self.one(self.conv(x).mean((2, 3)))) * self.factors
            return torch.cat([torch.where(self.mask, x, -x)[:, self.order], self.none])

    torch.manual_seed(1)
    target = assert_same(save(Odd(), tmp_path / "net.pt2"), SHAPE)
    assert target.module.get_parameter("one.weight") is target.module.get_parameter("two.weight")
    assert target.module.get_parameter("conv.weight").is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("function", "refusal"),
    [
        (lambda x: {"logits": x.flatten(1)}, ("unsupported", "outputs")),
        (lambda x: (x.flatten(1), x), ("unsupported", "outputs")),
        (lambda x: x.flatten(1)[x.flatten(1)[:, 0].nonzero()[:, 0]], ("unsupported", "target")),
    ],
)
def test_what_is_refused(tmp_path: Path, function: object, refusal: tuple[str, str]) -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> object:
            return function(x)  # type: ignore[operator]

    with refused(*refusal):
        load(f"pt2:{save(Net(), tmp_path / 'net.pt2')}")
