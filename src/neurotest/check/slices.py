"""Where the network is weak: classes, dark and bright inputs, small and large objects, clusters of features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from neurotest.check.examination import Check
from neurotest.check.finding import CheckItem, Finding, percent, share
from neurotest.check.subject import CheckContext, Clock
from neurotest.checks import setting
from neurotest.measure.answers import log_softmax
from neurotest.registry import register
from neurotest.stats.bootstrap import Interval, wilson
from neurotest.stats.comparison import holm

SHOWN, LISTED, ALARMS = 8, 5, 2
FIFTHS = ("lowest fifth", "second fifth", "middle fifth", "fourth fifth", "highest fifth")
LEVEL = 0.01  # of Holm's corrected p-values
STANDS_OUT = 0.15  # of the range, from the median of the border: what belongs to an object
CHUNK = 500  # inputs whose pixels are read at once
FEW = 0.7  # a class that is predicted less than this often for its inputs is hardly known to the network
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Slice:
    """Some inputs, the share of errors among them, and the share that the network's own confidence foretells."""

    name: str
    rows: Rows
    errors: Interval
    foretold: float
    p: float  # that as many inputs at random hold as many errors; corrected for how many slices were tried
    predicted: float | None = None  # of a class: how often it is predicted, per input that has it

    def to_dict(self) -> dict[str, Any]:
        return {
            "slice": self.name, "inputs": len(self.rows), "errors": self.errors.value,
            "errors_interval": [self.errors.low, self.errors.high], "foretold": self.foretold, "p": self.p,
        }  # fmt: skip


def _foretold_errors(logits: NDArray[np.float64], labels: Rows) -> NDArray[np.float64]:
    """(n,) the chance that each prediction is wrong by the network's confidence, at the temperature that suits the data best."""
    temperatures = np.exp(np.linspace(np.log(0.25), np.log(8), 36))
    rows = np.arange(len(labels))
    losses = [-float(log_softmax(logits / t)[rows, labels].mean()) for t in temperatures]
    result: NDArray[np.float64] = 1 - np.exp(log_softmax(logits / temperatures[int(np.argmin(losses))]).max(axis=1))
    return result


def _foretold(subject: CheckContext) -> NDArray[np.float64]:
    """(n,) the chance that each prediction is wrong; a quantity comes without confidence, so that it is the same for all."""
    if subject.target.bins is not None:
        return np.full(len(subject.said), float(subject.wrong.mean()))
    return _foretold_errors(subject.said.logits, subject.labels)


def _looks(subject: CheckContext) -> dict[str, NDArray[np.float64]]:
    """Brightness of every input, and the share of it that stands out from its border; nothing for what is no image."""
    source = subject.source
    if len(source.shape) != 3 or min(source.shape[1:]) < 3:
        return {}
    low, high = subject.target.bounds
    bright, large = np.empty(len(source)), np.empty(len(source))
    for start in range(0, len(source), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(source)))
        x = source.read(rows)
        grey = x.mean(axis=1, dtype=np.float64)  # (n, h, w); before the range, or there would be copies of every channel
        unit = grey / 255 if x.dtype == np.uint8 else (grey - low) / (high - low)
        border = np.concatenate([unit[:, 0], unit[:, -1], unit[:, :, 0], unit[:, :, -1]], axis=1)
        bright[rows] = unit.mean(axis=(1, 2))
        large[rows] = (np.abs(unit - np.median(border, axis=1)[:, None, None]) > STANDS_OUT).mean(axis=(1, 2))
        subject.tick()
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
    "examination", "slices", main="least",
    paper="Holm, 1979; slices as in Slice Finder (Chung et al., ICDE 2019) and Domino (Eyuboglu et al., ICLR 2022)",
    cost="the pass that accuracy makes; k-means on the last hidden layer; every input is read once",
    differs="Slices are given, not searched for: classes, fifths by brightness and by size, clusters of features. An alarm needs "
    "more errors than the network's own confidence foretells: hard inputs that it knows to be hard are no defect.",
)  # fmt: skip
class Slices(Check):
    """Parts of the data on which the network errs more often than on the whole, corrected (Holm) for how many were tried.

    An alarm: errors of a slice, the lower end of their interval, exceed by `alarm` what the confidence foretells, or a class is
    hardly ever predicted. least: inputs of a slice. clusters: of features.
    """

    name: ClassVar[str] = "slices"
    order: ClassVar[int] = 40
    share: ClassVar[float] = 2.0

    least: int = setting(30, "30 by default")
    clusters: int = setting(12, "12 by default")
    alarm: float = setting(0.15, "0.15 by default", above=0, below=1)

    def examine(self, subject: CheckContext, clock: Clock) -> CheckItem:
        wrong = subject.wrong
        whole = wilson(int(wrong.sum()), len(wrong))
        tried = self._slices(subject)
        numbers: dict[str, Any] = {"tried": len(tried), "errors": whole.value, "weak": []}
        if not tried:
            return CheckItem(self.name, f"no slice has {self.least} inputs", (), numbers)
        weak = [one for one in tried if one.p < LEVEL and one.errors.low > whole.value]
        weak.sort(key=lambda one: -one.errors.low)
        alarming = sorted((one for one in weak if self._alarms(one)), key=lambda one: one.foretold - one.errors.low)[:ALARMS]
        numbers |= {"weak": [one.to_dict() for one in weak]}
        findings = [self._finding(subject, one, whole, len(tried), "alarm") for one in alarming]
        rest = [one for one in weak if one not in alarming][:1]
        findings += [self._finding(subject, one, whole, len(tried), "note", weak[:LISTED]) for one in rest]
        summary = f"{len(weak)} of {len(tried)} slices are weaker than the whole beyond chance"
        return CheckItem(self.name, summary + (f"; weakest: {weak[0].name}" if weak else ""), tuple(findings), numbers)

    def _alarms(self, one: _Slice) -> bool:
        unforeseen = one.errors.low - one.foretold > self.alarm
        return unforeseen or (one.predicted is not None and one.predicted < FEW and one.errors.low > self.alarm)

    def _slices(self, subject: CheckContext) -> list[_Slice]:
        from scipy.stats import hypergeom

        wrong, foretold = subject.wrong, _foretold(subject)
        candidates = [(name, rows) for name, rows in self._candidates(subject) if self.least <= len(rows) < len(wrong)]
        hits = [int(wrong[rows].sum()) for _, rows in candidates]
        chances = [
            float(hypergeom.sf(k - 1, len(wrong), int(wrong.sum()), len(rows)))
            for k, (_, rows) in zip(hits, candidates, strict=True)
        ]
        corrected = holm(np.clip(chances, 0, 1)) if chances else np.empty(0)
        return [
            _Slice(name, rows, wilson(k, len(rows)), float(foretold[rows].mean()), float(p), self._predicted(subject, name, rows))
            for (name, rows), k, p in zip(candidates, hits, corrected, strict=True)
        ]

    def _predicted(self, subject: CheckContext, name: str, rows: Rows) -> float | None:
        if not name.startswith("class "):
            return None
        return float((subject.said.predicted == subject.labels[rows[0]]).sum() / len(rows))

    def _candidates(self, subject: CheckContext) -> Iterator[tuple[str, Rows]]:
        for number in np.unique(subject.labels).tolist():
            yield f"class {subject.class_name(number)}", np.flatnonzero(subject.labels == number)
        for name, values in _looks(subject).items():
            for fifth, rows in zip(FIFTHS, _fifths(values), strict=True):
                yield f"{name}, {fifth}", rows
        count = min(self.clusters, len(subject.labels) // (3 * self.least))
        for number, rows in enumerate(_clusters(subject.said.features, count, subject.seed)):
            if len(rows):
                common = subject.class_name(np.bincount(subject.said.predicted[rows]).argmax())
                yield f"cluster {number} (mostly taken for {common})", rows

    def _finding(
        self, subject: CheckContext, one: _Slice, whole: Interval, tried: int, severity: Any, listed: list[_Slice] | None = None
    ) -> Finding:
        sentence = f"{one.name}: {percent(one.errors)} of {len(one.rows):,} inputs are mistaken, of all {100 * whole.value:.1f} %"
        if severity == "alarm":
            few = one.predicted is not None and one.predicted < FEW
            sentence += f"; it is predicted {one.predicted:.2f} times per input that has it" if few else ""
            sentence += f"; its confidence foretells {100 * one.foretold:.1f} %"
        rows = [share(s.name, s.errors) for s in listed or [one]]
        evidence = (
            *rows, share("the whole", whole), ("foretold by its confidence", one.foretold, None),
            (f"p, Holm over {tried} slices", one.p, None),
        )  # fmt: skip
        mistakes = one.rows[subject.wrong[one.rows]]
        surest = mistakes[np.argsort(-subject.said.confidence[mistakes], kind="stable")][:SHOWN]
        strength = min(1.0, 0.5 + one.errors.low - one.foretold) if severity == "alarm" else min(0.45, one.errors.low)
        advice = "collect and label more of these; retrain, or keep the network away from them" if severity == "alarm" else ""
        deeper = f"neurotest select {subject.words} --method adaptive"
        return Finding(self.name, severity, strength, sentence, evidence, subject.predicted_as(surest), deeper, advice)
