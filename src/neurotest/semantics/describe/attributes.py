"""Network dissection on generated probes: which attributes light a neuron up, by masks that are exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import checks
from neurotest.errors import BadInput
from neurotest.registry import register
from neurotest.semantics.describe.material import Describer, Material
from neurotest.semantics.describe.probes import DIRECTIONS, FAMILIES, Probes, probes
from neurotest.semantics.descriptions import NeuronDescription
from neurotest.semantics.exemplars import Exemplars, enlarge, globs, maps, places
from neurotest.target import Layer, Probe, Trace, Want

WORDS = tuple((family, word) for family, words in FAMILIES.items() for word in words)
STARTS = dict(zip(FAMILIES, np.cumsum([0, *(len(words) for words in FAMILIES.values())]).tolist(), strict=False))
WIDTH = len(WORDS)
SURE = 4.0  # standard errors: with some forty words per neuron, two would let chance speak
WHOLE_QUANTILE = 0.95  # for neurons without a map: one value per image, so that 1 % of them would be a handful
GRID = 64  # places along a side at which maps and words are compared: those of photographs are looked at every so many pixels
LARGE = 1 << 27  # bytes of maps that are enlarged at once


@dataclass(frozen=True, eq=False)
class _Dissection:
    """How a layer's masks and the words' masks overlap, in pixels (or images): together, of neurons, of words, of all."""

    together: NDArray[np.int64]  # (neurons, words)
    lit: NDArray[np.int64]  # (neurons,)
    true: NDArray[np.int64]  # (words,)
    total: int
    squares: NDArray[np.float64]  # (neurons,) sum over images of the squared light in each

    @property
    def iou(self) -> NDArray[np.float64]:
        """Intersection over union: (neurons, words)."""
        union = self.lit[:, None] + self.true[None] - self.together
        return self.together / np.maximum(union, 1)  # type: ignore[no-any-return]

    @property
    def relative(self) -> NDArray[np.float64]:
        """IoU over the largest that masks of these sizes can have: 1 where one lies inside the other."""
        small, large = np.minimum(self.lit[:, None], self.true[None]), np.maximum(self.lit[:, None], self.true[None])
        return np.minimum(self.iou * large / np.maximum(small, 1), 1.0)  # rounding may pass 1

    def shares(self, family: str) -> NDArray[np.float64]:
        """How the neuron's light is divided over a family's words, each word's area counted alike: (neurons, words), sums 1."""
        part = self._part(family)
        rate = self.together[:, part] / np.maximum(self.true[part], 1)
        total = rate.sum(axis=1, keepdims=True)
        return rate / np.where(total > 0, total, 1.0)

    def present(self, family: str) -> int:
        """How many of a family's words occur at all (grey images have three colours)."""
        return int((self.true[self._part(family)] > 0).sum())

    def density(self, family: str) -> NDArray[np.float64]:
        """Light where the family holds, per area, over light per area anywhere: (neurons,)."""
        part = self._part(family)
        area = self.true[part].sum() / self.total
        return self.together[:, part].sum(axis=1) / np.maximum(self.lit, 1) / max(area, 1e-12)  # type: ignore[no-any-return]

    def choice(self, family: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The word of a family each neuron prefers, and how much: 0 for all words alike, 1 for one alone.

        Directions lie on a circle: the mean of the doubled angles, and its length.
        """
        shares = self.shares(family)
        if family == "direction":
            count = len(DIRECTIONS)
            mean = shares @ np.exp(2j * np.pi * np.arange(count) / count)
            return np.round(np.angle(mean) / (2 * np.pi) * count).astype(np.int64) % count, np.abs(mean)
        count = max(2, self.present(family))
        return shares.argmax(axis=1), (shares.max(axis=1) - 1 / count) / (1 - 1 / count)

    def sureness(self, family: str) -> NDArray[np.float64]:
        """How many standard errors the preference lies from none, by the number of images the light comes from: (neurons,)."""
        part = self._part(family)
        images = np.divide(self.lit.astype(float) ** 2, self.squares, out=np.zeros(len(self.lit)), where=self.squares > 0)
        n = images * self.together[:, part].sum(axis=1) / np.maximum(self.lit, 1)
        count = max(2, self.present(family))
        preference = self.choice(family)[1]
        if family == "direction":
            return preference * np.sqrt(2 * n)  # type: ignore[no-any-return]
        return preference * (1 - 1 / count) * np.sqrt(n / (1 / count * (1 - 1 / count)))  # type: ignore[no-any-return]

    @staticmethod
    def _part(family: str) -> slice:
        return slice(STARTS[family], STARTS[family] + len(FAMILIES[family]))


@register(
    "describer",
    "attributes",
    paper="Network Dissection (Bau et al. 2017), on generated probes",
    cost="two passes over `probes` generated images; no data and no labels are needed",
    differs="The probes are generated, so that masks are exact and no annotated data is needed. Words compete within families "
    "(colour, direction, texture, ...), each word's area counted alike, because a fixed quantile gives frequent words a small "
    "IoU whatever the neuron does. A neuron without a map is judged by whole images.",
)
class Attributes(checks.Settings, Describer):
    """Says which colours, brightness, directions, frequencies, textures, sizes and positions light a neuron up.

    A word is named when the neuron's light is selective within its family (`selective`: 0 = all words alike, 1 = one alone)
    and the IoU of light and word, over the largest that areas of their sizes allow, reaches `iou` for one word at least;
    else the neuron is unknown. The score is the best such IoU of a word that is named.
    measure: `auto`; `maps` refuses layers without maps; `whole` judges by whole images throughout.
    """

    probes: int = checks.setting(1800, "1800 is usual", least=100)
    selective: float = 0.3
    iou: float = 0.04
    quantile: float = 0.99
    measure: Literal["auto", "maps", "whole"] = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.selective < 1 or not 0 <= self.iou < 1 or not 0 < self.quantile < 1:
            raise BadInput("out-of-range", "selective", "selective, iou and quantile lie between 0 and 1.")

    def describe(self, material: Material) -> Iterator[NeuronDescription]:
        for layer, dissection in self.dissect(material).items():
            for neuron, (text, score) in enumerate(self.words(dissection)):
                if text:
                    yield NeuronDescription(layer, neuron, text, score, "attributes")

    def dissect(self, material: Material) -> dict[str, _Dissection]:
        """How every layer's neurons overlap with every word."""
        mapped = tuple(layer for layer in material.layers if self.measure != "whole" and material.mapped(layer))
        other = tuple(layer for layer in material.layers if layer not in mapped)
        if self.measure == "maps" and other:
            raise BadInput(
                "unsuitable",
                "measure",
                f"layer {other[0].name!r} has no spatial maps (its neurons give one number per input), which measure=maps "
                "needs: choose other --layers, or measure=auto.",
            )
        dissections = {**_dissect(self, material, mapped, whole=False), **_dissect(self, material, other, whole=True)}
        return {layer.name: dissections[layer.name] for layer in material.layers}

    def words(self, dissection: _Dissection) -> list[tuple[str, float]]:
        """Text and score of every neuron; an empty text where nothing is selective enough."""
        iou = dissection.relative
        phrases: list[dict[str, str]] = [{} for _ in dissection.lit]
        best = np.zeros(len(dissection.lit))
        for family, words in FAMILIES.items():
            if dissection.present(family) < 2:
                continue
            top, selective = dissection.choice(family)
            sure = (dissection.density(family) >= 1) & (dissection.sureness(family) >= SURE)
            for neuron in np.flatnonzero((selective >= self.selective) & sure):
                phrases[neuron][family] = words[top[neuron]]
                best[neuron] = max(best[neuron], iou[neuron, STARTS[family] + top[neuron]])
        return [
            (sentence(one), float(score)) if score >= self.iou else ("", 0.0) for one, score in zip(phrases, best, strict=True)
        ]


def sentence(named: dict[str, str]) -> str:
    """The words of several families as a phrase.

    >>> sentence({"colour": "red", "direction": "vertical", "texture": "stripes", "side": "on the left"})
    'red vertical stripes on the left'
    """
    nouns = {"plain": "areas", "stripes": "stripes", "edge": "edges", "checks": "checks", "blobs": "blobs", "corner": "corners"}
    texture = named.get("texture", "")
    if "direction" in named and texture not in ("stripes", "edge"):
        texture = ""  # dots in a row excite a detector of lines
    tone = named.get("colour") or named.get("brightness")
    plain = "plain" if texture == "plain" else None
    words = [word for word in (named.get("size"), named.get("frequency"), plain, tone, named.get("direction")) if word]
    noun = nouns[texture] if texture else "lines" if "direction" in named else "texture" if "frequency" in named else ""
    if not noun and (words or "height" in named or "side" in named):
        noun = "areas"
    return " ".join([*words, noun, *(named[family] for family in ("height", "side") if family in named)]).strip()


def _dissect(settings: Attributes, material: Material, layers: tuple[Layer, ...], *, whole: bool) -> dict[str, _Dissection]:
    if not layers:
        return {}
    want = Want(layers=globs(layers), keep="map")
    level = min(settings.quantile, WHOLE_QUANTILE) if whole else settings.quantile
    cuts = Exemplars(layers, 1, level)
    together = {layer.name: np.zeros((layer.neurons(), WIDTH), dtype=np.int64) for layer in layers}
    lit = {layer.name: np.zeros(layer.neurons(), dtype=np.int64) for layer in layers}
    squares = {layer.name: np.zeros(layer.neurons()) for layer in layers}
    true, total = np.zeros(WIDTH, dtype=np.int64), 0
    every = max(1, -(-min(material.shape[1:], default=1) // GRID))
    with Probe(material.target, want) as probe:
        for _, trace in _passes(settings, material, probe):
            cuts.update(_pooled(layers, want, trace) if whole else trace)
        gammas = {layer.name: cuts.gamma(layer.name) for layer in layers}
        for images, trace in _passes(settings, material, probe):
            words = images.whole if whole else _coarse(images.places, every)
            labels = np.stack([np.where(words[f] >= 0, words[f] + STARTS[f], -1).ravel() for f in FAMILIES])  # -1: none holds
            true += np.bincount(labels[labels >= 0], minlength=WIDTH)
            total += labels.shape[1]
            sides = next(iter(words.values())).shape[1:]
            for layer in layers:
                flat = maps(layer, trace[want][layer.name])
                gamma = gammas[layer.name].to(flat.device)
                each = np.zeros(flat.shape[:2], dtype=np.int64)
                for image, neuron in _excited(flat, gamma, labels.shape[1] // len(flat)):
                    here = flat[image, neuron].unsqueeze(1)
                    here = here.amax(dim=2) if whole else enlarge(here, places(layer), sides).flatten(1)
                    _count(here > gamma[neuron][:, None], image, neuron, labels, together[layer.name], each)
                lit[layer.name] += each.sum(axis=0)
                squares[layer.name] += np.square(each, dtype=float).sum(axis=0)
    return {name: _Dissection(together[name], lit[name], true, total, squares[name]) for name in together}


def _coarse(places: dict[str, NDArray[np.int64]], every: int) -> dict[str, NDArray[np.int64]]:
    """The words (n, height, width) in the middle of each so many pixels."""
    return {family: words[:, every // 2 :: every, every // 2 :: every] for family, words in places.items()}


def _excited(flat: Tensor, gamma: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Images and neurons whose map (n, neurons, places) is above gamma anywhere, so many at once as may be enlarged to `size`
    places. Between places an enlarged map is a mean of its neighbours, so that the others have no place above gamma."""
    image, neuron = torch.nonzero(flat.amax(dim=2) > gamma, as_tuple=True)
    step = max(1, LARGE // (4 * size))
    return zip(image.split(step), neuron.split(step), strict=True)


def _passes(settings: Attributes, material: Material, probe: Probe) -> Iterator[tuple[Probes, Trace]]:
    low, high = material.target.bounds
    for images in probes(material.shape, settings.probes, seed=settings.seed, batch=min(100, material.safe_batch())):
        x = torch.from_numpy(images.x).to(material.target.device)
        yield images, probe(x * (high - low) + low)


def _pooled(layers: tuple[Layer, ...], want: Want, trace: Trace) -> Trace:
    """The same trace with one place per neuron."""
    values = {}
    for layer in layers:
        tensor = trace[want][layer.name]
        others = tuple(axis for axis in range(1, tensor.ndim) if axis != layer.axis)
        values[layer.name] = tensor.amax(dim=others, keepdim=True) if others else tensor
    return Trace(trace.logits, {want: values})


def _count(
    above: Tensor, image: Tensor, neuron: Tensor, labels: NDArray[np.int64], together: NDArray[np.int64], each: NDArray[np.int64]
) -> None:
    """Add places (m, places) of the maps of these images and neurons (m,) to the counts with each word, and to how many places
    each image lights: (n, neurons).

    Only lit places are looked at, one in a hundred.
    """
    row, place = (i.cpu() for i in torch.nonzero(above, as_tuple=True))
    images, neurons = image.cpu()[row].numpy(), neuron.cpu()[row].numpy()
    at = images * above.shape[1] + place.numpy()
    for words in labels:
        word = words[at]
        labelled = word >= 0
        together += np.bincount(neurons[labelled] * WIDTH + word[labelled], minlength=together.size).reshape(together.shape)
    each += np.bincount(images * each.shape[1] + neurons, minlength=each.size).reshape(each.shape)
