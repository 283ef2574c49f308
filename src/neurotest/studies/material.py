"""What lies beside the project on some machines, and is no part of it: studies use it where it is, and say so."""

from __future__ import annotations

import os
import re
from pathlib import Path

from neurotest import zoo
from neurotest.errors import BadInput
from neurotest.target import Target
from neurotest.target.load import load

# Somebody else's weights (Idelbayev, BSD) for networks of ours: file, blocks per stage.
CHECKPOINTS = {"cifar10-resnet56": ("cifar10-resnets/resnet56-4bfd9763.th", 9)}
THEIR_PIXELS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # what they were trained with


def folder() -> Path | None:
    """The folder `data` of `NEUROTEST_MATERIAL`, if that is set."""
    place = os.environ.get("NEUROTEST_MATERIAL")
    return Path(place) / "data" if place else None


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
        raise BadInput(f"{file} is no checkpoint of {name}: {error}") from error
    return Target(module.eval(), shape=entry.shape, classes=entry.classes, spec=f"{name}, weights of {file.name}")


def ours(name: str) -> str:
    """Their name of a tensor as ours.

    >>> ours("module.layer2.0.bn1.weight"), ours("module.bn1.bias"), ours("module.linear.weight")
    ('stage2.0.norm1.weight', 'norm.bias', 'fc.weight')
    """
    name = name.removeprefix("module.").replace("layer", "stage").replace("linear", "fc")
    name = re.sub(r"\bbn(\d)", r"norm\1", name)
    return re.sub(r"^(conv|norm)1\.", r"\1.", name)
