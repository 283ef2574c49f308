"""`hf:DIR`: an image or audio classifier that was saved with Hugging Face transformers, in a local folder.

Two JSON files and safetensors are read, by neurotest itself. transformers gets a configuration that was checked, and tensors, but
no folder: it has nothing to open, to run or to download.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from neurotest import registry
from neurotest.errors import BadInput
from neurotest.images import Preprocess
from neurotest.reading import read_json, reading, reason, user_path
from neurotest.target import hf_config
from neurotest.target.extras import guarded_torchvision, need, offline
from neurotest.target.hub import distinct
from neurotest.target.target import Target
from neurotest.target.weights import read_state

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # numbers of Pillow
Inputs = Callable[[Tensor], dict[str, Tensor]]  # what a model's forward gets
IMAGES, AUDIO = "ForImageClassification", ("ForSequenceClassification", "ForAudioClassification")


@registry.register("target source", "hf", paper="", cost="imports transformers; reads the folder, downloads nothing")
def _from_huggingface(place: str) -> Target:
    """`hf:DIR`: a local Hugging Face image or audio classifier, fed as its processor's configuration says.

    The folder holds `config.json`, `preprocessor_config.json` and `model.safetensors`. Code in it is never run, and weights in
    other formats are refused: they could run code.
    """
    folder = user_path(place, f"hf:{place:.200}")
    if not folder.is_dir():
        message = f"hf:{place}: there is no such folder; networks are not downloaded: save one with model.save_pretrained(DIR)."
        raise BadInput("not-found", "target", message)
    config = _json(folder, "config.json")
    named = config.get("architectures") or []
    if not isinstance(named, list):
        message = f"hf:{place}: architectures={str(named)[:80]!r} in config.json is no list of names: is it damaged?"
        raise BadInput("damaged", "architectures", message)
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
    inputs, feeding = (_pixels, image_feeding(processor, folder)) if images else audio_feeding(processor, folder)
    with offline():
        module = _loaded(config, images, weights, inputs, folder)
    return Target(module.eval(), classes=_classes(module), **feeding)


def _json(folder: Path, name: str) -> dict[str, Any]:
    if not (folder / name).is_file():
        message = f"hf:{folder}: there is no {name} in it; save the model and its processor there with save_pretrained."
        raise BadInput("not-found", name, message)
    content = read_json(folder / name, "a configuration of transformers")
    if not isinstance(content, dict):
        raise BadInput("wrong-type", name, f"{folder / name} is no configuration of transformers.")
    return content


def _weights(folder: Path, place: str) -> list[Path]:
    """The safetensors files of the folder; other formats are refused."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        message = f"hf:{place} has no {WEIGHTS}: other formats could run code; save it again with save_pretrained(DIR)."
        raise BadInput("not-found", "weights", message)
    parts = _json(folder, INDEX).get("weight_map")
    files = list(parts.values()) if isinstance(parts, dict) and parts else [None]  # of any type: not yet a set
    for file in files:
        plain = isinstance(file, str) and Path(file).name == file and file.endswith(".safetensors")
        if not plain or not (folder / str(file)).is_file():
            message = f"hf:{place}: {INDEX} names the file {str(file)[:200]!r}, which is no safetensors file in the folder."
            raise BadInput("untrusted", "index", message)
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
                hf_config.check_size(kind, settings, attention, state, folder)
                model, about = kind.from_pretrained(None, output_loading_info=True, **options)
                break
            except ValueError:
                if attention == "eager":
                    raise
    except BadInput:
        raise
    except Exception as error:  # damaged configurations make it raise anything
        message = f"hf:{folder} cannot be loaded by transformers {transformers.__version__}: {reason(error)}"
        raise BadInput("unreadable", "target", message) from error
    finally:
        transformers.utils.logging.set_verbosity(level)
    missing = sorted(about.get("missing_keys") or ())
    if missing:
        message = f"hf:{folder}: {WEIGHTS} lacks {len(missing)} weights of the network (first: {missing[0]}): is it a classifier?"
        raise BadInput("damaged", "weights", message)
    kind_of_model: Any = type(model)
    model.__class__ = _answering(kind_of_model, inputs)
    if inputs is not _pixels:  # so that fingerprints tell front ends of audio apart; images have one
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
    """Each of zero mean and unit variance, as Wav2Vec2FeatureExtractor makes it."""
    x = x.flatten(1)
    return {"input_values": (x - x.mean(1, keepdim=True)) / (x.var(1, unbiased=False, keepdim=True) + 1e-7).sqrt()}


def _classes(module: nn.Module) -> list[str] | None:
    names = getattr(module.config, "id2label", None) or {}
    ordered = [str(names[number]) for number in sorted(names)]
    plain = all(name == f"LABEL_{number}" for number, name in enumerate(ordered))
    if plain or sorted(names) != list(range(len(names))):
        return None
    return distinct(ordered)


# -- images


def image_feeding(processor: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What a processor does to images, as the description of a target."""
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
        message = f"{folder / 'preprocessor_config.json'}: rescale_factor={factor}: images are multiplied by a number above 0."
        raise BadInput("out-of-range", "rescale_factor", message)
    if not math.isclose(factor, 1 / 255, rel_tol=1e-3):  # inputs are 8 bits as 0 .. 1; others are another scale of the same
        scale = 255 * factor
        mean, std = feeding.get("mean", [0.0]), feeding.get("std", [1.0])
        feeding = {"mean": [m / scale for m in mean], "std": [s / scale for s in std]}
    crop = "centre" if processor.get("do_center_crop") or resize != shape else None
    feeding["preprocess"] = Preprocess(resize=f"{resize[0]}x{resize[1]}", crop=crop, interpolation=interpolation)  # type: ignore[arg-type]
    feeding["shape"] = (3, *shape)
    return feeding


def _size(processor: Mapping[str, Any]) -> tuple[tuple[int, int], tuple[int, int]]:
    """What images are resized to, and the size of an input: (height, width) each."""
    size = processor.get("size", 224)
    size = {"shortest_edge": size} if isinstance(size, int) and processor.get("do_center_crop") else size
    size = {"height": size, "width": size} if isinstance(size, int) else size
    edge = size.get("shortest_edge")
    resize = (int(edge), int(edge)) if edge is not None else (int(size["height"]), int(size["width"]))
    if "crop_pct" in processor and edge is not None:  # ConvNeXt: small inputs are the centre of a larger image
        share = float(processor["crop_pct"] or 224 / 256)
        return ((int(edge / share), int(edge / share)) if int(edge) < 384 else resize), resize
    if not processor.get("do_center_crop"):
        return resize, resize
    crop = processor.get("crop_size") or size
    crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop
    return resize, (int(crop["height"]), int(crop["width"]))


# -- audio


def audio_feeding(processor: Mapping[str, Any], folder: Path) -> tuple[Inputs, dict[str, Any]]:
    """What a feature extractor does to samples, which happens inside the network, and the description of a target."""
    file, kind = folder / "preprocessor_config.json", str(processor.get("feature_extractor_type"))
    with reading(file, "a configuration of transformers", untyped=True):
        rate, normalise = int(processor["sampling_rate"]), bool(processor.get("do_normalize", True))
        if kind == "Wav2Vec2FeatureExtractor":
            inputs: Inputs = _waves if normalise else _samples
        elif kind == "ASTFeatureExtractor":
            if rate != RATE:
                message = f"{file}: sampling_rate={rate}: an ASTFeatureExtractor of {RATE} samples a second is supported."
                raise BadInput("unsupported", "sampling_rate", message)
            inputs = LogMel(
                bands=int(processor["num_mel_bins"]), length=int(processor["max_length"]),
                mean=float(processor["mean"]) if normalise else 0.0, scale=2 * float(processor["std"]) if normalise else 1.0,
            )  # fmt: skip
        else:
            message = (
                f"hf:{folder} hears features of a {kind[:100]}: raw audio (Wav2Vec2FeatureExtractor) and ASTFeatureExtractor are "
                "supported; for others build the network with its features inside in py:FILE:build."
            )
            raise BadInput("unsupported", "features", message)
    return inputs, {"bounds": (-1.0, 1.0), "preprocess": Preprocess(rate=rate)}


# -- log-mel features as Kaldi makes them, in torch, so that gradients reach the samples: the front end of an AST

RATE, FRAME, HOP, SIZE = 16_000, 400, 160, 512  # 25 and 10 ms; each frame is filled up to SIZE for its spectrum
LOWEST = 20.0  # Hz
EMPHASIS = 0.97  # how much of the sample before is subtracted
FLOOR = float(np.finfo(np.float32).eps)  # of an energy, so that silence has a logarithm


@dataclass(frozen=True)
class LogMel:
    """Sound of 16,000 samples a second to what `ASTFeatureExtractor` of transformers makes of it: (n, length, bands)."""

    bands: int = 128
    length: int = 1024  # frames; longer clips are cut, shorter ones filled up with zeros
    mean: float = 0.0
    scale: float = 1.0

    def __call__(self, x: Tensor) -> dict[str, Tensor]:
        with torch.autocast(x.device.type, enabled=False):  # energies span more than lower precision holds
            energies = self._energies(x.flatten(1).float())
            features = energies.clamp_min(FLOOR).log()
            padded = F.pad(features, (0, 0, 0, self.length - features.shape[1]))
            return {"input_values": (padded - self.mean) / self.scale}

    def _energies(self, x: Tensor) -> Tensor:
        """(n, frames, bands)"""
        frames = x.unfold(1, FRAME, HOP)[:, : self.length]
        frames = frames - frames.mean(2, keepdim=True)
        before = torch.cat([frames[..., :1], frames[..., :-1]], 2)
        window = torch.hann_window(FRAME, periodic=False, device=x.device)
        spectra = torch.fft.rfft((frames - EMPHASIS * before) * window, SIZE)
        return torch.view_as_real(spectra).square().sum(3) @ _mel_bank(self.bands, x.device)


@functools.cache
@torch.inference_mode(False)  # kept for passes with gradients, too, whichever comes first
def _mel_bank(bands: int, device: torch.device) -> Tensor:
    """(SIZE // 2 + 1, bands) triangles of height 1, straight on the mel scale and not, as elsewhere, in Hz."""
    bins = _mels(np.arange(SIZE // 2 + 1) * RATE / SIZE)[:, None]
    edges = np.linspace(_mels(np.array(LOWEST)), _mels(np.array(RATE / 2)), bands + 2)
    step = edges[1] - edges[0]
    triangles = np.minimum((bins - edges[:-2]) / step, (edges[2:] - bins) / step)
    return torch.from_numpy(np.maximum(0.0, triangles).astype(np.float32)).to(device)


def _mels(hertz: np.ndarray) -> np.ndarray:
    return np.asarray(1127 * np.log(1 + hertz / 700))
