"""Does work grow with the number of classes, or with its square? Processor time of each command with 2,000 classes over 500.

    python lab/scripts/measure_classes.py [TIMES]

Prints a Markdown table; the least of so many timings (3). One network of three convolutions with a head of so many classes,
random weights, the same 400 inputs. Four times the classes may cost four times the time where the head is all there is to do;
sixteen times says that somebody looks at pairs of classes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

import neurotest
from neurotest import registry
from neurotest.errors import BadInput

CLASSES = (500, 2000)
INPUTS = 400


def network(classes: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, classes),
    ).eval()  # fmt: skip


def works(classes: int, folder: Path) -> dict[str, Callable[[], object]]:
    """Every piece of work by its name, on a target of its own."""
    random = np.random.default_rng(0)
    inputs, train = (random.random((INPUTS, 3, 32, 32), dtype=np.float32) for _ in range(2))
    target = neurotest.load(network(classes), size=(3, 32, 32), bounds=(0, 1))
    labels, own = random.integers(0, classes, INPUTS), target.logits(torch.from_numpy(train)).argmax(1).numpy()
    pool, known = neurotest.data((inputs, labels)), neurotest.data((train, own))

    seeds = neurotest.data((train[:20], own[:20]))
    other = neurotest.load(network(classes).apply(_changed), size=(3, 32, 32), bounds=(0, 1))
    run = folder / f"fuzz-{classes}"
    neurotest.fuzz(target, seeds, forwards=400, out=run)
    fault = int(min((run / "faults").glob("fault-*.png")).name.split(".")[0].removeprefix("fault-"))

    def selected(name: str) -> Callable[[], object]:
        return lambda: neurotest.select(target, pool, name, budget=40, train=known, seed=0, out=False)

    def covered(name: str) -> Callable[[], object]:
        return lambda: neurotest.cover(target, pool, name, train=known, out=False)

    return {
        "forward pass": lambda: target.logits(torch.from_numpy(inputs)),
        **{f"select {name}": selected(name) for name in registry.entries("selector")},
        **{f"cover {name}": covered(name) for name in registry.entries("criterion")},
        "suspects": lambda: neurotest.suspects(target, pool),
        "doctor": lambda: neurotest.doctor(target, pool),
        "fuzz": lambda: neurotest.fuzz(target, seeds, forwards=400, out=False),
        "illuminate": lambda: neurotest.illuminate(target, seeds, 400, out=False),
        "attack": lambda: neurotest.attack(target, seeds, out=False),
        "diff": lambda: neurotest.diff([target, other], seeds, limit=4, out=False),
        "swarm": lambda: neurotest.swarm(target, seeds, limit=4, evaluations=50, out=False),
        "robustness": lambda: neurotest.robustness(target, seeds, inputs=1, samples=50, batches=10, out=False),
        "describe": lambda: neurotest.describe(target, known, cache=False),
        "explain": lambda: neurotest.explain(run, fault, target=target, train=known),
        "evaluate": lambda: neurotest.evaluate(run, target=target, train=known),
    }


def _changed(layer: nn.Module) -> None:
    if isinstance(layer, nn.Linear):
        layer.weight.data += 1e-4 * torch.randn_like(layer.weight)


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    torch.set_num_threads(1)
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as folder:
        few, many = (works(classes, Path(folder)) for classes in CLASSES)
        table(few, many, times)


def table(few: dict[str, Callable[[], object]], many: dict[str, Callable[[], object]], times: int) -> None:
    print("| work | 500 classes: forward passes of the inputs | 2,000 classes over 500 |")
    print("|---|---|---|")
    bare = min(seconds(few["forward pass"]) for _ in range(10))
    for name, work in few.items():
        try:
            for job in (work, many[name]):
                job()  # what happens once does not count
        except BadInput as error:
            print(f"| {name} | refused: {error} | |")
            continue
        small, large = (min(seconds(job) for _ in range(times)) for job in (work, many[name]))
        print(f"| {name} | {small / bare:.1f} | {large / small:.1f} |", flush=True)


if __name__ == "__main__":
    main()
