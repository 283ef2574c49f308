"""How often the network is right, and whether it is as sure as it should be."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.check.examination import Check
from neurotest.check.finding import CheckItem, Finding, percent, share
from neurotest.check.subject import CheckContext, Clock
from neurotest.checks import setting
from neurotest.registry import register
from neurotest.stats.bootstrap import Interval, mean_interval, wilson

DRAWS = 500
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
    chance = float(np.mean([_calibration_error(confidence, random.random(n) < confidence, bins) for _ in range(DRAWS // 5)]))
    drawn = [random.integers(0, n, n) for _ in range(DRAWS)]
    errors = np.array([_calibration_error(confidence[rows], right[rows], bins) for rows in drawn])
    shift = float(errors.mean()) - value  # resampling adds noise of its own: taken off again
    low, high = np.quantile(errors, [0.025, 0.975]) - shift - chance
    return Interval(max(0.0, value - chance), max(0.0, float(low)), max(0.0, float(high)))


@register(
    "examination", "accuracy", paper="calibration error: Naeini et al., AAAI 2015", cost="one pass over the data",
    differs="Bins hold equally many inputs, and what a perfectly calibrated network would show by chance is taken off.",
)  # fmt: skip
class Accuracy(Check):
    """Share of right answers beside always naming the most frequent class, and the calibration error, with intervals; of a
    quantity how far answers are off, beside the median.

    Alarms: no better than that class; or sure by more than `alarm` above (or below) what it gets right. bins: of the confidence.
    """

    name: ClassVar[str] = "accuracy"
    order: ClassVar[int] = 10
    share: ClassVar[float] = 2.0

    bins: int = setting(15, "15 in papers")
    alarm: float = setting(0.15, "0.15 by default", above=0, most=1)

    def examine(self, subject: CheckContext, clock: Clock) -> CheckItem:
        if subject.target.bins is not None:
            return self._quantity(subject)
        right, labels, said = ~subject.wrong, subject.labels, subject.said
        accuracy = wilson(int(right.sum()), len(right))
        chance = float(np.bincount(labels).max()) / len(labels)
        error = _calibration_interval(said.confidence, right, self.bins, subject.seed)
        sureness = float(said.confidence.mean())
        evidence = (
            share("accuracy", accuracy), ("always the most frequent class", chance, None),
            ("mean confidence", sureness, None), share("calibration error", error),
        )  # fmt: skip
        findings = []
        deeper = f"neurotest doctor {subject.words}"
        if accuracy.low <= chance:
            sentence = f"it is right on {percent(accuracy)} of the inputs, no more than always naming the most frequent class"
            advice = "untrained, the wrong weights, or described otherwise than it was trained?"
            findings.append(Finding(self.name, "alarm", 0.9, sentence, evidence, deeper=deeper, advice=advice))
        way = "surer" if sureness > accuracy.value else "less sure"
        sentence = f"it is {way} than it is right: mean confidence {sureness:.1%}, accuracy {percent(accuracy)}"
        if error.low > self.alarm:
            advice = "its probabilities must not be taken at their word: calibrate it (a temperature is often enough)"
            strength = min(1.0, 0.5 + error.value)
            findings.append(Finding(self.name, "alarm", strength, sentence, evidence, deeper=deeper, advice=advice))
        elif error.low > 0.03:
            findings.append(Finding(self.name, "note", min(0.6, 3 * error.value), sentence, evidence, deeper=deeper))
        numbers = {
            "accuracy": accuracy.value, "accuracy_interval": [accuracy.low, accuracy.high], "chance": chance,
            "calibration_error": error.value, "calibration_error_interval": [error.low, error.high], "confidence": sureness,
        }  # fmt: skip
        summary = f"right on {percent(accuracy)} of {len(right):,} inputs; calibration error {percent(error)}"
        return CheckItem(self.name, summary, tuple(findings), numbers)

    def _quantity(self, subject: CheckContext) -> CheckItem:
        """Of a quantity: how far answers are off beside always naming the median of the truth; there is no confidence."""
        bins, truth = subject.target.bins, subject.source.quantities
        assert bins is not None
        assert truth is not None
        values = bins.values(torch.from_numpy(subject.said.logits)).numpy()
        accuracy = wilson(int((~subject.wrong).sum()), len(truth))
        error, trivial = (mean_interval(np.abs(one - truth)) for one in (values, np.median(truth)))
        gain = mean_interval(np.abs(np.median(truth) - truth) - np.abs(values - truth))
        sentence = (
            f"answers are off by {error.value:.4g} ({error.low:.4g} .. {error.high:.4g}) on average, {trivial.value:.4g} if it "
            f"always gave the median of the truth; {percent(accuracy)} are within the tolerance of {bins.tolerance:.4g}"
        )
        evidence = (share("within the tolerance", accuracy),)
        findings = []
        if gain.low <= 0:
            advice = "untrained, the wrong weights, another unit, or truths that have nothing to do with the inputs?"
            said = f"it is no better than always answering with the median: {sentence}"
            deeper = f"neurotest doctor {subject.words}"
            findings.append(Finding(self.name, "alarm", 0.9, said, evidence, deeper=deeper, advice=advice))
        numbers = {
            "accuracy": accuracy.value, "accuracy_interval": [accuracy.low, accuracy.high], "error": error.value,
            "error_interval": [error.low, error.high], "error_of_median": trivial.value, "tolerance": bins.tolerance,
        }  # fmt: skip
        return CheckItem(self.name, sentence, tuple(findings), numbers)
