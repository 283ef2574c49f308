"""Networks made by strangers: architectures of timm and torchvision, exported to `.pt2` and `.onnx`, opened without their code.

Narrow and shallow forms of them, with random weights: what is tested are the operators and the names of layers, not the width.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

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
@pytest.mark.parametrize("form", ["pt2", "onnx"])
def test_an_exported_architecture_answers_like_the_module(library: str, name: str, form: str, tmp_path: Path) -> None:
    module, side = built(library, name)
    x = torch.rand(3, 3, side, side)
    file = tmp_path / f"net.{form}"
    export(module, x[:2], file)
    target = load(f"{form}:{file}")
    with torch.inference_mode():
        ours, theirs = target.logits(x), module(x)
    size = float(theirs.abs().max())
    torch.testing.assert_close(ours.double(), theirs.double(), rtol=0, atol=1e-4 * size)
    target.check_reference(x)
    modules = {path for path, _ in module.named_modules()}
    layers = target.survey().find("pre_activation")
    named = [layer for layer in layers if layer.name in modules or layer.module in modules]
    assert len(named) >= 0.9 * len(layers), [layer.name for layer in layers if layer not in named]
    assert target.survey().find("post_activation")
    if name != "squeezenet1_1":  # which ends in a convolution
        assert target.survey().find("features")[0].neurons("channel") == 7


def export(module: nn.Module, x: torch.Tensor, file: Path) -> None:
    batch = ({0: torch.export.Dim("batch")},)
    if file.suffix == ".pt2":
        torch.export.save(torch.export.export(module, (x,), dynamic_shapes=batch), file)
        return
    pytest.importorskip("onnx", reason="onnx is not installed (make test-models)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names: dict[str, Any] = {"input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}, "opset_version": 17}
        torch.onnx.export(module, (x,), str(file), dynamo=False, **names)
