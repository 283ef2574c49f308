"""The study of NSGen: how good are descriptions? Output neurons have known meanings (tables 6 and 7).

Exemplars are odd test images; settings were chosen with even ones.
"""

from __future__ import annotations

from typing import Any

from neurotest import registry, zoo
from neurotest.errors import BadInput
from neurotest.semantics import encoders
from neurotest.semantics.describe.api import described, material, output_layer
from neurotest.semantics.describe.concepts import Concepts
from neurotest.semantics.describe.material import Describer, Material
from neurotest.semantics.describe.milan import Milan
from neurotest.target.load import load
from neurotest_lab.studies.frame import Row
from neurotest_lab.studies.nsgen import validate

LIMIT = 4000  # of the test set
FOLDERS = 1000  # training images that stand in for a user's folders of concepts
EXEMPLARS = max(validate.KS)
# Embedding and hidden size of the decoder; those of the paper are (128 .. 512, 128 .. 1024), which two cores take long for.
SIZES = {"quick": ((128, 256), (128, 128), (128, 64)), "full": validate.SIZES}
# Both take the same decoders, and the network that sees for them is neither of the two; cifar10-resnet20 would see for itself.
SUBJECTS = {"quick": ("fashion-lenet5", "mnist-lenet5"), "full": ("fashion-lenet5", "mnist-lenet5", "cifar10-resnet20")}


def work(subject: str, k: int = EXEMPLARS) -> Material:
    """The output neurons of a subject with their exemplars."""
    target, dataset = load(f"zoo:{subject}"), zoo.find(subject).dataset
    return material(target, f"zoo:{dataset}/test[1:{LIMIT}:2]", output_layer(target).name or "", k=k)


def describers(subject: str) -> dict[str, Describer]:
    plain: dict[str, Any] = {name: registry.build("describer", name) for name in ("class-profile", "attributes", "milan")}
    return {**plain, "concepts": Concepts(folder=f"zoo:{zoo.find(subject).dataset}/train[:{FOLDERS}]")}


def sentences() -> validate.Encode | None:
    """The sentence encoder, where it is installed."""
    try:
        encoder = encoders.start("minilm", [])
    except BadInput:
        return None
    return encoder if callable(encoder) else None


def words(subject: str, scale: str) -> Row:
    """Every describer; the trained one with few and many exemplars, and with decoders of several sizes."""
    encode, everything = sentences(), work(subject)
    usual = validate.fewer(everything, 15)
    each = {name: validate.output_units(described(d, usual), usual, encode) for name, d in describers(subject).items()}
    few = validate.by_exemplars(Milan(), everything, encode=encode)
    sizes = validate.by_decoder(lambda e, h: Milan(embedding=e, hidden=h), usual, SIZES[scale], encode)
    return {
        "describers": {name: one.to_dict() for name, one in each.items()},
        "exemplars": {str(k): one.to_dict() for k, one in few.items()},
        "decoders": {f"{e}, {h}": one.to_dict() for (e, h), one in sizes.items()},
    }
