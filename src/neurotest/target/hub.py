"""`timm:NAME` and `torchvision:NAME`: architectures of two model libraries, with weights from a file.

Size, crop, mean, standard deviation and interpolation come from the library's own configuration of the model. Nothing is
downloaded, and nothing but the library's own code is run.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neurotest import registry
from neurotest.errors import BadInput, Remark, near
from neurotest.images import Preprocess
from neurotest.target.extras import guarded_torchvision, need, offline
from neurotest.target.target import Target
from neurotest.target.weights import PREFIXES, read_state

RANDOM = "{} has random weights, the same in every run: pass --weights FILE for trained ones."
NAME = re.compile(r"[A-Za-z0-9_.]{1,200}")


@registry.register("target source", "timm", paper="", cost="imports timm; builds the network, downloads nothing")
def _from_timm(name: str, *, weights: Path | None = None) -> Target:
    """`timm:NAME`: an architecture of timm, fed as its configuration says; `--weights FILE` for trained weights.

    The number of classes is that of the weights, else of the configuration.
    """
    guarded_torchvision()
    timm = need("timm", "models", f"timm:{name:.200}")
    if not NAME.fullmatch(name) or not timm.is_model(name):
        message = f"timm:{name:.200}: timm {timm.__version__} has no such model. {near(name[:200], timm.list_models())}"
        raise BadInput("unknown-name", "target", message)
    state = None if weights is None else read_state(weights)

    def build(**options: Any) -> nn.Module:
        return timm.create_model(name, pretrained=False, **options)  # type: ignore[no-any-return]

    module = _built(build, f"timm:{name}", {} if state is None else _counted(build, state, "num_classes"), weights)
    return Target(module, **_timm_feeding(timm, module, name))


def _timm_feeding(timm: Any, module: nn.Module, name: str) -> dict[str, Any]:
    """How the configuration of a timm model says that images become inputs."""
    config: Mapping[str, Any] = timm.data.resolve_data_config({}, model=module)
    channels, height, width = config["input_size"]
    crop, mode = float(config.get("crop_pct") or 1.0), config.get("crop_mode") or "center"
    resize = math.floor(height / crop) if height == width else f"{math.floor(height / crop)}x{math.floor(width / crop)}"
    if mode == "squash" and crop == 1:
        preprocess: dict[str, Any] = {"resize": resize}
    else:
        preprocess = {"resize": resize, "crop": "centre"}
        if mode != "center":
            sentence = (
                f"timm:{name} was evaluated with crop mode {mode!r}; here the centre is cropped: say --resize, --crop otherwise."
            )
            warnings.warn(sentence, Remark, stacklevel=4)
    return {
        "shape": (channels, height, width), "mean": config["mean"], "std": config["std"],
        "preprocess": Preprocess(**preprocess, grey=channels == 1, interpolation=_interpolation(config["interpolation"])),
    }  # fmt: skip


@registry.register("target source", "torchvision", paper="", cost="imports torchvision; builds the network, downloads nothing")
def _from_torchvision(name: str, *, weights: Path | None = None) -> Target:
    """`torchvision:NAME`: a classifier of torchvision, fed as its published weights are; `--weights FILE` for trained weights.

    The number of classes is that of the weights, else 1000.
    """
    guarded_torchvision()
    need("torchvision", "models", f"torchvision:{name:.200}")
    from torchvision import models

    if not NAME.fullmatch(name) or name not in models.list_models(module=models):
        message = f"torchvision:{name:.200}: no such classifier. {near(name[:200], models.list_models(module=models))}"
        raise BadInput("unknown-name", "target", message)
    state = None if weights is None else read_state(weights)

    def build(**options: Any) -> nn.Module:
        extra = {"init_weights": False, "aux_logits": True} if name == "inception_v3" else {}
        extra = {"init_weights": False, "aux_logits": False} if name == "googlenet" else extra
        return models.get_model(name, weights=None, **extra, **options)  # type: ignore[no-any-return]

    module = _built(build, f"torchvision:{name}", {} if state is None else _counted(build, state, "num_classes"), weights)
    published = models.get_model_weights(name).DEFAULT
    transform, options = published.transforms(), dict[str, Any]()
    answers = [weight for weight in module.parameters() if weight.ndim][-1].shape[0]
    if weights is None or answers == len(published.meta["categories"]):
        options["classes"] = distinct(published.meta["categories"])
    side = transform.crop_size[0]
    fitting = Preprocess(
        resize=transform.resize_size[0], crop="centre", interpolation=_interpolation(transform.interpolation.value)
    )
    return Target(module, shape=(3, side, side), mean=transform.mean, std=transform.std, preprocess=fitting, **options)


def _built(build: Any, spec: str, options: dict[str, Any], weights: Path | None) -> nn.Module:
    """The network, in eval mode; without weights its random ones are the same each time, so that what is measured repeats."""
    if weights is None:
        warnings.warn(RANDOM.format(spec), Remark, stacklevel=4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            with offline():
                module: nn.Module = build(**options)
        except Exception as error:  # some entries are no networks of images, or need further packages
            message = f"{spec} cannot be built: {type(error).__name__}: {str(error).splitlines()[0]:.200}"
            raise BadInput("failed", "target", message) from error
    return module.eval()


def _counted(build: Any, state: Mapping[str, Tensor], option: str) -> dict[str, int]:
    """The number of classes that a state dict was trained with: the last tensor that has another size in a usual network."""
    with offline(), torch.device("meta"):
        usual = build().state_dict()
    names = {PREFIXES.sub("", name): tensor for name, tensor in state.items()}
    other = [name for name, own in usual.items() if name in names and names[name].shape != own.shape]
    sizes = {names[name].shape[0] for name in other if names[name].ndim}
    same_rest = all(names[name].shape[1:] == usual[name].shape[1:] for name in other)
    return {option: int(sizes.pop())} if len(sizes) == 1 and same_rest else {}


def distinct(names: list[str]) -> list[str]:
    """ImageNet calls two classes `crane` and two `maillot`: the second gets its number."""
    return [name if name not in names[:place] else f"{name} ({place})" for place, name in enumerate(names)]


def _interpolation(name: Any) -> Any:
    return name if name in ("bilinear", "bicubic", "nearest", "lanczos") else "bicubic" if name == "random" else "bilinear"
