"""`hf:DIR`: an image or audio classifier that was saved with Hugging Face transformers, in a local folder.

Two JSON files and safetensors are read, by neurotest itself. transformers gets a configuration that was checked, and tensors, but
no folder: it has nothing to open, to run or to download.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neurotest import registry
from neurotest.errors import BadInput
from neurotest.pictures import Preprocess
from neurotest.reading import read_json, reading, reason, user_path
from neurotest.target import hf_config, hf_size
from neurotest.target.extras import guarded_torchvision, need, offline
from neurotest.target.log_mel import RATE, LogMel
from neurotest.target.target import Target
from neurotest.target.weights import read_state

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # numbers of Pillow
Inputs = Callable[[Tensor], dict[str, Tensor]]  # what a model's forward gets
IMAGES, AUDIO = "ForImageClassification", ("ForSequenceClassification", "ForAudioClassification")


@registry.register("target source", "hf", paper="", cost="imports transformers; reads the folder, downloads nothing")
def from_huggingface(place: str) -> Target:
    """`hf:DIR`: a local Hugging Face image or audio classifier, fed as its processor's configuration says.

    The folder holds `config.json`, `preprocessor_config.json` and `model.safetensors`. Code in it is never run, and weights in
    other formats are refused: they could run code.
    """
    folder = user_path(place, f"hf:{place:.200}")
    if not folder.is_dir():
        raise BadInput(
            "not-found",
            "target",
            f"hf:{place}: there is no such folder; networks are not downloaded: save one with model.save_pretrained(DIR).",
        )
    config = _json(folder, "config.json")
    named = config.get("architectures") or []
    if not isinstance(named, list):
        raise BadInput(
            "damaged",
            "architectures",
            f"hf:{place}: architectures={str(named)[:80]!r} in config.json is no list of names: is it damaged?",
        )
    kinds = [str(one) for one in named]
    images = any(kind.endswith(IMAGES) for kind in kinds)
    if not images and not any(kind.endswith(AUDIO) for kind in kinds):
        raise BadInput(
            "unsupported",
            "architectures",
            f"hf:{place} is a {', '.join(kinds)[:200] or 'network of unknown kind'}: image and audio classifiers are tested.",
        )
    config = hf_config.check(config, place)
    weights = _weights(folder, place)
    guarded_torchvision()
    need("transformers", "hf", f"hf:{place}")
    processor = _json(folder, "preprocessor_config.json")
    inputs, feeding = (_pixels, picture_feeding(processor, folder)) if images else sound_feeding(processor, folder)
    with offline():
        module = _loaded(config, images, weights, inputs, folder)
    return Target(module.eval(), classes=_classes(module), **feeding)


def _json(folder: Path, name: str) -> dict[str, Any]:
    if not (folder / name).is_file():
        raise BadInput(
            "not-found",
            name,
            f"hf:{folder}: there is no {name} in it; save the model and its processor there with save_pretrained.",
        )
    content = read_json(folder / name, "a configuration of transformers")
    if not isinstance(content, dict):
        raise BadInput("wrong-type", name, f"{folder / name} is no configuration of transformers.")
    return content


def _weights(folder: Path, place: str) -> list[Path]:
    """The safetensors files of the folder; other formats are refused."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        raise BadInput(
            "not-found",
            "weights",
            f"hf:{place} has no {WEIGHTS}: other formats could run code; save it again with save_pretrained(DIR).",
        )
    parts = _json(folder, INDEX).get("weight_map")
    files = list(parts.values()) if isinstance(parts, dict) and parts else [None]  # of any type: not yet a set
    for file in files:
        plain = isinstance(file, str) and Path(file).name == file and file.endswith(".safetensors")
        if not plain or not (folder / str(file)).is_file():
            raise BadInput(
                "untrusted",
                "index",
                f"hf:{place}: {INDEX} names the file {str(file)[:200]!r}, which is no safetensors file in the folder.",
            )
    return [folder / file for file in sorted(set(map(str, files)))]


def _loaded(config: dict[str, Any], images: bool, files: list[Path], inputs: Inputs, folder: Path) -> nn.Module:
    """The model, which answers with its logits alone."""
    import transformers

    level = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    state = {name: tensor for file in files for name, tensor in read_state(file).items()}
    try:
        for attention in ("sdpa", "eager"):  # named here, because a configuration may name code that is to be downloaded
            settings = transformers.AutoConfig.for_model(config["model_type"]).from_dict(config)
            kind = _kind(settings, images)
            options = {"config": settings, "state_dict": dict(state), "attn_implementation": attention, "dtype": torch.float32}
            try:
                hf_size.check(kind, settings, attention, state, folder)
                model, about = kind.from_pretrained(None, output_loading_info=True, **options)
                break
            except ValueError:
                if attention == "eager":
                    raise
    except BadInput:
        raise
    except Exception as error:  # damaged configurations make it raise anything
        raise BadInput(
            "unreadable", "target", f"hf:{folder} cannot be loaded by transformers {transformers.__version__}: {reason(error)}"
        ) from error
    finally:
        transformers.utils.logging.set_verbosity(level)
    missing = sorted(about.get("missing_keys") or ())
    if missing:
        raise BadInput(
            "damaged",
            "weights",
            f"hf:{folder}: {WEIGHTS} lacks {len(missing)} weights of the network (first: {missing[0]}): is it a classifier?",
        )
    kind_of_model: Any = type(model)
    model.__class__ = _answering(kind_of_model, inputs)
    if inputs is not _pixels:  # so that fingerprints tell front ends of sound apart; pictures have one
        model.front_end = getattr(inputs, "__name__", repr(inputs))
    return model  # type: ignore[no-any-return]


def _kind(settings: Any, images: bool) -> Any:
    """The class of transformers for a configuration; of several the one that the configuration names."""
    import transformers

    auto = transformers.AutoModelForImageClassification if images else transformers.AutoModelForAudioClassification
    kinds = auto._model_mapping[type(settings)]
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    return next((kind for kind in kinds if kind.__name__ in (settings.architectures or ())), kinds[0])


@functools.cache
def _answering(kind: type[nn.Module], inputs: Inputs) -> type[nn.Module]:
    """The model's class with a forward from one tensor to logits: a wrapper around it would change the names of all layers."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        return kind.forward(self, **inputs(x), return_dict=True).logits  # type: ignore[no-any-return]

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": __name__})


def _pixels(x: Tensor) -> dict[str, Tensor]:
    return {"pixel_values": x}


def _samples(x: Tensor) -> dict[str, Tensor]:
    return {"input_values": x.flatten(1)}  # (n, 1, samples) or (n, samples)


def _waves(x: Tensor) -> dict[str, Tensor]:
    return {"input_values": normalised(x.flatten(1))}


def _classes(module: nn.Module) -> list[str] | None:
    names = getattr(module.config, "id2label", None) or {}
    ordered = [str(names[number]) for number in sorted(names)]
    plain = all(name == f"LABEL_{number}" for number, name in enumerate(ordered))
    if plain or sorted(names) != list(range(len(names))):
        return None
    return [name if name not in ordered[:place] else f"{name} ({place})" for place, name in enumerate(ordered)]


# -- pictures


def picture_feeding(processor: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What a processor does to pictures, as the description of a target."""
    with reading(folder / "preprocessor_config.json", "a configuration of transformers", untyped=True):
        resize, shape = _size(processor)
        factor = float(processor.get("rescale_factor", 1 / 255)) if processor.get("do_rescale", True) else 1.0
        feeding: dict[str, Any] = {}
        if processor.get("do_normalize", True):
            mean, std = processor.get("image_mean"), processor.get("image_std")
            if mean is not None and std is not None:
                feeding |= {"mean": [float(m) for m in mean], "std": [float(s) for s in std]}
        interpolation = FILTERS.get(int(processor.get("resample", 2)), "bilinear")
    if not 0 < factor < math.inf:
        raise BadInput(
            "out-of-range",
            "rescale_factor",
            f"{folder / 'preprocessor_config.json'}: rescale_factor={factor}: pictures are multiplied by a number above 0.",
        )
    if not math.isclose(factor, 1 / 255, rel_tol=1e-3):  # inputs are 8 bits as 0 .. 1; others are another scale of the same
        scale = 255 * factor
        mean, std = feeding.get("mean", [0.0]), feeding.get("std", [1.0])
        feeding = {"mean": [m / scale for m in mean], "std": [s / scale for s in std]}
    crop = "centre" if processor.get("do_center_crop") or resize != shape else None
    feeding["preprocess"] = Preprocess(resize=_text(resize), crop=crop, interpolation=interpolation)  # type: ignore[arg-type]
    feeding["shape"] = (3, *shape)
    return feeding


def _size(processor: Mapping[str, Any]) -> tuple[tuple[int, int], tuple[int, int]]:
    """What pictures are resized to, and the size of an input: (height, width) each."""
    size = processor.get("size", 224)
    size = {"shortest_edge": size} if isinstance(size, int) and processor.get("do_center_crop") else size
    size = {"height": size, "width": size} if isinstance(size, int) else size
    edge = size.get("shortest_edge")
    resize = (int(edge), int(edge)) if edge is not None else (int(size["height"]), int(size["width"]))
    if "crop_pct" in processor and edge is not None:  # ConvNeXt: small inputs are the centre of a larger picture
        share = float(processor["crop_pct"] or 224 / 256)
        return ((int(edge / share), int(edge / share)) if int(edge) < 384 else resize), resize
    if not processor.get("do_center_crop"):
        return resize, resize
    crop = processor.get("crop_size") or size
    crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop
    return resize, (int(crop["height"]), int(crop["width"]))


def _text(size: tuple[int, int]) -> int | str:
    return size[0] if size[0] == size[1] else f"{size[0]}x{size[1]}"


# -- sounds


def normalised(x: Tensor) -> Tensor:
    """Each sound with zero mean and unit variance, as Wav2Vec2FeatureExtractor makes it."""
    return (x - x.mean(1, keepdim=True)) / (x.var(1, unbiased=False, keepdim=True) + 1e-7).sqrt()


def sound_feeding(processor: Mapping[str, Any], folder: Path) -> tuple[Inputs, dict[str, Any]]:
    """What a feature extractor does to samples, which happens inside the network, and the description of a target."""
    file, kind = folder / "preprocessor_config.json", str(processor.get("feature_extractor_type"))
    with reading(file, "a configuration of transformers", untyped=True):
        rate, normalise = int(processor["sampling_rate"]), bool(processor.get("do_normalize", True))
        if kind == "Wav2Vec2FeatureExtractor":
            inputs: Inputs = _waves if normalise else _samples
        elif kind == "ASTFeatureExtractor":
            if rate != RATE:
                raise BadInput(
                    "unsupported",
                    "sampling_rate",
                    f"{file}: sampling_rate={rate}: an ASTFeatureExtractor of {RATE} samples a second is supported.",
                )
            inputs = LogMel(
                bands=int(processor["num_mel_bins"]), length=int(processor["max_length"]),
                mean=float(processor["mean"]) if normalise else 0.0, scale=2 * float(processor["std"]) if normalise else 1.0,
            )  # fmt: skip
        else:
            raise BadInput(
                "unsupported",
                "features",
                f"hf:{folder} hears features of a {kind[:100]}: raw sound (Wav2Vec2FeatureExtractor) and ASTFeatureExtractor are "
                "supported; for others build the network with its features inside in py:FILE:build.",
            )
    return inputs, {"bounds": (-1.0, 1.0), "preprocess": Preprocess(rate=rate)}
