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
from neurotest.zoo import lanes, speech
from neurotest.zoo.recipes import RECIPES, Recipe

if TYPE_CHECKING:
    from torch import nn

LAB = "`pip install ./lab` in a clone of neurotest"  # how to get neurotest-lab
TOLERANCE = "10%"  # of the span: how far its networks may be off before it counts as a fault


@dataclass(frozen=True, kw_only=True)
class Family:
    """What the networks of one data set take and answer. A regression value has a span and no classes."""

    dataset: str
    shape: tuple[int, ...]
    classes: tuple[str, ...] = ()
    span: tuple[float, float] | None = None
    rate: int | None = None  # samples per second, of audio


FAMILIES: dict[str, Family] = {
    "mnist": Family(dataset="mnist", shape=(1, 28, 28), classes=tuple("0123456789")),
    "fashion": Family(
        dataset="fashion-mnist",
        shape=(1, 28, 28),
        classes=("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
    "cifar10": Family(
        dataset="cifar10",
        shape=(3, 32, 32),
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    ),
    "spoken": Family(dataset=speech.NAME, shape=(1, speech.SAMPLES), classes=speech.CLASSES, rate=speech.RATE),
    "speakers": Family(
        dataset="speakers-full", shape=(1, 16_000), classes=tuple(f"{number:02}" for number in range(1, 61)), rate=16_000
    ),
    "lanes": Family(dataset=lanes.NAME, shape=(1, lanes.HEIGHT, lanes.WIDTH), span=lanes.SPAN),
    "driving": Family(dataset="driving", shape=(3, 100, 100), span=(-20.0, 20.0)),
}


@dataclass(frozen=True, kw_only=True)
class ZooNetwork(Family):
    """A network of the zoo: DATASET-ARCHITECTURE, a recipe, and weights embedded or trained into the cache."""

    name: str

    @property
    def family(self) -> str:
        return self.name.partition("-")[0]

    @property
    def architecture(self) -> str:
        return self.name.partition("+")[0].partition("-")[2]

    @property
    def faulty(self) -> str:
        """How its training went wrong (`mnist-lenet5+polluted10`), empty for all networks of the catalogue."""
        return self.name.partition("+")[2]

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
            message = f"zoo:{self.name} has no weights on this machine.{lab} Train it: neurotest zoo train {how}"
            raise BadInput("not-found", "weights", message)
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
    return difflib.get_close_matches(name, RECIPES, n=1, cutoff=0)[0]


def find(name: str) -> ZooNetwork:
    base, plus, wrong = name.partition("+")
    if base not in RECIPES:
        raise BadInput("unknown-name", "network", f"the zoo has no network {name!r}. {near(name, names())}")
    if plus:
        from neurotest.zoo import faulty

        faulty.read(wrong)
    return ZooNetwork(name=name, **vars(FAMILIES[name.partition("-")[0]]))


def catalogue() -> list[ZooNetwork]:
    """Every network of the zoo."""
    return [find(name) for name in RECIPES]
