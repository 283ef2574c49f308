"""Where the network is weak: classes, dark and bright inputs, small and large objects, clusters of features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.check.base import MAX_IMAGES, Check, CheckContext, CheckItem, Clock, evidence_row, percent
from neurotest.checks import setting
from neurotest.doctor.context import Finding, Level
from neurotest.measure.answers import log_softmax
from neurotest.registry import register
from neurotest.stats.bootstrap import Interval, wilson
from neurotest.stats.comparison import holm

SLICES_LISTED, ALARMS = 5, 2
FIFTHS = ("lowest fifth", "second fifth", "middle fifth", "fourth fifth", "highest fifth")
P_LIMIT = 0.01  # of Holm's corrected p-values
STANDS_OUT = 0.15  # of the range, from the median of the border: what belongs to an object
CHUNK = 500  # inputs whose pixels are read at once
FEW = 0.7  # a class that is predicted less than this often for its inputs is hardly known to the network
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Slice:
    """Some inputs, the share of errors among them, and the share that the network's own confidence forecasts."""

    name: str
    rows: Rows
    errors: Interval
    forecast: float
    p: float  # that as many inputs at random hold as many errors; corrected for how many slices were tried
    predicted: float | None = None  # of a class: how often it is predicted, per input that has it

    def to_dict(self) -> dict[str, Any]:
        return {
            "slice": self.name, "inputs": len(self.rows), "errors": self.errors.value,
            "errors_interval": [self.errors.low, self.errors.high], "foretold": self.forecast, "p": self.p,
        }  # fmt: skip


def _forecast_errors(logits: NDArray[np.float64], labels: Rows) -> NDArray[np.float64]:
    """(n,) the chance that each prediction is wrong by the network's confidence, at the temperature that suits the data best."""
    temperatures = np.exp(np.linspace(np.log(0.25), np.log(8), 36))
    rows = np.arange(len(labels))
    losses = [-float(log_softmax(logits / t)[rows, labels].mean()) for t in temperatures]
    result: NDArray[np.float64] = 1 - np.exp(log_softmax(logits / temperatures[int(np.argmin(losses))]).max(axis=1))
    return result


def _forecast(context: CheckContext) -> NDArray[np.float64]:
    """(n,) the chance that each prediction is wrong; a quantity comes without confidence, so that it is the same for all."""
    if context.target.bins is not None:
        return np.full(len(context.answers), float(context.wrong.mean()))
    return _forecast_errors(context.answers.logits, context.labels)


def _looks(context: CheckContext) -> dict[str, NDArray[np.float64]]:
    """Brightness of every input, and the share of it that stands out from its border; nothing for what is no image."""
    source = context.source
    if len(source.shape) != 3 or min(source.shape[1:]) < 3:
        return {}
    low, high = context.target.bounds
    bright, large = np.empty(len(source)), np.empty(len(source))
    for start in range(0, len(source), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(source)))
        x = source.read(rows)
        grey = x.mean(axis=1, dtype=np.float64)  # (n, h, w); before the range, or there would be copies of every channel
        unit = grey / 255 if x.dtype == np.uint8 else (grey - low) / (high - low)
        border = np.concatenate([unit[:, 0], unit[:, -1], unit[:, :, 0], unit[:, :, -1]], axis=1)
        bright[rows] = unit.mean(axis=(1, 2))
        large[rows] = (np.abs(unit - np.median(border, axis=1)[:, None, None]) > STANDS_OUT).mean(axis=(1, 2))
        context.tick()
    return {"brightness": bright, "size": large}


def _fifths(values: NDArray[np.float64]) -> list[Rows]:
    """Equal parts; equal values stay together, so that there may be fewer."""
    edges = np.quantile(values, [0.2, 0.4, 0.6, 0.8])
    part = np.searchsorted(edges, values, side="right")
    return [np.flatnonzero(part == number) for number in range(5)]


def _clusters(features: NDArray[np.float32], count: int, seed: int) -> list[Rows]:
    """Inputs that the network sees alike."""
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.decomposition import PCA

    spread = features.std(axis=0)
    used = (features[:, spread > 1e-6] - features.mean(axis=0)[spread > 1e-6]) / spread[spread > 1e-6]
    if count < 2 or used.shape[1] == 0:
        return []
    reduced = PCA(min(20, *used.shape), random_state=seed, svd_solver="randomized").fit_transform(used)
    part = MiniBatchKMeans(count, random_state=seed, n_init=3, batch_size=1024).fit_predict(reduced)
    return [np.flatnonzero(part == number) for number in range(count)]


@register(
    "check", "slices", main="least",
    paper="Holm, 1979; slices as in Slice Finder (Chung et al., ICDE 2019) and Domino (Eyuboglu et al., ICLR 2022)",
    cost="the pass that accuracy makes; k-means on the last hidden layer; every input is read once",
    differs="Slices are given, not searched for: classes, fifths by brightness and by size, clusters of features. An alarm needs "
    "more errors than the network's own confidence forecasts: hard inputs that it knows to be hard are no defect.",
)  # fmt: skip
class Slices(Check):
    """Parts of the data on which the network errs more often than on the whole, corrected (Holm) for how many were tried.

    An alarm: errors of a slice, the lower end of their interval, exceed by `alarm` what the confidence forecasts, or a class is
    hardly ever predicted. least: inputs of a slice. clusters: of features.
    """

    order = 40
    share = 2.0

    least: int = setting(30, "30 by default")
    clusters: int = setting(12, "12 by default")
    alarm: float = setting(0.15, "0.15 by default", above=0, below=1)

    def examine(self, context: CheckContext, clock: Clock) -> CheckItem:
        wrong = context.wrong
        whole = wilson(int(wrong.sum()), len(wrong))
        tried = self._slices(context)
        numbers: dict[str, Any] = {"tried": len(tried), "errors": whole.value, "weak": []}
        if not tried:
            return CheckItem(self.name, f"no slice has {self.least} inputs", (), numbers)
        weak = [one for one in tried if one.p < P_LIMIT and one.errors.low > whole.value]
        weak.sort(key=lambda one: -one.errors.low)
        alarming = sorted((one for one in weak if self._alarms(one)), key=lambda one: one.forecast - one.errors.low)[:ALARMS]
        numbers |= {"weak": [one.to_dict() for one in weak]}
        findings = [self._finding(context, one, whole, len(tried), "alarm") for one in alarming]
        rest = [one for one in weak if one not in alarming][:1]
        findings += [self._finding(context, one, whole, len(tried), "note", weak[:SLICES_LISTED]) for one in rest]
        summary = f"{len(weak)} of {len(tried)} slices are weaker than the whole beyond chance"
        return CheckItem(self.name, summary + (f"; weakest: {weak[0].name}" if weak else ""), tuple(findings), numbers)

    def _alarms(self, one: _Slice) -> bool:
        unforeseen = one.errors.low - one.forecast > self.alarm
        return unforeseen or (one.predicted is not None and one.predicted < FEW and one.errors.low > self.alarm)

    def _slices(self, context: CheckContext) -> list[_Slice]:
        from scipy.stats import hypergeom

        wrong, forecast = context.wrong, _forecast(context)
        candidates = [(name, rows) for name, rows in self._candidates(context) if self.least <= len(rows) < len(wrong)]
        hits = [int(wrong[rows].sum()) for _, rows in candidates]
        chances = [
            float(hypergeom.sf(k - 1, len(wrong), int(wrong.sum()), len(rows)))
            for k, (_, rows) in zip(hits, candidates, strict=True)
        ]
        corrected = holm(np.clip(chances, 0, 1)) if chances else np.empty(0)
        return [
            _Slice(name, rows, wilson(k, len(rows)), float(forecast[rows].mean()), float(p), self._predicted(context, name, rows))
            for (name, rows), k, p in zip(candidates, hits, corrected, strict=True)
        ]

    def _predicted(self, context: CheckContext, name: str, rows: Rows) -> float | None:
        if not name.startswith("class "):
            return None
        return float((context.answers.predicted == context.labels[rows[0]]).sum() / len(rows))

    def _candidates(self, context: CheckContext) -> Iterator[tuple[str, Rows]]:
        for number in np.unique(context.labels).tolist():
            yield f"class {context.class_name(number)}", np.flatnonzero(context.labels == number)
        for name, values in _looks(context).items():
            for fifth, rows in zip(FIFTHS, _fifths(values), strict=True):
                yield f"{name}, {fifth}", rows
        count = min(self.clusters, len(context.labels) // (3 * self.least))
        for number, rows in enumerate(_clusters(context.answers.features, count, context.seed)):
            if len(rows):
                common = context.class_name(np.bincount(context.answers.predicted[rows]).argmax())
                yield f"cluster {number} (mostly taken for {common})", rows

    def _finding(
        self, context: CheckContext, one: _Slice, whole: Interval, tried: int, level: Level, listed: list[_Slice] | None = None
    ) -> Finding:
        sentence = f"{one.name}: {percent(one.errors)} of {len(one.rows):,} inputs are mistaken, of all {100 * whole.value:.1f} %"
        if level == "alarm":
            few = one.predicted is not None and one.predicted < FEW
            sentence += f"; it is predicted {one.predicted:.2f} times per input that has it" if few else ""
            sentence += f"; its confidence forecasts {100 * one.forecast:.1f} %"
        rows = [evidence_row(s.name, s.errors) for s in listed or [one]]
        evidence = (
            *rows, evidence_row("the whole", whole), ("forecast by its confidence", one.forecast, None),
            (f"p, Holm over {tried} slices", one.p, None),
        )  # fmt: skip
        mistakes = one.rows[context.wrong[one.rows]]
        surest = mistakes[np.argsort(-context.answers.confidence[mistakes], kind="stable")][:MAX_IMAGES]
        strength = min(1.0, 0.5 + one.errors.low - one.forecast) if level == "alarm" else min(0.45, one.errors.low)
        advice = "collect and label more of these; retrain, or keep the network away from them" if level == "alarm" else ""
        deeper = f"neurotest select {context.words} --method adaptive"
        return Finding(self.name, level, sentence, advice, strength, evidence, context.predicted_as(surest), deeper)
