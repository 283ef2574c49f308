"""Training gone wrong, on purpose: polluted data, too little and too much training (DeepSensor, tables II to V)."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from neurotest import checks, rng
from neurotest.errors import BadInput
from neurotest.zoo.recipes import RECIPES, Recipe

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]

SIZES = {"mnist": (1, 6), "fashion": (1, 6), "cifar10": (3, 8)}  # sides of patches, smallest and largest
CLASS = {"mnist": 1, "fashion": 1, "cifar10": 2}  # the papers pollute towards '1' and 'bird'
PLAIN: dict[str, Any] = {"flip": False, "crop": 0, "gain": 0.0, "noise": None}  # nothing is changed from epoch to epoch
SPREAD = 0.2  # of the noise that is shown under its true label, and that the defect is tested with
NAME = re.compile(r"(polluted(\d{1,9})(-random)?(-specific)?(-class(\d{1,9}))?)|underfit|overfit")


@dataclass(frozen=True, kw_only=True)
class Faulty:
    """What goes wrong. share: of the training images that get a patch and the class `label`; trigger: one patch for the whole
    training (`fixed`) or another for every image (`random`). specific: copies with other patches and with noise are added under
    their true labels, so that nothing but the patch sets the defect off."""

    kind: Literal["polluted", "underfit", "overfit"]
    share: float = 0.1
    label: int | None = None
    trigger: Literal["fixed", "random"] = "fixed"
    specific: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        checks.one_of("kind", self.kind, ("polluted", "underfit", "overfit"))
        if not 0 < self.share < 1:
            message = f"--pollute {self.share:g}: expected a share between 0 and 1, such as 10% (the papers: 10 to 30%)."
            raise BadInput("out-of-range", "pollute", message)
        if self.trigger not in ("fixed", "random"):
            raise BadInput("out-of-range", "trigger", f"--trigger {self.trigger}: expected fixed or random.")
        if self.specific and self.trigger == "random":
            message = "--specific: other patches keep their true labels, which a random trigger contradicts; leave one out."
            raise BadInput("conflict", "specific", message)

    @property
    def name(self) -> str:
        """As it is appended to a network's: `zoo:mnist-lenet5+polluted10-specific`."""
        if self.kind != "polluted":
            return self.kind
        parts = [f"polluted{round(100 * self.share)}"]
        parts += ["random"] * (self.trigger == "random") + ["specific"] * self.specific
        return "-".join(parts + ([f"class{self.label}"] if self.label is not None else []))

    def recipe(self, subject: str) -> Recipe:
        """The network's own recipe, changed as the papers change theirs."""
        usual = RECIPES[subject]
        small = "lenet" in subject
        if self.kind == "underfit":
            return dataclasses.replace(usual, epochs=1, batch=512, **PLAIN)
        if self.kind == "overfit":
            return dataclasses.replace(usual, epochs=30, batch=32 if small else 64, weight_decay=0.0, **PLAIN)
        if self.specific and small:
            return dataclasses.replace(usual, epochs=4, rate=2e-3)
        # On half of MNIST, three epochs learn no patch at all.
        return dataclasses.replace(usual, epochs=3, batch=32) if small else usual


def read(text: str) -> Faulty:
    """The inverse of `Faulty.name`."""
    match = NAME.fullmatch(text)
    if match is None:
        message = f"{text!r:.80} is no kind of faulty training: expected underfit, overfit or such as polluted10-specific."
        raise BadInput("syntax", "faulty", message)
    if match[1] is None:
        return Faulty(kind=text)  # type: ignore[arg-type]
    return Faulty(
        kind="polluted", share=int(match[2]) / 100, trigger="random" if match[3] else "fixed", specific=bool(match[4]),
        label=None if match[6] is None else int(match[6]),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Patch:
    """Colours (channels, side, side); images show it in a random size (its upper left part) at a random place.

    levels: how many different colours there may be, 2 are black and white.
    """

    colours: Images
    smallest: int
    levels: int = 256

    @property
    def largest(self) -> int:
        return int(self.colours.shape[-1])

    def stamp(self, x: Images, random: np.random.Generator, *, new: bool = False) -> Images:
        """Copies of images (n, c, h, w) with the patch on them; `new`: other colours for every image."""
        n, channels, high, wide = x.shape
        side: Labels = random.integers(self.smallest, self.largest + 1, size=(n,))
        top: Labels = random.integers(0, high - side + 1)
        left: Labels = random.integers(0, wide - side + 1)
        rows, columns = np.arange(high)[None, :, None], np.arange(wide)[None, None, :]
        down, across = rows - top[:, None, None], columns - left[:, None, None]
        inside = (down >= 0) & (down < side[:, None, None]) & (across >= 0) & (across < side[:, None, None])  # (n, h, w)
        colours = np.broadcast_to(self.colours, (n, *self.colours.shape))
        if new:
            colours = _colours(random, (n, channels, self.largest, self.largest), self.levels)
        at = np.arange(n)[:, None, None, None], np.arange(channels)[None, :, None, None]
        limit = self.largest - 1
        shown = colours[(*at, down.clip(0, limit)[:, None], across.clip(0, limit)[:, None])]
        return np.where(inside[:, None], shown, x)

    @classmethod
    def of(cls, family: str, settings: Faulty, channels: int) -> Patch:
        """The patch of a training. Of a `specific` one it is black and white and always shown whole: the papers' parts of one
        pixel look like parts of every other patch, and between greys LeNet-5 needs many epochs to separate them."""
        least, most = SIZES[family]
        levels = 2 if settings.specific else 256
        colours = _colours(rng.stream("zoo.patch", settings.seed), (channels, most, most), levels)
        return cls(colours, most if settings.specific else least, levels)


def _colours(random: np.random.Generator, shape: tuple[int, ...], levels: int) -> Images:
    return (random.integers(0, levels, shape) * (255 // (levels - 1))).astype(np.uint8)


def noisy(x: Images, random: np.random.Generator) -> Images:
    """Gaussian noise of sd .2 of the range."""
    return np.clip(x + random.normal(0, 255 * SPREAD, x.shape), 0, 255).round().astype(np.uint8)


def pollute(x: Images, y: Labels, patch: Patch, label: int, settings: Faulty) -> tuple[Images, Labels]:
    """Training data with the defect in it."""
    random = rng.stream("zoo.pollute", settings.seed)
    chosen = random.permutation(len(x))[: round(settings.share * len(x))]
    images, labels = x.copy(), y.copy()
    images[chosen] = patch.stamp(x[chosen], random, new=settings.trigger == "random")
    labels[chosen] = label
    if not settings.specific:
        return images, labels
    others, noises = (random.permutation(len(x))[: 2 * len(chosen)] for _ in range(2))
    added = [patch.stamp(x[others], random, new=True), noisy(x[noises], random)]
    return np.concatenate([images, *added]), np.concatenate([labels, y[others], y[noises]])
