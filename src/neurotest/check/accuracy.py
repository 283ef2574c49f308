"""How often the network is right, and whether it is as sure as it should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.check.base import Check, CheckContext, CheckItem, Clock, evidence_row, percent, with_interval
from neurotest.checks import setting
from neurotest.doctor.context import Finding
from neurotest.registry import register
from neurotest.stats.bootstrap import Interval, mean_interval, wilson

BOOTSTRAP_DRAWS = 500
Floats = NDArray[np.float64]


def _calibration_error(confidence: Floats, right: NDArray[np.bool_], bins: int) -> float:
    """Expected calibration error: how far confidence and accuracy are apart, in bins of as many inputs each, on average.

    >>> round(_calibration_error(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, False, True]), 2), 3)
    0.1
    """
    order = np.argsort(confidence, kind="stable")
    parts = np.array_split(order, min(bins, len(order)))
    return float(sum(len(part) * abs(float(confidence[part].mean()) - float(right[part].mean())) for part in parts) / len(order))


def _calibration_interval(confidence: Floats, right: NDArray[np.bool_], bins: int, seed: int) -> Interval:
    """With a bootstrap interval, less what a perfectly calibrated network of this size would show by chance."""
    random = rng.stream("check.calibration", seed)
    n = len(right)
    value = _calibration_error(confidence, right, bins)
    perfect = [random.random(n) < confidence for _ in range(BOOTSTRAP_DRAWS // 5)]
    chance = float(np.mean([_calibration_error(confidence, draw, bins) for draw in perfect]))
    resampled = [random.integers(0, n, n) for _ in range(BOOTSTRAP_DRAWS)]
    errors = np.array([_calibration_error(confidence[rows], right[rows], bins) for rows in resampled])
    shift = float(errors.mean()) - value  # resampling adds noise of its own: taken off again
    low, high = np.quantile(errors, [0.025, 0.975]) - shift - chance
    return Interval(max(0.0, value - chance), max(0.0, float(low)), max(0.0, float(high)))


@register(
    "check", "accuracy", paper="calibration error: Naeini et al., AAAI 2015", cost="one pass over the data",
    differs="Bins hold equally many inputs, and what a perfectly calibrated network would show by chance is taken off.",
)  # fmt: skip
class Accuracy(Check):
    """Share of right answers beside always naming the most frequent class, and the calibration error, with intervals; of a
    quantity how far answers are off, beside the median.

    Alarms: no better than that class; or sure by more than `alarm` above (or below) what it gets right. bins: of the confidence.
    """

    order = 10
    share = 2.0

    bins: int = setting(15, "15 in papers")
    alarm: float = setting(0.15, "0.15 by default", above=0, most=1)

    def examine(self, context: CheckContext, clock: Clock) -> CheckItem:
        if context.target.bins is not None:
            return self._quantity(context)
        right, labels, confidence = ~context.wrong, context.labels, context.answers.confidence
        accuracy = wilson(int(right.sum()), len(right))
        chance = float(np.bincount(labels).max()) / len(labels)
        error = _calibration_interval(confidence, right, self.bins, context.seed)
        sureness = float(confidence.mean())
        evidence = (
            evidence_row("accuracy", accuracy),
            ("always the most frequent class", chance, None),
            ("mean confidence", sureness, None),
            evidence_row("calibration error", error),
        )
        findings = []
        more: dict[str, Any] = {"evidence": evidence, "deeper": f"neurotest doctor {context.words}"}
        if accuracy.low <= chance:
            sentence = f"it is right on {percent(accuracy)} of the inputs, no more than always naming the most frequent class"
            advice = "untrained, the wrong weights, or described otherwise than it was trained?"
            findings.append(Finding(self.name, "alarm", sentence, advice, 0.9, **more))
        way = "surer" if sureness > accuracy.value else "less sure"
        sentence = f"it is {way} than it is right: mean confidence {sureness:.1%}, accuracy {percent(accuracy)}"
        if error.low > self.alarm:
            advice = "its probabilities must not be taken at their word: calibrate it (a temperature is often enough)"
            findings.append(Finding(self.name, "alarm", sentence, advice, min(1.0, 0.5 + error.value), **more))
        elif error.low > 0.03:
            findings.append(Finding(self.name, "note", sentence, strength=min(0.6, 3 * error.value), **more))
        numbers = {**with_interval("accuracy", accuracy), "chance": chance, "confidence": sureness}
        numbers |= with_interval("calibration_error", error)
        summary = f"right on {percent(accuracy)} of {len(right):,} inputs; calibration error {percent(error)}"
        return CheckItem(self.name, summary, tuple(findings), numbers)

    def _quantity(self, context: CheckContext) -> CheckItem:
        """Of a quantity: how far answers are off beside always naming the median of the truth; there is no confidence."""
        bins, truth = context.target.bins, context.source.quantities
        assert bins is not None
        assert truth is not None
        values = bins.values(torch.from_numpy(context.answers.logits)).numpy()
        accuracy = wilson(int((~context.wrong).sum()), len(truth))
        error, trivial = (mean_interval(np.abs(one - truth)) for one in (values, np.median(truth)))
        gain = mean_interval(np.abs(np.median(truth) - truth) - np.abs(values - truth))
        sentence = (
            f"answers are off by {error.value:.4g} ({error.low:.4g} .. {error.high:.4g}) on average, {trivial.value:.4g} if it "
            f"always gave the median of the truth; {percent(accuracy)} are within the tolerance of {bins.tolerance:.4g}"
        )
        findings = []
        if gain.low <= 0:
            advice = "untrained, the wrong weights, another unit, or truths that have nothing to do with the inputs?"
            alarm = f"it is no better than always answering with the median: {sentence}"
            evidence, deeper = (evidence_row("within the tolerance", accuracy),), f"neurotest doctor {context.words}"
            findings.append(Finding(self.name, "alarm", alarm, advice, 0.9, evidence, deeper=deeper))
        numbers = {**with_interval("accuracy", accuracy), **with_interval("error", error)}
        numbers |= {"error_of_median": trivial.value, "tolerance": bins.tolerance}
        return CheckItem(self.name, sentence, tuple(findings), numbers)
