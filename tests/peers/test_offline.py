"""Model libraries reach neither the network nor other files, watched by an audit hook in a process of their own."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.peers.test_models import package, small_vit

from neurotest.target import hf_config
from neurotest.target.extras import guarded_torchvision

HERE = Path(__file__).parent
OWN_FILES = {"open net/config.json", "open net/preprocessor_config.json", "open net/model.safetensors"}


def watched(folder: Path, *specs: str) -> list[dict[str, Any]]:
    """What loading each spec reached, of the network and of the files in a folder."""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_OFFLINE")}
    env |= {"HF_HOME": str(folder / "hub"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    words = [sys.executable, str(HERE / "watched_load.py"), str(folder), *specs]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"spec"')]
    assert [line["spec"] for line in lines] == list(specs)
    return lines


def sent(reached: dict[str, Any]) -> list[str]:
    return [event for event in reached["events"] if not event.startswith("open")]


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("exploded",)


def folder_of(tmp_path: Path, changes: dict[str, Any]) -> Path:
    small_vit(tmp_path / "net")
    config = json.loads((tmp_path / "net/config.json").read_text())
    (tmp_path / "net/config.json").write_text(json.dumps(config | changes))
    (tmp_path / "secret.pt").write_bytes(pickle.dumps(Bomb()))
    return tmp_path / "net"


@pytest.mark.models("timm")
def test_the_watch_sees_a_request_and_offline_stops_it(tmp_path: Path) -> None:
    package("timm")
    online, offline = watched(tmp_path, "timm itself", "timm itself, offline")
    assert any("getaddrinfo" in event for event in sent(online))
    assert sent(offline) == []
    assert offline["answer"].startswith("raised")


@pytest.mark.models("transformers")
@pytest.mark.parametrize("way", ["hub", "file", "backbone", "adapter"])
def test_a_folder_reaches_nothing_else(way: str, tmp_path: Path) -> None:
    package("transformers")
    wrapper = {"model_type": "timm_wrapper", "architectures": ["TimmWrapperForImageClassification"], "num_classes": 3}
    secret = str(tmp_path / "secret.pt")
    folder = folder_of(tmp_path, {
        "hub": wrapper | {"architecture": "hf-hub:somebody/net"},
        "file": wrapper | {"architecture": "test_vit", "model_args": {"checkpoint_path": secret}},
        "backbone": {"backbone_config": {"model_type": "timm_backbone", "backbone": "hf-hub:somebody/net"}},
        "adapter": {},
    }[way])  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(tmp_path / "other")}))
    (reached,) = watched(tmp_path, f"hf:{folder}")
    assert reached["answer"].startswith("loaded" if way == "adapter" else "refused")
    assert set(reached["events"]) <= OWN_FILES


@pytest.mark.models("transformers")
def test_a_plain_folder_is_loaded_from_its_three_files(tmp_path: Path) -> None:
    """Where it came from stands in most folders; it is not looked at."""
    folder = folder_of(tmp_path, {"_name_or_path": "google/vit-base-patch16-224"})
    for name in ("generation_config.json", "processor_config.json", "tokenizer_config.json", "modeling_vit.py"):
        (folder / name).write_text("{")
    (reached,) = watched(tmp_path, f"hf:{folder}")
    assert reached["answer"] == "loaded"
    assert set(reached["events"]) == OWN_FILES


REFUSED = (
    "timm:hf-hub:somebody/net", "timm:hf_hub:somebody/net", "timm:local-dir:{}", "timm:somebody/net", "timm:test_vit.no_tag",
    "torchvision:https://download.pytorch.org/models/squeezenet1_1.pth", "torchvision:{}/secret.pt", "torchvision:fcn_resnet50",
    "hf:somebody/net",
)  # fmt: skip


@pytest.mark.models("timm")
def test_names_of_libraries_reach_nothing(tmp_path: Path) -> None:
    package("timm")
    package("torchvision")
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "test_vit"}))
    (tmp_path / "secret.pt").write_bytes(pickle.dumps(Bomb()))
    specs = [spec.format(tmp_path) for spec in REFUSED]
    for reached in watched(tmp_path, *specs, "timm:test_vit", "torchvision:squeezenet1_1"):
        assert reached["answer"].startswith("refused" if reached["spec"] in specs else "loaded"), reached
        assert reached["events"] == [], reached


@pytest.mark.models("transformers")
@pytest.mark.parametrize("kind", sorted(hf_config.IMAGES | hf_config.AUDIO))
def test_what_transformers_saves_of_a_kind_is_taken(kind: str) -> None:
    guarded_torchvision()
    transformers = package("transformers")
    config = json.loads(transformers.AutoConfig.for_model(kind).to_json_string(use_diff=False))
    kept = hf_config.check(config | {"architectures": ["XForImageClassification"]}, "x")
    assert kept["model_type"] == kind
    again = transformers.AutoConfig.for_model(kind).from_dict(kept)
    assert again.to_dict() == transformers.AutoConfig.for_model(kind).from_dict(config).to_dict() | {
        "architectures": ["XForImageClassification"]
    }
