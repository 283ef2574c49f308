"""What a `config.json` of transformers may say: networks that are built from numbers and plain words alone.

A configuration may name other networks, files and repositories, and transformers follows such names. So the kinds of networks are
listed here, and everything in a configuration is looked at before transformers sees it. How large the network is that it
describes is found out before memory is asked for.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from neurotest.errors import BadInput
from neurotest.memory import check_memory
from neurotest.memory import size as size_text

# Kinds whose code in transformers 4.56 to 5.22 builds every layer itself. timm_wrapper is not one: it asks timm, which downloads.
IMAGES = frozenset({
    "beit", "bit", "clip", "convnext", "convnextv2", "cvt", "data2vec-vision", "deit", "dinat", "dinov2",
    "dinov2_with_registers", "donut-swin", "efficientnet", "focalnet", "hgnet_v2", "hiera", "ijepa", "levit",
    "metaclip_2", "mobilenet_v1", "mobilenet_v2", "mobilevit", "mobilevitv2", "perceiver", "poolformer", "pp_lcnet",
    "pvt", "pvt_v2", "regnet", "resnet", "segformer", "siglip", "swiftformer", "swin", "swinv2", "textnet", "vit",
    "vit_msn",
})  # fmt: skip
AUDIO = frozenset({
    "audio-spectrogram-transformer", "data2vec-audio", "hubert", "sew", "sew-d", "unispeech", "unispeech-sat", "wav2vec2",
    "wav2vec2-conformer", "wavlm",
})  # fmt: skip
# Parts of a clip, siglip or metaclip_2, which are configurations inside a configuration.
_INNER = frozenset(f"{kind}_{part}_model" for kind in ("clip", "siglip", "metaclip_2") for part in ("vision", "text"))
_LABELS = ("id2label", "label2id")  # names of classes: any text
# Where it came from, and how attention is computed, which we say ourselves: left out.
_UNUSED = frozenset({
    "_name_or_path", "transformers_version", "_commit_hash", "attn_implementation", "_attn_implementation",
    "_attn_implementation_autoset",
})  # fmt: skip
_NAMES = re.compile(
    r"auto_map|custom_pipelines|quantization|backbone|timm|checkpoint(?!ing)|pretrained|architecture$|model_args|model_kwargs|"
    r"transformers_weights|gguf|kernels|_implementation|(^|_)(hub|repo|file|path|url|uri|dir|folder|revision)(_|$)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z0-9_ +-]{0,100}")
MOST_VALUES, MOST_DEPTH = 500_000, 8
_BUILD = "build it in py:FILE:build, if you trust it."


def check(config: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The configuration without what nobody needs; refused if it could run code, or reach a file or the network."""
    if "auto_map" in config:
        message = f"hf:{place} brings code of its own (auto_map in config.json), which is not run: {_BUILD}"
        raise BadInput("untrusted", "auto_map", message)
    if "quantization_config" in config:
        raise BadInput("unsupported", "quantised", f"hf:{place} is quantised, which is not supported: save it in float32.")
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in IMAGES | AUDIO:
        message = (
            f"hf:{place}: model_type={str(kind)[:80]!r} in config.json is not supported: it may load other files. "
            f"Supported: {', '.join(sorted(IMAGES | AUDIO))}. For another one {_BUILD}"
        )
        raise BadInput("unsupported", "model_type", message)
    return _Check(place).mapping(config, "", 0)


class _Check:
    """One walk over everything in a configuration."""

    def __init__(self, place: str) -> None:
        self.place, self.count = place, 0

    def refuse(self, where: str, value: Any, why: str) -> BadInput:
        return BadInput(
            "untrusted", where[:200], f"hf:{self.place}: {where[:200]}={str(value)[:80]!r} in config.json {why}: {_BUILD}"
        )

    def mapping(self, values: Mapping[str, Any], where: str, depth: int) -> dict[str, Any]:
        kind = values.get("model_type")
        if where and kind is not None and (not isinstance(kind, str) or kind not in IMAGES | AUDIO | _INNER):
            raise self.refuse(f"{where}.model_type", kind, "is not supported")
        kept = {key: value for key, value in values.items() if key not in _UNUSED}
        return {key: self.member(key, value, f"{where}.{key}" if where else key, depth) for key, value in kept.items()}

    def member(self, key: str, value: Any, where: str, depth: int) -> Any:
        if key in _LABELS and isinstance(value, dict):
            return {label: self.label(text, where) for label, text in value.items()}
        if _NAMES.search(key) and _names_something(value):
            raise self.refuse(where, value, "may name code, a file or a repository")
        return self.value(value, where, depth + 1)

    def label(self, value: Any, where: str) -> Any:
        self.counted(where)
        if type(value) not in (str, int):
            raise self.refuse(where, value, "is not the name or the number of a class")
        return value

    def value(self, value: Any, where: str, depth: int) -> Any:
        self.counted(where)
        if depth > MOST_DEPTH:
            raise self.refuse(where, value, "is nested too deeply")
        if isinstance(value, dict):
            return self.mapping(value, where, depth)
        if isinstance(value, list):
            return [self.value(one, where, depth + 1) for one in value]
        if isinstance(value, str) and not _WORD.fullmatch(value):
            raise self.refuse(where, value, "is not a plain word; it could be a path or the name of a repository")
        return value

    def counted(self, where: str) -> None:
        self.count += 1
        if self.count > MOST_VALUES:
            raise self.refuse(where, "...", f"is one of more than {MOST_VALUES:,} values")


def _names_something(value: Any) -> bool:
    """Whether a value is more than numbers; `True` may ask for a download."""
    if isinstance(value, list):
        return any(map(_names_something, value))
    return value is True or isinstance(value, (str, dict))


SMALL_NETWORK = 256 << 20  # bytes of any network
SMALL_COUNT = 1000  # parameters of any network
TIMES = 4  # how often what its files hold a larger one may need: float32 of numbers of 8 bits
_ONE = "are they of one network?"


def check_size(kind: Any, settings: Any, attention: str, state: Mapping[str, Tensor], folder: Path) -> None:
    """Refuse a network that is much larger than its weights.

    It is built on torch's device `meta`, which has shapes and no memory. Names are not compared: transformers knows older ones.
    """
    registered, most = 0, SMALL_COUNT + TIMES * len(state)

    def count(module: nn.Module, name: str, parameter: Any) -> None:
        nonlocal registered
        registered += 1
        if registered > most:  # in the middle of building: a million layers would take hours
            message = f"hf:{folder}: config.json describes more than {most:,} weights, its files hold {len(state):,}: {_ONE}"
            raise BadInput("too-large", "weights", message)

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"):
            model = kind._from_config(copy.deepcopy(settings), attn_implementation=attention)
    except (NotImplementedError, RuntimeError) as error:
        if "meta" not in str(error):
            raise
        return  # old versions of transformers ask for a value while some kinds are built
    finally:
        hook.remove()
    needed = sum(4 * tensor.numel() for tensors in (model.parameters(), model.buffers()) for tensor in tensors)
    stored = sum(tensor.nbytes for tensor in state.values())
    if needed > max(SMALL_NETWORK, TIMES * stored):
        raise BadInput(
            "too-large",
            "network",
            f"hf:{folder}: config.json describes a network of {size_text(needed)}, its files hold {size_text(stored)}: {_ONE}",
        )
    if needed > SMALL_NETWORK:
        check_memory(needed, f"hf:{folder}", "close other programs")
