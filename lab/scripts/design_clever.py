"""How far may a fitted end lie? Ends beside the largest gradient of 100,000, by the greatest shape that is believed.

python lab/scripts/design_clever.py [INPUTS POINTS]      Markdown; 20 and 100,000 where nothing is said

MNIST LeNet-5, L2, radius 5, test images from the tenth on: the first ten are those of measure_clever.py. The largest of so many
points is itself below the bound, so that an end somewhat above it is no error; ends far above it are.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from neurotest import rng
from neurotest.data.spec import data
from neurotest.evaluate.leads import DUAL, Leads, draw, sizes
from neurotest.stats.weibull import end_point
from neurotest.target.load import load

SHAPES = (2, 4, 6, 8, 10, 15, np.inf)
SIZES = ((320, 32), (1280, 128))  # points of the pool, and of a batch
BATCHES, DRAWS, BLOCK = 50, 10, 500


def gradients(inputs: int, points: int) -> list[np.ndarray]:
    """For each input the norms of its gradient against the second class at so many points of the ball."""
    target = load("zoo:mnist-lenet5")
    x = target.prepare(data(f"zoo:mnist/test[10:{10 + inputs}]").read(np.arange(inputs)))
    own, rival = target.logits(x).topk(2).indices.T
    leads, result = Leads(target), []
    for i in range(inputs):
        parts = []
        for block in range(points // BLOCK):
            generator = rng.torch_stream("design.clever.points", i, block)
            moved = (x[i] + 5 * draw(BLOCK, tuple(x[i].shape), "l2", generator)).clamp(0, 1)
            _, slopes = leads.slopes(moved, own[i].expand(BLOCK), rival[i].reshape(1, 1))
            parts.append(sizes(slopes, DUAL["l2"], 2)[0].double().numpy())
        result.append(np.concatenate(parts))
    return result


def main() -> None:
    torch.set_num_threads(1)
    inputs, points = map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (20, 100_000)
    every = gradients(inputs, points)
    print("| points | greatest shape | root mean square of log(end / largest) | mean | highest |")
    print("|---|---|---|---|---|")
    for pool, samples in SIZES:
        for shape in SHAPES:
            errors = []
            for values in every:
                for number in range(DRAWS):
                    random = rng.stream("design.clever", number)
                    some = values[random.integers(0, len(values), pool)]
                    maxima = some[random.integers(0, pool, (BATCHES, samples))].max(1)
                    end = end_point(maxima, largest=float(some.max()), shapes=shape)
                    errors.append(float(np.log(end.value / values.max())))
            square = np.sqrt(np.mean(np.square(errors)))
            print(f"| {pool:,} | {shape:g} | {square:.3f} | {np.mean(errors):+.3f} | {max(errors):+.3f} |", flush=True)


if __name__ == "__main__":
    main()
