"""Checks of how target and data fit: bounds, classes, accuracy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from neurotest.doctor.examined import Examined, Finding

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
GAIN = 0.2  # of accuracy, from which another reading of the inputs is worth a finding


def bounds(examined: Examined) -> Iterator[Finding]:
    """Where the inputs lie within the bounds, and whether other bounds would suit the network better."""
    low, high = examined.target.bounds
    examined.facts["bounds"] = [low, high]
    if examined.source is None:
        yield Finding("bounds", "note", f"inputs are taken to lie in {low:g} .. {high:g}", "give the doctor data to check that")
        return
    least, most = (float(v) for v in torch.aminmax(examined.x))
    ranges = f"the inputs reach from {least:.3g} to {most:.3g}, bounds are {low:g} .. {high:g}"
    if examined.outside:
        advice = "pass --bounds with the range of your inputs, and --mean, --std if they are not normalised yet"
        yield Finding("bounds", "problem", ranges, advice)
    elif most - least < 0.05 * (high - low):
        advice = "the data use a small part of the bounds: check --bounds and how the data were scaled"
        yield Finding("bounds", "warning", ranges, advice)
    elif examined.target.mean is None and low == 0 and high > 1 and most <= 1:
        yield Finding("bounds", "warning", ranges, "floats in 0 .. 1 under wider bounds: rescale the data or pass --bounds 0 1")
    else:
        yield Finding("bounds", "ok", ranges)


def classes(examined: Examined) -> Iterator[Finding]:
    """Number of classes against names and labels; predictions that never vary."""
    logits = examined.logits(examined.x)
    count = logits.shape[1]
    examined.facts["classes"] = count
    names, labels = examined.target.classes, examined.labels
    if names is not None and len(names) != count:
        yield Finding("classes", "problem", f"{len(names)} class names for {count} outputs", "correct --classes")
    elif labels is not None and int(labels.max()) >= count:
        text = f"labels reach {int(labels.max())}, the network has {count} classes"
        yield Finding("classes", "problem", text, "are these the data it was trained for?")
    else:
        yield Finding("classes", "ok", f"{count} classes{'' if names is None else ', all named'}")
    predicted = logits.argmax(1)
    if examined.source is not None and len(predicted) >= 20 and len(predicted.unique()) == 1:
        text = f"all {len(predicted)} inputs are predicted as class {int(predicted[0])}"
        yield Finding("classes", "warning", text, "untrained, or wrong --bounds, --mean, --std?")


def accuracy(examined: Examined) -> Iterator[Finding]:
    """Accuracy beside chance, and beside what other readings of the inputs or of the class order would give."""
    labels = examined.labels
    if labels is None or examined.facts["classes"] <= int(labels.max()):
        return
    logits = examined.logits(examined.x).cpu()
    right = _right(logits, labels)
    chance = float(torch.bincount(labels).max()) / len(labels)  # always naming the most frequent class
    examined.facts |= {"accuracy": right, "chance": chance}
    shares = f"{right:.1%} of {len(labels)} inputs are right (always the most frequent class: {chance:.1%})"
    better = _better_reading(examined, labels, right)
    order = _better_order(logits, labels)
    if better is not None:
        yield Finding("accuracy", "problem", f"{shares}; {better[0]} it would be {better[1]:.1%}", better[2])
    elif order > max(0.5, right + GAIN):
        yield Finding(
            "accuracy",
            "problem",
            f"{shares}; with its classes in another order it would be {order:.1%}",
            "name the classes in the network's order with --classes FILE, or sort those of the data as in training",
        )
    elif right <= chance:
        advice = "no better than chance: untrained, or wrong weights, --bounds, --mean, --std?"
        yield Finding("accuracy", "warning", shares, advice)
    else:
        yield Finding("accuracy", "ok", shares)


def _right(logits: Tensor, labels: Tensor) -> float:
    return float((logits.argmax(1).cpu() == labels).double().mean())


def _better_reading(examined: Examined, labels: Tensor, right: float) -> tuple[str, float, str] | None:
    """Another range or normalisation under which the network does far better: the likeliest slip in describing a target."""
    low, high = examined.target.bounds
    unit = (examined.x - low) / (high - low)
    tries: list[tuple[str, Tensor, str]] = [
        (f"with inputs in {a:g} .. {b:g}", unit * (b - a) + a, f"pass --bounds {a:g} {b:g}")
        for a, b in ((0, 1), (0, 255), (-1, 1))
        if (a, b) != (low, high)
    ]
    if examined.target.mean is None and unit.ndim == 4 and unit.shape[1] == 3:
        mean, std = (torch.tensor(values, device=unit.device).view(3, 1, 1) for values in IMAGENET)
        option = "pass --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225"
        tries.append(("with the usual ImageNet normalisation", (unit - mean) / std, option))
    results = [(what, _right(examined.logits(x), labels), do) for what, x, do in tries]
    best = max(results, key=lambda result: result[1])
    return best if best[1] > right + GAIN else None


def _better_order(logits: Tensor, labels: Tensor) -> float:
    """Accuracy if classes were renamed in the best way."""
    from scipy.optimize import linear_sum_assignment

    count = logits.shape[1]
    table = np.zeros((count, count))
    np.add.at(table, (labels.numpy(), logits.argmax(1).numpy()), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(labels))
