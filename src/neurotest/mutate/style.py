"""Style without downloaded weights: colour statistics in Lab space, Fourier amplitudes, procedural textures.

None of this is AdaIN, and does not claim to be: it moves colours and texture and leaves shapes. The style images are
generated from numbers, so nothing is shipped; a folder of images can be used instead (`StyleImages.of`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from neurotest import registry, rng
from neurotest.errors import BadInput
from neurotest.mutate.operators import Operator

GENERATED = 64  # style images without a folder of images


class StyleTransfer(Protocol):
    """`content` and `style` are (n, 3, h, w) in [0, 1], `strength` (n, 1, 1, 1): 0 leaves the content as it is."""

    def __call__(self, content: Tensor, style: Tensor, strength: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class StyleImages:
    """Where styles come from: images (m, 3, h, w) in [0, 1], or GENERATED ones made from numbers."""

    pictures: Tensor | None = field(default=None, repr=False)

    @classmethod
    def of(cls, folder: str) -> StyleImages:
        """The images of a folder."""
        from neurotest.data.spec import data

        source = data(f"dir:{folder}")
        pictures = torch.from_numpy(source.read(np.arange(len(source)))).float().div_(255)
        return cls(pictures.expand(-1, 3, -1, -1))

    def __len__(self) -> int:
        return GENERATED if self.pictures is None else len(self.pictures)

    def get(self, number: int, height: int, width: int) -> Tensor:
        """(3, height, width)"""
        if self.pictures is None:
            return _generated_style(number % GENERATED, height, width)
        one = self.pictures[number % len(self.pictures)].unsqueeze(0)
        return torch.nn.functional.interpolate(one, (height, width), mode="bilinear", align_corners=False)[0]


def _generated_style(number: int, height: int, width: int) -> Tensor:
    """A coloured image out of a number: a texture drawn with two colours of a palette."""
    random = rng.stream("mutate.style", number)
    colours = torch.from_numpy(random.random((2, 3, 1, 1))).float()
    mask = _texture(number, height, width)
    return colours[0] * mask + colours[1] * (1 - mask)


def _texture(number: int, height: int, width: int) -> Tensor:
    """(1, height, width) in [0, 1]: clouds, stripes, checks, rings or dots, by number."""
    random = rng.stream("mutate.texture", number)
    rows, columns = np.meshgrid(np.linspace(0, 1, height), np.linspace(0, 1, width), indexing="ij")
    scale, angle = random.uniform(4, 14), random.uniform(0, np.pi)
    along = rows * np.sin(angle) + columns * np.cos(angle)
    across = rows * np.cos(angle) - columns * np.sin(angle)
    kinds: list[Callable[[], np.ndarray]] = [
        lambda: _clouds(random, height, width),
        lambda: np.sin(2 * np.pi * scale * along),
        lambda: np.sign(np.sin(np.pi * scale * along) * np.sin(np.pi * scale * across)),
        lambda: np.sin(2 * np.pi * scale * np.hypot(rows - random.random(), columns - random.random())),
        lambda: np.sin(2 * np.pi * scale * along) * np.sin(2 * np.pi * scale * across),
    ]
    drawn = kinds[number % len(kinds)]()
    low, high = drawn.min(), drawn.max()
    return torch.from_numpy((drawn - low) / max(high - low, 1e-9)).float().unsqueeze(0)


def _clouds(random: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Noise whose amplitude falls with frequency."""
    spectrum = np.fft.rfft2(random.standard_normal((height, width)))
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = np.inf
    return np.asarray(np.fft.irfft2(spectrum / frequency**1.5, s=(height, width)))


@registry.register(
    "style transfer", "lab", paper="Reinhard et al., Color transfer between images, 2001", cost="two passes over the image"
)
def lab(content: Tensor, style: Tensor, strength: Tensor) -> Tensor:
    """Give each channel of Lab space the style's mean and spread."""
    from kornia.color import lab_to_rgb, rgb_to_lab

    out: Tensor = lab_to_rgb(_with_statistics(rgb_to_lab(content), rgb_to_lab(style), strength))
    return out


def _with_statistics(content: Tensor, style: Tensor, strength: Tensor) -> Tensor:
    """Maps (n, c, h, w) moved towards the style's mean and spread of each channel."""
    mean, spread = content.mean((2, 3), keepdim=True), content.std((2, 3), keepdim=True)
    moved = (content - mean) / (spread + 1e-5) * style.std((2, 3), keepdim=True) + style.mean((2, 3), keepdim=True)
    return (1 - strength) * content + strength * moved


@registry.register("style transfer", "fourier", paper="Yang and Soatto, FDA, CVPR 2020", cost="three Fourier transforms")
def fourier(content: Tensor, style: Tensor, strength: Tensor) -> Tensor:
    """Mix the amplitudes of the style into the content's spectrum; the phase, which carries shapes, stays."""
    here, there = torch.fft.rfft2(content), torch.fft.rfft2(style)
    amplitude = (1 - strength) * here.abs() + strength * there.abs()
    back: Tensor = torch.fft.irfft2(torch.polar(amplitude, here.angle()), s=content.shape[-2:])
    return back


@registry.register("style transfer", "texture", paper="", cost="one multiplication per pixel")
def textured(content: Tensor, style: Tensor, strength: Tensor) -> Tensor:
    """Modulate the content by the style's light and dark around their mean."""
    grey = style.mean(1, keepdim=True)
    return content * (1 + strength * (grey - grey.mean((2, 3), keepdim=True)))


@dataclass(frozen=True, eq=False)
class AdaIN:
    """Huang and Belongie's transfer for users who have an encoder and a decoder: the style's feature statistics, decoded.

    encoder: (n, 3, h, w) -> features (VGG-19 to relu4_1 in the paper); decoder: back to an image. Both in eval mode.
    """

    encoder: torch.nn.Module
    decoder: torch.nn.Module

    def __call__(self, content: Tensor, style: Tensor, strength: Tensor) -> Tensor:
        with torch.no_grad():
            here, there = self.encoder(content), self.encoder(style)
            if here.ndim != 4:
                raise BadInput(
                    "wrong-shape",
                    "encoder",
                    f"AdaIN: the encoder gives shape {tuple(here.shape)}; expected feature maps (n, c, h, w).",
                )
            out: Tensor = self.decoder(_with_statistics(here, there, strength))
        if out.shape[-2:] != content.shape[-2:]:
            out = torch.nn.functional.interpolate(out, content.shape[-2:], mode="bilinear", align_corners=False)
        return out


@dataclass(frozen=True, eq=False)
class Style(Operator):
    """One of the transfers and a style image, drawn per item; parameters: strength, number of the draw."""

    transfers: tuple[StyleTransfer, ...]
    images: StyleImages = field(default_factory=StyleImages)

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        grey = x.shape[1] == 1
        if x.shape[1] not in (1, 3):
            raise BadInput("unsuitable", "channels", f"style needs grey or RGB images, not {x.shape[1]} channels: use rules95.")
        content = x.expand(-1, 3, -1, -1)
        out = torch.empty_like(content)
        drawn = [rng.stream("mutate.style.draw", int(seed)).integers(0, 1 << 30, 2) for seed in parameters[:, 1].tolist()]
        which = np.array([int(pair[0]) % len(self.transfers) for pair in drawn])
        styles = [self.images.get(int(pair[1]) % len(self.images), x.shape[2], x.shape[3]) for pair in drawn]
        for number, transfer in enumerate(self.transfers):
            mine = torch.from_numpy(np.flatnonzero(which == number))
            if len(mine):
                style = torch.stack([styles[i] for i in mine.tolist()]).to(x)
                out[mine] = transfer(content[mine], style, parameters[mine, :1].to(x).view(-1, 1, 1, 1))
        return out.mean(1, keepdim=True) if grey else out
