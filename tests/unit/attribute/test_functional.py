"""Attribution, decision paths and coverage of a network whose activations are functions equal those of its twin of modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import neurotest
from neurotest import registry
from neurotest.attribute import Conductance, Relevance
from neurotest.attribute.relevance import find_chain
from neurotest.attribute.shapley import hidden_layers, mask_gradient
from neurotest.data.source import ArraySource
from neurotest.semantics.critical import path_layers
from neurotest.semantics.paths import PathReader
from neurotest.target import Target, load

NAMES = {"relu_1": "relu1", "relu_2": "relu2", "relu_3": "relu3", "relu_4": "relu4"}


class LeNet5(nn.Module):
    """The zoo's LeNet-5 as many people write it: activations, poolings and the flattening are functions."""

    def __init__(self, parts: nn.Sequential, inplace: bool) -> None:
        super().__init__()
        self.conv1, self.conv2, self.fc1, self.fc2, self.fc3 = (
            parts.get_submodule(name) for name in ("conv1", "conv2", "fc1", "fc2", "fc3")
        )
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x), inplace=self.inplace), 2)
        x = F.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(self.fc2(x).relu_() if self.inplace else self.fc2(x).relu())


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "in place"])
def functional(request: pytest.FixtureRequest, modular: Target) -> Target:
    assert isinstance(modular.module, nn.Sequential)
    return Target(LeNet5(modular.module, request.param).eval(), shape=modular.shape, mean=modular.mean, std=modular.std)


@pytest.fixture(scope="module")
def modular() -> Target:
    return load("zoo:mnist-lenet5")


@pytest.fixture(scope="module")
def test_set() -> ArraySource:
    source = neurotest.data("zoo:mnist/test[:60]")
    return ArraySource(source.read(np.arange(60)), source.labels)


@pytest.fixture(scope="module")
def x(modular: Target, test_set: ArraySource) -> Tensor:
    return modular.prepare(test_set.read(np.arange(20)))


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert {name: NAMES[name] for name in ours} == dict(zip(ours, theirs, strict=True))
    for name, values in ours.items():
        assert torch.equal(values, theirs[NAMES[name]]), name


@pytest.mark.parametrize("rule", ["auto", "lrp", "gradient"])
def test_relevance(functional: Target, modular: Target, x: Tensor, rule: str) -> None:
    ours, theirs = (Relevance(rule=rule).plan(target)(x) for target in (functional, modular))  # type: ignore[arg-type]
    assert ours.rule == theirs.rule == ("gradient" if rule == "gradient" else "lrp")
    assert_same(dict(ours.relevance), dict(theirs.relevance))
    assert_same(dict(ours.activation), dict(theirs.activation))


def test_conductance(functional: Target, modular: Target, x: Tensor) -> None:
    ours, theirs = (Conductance(baseline="black").plan(target)(x) for target in (functional, modular))
    assert_same(dict(ours.scores), dict(theirs.scores))
    assert_same(dict(ours.activation), dict(theirs.activation))
    assert all(float((share - 1).abs().median()) < 0.1 for share in ours.completeness().values())


def test_shapley_values(functional: Target, modular: Target, x: Tensor) -> None:
    moved, y = (x + 0.1).clamp(max=1), torch.zeros(len(x), dtype=torch.long)
    assert [layer.name for layer in hidden_layers(functional)] == list(NAMES)
    assert torch.equal(*(mask_gradient(target, x, moved, y) for target in (functional, modular)))


@pytest.mark.parametrize("method", ["conductance:baseline=black", "gradient", "mask", "activation"])
def test_paths(functional: Target, modular: Target, x: Tensor, test_set: ArraySource, method: str) -> None:
    paths = []
    for target in (functional, modular):
        critic = registry.build("critical", method).start(target, path_layers(target, depth=3), test_set)
        assert len(critic.layers) == 3
        paths.append(PathReader(critic).references(x))
    assert np.array_equal(paths[0].units, paths[1].units)
    assert np.array_equal(paths[0].scores, paths[1].scores)


@pytest.mark.parametrize(
    "criterion",
    [
        "nc:0.5,layers=post_activation",
        "kmnc:10,layers=post_activation",
        "nlc:layers=post_activation",
        "npc",
        "npc:activation",
        "cac:sections=2",
    ],
)
def test_coverage(functional: Target, modular: Target, test_set: ArraySource, criterion: str) -> None:
    train = test_set.take(np.arange(40))
    ours, theirs = (
        neurotest.cover(target, test_set, [criterion], train=train).to_dict()["criteria"] for target in (functional, modular)
    )
    assert ours[criterion]["value"] == theirs[criterion]["value"]
    assert ours[criterion]["covered"] == theirs[criterion]["covered"] > 0
    assert ours[criterion]["dead"] == theirs[criterion]["dead"]


# -- chains


class Conv(nn.Module):
    """A block that ends in a function: the block stands for it, and relevance goes through it."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x))


def test_a_block_that_ends_in_a_function_is_part_of_a_chain() -> None:
    torch.manual_seed(0)
    conv, head, pool = nn.Conv2d(1, 3, 3), nn.Linear(12, 4), nn.AdaptiveAvgPool2d(2)
    block = Target(nn.Sequential(Conv(conv), pool, nn.Flatten(), head).eval(), shape=(1, 6, 6))
    plain = Target(nn.Sequential(conv, nn.ReLU(), pool, nn.Flatten(), head).eval(), shape=(1, 6, 6))
    x = torch.rand(5, 1, 6, 6)
    ours, theirs = (Relevance().plan(target)(x) for target in (block, plain))
    assert ours.rule == theirs.rule == "lrp"
    assert torch.equal(ours.relevance["0"], theirs.relevance["1"])


@pytest.mark.parametrize("act", [F.gelu, F.relu6, lambda x: F.relu(x) + x, lambda x: F.relu(x) * 2, lambda x: F.relu(x).exp()])
def test_other_functions_are_no_chain(act: object) -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(act(self.first(x)))  # type: ignore[operator]

    target = Target(Network().eval(), shape=(4,))
    assert find_chain(target) is None
    assert Relevance().plan(target)(torch.rand(2, 4)).rule == "gradient"
