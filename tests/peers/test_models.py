"""Networks of timm, torchvision and transformers: fed as the library feeds them, weights from files, nothing downloaded."""

from __future__ import annotations

import copy
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from neurotest.errors import BadInput, Remark
from neurotest.images import pixels
from neurotest.target.extras import guarded_torchvision
from neurotest.target.load import load
from neurotest.target.spec import TargetSpec
from neurotest.target.target import Target

os.environ.setdefault("HF_HUB_OFFLINE", "1")
guarded_torchvision()


def package(module: str) -> Any:
    if os.environ.get("NEUROTEST_MODELS") == "required":
        return __import__(module)
    return pytest.importorskip(module, reason=f"{module} is not installed (make test-models)")


def photograph() -> Image.Image:
    """Something smooth, wider than high."""
    grid = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    return Image.fromarray(grid).resize((320, 240), Image.Resampling.BICUBIC)


def fed(target: Target, image: Image.Image) -> torch.Tensor:
    """A picture as the module gets it."""
    assert target.shape is not None
    array = pixels(image, target.shape[0], target.shape[1:], target.preprocess).x  # type: ignore[arg-type]
    return target._preprocessed(target.prepare(array[None]))


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Remark)
        yield


# -- timm


@pytest.mark.models("timm")
@pytest.mark.parametrize("name", ["test_vit", "test_efficientnet"])
def test_timm_is_fed_as_timm_feeds_it(name: str) -> None:
    timm = package("timm")
    target = load(f"timm:{name}")
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=target.module))
    theirs = transform(photograph())[None]
    torch.testing.assert_close(fed(target, photograph()), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.models("timm")
def test_random_weights_are_the_same_each_time_and_a_remark() -> None:
    package("timm")
    with pytest.warns(Remark, match=r"timm:test_vit has random weights"):
        target = load("timm:test_vit")
    state = torch.get_rng_state()
    assert load("timm:test_vit").fingerprint == target.fingerprint
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.models("timm")
def test_weights_say_how_many_classes(tmp_path: Path) -> None:
    timm = package("timm")
    model = timm.create_model("test_vit", num_classes=7).eval()
    torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in model.state_dict().items()}}, tmp_path / "seven.pt")
    target = load("timm:test_vit", weights=tmp_path / "seven.pt")
    x = torch.rand(2, *target.shape)
    torch.testing.assert_close(target.module(x), model(x))
    assert target.logits(x).shape == (2, 7)
    assert TargetSpec.of(target).open().fingerprint == target.fingerprint
    other = timm.create_model("test_resnet", num_classes=7)
    torch.save(other.state_dict(), tmp_path / "other.pt")
    with pytest.raises(BadInput, match="do not fit the network"):
        load("timm:test_vit", weights=tmp_path / "other.pt")


@pytest.mark.models("timm")
@pytest.mark.parametrize("name", ["resnet81", "hf_hub:somebody/net", "../net", "local-dir:/tmp"])
def test_only_names_that_timm_has(name: str) -> None:
    package("timm")
    with pytest.raises(BadInput, match="has no such model"):
        load(f"timm:{name}")


# -- torchvision


@pytest.mark.models("torchvision")
def test_torchvision_is_fed_as_its_weights_are(tmp_path: Path) -> None:
    package("torchvision")
    from torchvision import models

    target = load("torchvision:squeezenet1_1")
    transform = models.get_model_weights("squeezenet1_1").DEFAULT.transforms()
    torch.testing.assert_close(fed(target, photograph()), transform(photograph())[None], rtol=1e-5, atol=1e-5)
    assert target.classes is not None
    assert len(set(target.classes)) == 1000
    model = models.squeezenet1_1(num_classes=3).eval()
    torch.save(model.state_dict(), tmp_path / "three.pt")
    three = load("torchvision:squeezenet1_1", weights=tmp_path / "three.pt")
    x = torch.rand(1, 3, 64, 64)
    torch.testing.assert_close(three.module(x), model(x))
    assert three.classes is None


@pytest.mark.models("torchvision")
@pytest.mark.parametrize("name", ["resnet81", "fasterrcnn_resnet50_fpn", "os.system"])
def test_only_classifiers_of_torchvision(name: str) -> None:
    package("torchvision")
    with pytest.raises(BadInput, match="no such classifier"):
        load(f"torchvision:{name}")


# -- transformers


def small_vit(folder: Path) -> Any:
    transformers = package("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8,
        id2label={0: "cat", 1: "dog", 2: "dog"},
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}, image_mean=[0.4] * 3).save_pretrained(folder)
    return model


@pytest.mark.models("transformers")
def test_a_classifier_of_transformers(tmp_path: Path) -> None:
    model = small_vit(tmp_path)
    target = load(f"hf:{tmp_path}")
    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(target.module(x), model(pixel_values=x).logits)
    assert target.classes == ("cat", "dog", "dog (2)")
    layers = target.survey().find("pre_activation")
    assert {layer.name for layer in layers} <= {name for name, _ in model.named_modules()}
    assert len(layers) == 1 + 2 * 6 + 1  # patches; per block query, key, value, output and two of the MLP; the classifier
    assert TargetSpec.of(target).open().fingerprint == target.fingerprint
    torch.testing.assert_close(copy.deepcopy(target.module)(x), target.module(x))


@pytest.mark.models("transformers")
@pytest.mark.parametrize("kind", ["squashed", "cropped", "share"])
def test_pictures_as_the_processor_makes_them(kind: str, tmp_path: Path) -> None:
    transformers = package("transformers")
    small_vit(tmp_path)
    processor = {
        "squashed": lambda: transformers.ViTImageProcessor(size={"height": 32, "width": 32}),
        "cropped": lambda: transformers.MobileNetV2ImageProcessor(
            size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32}
        ),
        "share": lambda: transformers.ConvNextImageProcessor(size={"shortest_edge": 32}, crop_pct=0.875),
    }[kind]()
    processor.save_pretrained(tmp_path)
    theirs = processor(photograph(), return_tensors="pt")["pixel_values"]
    ours = fed(load(f"hf:{tmp_path}"), photograph())
    assert ours.shape == theirs.shape
    # Resizing rounds to 8 bits: one grey level, here 2/255, in few pixels.
    difference = (ours - theirs).abs()
    assert float(difference.max()) < 2.1 / 255
    assert float((difference > 1e-4).float().mean()) < 0.05


@pytest.mark.models("transformers")
def test_folders_that_could_run_code_or_read_elsewhere(tmp_path: Path) -> None:
    small_vit(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModelForImageClassification": "evil.Net"}}))
    with pytest.raises(BadInput, match="brings code of its own"):
        load(f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match="other formats could run code"):
        load(f"hf:{tmp_path}")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"vit": "../../secret.safetensors"}}))
    with pytest.raises(BadInput, match="which is no safetensors file in the folder"):
        load(f"hf:{tmp_path}")


@pytest.mark.models("transformers")
def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    package("transformers")
    with pytest.raises(BadInput, match="networks are not downloaded"):
        load("hf:google/vit-base-patch16-224")
    with pytest.raises(BadInput, match=r"there is no config\.json"):
        load(f"hf:{tmp_path}")
    small_vit(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertForMaskedLM"]}))
    with pytest.raises(BadInput, match="BertForMaskedLM: image and audio classifiers"):
        load(f"hf:{tmp_path}")
