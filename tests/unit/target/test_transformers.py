"""What a neuron is in a ViT, a Swin, a ConvNeXt and an MLP-Mixer: a hidden unit or a head's channel, over tokens or per token."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.refusals import refused
from tests.unit.target.transformers import HEADS, NETWORKS, TOKENS, WIDTH, network, pictures
from torch import Tensor, nn

import neurotest
from neurotest import registry
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


@pytest.mark.parametrize(
    ("glob", "apart"),
    [
        ("blocks.0.attn.qkv", "blocks.0.attn.qkv"),
        ("blocks.1.attn", "blocks.1.attn"),
        ("*.0.attn.*attention*", "blocks.0.attn.scaled_dot_product_attention_1"),
    ],
)
def test_layers_whose_rows_are_windows_are_refused_with_a_layer_that_works(glob: str, apart: str) -> None:
    survey = target("swin").survey()
    with refused("unsuitable", "layers") as caught:
        survey.find(glob)
    sentence = str(caught.value)
    assert f"layers={glob!r}: the rows of {apart!r} are not the inputs" in sentence
    block = apart.partition(".attn")[0]
    assert f"use {block!r}, the block around it or --layers pre_activation." in sentence
    assert survey.find(block)[0].name == block
    with refused("unknown-name", "layers"):  # what does not run at all
        survey.find("blocks.0.attention.qkv")
    assert not target("vit").survey().apart


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


REFUSED = {
    "mc-dropout": ("unsuitable", "dropout"), "bald": ("unsuitable", "dropout"), "neighbours": ("missing", "labels"),
}  # fmt: skip  # what the network or the call lacks
SELECTORS = sorted(n for n, e in registry.entries("selector").items() if not getattr(e.make, "quantities", False))


def order(name: str, selector: str, inputs: tuple[np.ndarray, np.ndarray]) -> None:
    def choose() -> Any:
        return neurotest.select(target(name), inputs, selector, 8, train=inputs, originals=inputs[0])

    if selector in REFUSED:
        with refused(*REFUSED[selector]):
            choose()
    else:
        assert len(set(choose().indices)) == 8


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.filterwarnings("ignore")
def test_every_selector_orders_inputs_of_a_vit(selector: str, inputs: tuple[np.ndarray, np.ndarray]) -> None:
    order("vit", selector, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.filterwarnings("ignore")
def test_every_selector_orders_inputs_of_the_others(selector: str, name: str, inputs: tuple[np.ndarray, np.ndarray]) -> None:
    order(name, selector, inputs)


def test_relevance_by_rule_says_what_to_use_instead() -> None:
    from neurotest.attribute.relevance import Relevance

    with refused("unsuitable", "rule"):
        Relevance(rule="lrp").plan(target("vit"))
    relevances = Relevance().plan(target("vit"))(torch.rand(2, 3, 16, 16))
    assert relevances is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("guide", sorted(registry.entries("guide")))
@pytest.mark.filterwarnings("ignore")
def test_every_guide_leads_a_campaign(guide: str, name: str, inputs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    subject = target(name)
    labelled = inputs[0], subject.logits(subject.prepare(inputs[0])).argmax(1).detach().numpy()
    result: Any = neurotest.fuzz(subject, labelled, guide, train=labelled, forwards=200, out=tmp_path / "run")
    assert result.to_dict()["forwards"] >= 200


# -- explanations


@pytest.fixture(scope="module")
def campaign(inputs: tuple[np.ndarray, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Faults of the ViT: nearly any change is allowed."""
    place = tmp_path_factory.mktemp("vit") / "run"
    neurotest.swarm(target("vit"), inputs, norm="linf", radius=0.9, particles=6, iterations=4, limit=16, out=place)
    return place


@pytest.mark.parametrize("critical", sorted(registry.entries("critical")))
@pytest.mark.filterwarnings("ignore")
def test_every_way_to_find_critical_neurons_explains_a_fault(
    critical: str, campaign: Path, inputs: tuple[np.ndarray, np.ndarray]
) -> None:
    explained: Any = neurotest.explain(
        campaign, 1, target=target("vit"), train=inputs, critical=critical, describe="class-profile"
    )
    content = explained.to_dict()
    assert content["predicted"]["seed"] != content["predicted"]["fault"]
    assert [pair["layer"] for pair in content["layers"]] == ["blocks.0", "blocks"]  # the second block, by its shorter name
    for pair in content["layers"]:
        assert 0 <= pair["seed"]["neuron"] < WIDTH
        assert pair["seed"]["ranks"][0] == 1  # the neuron of the path is the one that decides most


def test_conductance_through_a_block_is_what_the_class_gained() -> None:
    """Everything goes through the residual stream: over its channels conductance adds up to the difference of the logit."""
    from neurotest.attribute.conductance import Conductance

    subject = target("vit")
    x = subject.prepare(pictures(4))
    with torch.no_grad():
        classes = subject.logits(x).argmax(1)
        black = subject.logits(torch.zeros_like(x)).gather(1, classes[:, None])[:, 0]
        gained = subject.logits(x).gather(1, classes[:, None])[:, 0] - black
    for block in ("blocks.0", "blocks.1"):
        plan = Conductance(layers=block, steps=200, grid="uniform", baseline="black").plan(subject, data=None)
        sums = plan(x, classes).scores[block].sum(1)
        torch.testing.assert_close(sums, gained, rtol=0.02, atol=0.02)


def describers(folder: Path, x: np.ndarray, y: np.ndarray) -> dict[str, str]:
    """Methods of every describer, with the files that some of them need."""
    colours = x.mean((2, 3)).astype(np.float32) - 128
    np.save(folder / "images.npy", colours)
    np.save(folder / "texts.npy", np.eye(3, dtype=np.float32) * 50)
    (folder / "words.txt").write_text("red\ngreen\nblue\n")
    (folder / "table.csv").write_text("layer,neuron,description,score\nhead,0,a thing,0.5\n")
    for i in range(len(x)):
        (folder / "concepts" / f"colour{y[i]}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(x[i].transpose(1, 2, 0)).save(folder / "concepts" / f"colour{y[i]}" / f"{i}.png")
    clip = f"images={folder / 'images.npy'},texts={folder / 'texts.npy'},words={folder / 'words.txt'}"
    small = "pairs=30,steps=60,embedding=16,hidden=24,beam=5,least=0"
    return {
        "clip-dissect": f"clip-dissect:{clip}",
        "concepts": f"concepts:{folder / 'concepts'}",
        "csv": f"csv:{folder / 'table.csv'}",
        "milan": f"milan:corpus=dir:{folder / 'concepts'},{small}",
    }


@pytest.mark.parametrize(
    "describer",
    [pytest.param(n, marks=[pytest.mark.slow] * (n == "milan")) for n in sorted(registry.entries("describer"))],  # it trains
)
@pytest.mark.filterwarnings("ignore")
def test_every_describer_describes_a_vit(describer: str, inputs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    method = describers(tmp_path, *inputs).get(describer, describer)
    data = None if describer == "concepts" else inputs  # whose images would be those of no concept
    table = neurotest.describe(target("vit"), data, method, cache=False)
    sizes = {"head": 4} if describer == "csv" else {"blocks.0.mlp.act": 2 * WIDTH, "blocks.1.mlp.act": 2 * WIDTH, "head": 4}
    assert dict(table.layers) == sizes
    assert len(list(table)) == sum(sizes.values())
    assert any(row.score > 0 for row in table)
