"""Drawn roads with a known bend: images for networks that predict a regression value, out of numbers alone.

A road of constant width lies on a plane before a camera. Its middle is a parabola over the distance, so that on the image it runs
from the foot to a point on the horizon and beyond it to the side that it bends to. The bend, from -1 (left) to 1 (right), is the
regression value; where the car stands and looks, the light, shadows, the grain of the image and the markings say nothing of it.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurotest import rng

NAME, SPAN = "lanes", (-1.0, 1.0)
HEIGHT, WIDTH = 32, 48
SPLITS = {"train": 3000, "test": 1000}
GROUP = 500  # images drawn together
Floats = NDArray[np.float64]


class _Scene(NamedTuple):
    """What is drawn, (n, 1, 1) each: bend and place of the road, where the car looks, how bright everything is."""

    bend: Floats
    offset: Floats  # of the road's middle at the foot of the image, in half widths of the road
    heading: Floats  # where the road points, in pixels at the horizon
    horizon: Floats  # its row
    half: Floats  # half the width of the road at the foot, in pixels
    sky: Floats
    grass: Floats
    road: Floats
    paint: Floats
    dash: Floats  # phase of the dashed line
    shadow: Floats  # where a shadow crosses the road, 0 at the horizon and 1 at the foot
    dark: Floats  # how much light it takes
    grain: Floats


def load(split: str, first: int | None = None) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Images (n, 1, HEIGHT, WIDTH) and bends (n,), or the first so many: only what is asked for is drawn."""
    count = SPLITS[split] if first is None else min(first, SPLITS[split])
    groups = [drawn(split, number) for number in range(-(-count // GROUP))]
    if not groups:
        return np.empty((0, 1, HEIGHT, WIDTH), dtype=np.uint8), np.empty(0)
    x, bends = (np.concatenate(parts)[:count] for parts in zip(*groups, strict=True))
    return x, bends


@functools.lru_cache(maxsize=16)
def drawn(split: str, number: int) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """One group of images with their bends, rounded so that a file keeps them as they are."""
    random = rng.stream(f"zoo.lanes.{split}", number)
    scene = _scene(random)
    return _image(scene, random), scene.bend[:, 0, 0]


def _scene(random: np.random.Generator) -> _Scene:
    def uniform(low: float, high: float) -> Floats:
        return random.uniform(low, high, (GROUP, 1, 1))

    return _Scene(
        bend=np.round(uniform(*SPAN), 4), offset=uniform(-0.5, 0.5), heading=uniform(-3, 3), horizon=uniform(7, 11),
        half=uniform(15, 21), sky=uniform(0.55, 0.95), grass=uniform(0.25, 0.5), road=uniform(0.1, 0.4), paint=uniform(0.25, 0.5),
        dash=uniform(0, 1), shadow=uniform(-0.6, 1), dark=uniform(0.4, 0.9), grain=uniform(0.01, 0.05),
    )  # fmt: skip


def _image(scene: _Scene, random: np.random.Generator) -> NDArray[np.uint8]:
    rows = np.arange(HEIGHT)[None, :, None] + 0.5
    columns = np.arange(WIDTH)[None, None, :] + 0.5
    near = (rows - scene.horizon) / (HEIGHT - scene.horizon)  # 0 at the horizon, 1 at the foot; below 0 is sky
    ground = near > 0
    near = np.maximum(near, 0.02)
    # On a plane the distance is 1 / near: what is offset at the foot shrinks with near, a parabola shrinks from distance^2 to it.
    middle = WIDTH / 2 + scene.heading * (1 - near) + scene.offset * scene.half * near + 6 * scene.bend * (1 - near) ** 2 / near
    half = scene.half * near
    aside = (columns - middle) / half  # -1 and 1 are the edges of the road
    soft = np.clip(1.5 * half * (1 - np.abs(aside)) + 0.5, 0, 1)  # edges are not wider than a pixel
    light = scene.grass + (scene.road - scene.grass) * soft
    light = light + scene.paint * _lines(aside, half, near, scene.dash)
    across = np.abs(near - scene.shadow - 0.15 * aside) < 0.12
    light = np.where(across, light * scene.dark, light)
    light = np.where(ground, light, scene.sky - 0.02 * (scene.horizon - rows))
    light = light + scene.grain * random.standard_normal(light.shape)
    return np.asarray(np.clip(np.rint(255 * light), 0, 255), dtype=np.uint8)[:, None]


def _lines(aside: Floats, half: Floats, near: Floats, dash: Floats) -> Floats:
    """How much paint there is: a line along both edges, a dashed one in the middle."""
    thick = np.maximum(0.05, 0.5 / half)
    edges = np.abs(np.abs(aside) - 0.9) < thick
    dashed = (np.abs(aside) < thick) & ((1.5 / near + dash) % 1 < 0.5)
    return np.asarray(edges | dashed, dtype=float)
