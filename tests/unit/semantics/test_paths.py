"""Decision paths: which neurons decide, ties, dead neurons, and whose logit is attributed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from neurotest import registry
from neurotest.attribute.conductance import Attribution
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.semantics.critical import Critic, path_layers
from neurotest.semantics.descriptions import DEAD, Descriptions, NeuronDescription
from neurotest.semantics.paths import PathReader, Paths, _sentence
from neurotest.target import Target


def network(seed: int = 0) -> Target:
    torch.manual_seed(seed)
    layers = (
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 5, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(80, 6),
        nn.ReLU(),
        nn.Linear(6, 3),
    )
    return Target(nn.Sequential(*layers).eval(), shape=(1, 8, 8), classes=["cat", "dog", "cow"])


class Fixed(Critic):
    """Scores that are given."""

    passes = 2

    def __init__(self, target: Target, scores: list[list[float]]) -> None:
        self.target, self.layers = target, target.survey().find("1")
        self.scores = torch.tensor(scores)
        self.asked: list[int] = []

    def __call__(self, x: Tensor, classes: Tensor) -> Attribution:
        self.asked = classes.tolist()
        scores = self.scores[: len(x)]
        return Attribution({"1": scores}, {"1": scores}, torch.eye(3)[torch.arange(len(x)) % 3], classes)


def paths(units: list[int], classes: list[int] | None = None) -> Paths:
    n = len(units)
    labels = np.zeros((n, 3), dtype=np.int64)
    return Paths(np.array(units).reshape(n, 1, 1), np.zeros((n, 1, 1), np.float32), labels, np.array(classes or [0] * n))


def test_layers_of_a_path_are_evenly_spaced_and_blocks_come_before_what_is_inside() -> None:
    target = network()
    assert [layer.name for layer in path_layers(target, 10)] == ["1", "3", "6"]
    assert [layer.name for layer in path_layers(target, 2)] == ["1", "6"]
    assert [layer.name for layer in path_layers(target, 1)] == ["6"]
    assert [layer.name for layer in path_layers(target, layers="3,7")] == ["3"]  # what the network ends in is no step
    with pytest.raises(BadInput, match="depth"):
        path_layers(target, 0)


def test_inside_of_a_residual_block_is_skipped() -> None:
    from neurotest.zoo.architectures import build

    target = Target(build("cifar10", "resnet20").eval(), shape=(3, 32, 32))
    assert [layer.name for layer in path_layers(target)] == ["relu", "stage1", "stage2", "stage3"]


def test_a_near_tie_keeps_the_references_neuron_and_a_clear_one_does_not() -> None:
    target, x = network(), torch.rand(3, 1, 8, 8)
    critic = Fixed(target, [[1.0, 0.99, 0.0, 0.0], [1.0, 0.97, 0.0, 0.0], [-0.5, -0.505, -2.0, -3.0]])
    reader = PathReader(critic)
    assert reader.mutants(x, paths([1, 1, 1])).units[:, 0, 0].tolist() == [1, 0, 1]
    assert PathReader(critic, margin=0.0).mutants(x, paths([1, 1, 1])).units[:, 0, 0].tolist() == [0, 0, 0]
    assert reader.mutants(x, paths([1, 1, 1])).scores[:, 0, 0].tolist() == pytest.approx([0.99, 1.0, -0.505])  # as they are


def test_the_class_that_is_attributed_is_the_references() -> None:
    target, x = network(), torch.rand(2, 1, 8, 8)
    critic = Fixed(target, [[1.0, 0, 0, 0]] * 2)
    PathReader(critic).mutants(x, paths([0, 0], [2, 1]))
    assert critic.asked == [2, 1]
    PathReader(critic, target="own").mutants(x, paths([0, 0], [2, 1]), torch.tensor([0, 0]))
    assert critic.asked == [0, 0]
    PathReader(critic, target="true").references(x, np.array([1, -1]))
    assert critic.asked[0] == 1


def test_dead_neurons_never_decide() -> None:
    target = network()
    rows = [NeuronDescription("1", 0, DEAD, 0.0, "x")]
    bank = Descriptions.of(target, {"1": 4}, rows, "x")
    critic = Fixed(target, [[9.0, 1.0, 2.0, 0.0]])
    assert PathReader(critic, dead=bank).references(torch.rand(1, 1, 8, 8)).units[0, 0].tolist() == [2]
    every = Descriptions.of(target, {"1": 4}, [NeuronDescription("1", i, DEAD, 0.0, "x") for i in range(4)], "x")
    with pytest.raises(BadInput, match="fewer than 1"):
        PathReader(critic, dead=every)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(0, 1000))
def test_neurons_come_best_first(top: int, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(3, 4)).tolist()
    read = PathReader(Fixed(network(), scores), top=top).references(torch.rand(3, 1, 8, 8))
    for i in range(3):
        assert read.units[i, 0].tolist() == sorted(range(4), key=lambda u: -scores[i][u])[:top]


@pytest.mark.parametrize("bad", [{"top": 0}, {"margin": 1.0}, {"target": "mine"}])
def test_bad_settings_are_told(bad: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=next(iter(bad))):
        PathReader(Fixed(network(), [[0.0] * 4]), **bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("critical", ["conductance", "conductance:2", "gradient", "mask", "mask:1.0", "activation"])
def test_every_selector_gives_scores_of_every_neuron(critical: str) -> None:
    target = network()
    data = ArraySource(np.random.default_rng(0).random((20, 1, 8, 8), dtype=np.float32))
    critic = registry.build("critical", critical).start(target, path_layers(target), data)
    x = target.prepare(data.read(np.arange(5)))
    attribution = critic(x, torch.zeros(5, dtype=torch.int64))
    assert {name: tuple(values.shape) for name, values in attribution.scores.items()} == {"1": (5, 4), "3": (5, 5), "6": (5, 6)}
    assert torch.allclose(attribution.logits, target.logits(x), atol=1e-5)
    assert critic.passes >= 1


def test_gradient_and_full_mask_are_the_same_and_exact_where_the_network_is_linear() -> None:
    target = network()
    x, classes = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    layers = target.survey().find("6")
    one, other = (registry.build("critical", name).start(target, layers, None)(x, classes) for name in ("gradient", "mask:1.0"))
    assert torch.allclose(one.scores["6"], other.scores["6"])
    hidden = target.module[:7](x)  # type: ignore[index]
    weights = target.module[7].weight[classes]  # type: ignore[index, union-attr]
    assert torch.allclose(one.scores["6"], (hidden * weights).detach(), atol=1e-6)


def test_words_of_a_path() -> None:
    target = network()
    bank = Descriptions.of(target, {"1": 4}, [NeuronDescription("1", 2, "red stripes", 1.0, "x")], "x")
    text = paths([2], [1]).text(0, target.survey().find("1"), bank, ["cat", "dog", "cow"])
    assert text == "a photo of a cat with red stripes"
    assert _sentence([], ["cat"]) == "a photo of a cat"
