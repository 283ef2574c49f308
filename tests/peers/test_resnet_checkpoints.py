"""Our residual networks and our CIFAR-10 against somebody else's: their trained weights must work in our architecture.

The checkpoints (Idelbayev, BSD) are the coverage study's; they are not part of the project.
"""

from __future__ import annotations

import re

import pytest
import torch
from tests.golden import BESIDE
from torch import Tensor

from neurotest.data import data
from neurotest.errors import BadInput
from neurotest.target import Target
from neurotest.train import accuracy
from neurotest.zoo.architectures import Pixels, ResNet

PLACE = BESIDE / "data" / "cifar10-resnets"
IMAGENET = Pixels((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # what theirs were trained with
FILES = {3: ("resnet20-12fca82f.th", 0.917), 9: ("resnet56-4bfd9763.th", 0.939)}

pytestmark = pytest.mark.skipif(
    not all((PLACE / name).is_file() for name, _ in FILES.values()),
    reason="the checkpoints of others (5 MB, not part of the project) are not here",
)


def renamed(name: str) -> str:
    name = name.removeprefix("module.").replace("layer", "stage").replace("linear", "fc")
    name = re.sub(r"\bbn(\d)", r"norm\1", name)
    return re.sub(r"^(conv|norm)1\.", r"\1.", name)


def theirs(n: int) -> ResNet:
    state: dict[str, Tensor] = torch.load(PLACE / FILES[n][0], map_location="cpu", weights_only=True)["state_dict"]
    module = ResNet(n, IMAGENET, projected=False)
    module.load_state_dict({renamed(name): value for name, value in state.items()}, strict=False)
    missing = set(module.state_dict()) - {renamed(name) for name in state}
    assert all(name.endswith("num_batches_tracked") for name in missing)
    return module.eval()


@pytest.mark.parametrize("n", FILES)
def test_their_weights_reach_their_accuracy(n: int) -> None:
    try:
        source = data("zoo:cifar10/test")
    except BadInput as error:
        pytest.skip(str(error))
    assert accuracy(theirs(n), source) == pytest.approx(FILES[n][1], abs=0.02)  # 1,000 images: about two standard errors


def test_the_studys_neurons() -> None:
    layers = Target(theirs(9), shape=(3, 32, 32)).survey().find("pre_activation")
    assert sum(layer.neurons("unit") for layer in layers) == 532_490
