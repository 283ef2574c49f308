"""The pools on which adaptive selection was designed (even index) and is reported (odd index)."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import numpy as np
import torch
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
    from neurotest.mutate.nss import nss_pool

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


def foreign_pools(name: str, seeds: range) -> Iterator[Source]:
    """Digits of another kind: scikit-learn's (UCI, 8 x 8 pixels, 43 writers), enlarged, every other input of a pool of MNIST.

    Nothing of the design was tuned on them. 1,797 of them and as many odd test images.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    large = [np.asarray(Image.fromarray((one * 255 / 16).astype(np.uint8)).resize((20, 20), Image.Resampling.BICUBIC))
             for one in digits.images]  # fmt: skip
    foreign = np.zeros((len(large), 1, 28, 28), np.uint8)
    foreign[:, 0, 4:24, 4:24] = np.stack(large)
    ours = part(data(test_set(name)), True)
    for seed in seeds:
        random = rng.stream("foreign", seed)
        some = ours.take(np.sort(random.permutation(len(ours))[: len(large)]))
        assert some.labels is not None
        x = np.concatenate([some.read(np.arange(len(some))), foreign])
        order = random.permutation(len(x))
        yield ArraySource(x[order], np.concatenate([some.labels, digits.target])[order], classes=ours.classes)


def styled_pools(name: str, seeds: range) -> Iterator[Source]:
    """Odd test images of CIFAR-10 in another style (colours, spectra and textures of `neurotest.mutate.style`), one per image."""
    from neurotest.mutate.style import Style, fourier, lab, textured

    style = Style((lab, fourier, textured))
    source = part(data(test_set(name)), True)
    clean = torch.from_numpy(source.read(np.arange(len(source)))).float().div_(255)
    for seed in seeds:
        random = rng.stream("styled", seed)
        rows = np.column_stack([random.uniform(0.3, 0.9, len(clean)), random.integers(0, 2**40, len(clean))])
        out = [style.apply(clean[i : i + 250], torch.from_numpy(rows[i : i + 250])) for i in range(0, len(clean), 250)]
        pixels = torch.cat(out).clamp_(0, 1).mul_(255).round_().to(torch.uint8).numpy()
        yield ArraySource(pixels, source.labels, classes=source.classes)


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
