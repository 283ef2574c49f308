"""Checks of how target and data fit: bounds, classes, accuracy."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from neurotest.devices import exact
from neurotest.doctor.context import DoctorContext, Finding
from neurotest.target.outputs import Bins

# Means and standard deviations that training recipes use, by the number of channels.
NORMALISATIONS: dict[int, dict[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    1: {"the usual MNIST normalisation": ((0.1307,), (0.3081,)), "a mean and std of 0.5": ((0.5,), (0.5,))},
    3: {
        "the usual ImageNet normalisation": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "the usual CIFAR-10 normalisation": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
        "a mean and std of 0.5": ((0.5,) * 3, (0.5,) * 3),
    },
}
GAIN = 0.03  # of accuracy, from which another reading of the inputs is worth a finding, if it is no chance
CHANCE = 0.001  # of a gain that is none, for all readings together
LOSS, LEAST_LOSS = 0.6, 0.2  # log-loss of another reading, as a share of what it is, and the difference in nats
ORDER_GAIN = 0.2  # the same for another order of the classes, which is fitted to the labels


def bounds(context: DoctorContext) -> Iterator[Finding]:
    """Where the inputs lie within the bounds, and whether other bounds would suit the network better."""
    low, high = context.target.bounds
    context.facts["bounds"] = [low, high]
    if context.source is None:
        yield Finding("bounds", "note", f"inputs are taken to lie in {low:g} .. {high:g}", "give the doctor data to check that")
        return
    least, most = (float(v) for v in torch.aminmax(context.x))
    ranges = f"the inputs reach from {least:.3g} to {most:.3g}, bounds are {low:g} .. {high:g}"
    if context.outside:
        advice = "pass --bounds with the range of your inputs, and --mean, --std if they are not normalised yet"
        yield Finding("bounds", "problem", ranges, advice)
    elif most - least < 0.05 * (high - low):
        advice = "the data use a small part of the bounds: check --bounds and how the data were scaled"
        yield Finding("bounds", "warning", ranges, advice)
    elif context.target.mean is None and low == 0 and high > 1 and most <= 1:
        yield Finding("bounds", "warning", ranges, "floats in 0 .. 1 under wider bounds: rescale the data or pass --bounds 0 1")
    else:
        yield Finding("bounds", "ok", ranges)


def classes(context: DoctorContext) -> Iterator[Finding]:
    """Number of classes against names and labels; predictions that never vary."""
    logits = context.logits(context.x)
    count = logits.shape[1]
    context.facts["classes"] = count
    names, labels = context.target.classes, context.labels
    if names is not None and len(names) != count:
        yield Finding("classes", "problem", f"{len(names)} class names for {count} outputs", "correct --classes")
    elif labels is not None and int(labels.max()) >= count:
        text = f"labels reach {int(labels.max())}, the network has {count} classes"
        yield Finding("classes", "problem", text, "are these the data it was trained for?")
    else:
        yield Finding("classes", "ok", f"{count} classes{'' if names is None else ', all named'}")
    predicted = logits.argmax(1)
    if context.source is not None and len(predicted) >= 20 and len(predicted.unique()) == 1:
        text = f"all {len(predicted)} inputs are predicted as class {int(predicted[0])}"
        yield Finding("classes", "warning", text, "untrained, or wrong --bounds, --mean, --std?")


def accuracy(context: DoctorContext) -> Iterator[Finding]:
    """Accuracy beside chance, and beside what other readings of the inputs or of the class order would give."""
    labels = context.labels
    if labels is None or context.facts["classes"] <= int(labels.max()):
        return
    if context.target.bins is not None:
        yield _error(context, context.target.bins)
        return
    logits = context.logits(context.x).cpu()
    right = float((logits.argmax(1) == labels).double().mean())
    chance = float(torch.bincount(labels).max()) / len(labels)  # always naming the most frequent class
    context.facts |= {"accuracy": right, "chance": chance}
    shares = f"{right:.1%} of {len(labels)} inputs are right (always the most frequent class: {chance:.1%})"
    better = _better_reading(context, labels)
    order = _better_order(logits, labels)
    if better is not None and better[1] > chance and order <= better[1] + ORDER_GAIN:
        yield Finding("accuracy", "problem", f"{shares}; {better[0]} it would be {better[1]:.1%}", better[2])
    elif order > max(0.5, right + ORDER_GAIN):
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


def _error(context: DoctorContext, bins: Bins) -> Finding:
    """How far a quantity is off, beside always answering with the middle of the labels."""
    assert context.source is not None
    assert context.source.quantities is not None
    truth = context.source.quantities[context.index]
    values = bins.values(exact(context.logits(context.x))).cpu().numpy()
    error, usual = float(np.abs(values - truth).mean()), float(np.abs(np.median(truth) - truth).mean())
    same = float((bins.of(values) == bins.of(truth)).mean())
    close, near = (float((np.abs(values - truth) <= limit).mean()) for limit in (bins.width, bins.tolerance))
    limit = "a bin's width" if bins.tolerance == bins.width else "the tolerance"
    context.facts |= {"mean_error": error, "median_error": usual, "accuracy": same, "within_a_bin": close}
    context.facts["within_the_tolerance"] = near
    text = (
        f"answers are off by {error:.4g} on average (always the median of the labels: {usual:.4g}); {near:.1%} by at most "
        f"{limit} ({bins.tolerance:.3g}), {same:.1%} in the right one of {bins.count} bins"
    )
    if error < usual:
        return Finding("accuracy", "ok", text)
    advice = "no better than a constant: untrained, or wrong weights, --bounds, --mean, --std, or another unit of the labels?"
    return Finding("accuracy", "warning", text, advice)


def _better_reading(context: DoctorContext, labels: Tensor) -> tuple[str, float, str] | None:
    """Another range or normalisation under which the network does clearly better: the likeliest slip in describing a target."""
    some = context.some()
    now, labels = context.logits(context.x).cpu().double()[some], labels[some]
    before, loss = now.argmax(1) == labels, cross_entropy(now, labels, reduction="none")
    right = float(before.double().mean())
    better = []
    readings = list(_readings(context, context.x[some.to(context.x.device)]))
    for what, logits, do in readings:
        scores = logits.cpu().double()
        after, less = scores.argmax(1) == labels, cross_entropy(scores, labels, reduction="none")
        accuracy = float(after.double().mean())
        if _more_right(before, after, len(readings)):
            better.append((accuracy, -float(less.mean()), what, do))
        elif accuracy >= right and _less_loss(loss, less):
            losses = f"log-loss {float(less.mean()):.2f} instead of {float(loss.mean()):.2f}"
            better.append((accuracy, -float(less.mean()), f"{what} ({losses})", do))
    if not better:
        return None
    accuracy, _, what, do = max(better)
    return what, accuracy, do


def _more_right(before: Tensor, after: Tensor, tries: int) -> bool:
    """By a paired sign test, corrected for how many readings are tried."""
    from scipy.stats import binomtest

    won, lost = int((after & ~before).sum()), int((before & ~after).sum())
    chance = binomtest(won, won + lost, alternative="greater").pvalue if won + lost else 1.0
    return won - lost > GAIN * len(before) and chance * tries < CHANCE


def _less_loss(before: Tensor, after: Tensor) -> bool:
    """Far better probabilities, by a paired comparison: a network that is read wrongly may still be right, but is less sure."""
    gain = before - after
    error = float(gain.std()) / len(gain) ** 0.5
    return bool(after.mean() < LOSS * before.mean()) and float(gain.mean()) > max(LEAST_LOSS, 5 * error)


def _readings(context: DoctorContext, x: Tensor) -> Iterator[tuple[str, Tensor, str]]:
    """Other readings of the inputs, the logits they give, and the options that ask for them."""
    target = context.target
    low, high = target.bounds
    unit = (x - low) / (high - low)
    for a, b in ((0, 1), (0, 255), (-1, 1)):
        if (a, b) != (low, high):
            yield f"with inputs in {a:g} .. {b:g}", context.logits(unit * (b - a) + a), f"pass --bounds {a:g} {b:g}"
    if unit.ndim != 4:
        return
    plain = copy.copy(target)
    plain._shift = plain._scale = None
    bounds = "" if (low, high) == (0, 1) else "--bounds 0 1 "
    if target.mean is not None:
        yield (
            "without --mean and --std",
            context.logits(unit, plain),
            f"leave out --mean and --std{bounds and ', pass --bounds 0 1'}",
        )
    deviations = tuple(float(s) for s in unit.std(dim=(0, 2, 3)))
    own = (tuple(float(m) for m in unit.mean(dim=(0, 2, 3))), deviations)
    others = {**NORMALISATIONS.get(int(unit.shape[1]), {})}
    if min(deviations) > 0.01:
        others["the mean and std of these data"] = own
    for what, (mean, std) in others.items():
        shift, scale = (torch.tensor(values, device=unit.device).view(-1, 1, 1) for values in (mean, std))
        option = f"--mean {','.join(f'{m:.4g}' for m in mean)} --std {','.join(f'{s:.4g}' for s in std)}"
        yield f"with {what}", context.logits((unit - shift) / scale, plain), f"pass {bounds}{option}"


def _better_order(logits: Tensor, labels: Tensor) -> float:
    """Accuracy if classes were renamed in the best way."""
    from scipy.optimize import linear_sum_assignment

    (given, row), (said, column) = (np.unique(a.numpy(), return_inverse=True) for a in (labels, logits.argmax(1)))
    table = np.zeros((len(given), len(said)))  # of 1,000 classes a few inputs show a few
    np.add.at(table, (row, column), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(labels))
