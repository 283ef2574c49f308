"""What the trained describer learns from: annotation vectors of regions, and descriptions that go with them.

Two kinds of pairs are generated, without human annotations: sets of generated probes that share attributes, described by
these; and sets of labelled images, described as a class profile would describe a neuron they excite. A third kind is read
from the folder layout of the published human annotations, for those who have them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from neurotest import rng
from neurotest.arrays import read_npy
from neurotest.data.spec import data as read_data
from neurotest.errors import BadInput
from neurotest.semantics.describe import probes
from neurotest.semantics.describe.attributes import sentence
from neurotest.semantics.describe.probes import FAMILIES, LUMA, ORIENTED, PERIODIC
from neurotest.semantics.descriptions import read_rows
from neurotest.target import Probe, Target, Want
from neurotest.target.load import load

ENCODERS = {1: "zoo:fashion-resnet20", 3: "zoo:cifar10-resnet20"}  # by channels
STAGES = "relu,stage1.2.relu2,stage2.2.relu2,stage3.2.relu2"
SHAPE_CORPORA: dict[tuple[int, ...], tuple[str, ...]] = {
    (1, 28, 28): ("zoo:fashion-mnist/train", "zoo:mnist/train"),
    (3, 32, 32): ("zoo:cifar10/train",),
}
NAMED = ("colour", "direction", "texture", "frequency", "size", "height", "side")
OFTEN = (0.3, 0.2, 0.2, 0.1, 0.08, 0.06, 0.06)  # each of them is shared
Bools = NDArray[np.bool_]


@dataclass(eq=False)
class Annotator:
    """Annotation vectors of (image, mask): features of every stage of an encoder pooled under the mask.

    pooling: `mean` divides by the mask's mass, and the mean pixels, the area and the centre of the mask stand beside; `sum` is
    equations 6 and 7 of NSGen: sums under the bilinearly shrunk mask and nothing else.
    """

    channels: int
    pooling: str = "mean"

    def __post_init__(self) -> None:
        self.target: Target = load(ENCODERS[3 if self.channels == 3 else 1])
        self.want = Want(layers=STAGES, keep="map")

    @property
    def fingerprint(self) -> str:
        return self.target.fingerprint + ("" if self.pooling == "mean" else f" {self.pooling}")

    @torch.inference_mode()
    def __call__(self, x: Tensor, masks: Tensor, batch: int = 250) -> Tensor:
        """(n, channels, h, w) in 0 .. 1 and (n, h, w) -> (n, features)."""
        parts = []
        with Probe(self.target, self.want) as probe:
            for start in range(0, len(x), batch):
                parts.append(self._vectors(probe, x[start : start + batch], masks[start : start + batch].float()))
        return torch.cat(parts)

    def _vectors(self, probe: Probe, x: Tensor, masks: Tensor) -> Tensor:
        assert self.target.shape is not None
        image = tuple(self.target.shape[1:])
        x = x.mean(dim=1, keepdim=True) if self.target.shape[0] == 1 and x.shape[1] != 1 else x
        if tuple(x.shape[2:]) != image:
            x = functional.interpolate(x, image, mode="bilinear", align_corners=False, antialias=True)
        if self.pooling == "sum":
            return torch.cat([_summed(maps, masks) for maps in probe(x).values.values()], dim=1)
        masks = functional.adaptive_avg_pool2d(masks.unsqueeze(1), (image[0], image[1]))
        pooled = [_under(x, masks)]
        for maps in probe(x).values.values():
            pooled.append(_under(maps, functional.adaptive_avg_pool2d(masks, (maps.shape[2], maps.shape[3]))))
        line = torch.linspace(-1, 1, image[0]), torch.linspace(-1, 1, image[1])
        grid = torch.stack(torch.meshgrid(*line, indexing="ij")).expand(len(x), -1, -1, -1)
        return torch.cat([*pooled, _under(grid, masks), masks.mean(dim=(2, 3))], dim=1)


def _under(maps: Tensor, masks: Tensor) -> Tensor:
    return (maps * masks).sum(dim=(2, 3)) / masks.sum(dim=(2, 3)).clamp_min(1e-6)


def _summed(maps: Tensor, masks: Tensor) -> Tensor:
    """Equation 6: (n, c, h, w) and (n, H, W) -> (n, c)."""
    small = functional.interpolate(masks.unsqueeze(1), tuple(maps.shape[2:]), mode="bilinear", align_corners=False)
    return (maps * small).sum(dim=(2, 3))


annotator = functools.cache(Annotator)  # one for images of so many channels


@dataclass(frozen=True, eq=False)
class Pairs:
    """Sets of annotation vectors (n, k, features) with a description each."""

    vectors: Tensor
    texts: tuple[str, ...]

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(torch.cat([self.vectors, other.vectors]), self.texts + other.texts)

    def __len__(self) -> int:
        return len(self.texts)


def attribute_pairs(annotate: Annotator, shape: tuple[int, ...], n: int, k: int, seed: int) -> Pairs:
    """n sets of k probes that share one to three attributes, under the masks of the region."""
    random = rng.stream("semantics.corpus.attributes", seed)
    grey = shape[0] != 3
    free = vars(probes.draw_attributes(n * k, grey, seed + 1))
    texts = []
    for item in range(n):
        shared = _shared_attributes(random, grey)
        texts.append(sentence({family: FAMILIES[family][number] for family, number in shared.items()}))
        rows = slice(item * k, (item + 1) * k)
        for family, number in shared.items():
            if family == "colour":
                free["colours"][rows, 0] = number
                luma = np.dot(LUMA, list(probes.COLOURS.values())[number])
                free["colours"][rows, 1] = 0 if luma > 0.5 else 2
            else:
                free[family][rows] = number
        if "direction" in shared and "texture" not in shared:
            free["texture"][rows] = random.choice(ORIENTED, k)
        if "frequency" in shared and "texture" not in shared:
            free["texture"][rows] = random.choice(PERIODIC, k)
    parts = []
    for start in range(0, n * k, 250):
        images = probes.render(
            probes.ProbeAttributes(**{name: value[start : start + 250] for name, value in free.items()}), shape[1:]
        )
        x = images.x if not grey else np.repeat(np.tensordot(LUMA, images.x, (0, 1))[:, None], shape[0], axis=1)
        parts.append(annotate(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(images.region)))
    return Pairs(torch.cat(parts).view(n, k, -1), tuple(texts))


def _shared_attributes(random: np.random.Generator, grey: bool) -> dict[str, int]:
    chosen = random.choice(NAMED, size=int(random.integers(1, 4)), replace=False, p=OFTEN).tolist()
    counts = {family: len(FAMILIES[family]) for family in NAMED} | ({"colour": probes.GREY} if grey else {})
    shared = {family: int(random.integers(counts[family])) for family in NAMED if family in chosen}
    if "direction" in shared and "texture" in shared:
        shared["texture"] = int(random.choice(ORIENTED))
    if "frequency" in shared and "texture" in shared:
        shared["texture"] = 1 if "direction" in shared else int(random.choice(PERIODIC))
    return shared


def class_pairs(annotate: Annotator, spec: str, shape: tuple[int, ...], n: int, k: int, seed: int, most: int = 2000) -> Pairs:
    """n sets of k labelled images of one to three classes, under masks of the whole image or of a blob, described by the
    classes in order of their shares, as a class profile would."""
    source = read_data(spec, shape=shape, limit=most)
    if source.labels is None or source.classes is None:
        raise BadInput("no-labels", "corpus", f"corpus={spec}: needs labels and class names to learn from.")
    random = rng.stream("semantics.corpus.classes", seed)
    x = torch.from_numpy(source.read(np.arange(len(source)))).float() / (255 if source.dtype == np.uint8 else 1)
    whole = annotate(x, torch.ones(len(x), *shape[1:]))
    blobs = annotate(x, torch.from_numpy(_blobs(random, len(x), shape[1:])))
    by_class = [np.flatnonzero(source.labels == c) for c in range(len(source.classes))]
    seen = [c for c, rows in enumerate(by_class) if len(rows)]
    vectors, texts = [], []
    for _ in range(n):
        count = min(len(seen), int(random.choice([1, 2, 3], p=[0.6, 0.25, 0.15])))
        some = random.choice(seen, size=count, replace=False)
        shares = np.sort(random.dirichlet(np.full(count, 4.0)))[::-1]
        picked = np.concatenate([random.choice(by_class[c], size=k) for c in some])
        which = np.concatenate([np.full(k, i) for i in range(count)])
        order = random.choice(len(picked), size=k, replace=False, p=shares[which] / shares[which].sum())
        named = [some[i] for i in range(count) if i == 0 or shares[i] > 0.25]
        texts.append(", ".join(source.classes[c] for c in named))
        vectors.append((whole if random.random() < 0.5 else blobs)[picked[order]])
    return Pairs(torch.stack(vectors), tuple(texts))


def _blobs(random: np.random.Generator, n: int, image: tuple[int, ...]) -> Bools:
    """A disc somewhere near the middle of every image: (n, h, w)."""
    y, x = np.mgrid[: image[0], : image[1]]
    middle = (0.3 + 0.4 * random.random((n, 2))) * np.array(image)
    radius = (0.15 + 0.25 * random.random(n)) * min(image)
    return np.hypot(y - middle[:, :1, None], x - middle[:, 1:, None]) < radius[:, None, None]  # type: ignore[no-any-return]


def _annotated(folder: str | Path) -> Iterator[tuple[NDArray[np.uint8], Bools, Sequence[str]]]:
    """Neurons of a folder of published human annotations: images (k, c, h, w), masks (k, h, w), the summaries people wrote.

    The layout is that of MILANNOTATIONS: annotations.csv with layer, unit, summary, and per layer a folder with images.npy
    (units, k, channels, h, w), masks.npy (units, k, 1, h, w) and, where not all units are there, units.npy.
    """
    root = Path(folder).expanduser()
    summaries: dict[tuple[str, int], list[str]] = {}
    for line, row in enumerate(read_rows(root / "annotations.csv", ("layer", "unit", "summary")), start=2):
        if not row["unit"].strip().isdecimal():
            raise BadInput("wrong-type", "unit", f"{root}/annotations.csv, line {line}: unit {row['unit']!r} is no number.")
        summaries.setdefault((row["layer"], int(row["unit"])), []).append(row["summary"])
    for layer in dict.fromkeys(layer for layer, _ in summaries):
        images, masks = (_array(root / layer / f"{name}.npy") for name in ("images", "masks"))
        if images.ndim != 5 or masks.ndim != 5 or images.shape[:2] + images.shape[3:] != masks.shape[:2] + masks.shape[3:]:
            raise BadInput(
                "wrong-count", "images", f"{root}/{layer}: images {images.shape} and masks {masks.shape} do not belong together."
            )
        file = root / layer / "units.npy"
        units = _array(file).tolist() if file.is_file() else range(len(images))
        for row_number, unit in enumerate(units):
            if (layer, unit) in summaries:
                yield np.asarray(images[row_number]), np.asarray(masks[row_number, :, 0]) > 0, summaries[layer, unit]


def _array(file: Path) -> NDArray[np.uint8]:
    return read_npy(file, str(file))


def annotated_pairs(annotate: Annotator, folder: str | Path, k: int) -> Pairs:
    """Human annotations as pairs: a neuron as often as people described it."""
    vectors: list[Tensor] = []
    texts: list[str] = []
    for images, masks, summaries in _annotated(folder):
        rows = np.arange(k) % len(images)
        vector = annotate(torch.from_numpy(images[rows]).float() / 255, torch.from_numpy(masks[rows]))
        vectors += [vector] * len(summaries)
        texts += summaries
    if not vectors:
        raise BadInput("empty", "folder", f"{folder}: no annotated neuron has images: expected the layout of MILANNOTATIONS.")
    return Pairs(torch.stack(vectors), tuple(texts))
