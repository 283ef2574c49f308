"""CLEVER beside the adversarial-robustness-toolbox's `clever_u` on MNIST LeNet-5, at equal numbers of batches and samples.

python lab/scripts/measure_clever.py [BATCHES SAMPLES SEEDS INPUTS]      Markdown; 50, 32, 3 and 10 where nothing is said

Needs the toolbox (`make test-peers` builds an environment that has it). L2, radius 5. Two estimates of one input differ by their
sampling: the standard deviation of logarithms over seeds, pooled over inputs, says by how much.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from art.estimators.classification import PyTorchClassifier
from art.metrics import clever_u

from neurotest.data.spec import data
from neurotest.evaluate.clever import Clever
from neurotest.evaluate.leads import Leads
from neurotest.target.load import load
from neurotest.target.speed import channels_last

COLLAPSED = 0.05  # of the toolbox's scores: its fit did not converge, and every other score is twenty times as much


@dataclass
class Scores:
    """(inputs, seeds) of both, and processor seconds of both."""

    theirs: np.ndarray
    ours: np.ndarray
    seconds: np.ndarray  # (2,)


def scores(batches: int, samples: int, seeds: int, inputs: int) -> Scores:
    target = load("zoo:mnist-lenet5")
    x = target.prepare(data(f"zoo:mnist/test[:{inputs}]").read(np.arange(inputs)))
    own = target.logits(x).argmax(1).tolist()
    peer = PyTorchClassifier(
        target.module, loss=torch.nn.CrossEntropyLoss(), input_shape=(1, 28, 28), nb_classes=10, clip_values=(0, 1)
    )
    method = Clever(norm="l2", radius=5, batches=batches, samples=samples)
    result = Scores(np.zeros((inputs, seeds)), np.zeros((inputs, seeds)), np.zeros(2))
    for seed in range(seeds):
        np.random.seed(seed)
        for i in range(inputs):
            began = time.process_time()
            result.theirs[i, seed] = clever_u(peer, x[i].numpy(), batches, samples, 5, 2, verbose=False)
            middle = time.process_time()
            with channels_last(target):
                result.ours[i, seed] = method.estimate(Leads(target), x[i], own[i], position=i, seed=seed).score
            result.seconds += [middle - began, time.process_time() - middle]
    return result


def main() -> None:
    torch.set_num_threads(1)
    batches, samples, seeds, inputs = map(int, sys.argv[1:5]) if len(sys.argv) > 4 else (50, 32, 3, 10)
    result = scores(batches, samples, seeds, inputs)
    theirs = np.where(result.theirs < COLLAPSED, np.nan, result.theirs)
    logs = np.log(np.stack([result.ours, theirs]))  # (2, inputs, seeds)
    variance = np.nanmean(np.nanvar(logs, axis=2, ddof=1), axis=1)  # of one estimate, ours and theirs
    print("| input | clever_u | collapsed | ours | ours / clever_u | sampling errors apart |")
    print("|---|---|---|---|---|---|")
    apart = []
    for i in range(inputs):
        counts = [seeds, int((~np.isnan(theirs[i])).sum())]
        collapsed = f"{seeds - counts[1]} of {seeds}"
        if not counts[1]:
            print(f"| {i} | none | {collapsed} | {result.ours[i].mean():.3f} | | |")
            continue
        difference = float(np.nanmean(logs[0, i]) - np.nanmean(logs[1, i]))
        apart.append(difference / float(np.sqrt((variance / counts).sum())))
        ratio = float(np.exp(difference))
        means = f"{np.nanmean(theirs[i]):.3f} | {collapsed} | {result.ours[i].mean():.3f}"
        print(f"| {i} | {means} | {ratio:.3f} | {apart[-1]:+.1f} |")
    mean = float(np.exp(np.nanmean(logs[0] - logs[1])))
    faster = result.seconds[0] / result.seconds[1]
    spread = float(np.sqrt(np.mean(np.square(apart))))
    print(f"| all (root mean square); processor time of clever_u / ours: {faster:.1f} | | | | {mean:.3f} | {spread:.1f} |")


if __name__ == "__main__":
    main()
