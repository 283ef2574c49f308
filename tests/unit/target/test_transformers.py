"""What a neuron is in a ViT, a Swin, a ConvNeXt and an MLP-Mixer: a hidden unit or a head's channel, over tokens or per token."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.target.transformers import HEADS, NETWORKS, TOKENS, WIDTH, network, pictures
from torch import Tensor, nn

import neurotest
from neurotest import registry
from neurotest.errors import BadInput
from neurotest.target import Probe, Target, Want

PRE = {
    "vit": ["patches", *(f"blocks.{b}.{n}" for b in (0, 1) for n in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")), "head"],
    "swin": ["patches", *(f"blocks.{b}.mlp.{n}" for b in (0, 1) for n in ("fc1", "fc2")), "head"],
    "convnext": ["stem", *(f"stages.{b}.{n}" for b in (0, 1) for n in ("conv", "mlp.fc1", "mlp.fc2")), "head"],
    "mixer": [
        "patches",
        *(f"blocks.{b}.{p}.{n}" for b in (0, 1) for p in ("tokens", "channels") for n in ("fc1", "fc2")),
        "head",
    ],
}
POST = {
    "vit": ["blocks.0.mlp.act", "blocks.1.mlp.act"],
    "vit with functions": ["blocks.0.mlp.gelu_1", "blocks.1.mlp.gelu_1"],
    "swin": ["blocks.0.mlp.act", "blocks.1.mlp.act"],
    "convnext": ["stages.0.mlp.act", "stages.1.mlp.act"],
    "mixer": [f"blocks.{b}.{p}.act" for b in (0, 1) for p in ("tokens", "channels")],
}


def target(name: str) -> Target:
    return Target(network(name), shape=(3, 16, 16))


@pytest.mark.parametrize("name", NETWORKS)
def test_presets_choose_the_layers_the_page_says(name: str) -> None:
    survey = target(name).survey()
    assert [layer.name for layer in survey.find("pre_activation")] == PRE["vit" if name == "vit with functions" else name]
    assert [layer.name for layer in survey.find("post_activation")] == POST[name]
    assert survey.find("features")[0].name == survey.find("last_hidden")[0].name == "head"
    assert survey.find("features")[0].input_shape == (WIDTH,)
    assert not survey.hidden


def test_how_many_neurons_a_vit_has() -> None:
    by_name = {layer.name: layer for layer in target("vit").survey().layers}
    counts = {name: (by_name[name].neurons("channel"), by_name[name].neurons("unit")) for name in ("patches", "blocks.0.mlp.act")}
    assert counts == {"patches": (WIDTH, WIDTH * TOKENS), "blocks.0.mlp.act": (2 * WIDTH, 2 * WIDTH * (TOKENS + 1))}
    assert by_name["blocks.0.attn.qkv"].neurons() == 3 * WIDTH  # query, key and value of three heads of four channels
    assert by_name["head"].neurons() == 4


@pytest.mark.parametrize("name", NETWORKS)
def test_a_channel_is_the_mean_over_tokens_and_a_unit_is_one_token(name: str) -> None:
    """Against hooks of our own and a plain loop over tokens."""
    subject = target(name)
    x = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    layers = ",".join(PRE["vit" if name == "vit with functions" else name])
    recorded: dict[str, Tensor] = {}
    hooks = [
        subject.module.get_submodule(layer).register_forward_hook(lambda m, a, out, layer=layer: recorded.__setitem__(layer, out))
        for layer in layers.split(",")
    ]
    with torch.no_grad():
        subject.module(x)
    for hook in hooks:
        hook.remove()
    channel, unit = Want(layers=layers), Want(layers=layers, neuron="unit")
    with Probe(subject, channel, unit) as probe:
        trace = probe(x)
    for layer, whole in recorded.items():
        convolution = isinstance(subject.module.get_submodule(layer), nn.Conv2d)
        vectors = whole.flatten(2).transpose(1, 2) if convolution else whole.reshape(len(x), -1, whole.shape[-1])
        total = torch.zeros(len(x), vectors.shape[2], dtype=torch.float64)
        for token in range(vectors.shape[1]):
            total += vectors[:, token].double()
        # float32 sums of at most 17 terms
        torch.testing.assert_close(trace[channel][layer].double(), total / vectors.shape[1], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(trace[unit][layer], whole.flatten(1))


def test_heads_are_neighbouring_channels() -> None:
    """Silencing a head's channels of the values takes away that head and no other."""
    subject = target("vit")
    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    head = slice(2 * WIDTH + WIDTH // HEADS, 2 * WIDTH + 2 * WIDTH // HEADS)  # the second of three heads, values

    def silence(layer: str, tensor: Tensor) -> Tensor:
        if layer.endswith("qkv"):
            tensor = tensor.clone()
            tensor[..., head] = 0
        return tensor

    want = Want(layers="blocks.0.attn.qkv,blocks.0.attn.proj", keep="map", inputs=False)
    heads = Want(layers="blocks.0.attn.proj", keep="map", inputs=True)
    with Probe(subject, want, heads, edit=silence) as probe:
        joined = probe(x)[heads]["blocks.0.attn.proj"]
    silent = (joined == 0).flatten(0, 1).all(0)
    assert silent.tolist() == [WIDTH // HEADS <= channel < 2 * WIDTH // HEADS for channel in range(WIDTH)]


# -- methods


@pytest.fixture(scope="module")
def inputs() -> tuple[np.ndarray, np.ndarray]:
    x = pictures(48)
    subject = target("vit")
    return x, subject.logits(subject.prepare(x)).argmax(1).detach().numpy()


NAMES = ["vit", "swin", "convnext", "mixer"]


@pytest.mark.parametrize("criterion", sorted(registry.entries("criterion")))
def test_every_criterion_measures_a_vit(criterion: str, inputs: tuple[np.ndarray, np.ndarray]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result: Any = neurotest.cover(target("vit"), inputs, criterion, train=inputs, cache=False)
    (value,) = result.to_dict()["criteria"].values()
    assert "error" not in value
    assert value["covered"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize("criterion", sorted(registry.entries("criterion")))
def test_every_criterion_measures_the_others(criterion: str, name: str, inputs: tuple[np.ndarray, np.ndarray]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result: Any = neurotest.cover(target(name), inputs, criterion, train=inputs, cache=False)
    (value,) = result.to_dict()["criteria"].values()
    assert "error" not in value


REFUSED = {"mc-dropout": "dropout", "bald": "dropout", "neighbours": "needs labels"}  # what the network or the call lacks


@pytest.mark.parametrize(
    "selector", sorted(n for n, e in registry.entries("selector").items() if not getattr(e.make, "quantities", False))
)
@pytest.mark.filterwarnings("ignore")
def test_every_selector_orders_inputs_of_a_vit(selector: str, inputs: tuple[np.ndarray, np.ndarray]) -> None:
    def choose() -> Any:
        return neurotest.select(target("vit"), inputs, selector, 8, train=inputs, originals=inputs[0])

    if selector in REFUSED:
        with pytest.raises(BadInput, match=REFUSED[selector]):
            choose()
    else:
        assert len(set(choose().indices)) == 8


def test_relevance_by_rule_says_what_to_use_instead() -> None:
    from neurotest.attribute.relevance import Relevance

    with pytest.raises(BadInput, match=r"use rule=gradient"):
        Relevance(rule="lrp").plan(target("vit"))
    relevances = Relevance().plan(target("vit"))(torch.rand(2, 3, 16, 16))
    assert relevances is not None


@pytest.mark.slow
@pytest.mark.parametrize("guide", sorted(registry.entries("guide")))
@pytest.mark.filterwarnings("ignore")
def test_every_guide_leads_a_campaign_on_a_vit(guide: str, inputs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    result: Any = neurotest.fuzz(target("vit"), inputs, guide, train=inputs, forwards=200, out=tmp_path / "run")
    assert result.to_dict()["forwards"] >= 200
