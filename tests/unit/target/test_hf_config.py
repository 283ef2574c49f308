"""A `config.json` that could run code, open a file or send something is refused, also where transformers is not installed."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from neurotest.errors import BadInput
from neurotest.target import extras, hf_config
from neurotest.target.huggingface import image_feeding
from neurotest.target.load import load

VIT: dict[str, Any] = {
    "architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 32, "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-12, "qkv_bias": True, "dtype": "float32", "problem_type": "single_label_classification",
    "gradient_checkpointing": False, "use_mask_token": True, "id2label": {"0": "cat/dog", "1": "hf-hub:a, ../b.pt"},
    "label2id": {"cat/dog": 0, "hf-hub:a, ../b.pt": 1},
}  # fmt: skip
HOSTILE: dict[str, dict[str, Any]] = {
    "timm by its hub name": {"model_type": "timm_wrapper", "architecture": "hf-hub:somebody/net"},
    "timm with a file": {"model_type": "timm_wrapper", "architecture": "resnet18", "model_args": {"checkpoint_path": "x.pt"}},
    "a kind nobody knows": {"model_type": "new_kind"},
    "no kind": {"model_type": None},
    "a kind that is a list": {"model_type": ["vit"]},
    "code": {"auto_map": {"AutoModelForImageClassification": "evil.Net"}},
    "code further down": {"text_config": {"auto_map": {"AutoConfig": "evil.Config"}}},
    "code of another repository": {"custom_pipelines": {"x": {"impl": "evil.Pipeline"}}},
    "a quantiser": {"quantization_config": {"quant_method": "gptq"}},
    "a quantiser further down": {"vision_config": {"quantization_config": {"quant_method": "gptq"}}},
    "a backbone": {"backbone": "resnet50"},
    "a backbone of timm": {"backbone_config": {"model_type": "timm_backbone", "backbone": "resnet18"}},
    "a backbone with weights": {"use_pretrained_backbone": True},
    "a network inside": {"vision_config": {"model_type": "timm_wrapper"}},
    "a network in a list": {"stages": [{"model_type": "timm_wrapper"}]},
    "other weights": {"transformers_weights": "other.safetensors"},
    "kernels of a hub": {"use_kernels": True},
    "a path": {"hidden_act": "/etc/passwd"},
    "a path of Windows": {"hidden_act": "C:\\weights"},
    "a path that goes up": {"stage_names": ["stem", ".."]},
    "a file": {"hidden_act": "weights.pt"},
    "a hub name": {"norm": {"kind": [["somebody/net"]]}},
    "an address": {"hidden_act": "http:x"},
    "a home": {"hidden_act": "~root"},
    "an architecture of timm's": {"sub": {"architecture": "resnet18"}},
    "an address by its key": {"sub": {"download_url": "plain"}},
    "a class that is no text": {"id2label": {"0": {"model_type": "timm_wrapper"}}},
    "classes that are no object": {"id2label": ["../x"]},
    "depth": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": {}}}}}}}}}},
}


def folder_of(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": 32}))
    (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    return folder


@pytest.mark.parametrize("name", HOSTILE)
def test_a_configuration_that_names_something_is_refused(name: str, tmp_path: Path) -> None:
    """Before transformers is even looked for."""
    with pytest.raises(BadInput, match=r"build it in py:FILE:build|is quantised") as caught:
        load(f"hf:{folder_of(tmp_path, VIT | HOSTILE[name])}")
    assert "needs transformers" not in str(caught.value)


def test_a_plain_configuration_is_kept() -> None:
    assert hf_config.check(VIT, "x") == VIT
    origin = {"_name_or_path": "google/vit-base-patch16-224", "transformers_version": "4.57.0.dev0", "attn_implementation": "a/b"}
    parts = {"vision_config": {"model_type": "clip_vision_model", "_name_or_path": "../x", "hidden_act": "quick_gelu"}}
    kept = hf_config.check(VIT | origin | parts, "x")
    assert kept == VIT | {"vision_config": {"model_type": "clip_vision_model", "hidden_act": "quick_gelu"}}


def test_a_configuration_of_too_many_values_is_refused() -> None:
    with pytest.raises(BadInput, match="500,000 values"):
        hf_config.check(VIT | {"depths": [0] * (hf_config.MOST_VALUES + 1)}, "x")


@pytest.mark.parametrize("named", [5, "ViTForImageClassification", {"a": 1}, True])
def test_architectures_that_are_no_list_are_refused(named: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no list of names"):
        load(f"hf:{folder_of(tmp_path, VIT | {'architectures': named})}")


@pytest.mark.parametrize("parts", [{"a": []}, {"a": {}}, {"a": None}, {"a": 5}, {"a": "../w.safetensors"}, {}, [], None, 5])
def test_a_list_of_weights_that_names_no_file_is_refused(parts: Any, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, VIT)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    with pytest.raises(BadInput, match="which is no safetensors file in the folder"):
        load(f"hf:{folder}")


@pytest.mark.parametrize("factor", [0, -1, 0.0, float("inf"), float("nan"), "0"])
def test_a_factor_of_pictures_that_is_not_above_zero_is_refused(factor: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="rescale_factor="):
        image_feeding({"size": 8, "rescale_factor": factor}, tmp_path)


@pytest.mark.parametrize(
    "processor",
    [{"rescale_factor": []}, {"resample": "x"}, {"size": []}, {"size": {"height": "x"}}, {"image_mean": 5, "image_std": 5},
     {"size": {"shortest_edge": 8}, "crop_pct": 1e-320}, {"rescale_factor": 5e-324}, {"rescale_factor": 1e308},
     {"size": {"height": float("inf"), "width": 8}}, {"resample": float("nan")},
     {"size": {"shortest_edge": "8"}, "crop_pct": 0.5}],
)  # fmt: skip
def test_damaged_processors_are_a_sentence(processor: dict[str, Any], tmp_path: Path) -> None:
    with suppress(BadInput):
        image_feeding({"size": 8} | processor, tmp_path)


def test_offline_is_set_and_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with suppress(KeyError), extras.offline():
        assert {os.environ[name] for name in extras.OFFLINE} == {"1"}
        assert sys.modules["huggingface_hub.constants"].HF_HUB_OFFLINE is True
        raise KeyError
    assert os.environ["HF_HUB_OFFLINE"] == "0"
    assert "TRANSFORMERS_OFFLINE" not in os.environ
    assert constants.HF_HUB_OFFLINE is False
