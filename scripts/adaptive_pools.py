"""The pools on which adaptive selection was designed (even index) and is reported (odd index)."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image

from neurotest import rng, zoo
from neurotest.data.source import ArraySource, Source
from neurotest.data.spec import data

Change = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def part(source: Source, odd: bool) -> Source:
    return source.take(np.arange(int(odd), len(source), 2))


def test_set(name: str) -> str:
    """The complete test set: of CIFAR-10 only a tenth is embedded."""
    dataset = zoo.find(name).dataset
    return f"zoo:{dataset}-full/test" if dataset == "cifar10" else f"zoo:{dataset}/test"


def nss_pools(name: str, odd: bool, seeds: range) -> Iterator[Source]:
    from neurotest.mutate.pools import nss_pool

    for seed in seeds:
        yield nss_pool(source=part(data(test_set(name)), odd), seed=seed)


def natural_pools(name: str, odd: bool) -> Iterator[Source]:
    """The unmutated test images, all of the half: one pool."""
    yield part(data(test_set(name)), odd)


def disturbed(source: Source, random: np.random.Generator, kinds: list[Change]) -> Source:
    """One of the changes per image."""
    clean = source.read(np.arange(len(source)))
    out = np.empty_like(clean)
    for i, kind in enumerate(random.integers(0, len(kinds), len(clean))):
        out[i] = np.clip(np.round(kinds[kind](clean[i].astype(np.float64), random)), 0, 255)
    return ArraySource(out, source.labels, classes=source.classes)


def corrupted_pools(name: str, seeds: range) -> Iterator[Source]:
    """For the report: noise, JPEG, and a fog-like loss of contrast."""
    for seed in seeds:
        yield disturbed(part(data(test_set(name)), True), rng.stream("corrupt", seed), [noise, jpeg, fog])


def shifted_pools(name: str, seeds: range) -> Iterator[Source]:
    """For the design: other disturbances than those reported on."""
    for seed in seeds:
        yield disturbed(part(data(test_set(name)), False), rng.stream("design.shift", seed), [coarse, hidden, gamma])


def noise(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return x + random.normal(0, 255 * random.uniform(0.1, 0.3), x.shape)


def fog(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return x * (a := random.uniform(0.15, 0.5)) + 255 * (1 - a) * random.uniform(0.3, 0.8)


def coarse(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    step = int(random.integers(2, 5))
    end = x.shape[1] // step * step
    blocks = x[:, :end, :end].reshape(len(x), end // step, step, end // step, step).mean(axis=(2, 4))
    out = x.copy()
    out[:, :end, :end] = blocks.repeat(step, 1).repeat(step, 2)
    return out


def hidden(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    size = int(random.integers(x.shape[1] // 4, x.shape[1] // 2))
    top, left = random.integers(0, x.shape[1] - size, 2)
    out = x.copy()
    out[:, top : top + size, left : left + size] = random.uniform(0, 255)
    return out


def gamma(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return 255 * (x / 255) ** (random.uniform(0.2, 0.6) if random.random() < 0.5 else random.uniform(2, 5))


def jpeg(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """(c, h, w) through a JPEG file and back."""
    image = x.astype(np.uint8)
    picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=int(random.integers(5, 25)))
    back = np.asarray(Image.open(file), dtype=np.float64)
    return back[None] if back.ndim == 2 else back.transpose(2, 0, 1)
