"""Targets whose package is missing: one sentence with the command that installs it, and nothing else."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from neurotest.errors import BadInput
from neurotest.target.load import load

pytestmark = pytest.mark.plain


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an environment with the core alone."""
    plain = importlib.import_module

    def refuse(name: str, *more: Any) -> Any:
        top = name.partition(".")[0]
        if top in ("onnx", "onnxruntime", "timm", "torchvision", "transformers"):
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
        return plain(name, *more)

    monkeypatch.setattr("neurotest.target.extras.importlib.import_module", refuse)
    monkeypatch.setattr("neurotest.target.extras.importlib.util.find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("spec", "package", "install"),
    [
        ("onnx:net.onnx", "onnx", "pip install 'neurotest[onnx]'"),
        ("timm:resnet18", "timm", "pip install 'neurotest[models]'"),
        ("torchvision:resnet18", "torchvision", "pip install 'neurotest[models]'"),
        ("hf:folder", "transformers", "pip install 'neurotest[hf]'"),
    ],
)
def test_the_extra_is_named_with_its_command(
    spec: str, package: str, install: str, nothing_installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(b"\x08\x09")
    Path("folder").mkdir()
    Path("folder/model.safetensors").write_bytes(b"")
    Path("folder/config.json").write_text('{"model_type": "vit", "architectures": ["ViTForImageClassification"]}')
    with pytest.raises(BadInput) as refused:
        load(spec)
    assert package in str(refused.value)
    assert install in str(refused.value)
