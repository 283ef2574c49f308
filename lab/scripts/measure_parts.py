"""How large should the parts be in which a large batch runs? KMNC on inputs of the size of photographs, over a bare loop.

    python lab/scripts/measure_parts.py [TIMES] [channels_last]

Prints a Markdown table: for each limit of a layer's memory the median of so many ratios (20), taken in turn, and the middle half.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from neurotest.coverage import cover
from neurotest.memory import keep_freed
from neurotest.scan import profile
from neurotest.target import chunks
from neurotest.target.speed import check_layout
from neurotest_lab.bench.imagenet import _bare, _target, photographs

IMAGES, TRAIN, BARE, LIMITS = 104, 32, (8, 16), (26, 27, 28, 29)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main(times: int, layout: str | None) -> None:
    keep_freed()
    pool, target = photographs(IMAGES), _target(check_layout(layout))
    pixels = torch.from_numpy(pool.read(np.arange(IMAGES)))
    ranges = profile(target, pool.take(np.arange(TRAIN)))
    loops = [_bare(target, pixels, check_layout(layout), batch) for batch in BARE]

    def covered(bits: int) -> float:
        chunks.LAYER_BYTES = 1 << bits
        target._chunks.clear()
        return seconds(lambda: cover(target, pool, "kmnc:1000", profile=ranges, cache=False))

    ratios = []
    for turn in range(times + 1):
        bare = min(seconds(loop) for loop in loops)
        taken = [covered(bits) / bare for bits in LIMITS]
        if turn:  # what happens once does not count
            ratios.append(taken)
    print("| limit, MiB | over the quickest bare loop | middle half |")
    print("|---|---|---|")
    for bits, column in zip(LIMITS, np.array(ratios).T, strict=True):
        low, middle, high = np.quantile(column, (0.25, 0.5, 0.75))
        print(f"| {1 << bits - 20} | {middle:.2f} | {low:.2f} .. {high:.2f} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2] if len(sys.argv) > 2 else None)
