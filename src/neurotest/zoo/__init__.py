"""The zoo: networks trained by this project, with their recipes, and embedded data.

The package holds LeNet-5 and Fashion-MNIST. Other packages bring more (`neurotest-lab`): the entry point group `neurotest.zoo`
names a package with the folders `weights` and `data`.
"""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neurotest import plugins
from neurotest.errors import BadInput, near
from neurotest.files import cache_dir
from neurotest.zoo import lanes, speakers, speech
from neurotest.zoo.recipes import RECIPES, Recipe

if TYPE_CHECKING:
    from torch import nn

LAB = "`pip install ./lab` in a clone of neurotest"  # how to get neurotest-lab
CLASSES: dict[str, tuple[str, ...]] = {
    "mnist": tuple("0123456789"),
    "fashion": ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "spoken": tuple(speech.WORDS),
    "speakers": speakers.CLASSES,
}
SHAPES: dict[str, tuple[int, ...]] = {
    "mnist": (1, 28, 28), "fashion": (1, 28, 28), "cifar10": (3, 32, 32), "spoken": (1, speech.SAMPLES),
    "lanes": (1, lanes.HEIGHT, lanes.WIDTH), "driving": (3, 100, 100), "speakers": (1, speakers.SAMPLES),
}  # fmt: skip
TOLERANCE = "10%"  # of the span: how far its networks may be off before it counts as a fault
SPANS = {"lanes": lanes.SPAN, "driving": (-20.0, 20.0)}  # of quantities; their networks have no classes
RATES = {"spoken": speech.RATE, "speakers": speakers.RATE}  # samples a second, of those that are sound
DATASETS = {  # zoo word -> data set
    "mnist": "mnist", "fashion": "fashion-mnist", "cifar10": "cifar10", "spoken": speech.NAME, "lanes": lanes.NAME,
    "driving": "driving", "speakers": f"{speakers.NAME}-full",
}  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A network of the zoo: DATASET-ARCHITECTURE, a recipe, and weights embedded or trained into the cache."""

    name: str

    @property
    def family(self) -> str:
        return self.name.partition("-")[0]

    @property
    def dataset(self) -> str:
        return DATASETS[self.family]

    @property
    def architecture(self) -> str:
        return self.name.partition("+")[0].partition("-")[2]

    @property
    def faulty(self) -> str:
        """How its training went wrong (`mnist-lenet5+polluted10`), empty for all networks of the catalogue."""
        return self.name.partition("+")[2]

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names; none where it predicts a quantity."""
        return CLASSES.get(self.family, ())

    @property
    def span(self) -> tuple[float, float] | None:
        """The range of the quantity, where it predicts one."""
        return SPANS.get(self.family)

    @property
    def shape(self) -> tuple[int, ...]:
        return SHAPES[self.family]

    @property
    def rate(self) -> int | None:
        """Samples a second, where it takes sound."""
        return RATES.get(self.family)

    @property
    def bounds(self) -> tuple[float, float]:
        return (0.0, 1.0) if self.rate is None else (-1.0, 1.0)

    @property
    def recipe(self) -> Recipe:
        from neurotest.zoo import faulty

        return faulty.read(self.faulty).recipe(self.name.partition("+")[0]) if self.faulty else RECIPES[self.name]

    @property
    def embedded(self) -> bool:
        return packaged(f"weights/{self.name}.safetensors") is not None

    @property
    def weights(self) -> Path | None:
        """Where the weights are: in a package, else in the cache, else nowhere."""
        cached = cache_dir() / "zoo" / f"{self.name}.safetensors"
        return packaged(f"weights/{self.name}.safetensors") or (cached if cached.is_file() else None)

    @property
    def about(self) -> dict[str, Any]:
        """What training wrote into the weights' header: accuracy, epochs, seconds, torch version."""
        import json

        from safetensors import safe_open

        if self.weights is None:
            return {}
        with safe_open(self.weights, framework="np") as file:
            return json.loads((file.metadata() or {}).get("about", "{}"))  # type: ignore[no-any-return]

    def build(self) -> nn.Module:
        """The architecture with fresh weights, in training mode."""
        from neurotest.zoo import architectures

        return architectures.build(self.family, self.architecture)

    def load(self) -> nn.Module:
        """The trained network, in eval mode."""
        from safetensors.torch import load_file

        if self.weights is None:
            how = f"{self.name.partition('+')[0]} --pollute, --underfit or --overfit" if self.faulty else self.name
            lab = "" if lab_installed() else f" Most networks come with neurotest-lab ({LAB})."
            raise BadInput(
                "not-found",
                "weights",
                f"zoo:{self.name} has no weights on this machine.{lab} Train it: neurotest zoo train {how}",
            )
        module = self.build()
        module.load_state_dict(load_file(self.weights))
        return module.eval()


@functools.cache
def folders() -> tuple[Path, ...]:
    """Where files of the zoo lie: in this package, and in others that bring some."""
    packages = [package for package in plugins.load("zoo") if getattr(package, "__path__", None)]
    return Path(__file__).parent, *(Path(package.__path__[0]) for package in packages)


def lab_installed() -> bool:
    return len(folders()) > 1


def packaged(name: str) -> Path | None:
    """A file of the zoo (`weights/...`, `data/...`), if a package brought it."""
    return next((folder / name for folder in folders() if (folder / name).is_file()), None)


def names() -> list[str]:
    return list(RECIPES)


def nearest(name: str) -> str:
    close = difflib.get_close_matches(name, names(), n=1, cutoff=0)
    return close[0]


def find(name: str) -> Subject:
    base, plus, wrong = name.partition("+")
    if base not in RECIPES:
        raise BadInput("unknown-name", "network", f"the zoo has no network {name!r}. {near(name, names())}")
    if plus:
        from neurotest.zoo import faulty

        faulty.read(wrong)
    return Subject(name)


def catalogue() -> list[Subject]:
    """Every network of the zoo."""
    return [Subject(name) for name in RECIPES]
