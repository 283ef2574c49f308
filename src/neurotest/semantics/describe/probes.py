"""Generated images whose attributes are known to the pixel: what network dissection needs, without anybody's annotations.

Every image shows one region with a texture on a quiet background. Its attributes are drawn independently of each other, so
that a neuron that answers to one of them does not seem to answer to another. The border of the region is soft: a sharp one
would excite every edge detector whatever is inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.errors import BadInput

# The eleven basic colour terms of Berlin and Kay.
COLOURS: dict[str, tuple[float, float, float]] = {
    "black": (0.02, 0.02, 0.02), "grey": (0.5, 0.5, 0.5), "white": (0.98, 0.98, 0.98), "red": (0.85, 0.08, 0.08),
    "orange": (1.0, 0.55, 0.05), "yellow": (0.95, 0.92, 0.1), "green": (0.1, 0.6, 0.15), "blue": (0.1, 0.2, 0.85),
    "purple": (0.5, 0.1, 0.65), "pink": (1.0, 0.6, 0.75), "brown": (0.42, 0.25, 0.1),
}  # fmt: skip
TEXTURES = ("plain", "stripes", "edge", "checks", "blobs", "corner")
DIRECTIONS = (
    "horizontal", "slightly rising", "rising diagonal", "steeply rising",
    "vertical", "steeply falling", "falling diagonal", "slightly falling",
)  # fmt: skip
ORIENTED = (1, 2)  # stripes and edges have a direction
PERIODIC = (1, 3, 4)  # stripes, checks and blobs have a frequency
GREY = 3  # the first three colours are those of grey images
LUMA = np.array([0.299, 0.587, 0.114])
PIXELS = 1 << 20  # of a batch
Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

FAMILIES: dict[str, tuple[str, ...]] = {
    "size": ("small", "large"),
    "frequency": ("fine", "coarse"),
    "brightness": ("dark", "bright"),
    "colour": tuple(COLOURS),
    "direction": DIRECTIONS,
    "texture": TEXTURES,
    "height": ("at the top", "in the middle", "at the bottom"),
    "side": ("on the left", "in the centre", "on the right"),
}


@dataclass(frozen=True, eq=False)
class Probes:
    """A batch of generated images: x (n, channels, h, w) in 0 .. 1, and per family which word holds where."""

    x: NDArray[np.float32]
    places: dict[str, Labels]  # family -> (n, h, w) number of the word, -1 where none of the family holds
    whole: dict[str, Labels]  # family -> (n,) the word for the image as a whole, -1 where there is none
    region: NDArray[np.bool_]  # (n, h, w)


@dataclass(frozen=True, eq=False)
class ProbeAttributes:
    """The attributes of n images, as numbers of words, and what else is random about them."""

    texture: Labels
    direction: Labels
    frequency: Labels
    size: Labels
    height: Labels
    side: Labels
    colours: Labels  # (n, 3): in front, between (the other half of a texture), behind
    jitter: Floats  # (n, 3, 3) of those colours
    phase: Floats  # (n, 2)
    turn: Floats  # (n,) a corner's

    def __getitem__(self, name: str) -> Labels:
        return getattr(self, name)  # type: ignore[no-any-return]


def draw_attributes(n: int, grey: bool, seed: int) -> ProbeAttributes:
    """Attributes that are balanced each for itself and independent of each other."""
    random = rng.stream("semantics.probes", seed)

    def balanced(count: int) -> Labels:
        return random.permutation(np.arange(n) % count)

    front = balanced(GREY if grey else len(COLOURS))
    luma = np.array([np.dot(LUMA, COLOURS[name]) for name in COLOURS])
    other = np.where(luma[front] > 0.62, 0, np.where(luma[front] < 0.38, 2, random.integers(0, 2, n) * 2))  # always a contrast
    behind = np.where(random.random(n) < (1.0 if grey else 0.7), balanced(GREY), balanced(GREY if grey else len(COLOURS)))
    return ProbeAttributes(
        texture=balanced(len(TEXTURES)), direction=balanced(8), frequency=balanced(2), size=balanced(2), height=balanced(3),
        side=balanced(3), colours=np.stack([front, other, behind], axis=1), jitter=random.normal(0, 0.03, (n, 3, 3)),
        phase=random.random((n, 2)), turn=(random.integers(0, 4, n) * (np.pi / 2)).astype(np.float64),
    )  # fmt: skip


def probes(shape: tuple[int, ...], n: int, *, seed: int = 0, batch: int = 250) -> Iterator[Probes]:
    """n generated images of a shape (channels, height, width), in batches, of large ones in smaller: some twenty arrays of this
    size are needed to draw them."""
    if len(shape) != 3 or min(shape[1:]) < 8:
        size = "x".join(map(str, shape))
        raise BadInput(
            "unsuitable",
            "shape",
            f"attribute probes are images of at least 8x8 pixels, and the target takes {size}: use another describer.",
        )
    colour = shape[0] == 3
    attributes = draw_attributes(n, not colour, seed)
    batch = min(batch, max(1, PIXELS // (shape[1] * shape[2])))
    for number, start in enumerate(range(0, n, batch)):
        some = slice(start, min(start + batch, n))
        images = render(ProbeAttributes(**{name: value[some] for name, value in vars(attributes).items()}), shape[1:])
        noise = rng.stream("semantics.probes.noise", seed, number).normal(0, 0.015, images.x.shape)
        x = np.clip(images.x + noise, 0, 1).astype(np.float32)
        if not colour:
            x = np.repeat(np.tensordot(LUMA, x, (0, 1))[:, None], shape[0], axis=1).astype(np.float32)
        yield Probes(x, images.places, images.whole, images.region)


def render(a: ProbeAttributes, image: tuple[int, ...]) -> Probes:
    """The images themselves, in colour and without noise."""
    high, wide = image
    unit = min(high, wide) / 32
    y, x = (grid[None] for grid in np.mgrid[:high, :wide].astype(np.float64))
    middle = np.stack([(np.array([0.25, 0.5, 0.75])[a.height]) * high, (np.array([0.25, 0.5, 0.75])[a.side]) * wide], axis=1)
    dy, dx = y - middle[:, :1, None], x - middle[:, 1:, None]
    radius = np.array([7.0, 13.0])[a.size][:, None, None] * unit
    inside = _smooth((radius - np.hypot(dx, dy)) / (1.5 * unit))
    pattern = _pattern(a, dx, dy, x, y, unit)
    colours = np.clip(np.array(list(COLOURS.values()))[a.colours] + a.jitter, 0, 1)  # (n, 3, 3): which, channel
    front, other, behind = (colours[:, i, :, None, None] for i in range(3))
    shown = pattern[:, None] * front + (1 - pattern[:, None]) * other
    picture = inside[:, None] * shown + (1 - inside[:, None]) * behind
    return Probes(picture.astype(np.float32), *_labels(a, inside, pattern, picture), inside > 0.5)


def _pattern(a: ProbeAttributes, dx: Floats, dy: Floats, x: Floats, y: Floats, unit: float) -> Floats:
    """(n, h, w) in 0 .. 1: how much of the front colour is where."""
    angle = (a.direction * (np.pi / 8))[:, None, None]
    period = np.array([4.0, 10.0])[a.frequency][:, None, None] * unit
    shift = (a.phase * 2 * np.pi)[:, :, None, None]
    across = dx * np.sin(angle) + dy * np.cos(angle)  # changes across the lines, which run at `angle` above the horizontal
    turn = a.turn[:, None, None]
    u, v = dx * np.cos(turn) + dy * np.sin(turn), -dx * np.sin(turn) + dy * np.cos(turn)
    wave_x, wave_y = 2 * np.pi * x / period + shift[:, 0], 2 * np.pi * y / period + shift[:, 1]
    # The waves of checks run along the diagonals, where they are shorter than along the sides by the root of two.
    check_x, check_y = (2 * np.pi * side / (np.sqrt(2) * period) + shift[:, i] for i, side in enumerate((x, y)))
    textures = (
        np.ones_like(dx * dy),
        _smooth(4 * np.sin(2 * np.pi * across / period + shift[:, 0])),
        _smooth(across / (0.5 * unit)) if unit >= 1 else _smooth(2 * across),
        _smooth(4 * np.sin(check_x) * np.sin(check_y)),
        _smooth(4 * (np.cos(wave_x) + np.cos(wave_y) - 1)),
        _smooth(2 * u / unit) * _smooth(2 * v / unit),
    )
    return np.choose(a.texture[:, None, None], np.broadcast_arrays(*textures))


def _smooth(value: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(2 * value, -40, 40)))


def _labels(a: ProbeAttributes, inside: Floats, pattern: Floats, picture: Floats) -> tuple[dict[str, Labels], dict[str, Labels]]:
    region, n = inside > 0.5, len(inside)
    oriented, periodic = np.isin(a.texture, ORIENTED), np.isin(a.texture, PERIODIC)
    whole = {name: a[name].copy() for name in ("size", "texture", "height", "side", "frequency", "direction")}
    whole["frequency"][~periodic], whole["direction"][~oriented] = -1, -1
    places = {name: np.where(region, whole[name][:, None, None], -1) for name in whole}
    front, other, behind = (a.colours[:, i, None, None] for i in range(3))
    places["colour"] = np.where(inside > 0.8, np.where(pattern > 0.5, front, other), np.where(inside < 0.2, behind, -1))
    places["brightness"] = _bright(np.tensordot(LUMA, picture, (0, 1)))
    whole["colour"] = a.colours[:, 0]
    whole["brightness"] = _bright(np.tensordot(LUMA, picture, (0, 1)).reshape(n, -1).mean(axis=1))
    return {name: places[name] for name in FAMILIES}, {name: whole[name] for name in FAMILIES}


def _bright(luma: Floats) -> Labels:
    return np.where(luma < 0.3, 0, np.where(luma > 0.7, 1, -1))
