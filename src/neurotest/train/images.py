"""What the zoo's networks are trained on, and how right they are: images flipped and cropped, sounds shifted and with noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from neurotest import rng
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.levels import EIGHT, SIXTEEN
from neurotest.zoo.recipes import Recipe


class Images:
    """A labelled source of 8-bit images, flipped, cropped, lit as the recipe says, or of sounds, shifted and with noise.

    A quantity changes its sign in the mirror.
    """

    def __init__(self, source: Source, recipe: Recipe, device: str = "cpu") -> None:
        self.x, self.y = tensors(source, recipe.images)
        self.recipe, self.device = recipe, device
        self.loss_of = quantity_loss(self.y) if self.y.is_floating_point() else functional.cross_entropy
        self.start(0)

    def __len__(self) -> int:
        return len(self.x)

    def start(self, epoch: int) -> None:
        self.random = rng.stream("train.augment", self.recipe.seed, epoch)

    def ahead(self, module: nn.Module, rows: Tensor) -> None:
        """Images are cut and mirrored batch by batch."""

    def loss(self, module: nn.Module, rows: Tensor) -> Tensor:
        if self.x.dtype == torch.int16:
            inputs = augment_sound(prepared(self.x[rows]), self.recipe, self.random).to(self.device)
            return self.loss_of(module(inputs), self.y[rows].to(self.device))
        x, y = augment(self.x[rows], self.y[rows], self.recipe, self.random)
        images = prepared(x.to(self.device))
        if self.recipe.light:
            factors = 1 + self.recipe.light * (2 * torch.from_numpy(self.random.random((len(images), 1, 1, 1))) - 1)
            images = images.mul_(factors.to(images)).clamp_(0, 1)
        images = images.contiguous(memory_format=torch.channels_last) if images.ndim == 4 else images
        return self.loss_of(module(images), y.to(self.device))


def quantity_loss(y: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Squares of small errors and the size of large ones, in spreads of the truth: few frames are far off, and must not lead."""
    spread = float(y.double().std()) or 1.0

    def loss(out: Tensor, truth: Tensor) -> Tensor:
        return functional.smooth_l1_loss(out.flatten() / spread, truth.to(out) / spread)

    return loss


def accuracy(module: nn.Module, source: Source, *, batch: int = 500) -> float:
    """Share of a labelled source that the network gets right."""
    x, y = tensors(source, None)
    return int((predict(module, x, batch) == y).sum()) / len(x)


def mean_error(module: nn.Module, source: Source, *, batch: int = 500) -> float:
    """How far the answers to a source are from its quantities, on average."""
    x, y = tensors(source, None)
    with torch.inference_mode():
        answers = torch.cat([module(prepared(images)).flatten() for images in x.split(batch)])
    return float((answers.double() - y.double()).abs().mean())


def predict(module: nn.Module, x: Tensor, batch: int = 500) -> Tensor:
    with torch.inference_mode():
        return torch.cat([module(prepared(images)).argmax(1) for images in x.split(batch)])


def prepared(x: Tensor) -> Tensor:
    """Stored inputs as the zoo's networks take them: pictures in 0 .. 1, sound in -1 .. 1."""
    levels = SIXTEEN if x.dtype == torch.int16 else EIGHT
    return levels.unit(x) if levels is EIGHT else levels.unit(x).mul_(2).sub_(1)


def tensors(source: Source, most: int | None) -> tuple[Tensor, Tensor]:
    truth = source.labels if source.quantities is None else source.quantities
    if truth is None:
        raise BadInput("no-labels", "data", f"{source.spec} has no labels: training needs them.")
    index = np.arange(min(len(source), most or len(source)))
    return torch.from_numpy(source.read(index)), torch.from_numpy(truth[index])


def augment(x: Tensor, y: Tensor, recipe: Recipe, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Flips and padded crops, per image, on uint8 batches (n, c, h, w) and their labels (n,)."""
    if recipe.flip:
        mirrored = torch.from_numpy(random.random(len(x)) < 0.5)
        x = torch.where(mirrored.view(-1, 1, 1, 1), x.flip(3), x)
        y = torch.where(mirrored, -y, y) if y.is_floating_point() else y
    if recipe.crop:
        n, _, h, w = x.shape
        padded = functional.pad(x, [recipe.crop] * 4)
        top, left = (torch.from_numpy(random.integers(0, 2 * recipe.crop + 1, n)) for _ in range(2))
        rows = (top[:, None] + torch.arange(h)).view(n, 1, h, 1)
        columns = (left[:, None] + torch.arange(w)).view(n, 1, 1, w)
        x = padded[torch.arange(n).view(n, 1, 1, 1), torch.arange(x.shape[1]).view(1, -1, 1, 1), rows, columns]
    return x, y


def augment_sound(x: Tensor, recipe: Recipe, random: np.random.Generator) -> Tensor:
    """Shifts (silence comes in), another volume and white noise, per sound, on batches (n, 1, samples) in -1 .. 1."""
    n, samples = len(x), x.shape[-1]
    if recipe.crop:
        start = torch.from_numpy(random.integers(0, 2 * recipe.crop + 1, n))
        place = start.view(n, 1, 1) + torch.arange(samples).view(1, 1, -1)
        x = functional.pad(x, (recipe.crop, recipe.crop)).gather(2, place.expand(n, x.shape[1], samples))
    if recipe.gain:
        decibels = random.uniform(-recipe.gain, recipe.gain, (n, 1, 1)).astype(np.float32)
        x = x * torch.from_numpy(10 ** (decibels / 20))
    if recipe.noise is not None:
        decibels = random.uniform(recipe.noise, recipe.noise + 30, (n, 1, 1)).astype(np.float32)
        loud = x.square().mean(dim=(1, 2), keepdim=True).sqrt() * torch.from_numpy(10 ** (-decibels / 20))
        x = x + loud * torch.from_numpy(random.standard_normal(x.shape, dtype=np.float32))
    return x.clamp(-1, 1)
