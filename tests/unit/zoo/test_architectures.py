"""The architectures are the papers': by the numbers of parameters and neurons they give."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neurotest import zoo
from neurotest.target import Target
from neurotest.zoo import architectures, audio
from neurotest.zoo.architectures import Normalise

pytestmark = pytest.mark.by_hand

PARAMETERS = {
    "mnist-lenet1": 7_206,  # DeepSensor, table 1
    "mnist-lenet4": 69_362,
    "mnist-lenet5": 107_786,
    "cifar10-resnet20": 273_066,
    "cifar10-vgg16bn": 33_663_070,
    "fashion-resnet20": 273_066 - 2 * 9 * 16,  # two colour channels fewer
    "cifar10-resnet56": 853_018,
    "cifar10-mobilenetv2": 2_236_682,  # Sandler et al. at width 1 with ten classes
}
UNITS = {  # coverage study, table 1
    "mnist-fcnet5": (5, 478),
    "mnist-fcnet10": (10, 3_206),
    "mnist-conv1d": (4, 35_410),
    "mnist-conv2d": (4, 15_230),
    "cifar10-resnet56": (56, 532_490),
}


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_parameters(name: str, count: int) -> None:
    assert sum(p.numel() for p in zoo.find(name).build().parameters()) == count


@pytest.mark.parametrize(("name", "count"), UNITS.items())
def test_layers_and_units(name: str, count: tuple[int, int]) -> None:
    subject = zoo.find(name)
    layers = Target(subject.build().eval(), shape=subject.shape).survey().find("pre_activation")
    assert (len(layers), sum(layer.neurons("unit") for layer in layers)) == count


@pytest.mark.parametrize("name", [name for name in zoo.names() if name != "cifar10-vgg16bn"])
def test_every_network_trains_probes_and_has_features(name: str) -> None:
    subject = zoo.find(name)
    module = subject.build()
    x = torch.rand(2, *subject.shape)
    if subject.span is None:
        nn.functional.cross_entropy(module(x), torch.tensor([0, 1])).backward()
        target = Target(module.eval(), shape=subject.shape, classes=subject.classes)
    else:
        module(x).square().sum().backward()
        target = Target(module.eval(), shape=subject.shape, outputs="regression", span=subject.span)
    assert all(p.grad is not None for p in module.parameters())
    survey = target.survey()
    assert survey.functional == 0
    assert set(survey.calls.values()) == {1}
    assert survey.find("post_activation")
    (features,) = survey.find("features")
    assert len(features.input_shape) == 1


def test_fresh_weights_depend_on_nothing_but_the_generator() -> None:
    networks = []
    for _ in range(2):
        torch.manual_seed(3)
        networks.append(zoo.find("cifar10-resnet20").build().state_dict())
    assert all(torch.equal(networks[0][key], networks[1][key]) for key in networks[0])


def test_normalisation_by_hand() -> None:
    layer = Normalise(architectures.PIXELS["cifar10"])
    x = torch.tensor([0.4914, 0.4822, 0.4465]).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    assert torch.equal(layer(x), torch.zeros(1, 3, 2, 2))
    assert float(layer(x + 0.2470)[0, 0, 0, 0]) == pytest.approx(1)
    assert layer.state_dict() == {}  # constants of the architecture, not weights


def test_every_recipe_has_an_architecture_and_a_data_set() -> None:
    for subject in zoo.catalogue():
        assert subject.architecture in {**architectures.BUILD, **audio.HEARING}
        assert subject.family in architectures.PIXELS or subject.rate is not None or subject.span is not None
        assert len(subject.classes) == (0 if subject.span is not None else 60 if subject.family == "speakers" else 10)
        assert "epoch" in subject.recipe.describe()


@pytest.mark.parametrize("subject", [s for s in zoo.catalogue() if s.embedded], ids=lambda s: s.name)
def test_embedded_weights_are_small_and_say_what_they_are(subject: zoo.ZooNetwork) -> None:
    file = subject.weights
    assert file is not None
    assert file.stat().st_size < 3_000_000
    about = subject.about
    assert about["name"] == subject.name
    assert about["recipe"] == subject.recipe.describe()
    out = subject.load()(torch.rand(2, *subject.shape))
    if subject.span is None:
        assert 0.5 < about["accuracy"] <= 1
        assert out.shape == (2, 10)
    else:
        assert 0 < about["error"] < about["trivial"] / 4
        assert out.shape == (2, 1)
    assert bool(torch.isfinite(out).all())
