"""Photographs: scoring and coverage over a bare forward loop of a network of ImageNet's size, and the memory they take."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neurotest.coverage import cover
from neurotest.data.source import ArraySource, Source
from neurotest.memory import keep_freed, peak
from neurotest.scale.start import run_python
from neurotest.scan import profile
from neurotest.target import Target
from neurotest.target.speed import Layout, arranged
from neurotest_lab.bench.ratio import Job, Pair
from neurotest_lab.bench.selection import fresh

SUBJECTS = ("photographs",)
SHAPE, CLASSES = (3, 224, 224), 1000
MEAN, STD = 0.5, 0.25
IMAGES, TRAIN = 256, 32
PEAK = 1000  # inputs of which the memory is measured
BARE, TRIED = (8, 16, 32), 32  # inputs per pass of the bare loop: the quickest of these on the first so many
LAYOUTS: tuple[Layout | None, ...] = (None, "channels_last")
# expansion, channels, repeats, stride, kernel: the blocks of EfficientNet-lite0
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


class Block(nn.Module):
    """Widen, a convolution by channel, narrow; added to its input where the sizes are equal."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int, kernel: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.wide = _convolution(inputs, hidden, 1) if expansion > 1 else nn.Identity()
        self.depth = _convolution(hidden, hidden, kernel, stride, hidden)
        self.narrow = nn.Sequential(nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.same = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.narrow(self.depth(self.wide(x)))
        return x + y if self.same else y


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU6())


def network() -> nn.Module:
    """The layers of EfficientNet-lite0, with random weights: they cost the same."""
    blocks, inputs = [_convolution(3, 32, 3, 2)], 32
    for expansion, outputs, repeats, stride, kernel in STAGES:
        for number in range(repeats):
            blocks.append(Block(inputs, outputs, expansion, stride if number == 0 else 1, kernel))  # type: ignore[arg-type]
            inputs = outputs
    end = [_convolution(inputs, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, CLASSES)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(*blocks, *end).eval()


def photographs(count: int) -> Source:
    """Inputs of the size of photographs, decoded already: noise, which costs the same."""
    return ArraySource(np.random.default_rng(0).integers(0, 256, (count, *SHAPE), dtype=np.uint8))


def _target(layout: Layout | None) -> Target:
    return Target(network(), shape=SHAPE, mean=[MEAN] * 3, std=[STD] * 3, layout=layout)


def _bare(target: Target, pixels: Tensor, layout: Layout | None, batch: int) -> Job:
    """What anybody's loop over decoded photographs does: 8-bit pixels to floats, normalised, laid out, through the network."""
    mean, scale = (torch.full((3, 1, 1), 255 * value) for value in (MEAN, STD))

    def job() -> None:
        with torch.inference_mode():
            for part in pixels.split(batch):
                target.module(arranged(part.float().sub_(mean).div_(scale), layout))

    return job


def _time(loop: Job) -> float:
    began = time.process_time()
    loop()
    return time.process_time() - began


def _tuned(pixels: Tensor) -> tuple[Layout | None, int]:
    """The layout and the batch with which a bare loop takes the least processor time."""
    seconds: dict[tuple[Layout | None, int], float] = {}
    for layout in LAYOUTS:
        target = _target(layout)
        for batch in BARE:
            loop = _bare(target, pixels, layout, batch)
            loop()
            seconds[layout, batch] = min(_time(loop) for _ in range(3))
    return min(seconds, key=lambda way: seconds[way])


def imagenet_pairs(name: str) -> Iterator[tuple[str, Pair]]:
    """Scoring by DeepGini, and KMNC over channels with a profile that is there, over a bare loop on the same decoded inputs.

    Both run in the layout in which the bare loop is quicker here.
    """
    keep_freed()
    pool = photographs(IMAGES)
    pixels = torch.from_numpy(pool.read(np.arange(len(pool))))
    layout, batch = _tuned(pixels[:TRIED])
    target = _target(layout)
    ranges = profile(target, pool.take(np.arange(TRAIN)))
    bare = _bare(target, pixels, layout, batch)
    way = f"{layout or 'channels first'}, bare batch {batch}"
    yield f"deepgini ({way})", (functools.partial(fresh, target, pool, "deepgini", "5%"), bare)
    covering = functools.partial(cover, target, pool, "kmnc:1000", profile=ranges, cache=False)
    yield f"kmnc:1000, channel ({way})", (covering, bare)


_PEAK = """
import json
from neurotest_lab.bench.imagenet import largest
print(json.dumps(largest()))
"""


def memory() -> dict[str, Any]:
    """The most memory that a process of its own takes to score the photographs."""
    done = run_python("-c", _PEAK)
    done.check_returncode()
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def largest() -> dict[str, Any]:
    keep_freed()
    target, pool = _target(None), photographs(PEAK)
    fresh(target, pool, "deepgini", "5%")
    cover(target, pool, "kmnc:1000", train=pool.take(np.arange(TRAIN)), cache=False)
    return {"images": len(pool), "peak_megabytes": peak() / 1e6}
