"""Labels that look wrong: what the network says of an input, and what the labels of its nearest neighbours say, against its own.

A label is the more suspicious the further the other classes are ahead of it in the product of the network's probability, the
neighbours' votes and how often their inputs get this label by mistake. Such mistakes, and how many labels are wrong in all, are
read from the inputs the network is surest about: there it hardly errs by itself, so that other labels are wrong ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.files import write_json
from neurotest.jobs.life import atomic_run, finish
from neurotest.jobs.opening import AnyTarget, open_data, open_target, stored_spec
from neurotest.jobs.stored import target_config
from neurotest.measure.answers import Answers, Floats, answers
from neurotest.notebook import view
from neurotest.public import public
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.settings.select import SuspectsSettings
from neurotest.stats.bootstrap import Interval, wilson
from neurotest.target import Target

Ints = NDArray[np.int64]
NEIGHBOURS = 10
DOUBT = 0.5  # votes that every class has from the start
WEIGHT = 0.5  # of the neighbours' votes beside the network's probability
USUAL_MISTAKE = 0.01  # the share of a class's inputs that get any one other label by mistake, before the data say more
SUREST = 0.25  # share of the inputs, most confident first, from which the number of wrong labels is read
CHUNK = 1 << 22  # similarities held at once
FILES = 40  # images in a run


class _Evidence(NamedTuple):
    """Per input how far (in log-odds) other classes are ahead of its label, and which of them most."""

    margin: Floats
    suggested: Ints


def evidence(
    log_probs: Floats, labels: Ints, rows: Ints, features: NDArray[Any], votes: Ints, mistakes: _Mistakes | None = None
) -> _Evidence:
    """Against the labels of some inputs, `rows` of n. log_probs: theirs, (rows, classes). features: (n, d) of all. votes: (n,)
    the class each input counts for as a neighbour. mistakes: as `label_mistakes` gives them; none without.

    Neighbours that cannot change the verdict, because the network is sure enough of the label, are not searched: they count as
    if all agreed with it.
    """
    classes = log_probs.shape[1]
    prior = np.zeros((len(rows), classes)) if mistakes is None else mistakes.prior(labels, classes)
    counts = np.zeros((len(rows), classes))
    own = np.arange(len(rows)), labels
    counts[own] = NEIGHBOURS
    most = WEIGHT * math.log((NEIGHBOURS + DOUBT) / DOUBT)  # by which neighbours can raise one class above another
    doubtful = np.flatnonzero(_ahead(_voted(log_probs, counts), prior, own).margin > -2 * most)
    counts[doubtful] = _neighbours(features, votes, rows[doubtful], classes)
    return _ahead(_voted(log_probs, counts), prior, own)


def _voted(log_probs: Floats, counts: Floats) -> Floats:
    result: Floats = log_probs + WEIGHT * np.log(counts + DOUBT)
    return result


def _ahead(scores: Floats, prior: Floats, own: tuple[Ints, Ints]) -> _Evidence:
    others = scores + prior
    others[own] = -np.inf
    highest = others.max(axis=1)
    together = highest + np.log(np.exp(others - highest[:, None]).sum(axis=1))
    return _Evidence(together - scores[own], others.argmax(axis=1))


class _Mistakes(NamedTuple):
    """Pairs of classes that are confused more than chance allows: inputs of class `true` that carry the label `given`, and
    their share of the inputs of `true`. At most one pair per input, however many classes there are."""

    true: Ints
    given: Ints
    share: Floats

    def prior(self, labels: Ints, classes: int) -> Floats:
        """(inputs, classes) log-odds that a class's inputs get the label of each input, above the usual."""
        prior = np.zeros((len(labels), classes))
        order = np.argsort(labels, kind="stable")
        for true, given, share in zip(*self, strict=True):
            first, last = np.searchsorted(labels, (given, given + 1), sorter=order)
            prior[order[first:last], true] = math.log1p(share / USUAL_MISTAKE)
        return prior


def _label_mistakes(log_probs: Floats, labels: Ints) -> _Mistakes:
    """Labels of another class that the inputs of a class carry, beyond what its confidence predicts.

    Read from the surer half of the inputs that are taken for a class, less one standard error: what might be chance is none.
    """
    mistakes: list[tuple[int, int, float]] = []
    predicted, confidence = log_probs.argmax(axis=1), log_probs.max(axis=1)
    order = np.lexsort((-confidence, predicted))
    classes, first = np.unique(predicted[order], return_index=True)
    for true, inputs in zip(classes.tolist(), np.split(order, first[1:]), strict=True):
        surer = inputs[: len(inputs) // 2]
        others, counts = np.unique(labels[surer][labels[surer] != true], return_counts=True)
        expected = np.exp(log_probs[np.ix_(surer, others)]).sum(axis=0)
        shares = (counts - expected - np.sqrt(expected + 1)) / max(1, len(surer))
        mistakes += [(true, given, share) for given, share in zip(others.tolist(), shares.tolist(), strict=True) if share > 0]
    pairs = np.array([pair[:2] for pair in mistakes], dtype=np.int64).reshape(-1, 2)
    return _Mistakes(pairs[:, 0], pairs[:, 1], np.array([share for *_, share in mistakes]))


def _neighbours(features: NDArray[Any], votes: Ints, rows: Ints, classes: int) -> Floats:
    """(rows, classes) votes of the nearest others, by the angle between features."""
    unit = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    counts = np.zeros((len(rows), classes))
    near = min(NEIGHBOURS, len(unit) - 1)
    step = max(1, CHUNK // len(unit))
    for start in range(0, len(rows) if near else 0, step):
        part = rows[start : start + step]
        like = unit[part] @ unit.T
        here = np.arange(len(part))
        like[here, part] = -2  # an input is no neighbour of its own
        nearest = np.argpartition(-like, near - 1, axis=1)[:, :near]
        np.add.at(counts, (start + here[:, None], votes[nearest]), 1)
    return counts


def _wrong_share(confidence: Floats, agrees: NDArray[np.bool_]) -> Interval:
    """The share of wrong labels: of labels other than predicted among the surest inputs, less what confidence predicts."""
    surest = np.argsort(-confidence, kind="stable")[: max(1, round(SUREST * len(confidence)))]
    share = wilson(int((~agrees[surest]).sum()), len(surest))
    expected = float(1 - confidence[surest].mean())
    return Interval(*(max(0.0, limit - expected) for limit in share))


@dataclass(frozen=True, eq=False)
class Suspects:
    """Labels that look wrong: `indices` into the data, most suspicious first; as many as there are wrong ones by estimate."""

    order: Ints = field(repr=False)  # (n,) all inputs, most suspicious first
    margin: Floats = field(repr=False)  # (n,) by position
    suggested: Ints = field(repr=False)  # (n,) by position: the likeliest other class
    labels: Ints = field(repr=False)
    predicted: Ints = field(repr=False)
    share: Interval  # of wrong labels
    accuracy: float
    surest: int  # inputs the share is read from
    classes: tuple[str, ...] | None = None
    names: NDArray[Any] | None = field(default=None, repr=False)
    data: str = ""
    target: str = ""
    run: Path | None = None

    @property
    def count(self) -> int:
        """As many as are expected, and no more than have another class ahead of their label."""
        return min(round(self.share.value * len(self.order)), int((self.margin > 0).sum()))

    @property
    def indices(self) -> Ints:
        return self.order[: self.count]

    def rows(self, positions: Ints) -> list[dict[str, Any]]:
        return [
            {
                "index": int(i), **({} if self.names is None else {"name": str(self.names[i])}),
                "label": self._name(self.labels[i]), "suggested": self._name(self.suggested[i]),
                "predicted": self._name(self.predicted[i]), "margin": float(self.margin[i]),
            }
            for i in positions
        ]  # fmt: skip

    def _name(self, number: Any) -> str:
        return self.classes[int(number)] if self.classes else str(int(number))

    def table(self) -> list[dict[str, Any]]:
        """One row per suspect."""
        return self.rows(self.indices)

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target, "data": self.data, "inputs": len(self.order), "accuracy": self.accuracy,
            "wrong_share": self.share.value, "wrong_share_interval": [self.share.low, self.share.high], "surest": self.surest,
            "expected": self.share.value * len(self.order), "count": self.count, "suspects": self.table(),
            "run": str(self.run) if self.run else None,
        }  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Write everything `to_dict` gives as JSON."""
        path = Path(path)
        write_json(path, self.to_dict())
        return path

    def headline(self) -> str:
        low, high = (100 * limit for limit in self.share[1:])
        return (
            f"about {100 * self.share.value:.1f} % ({low:.1f} .. {high:.1f}) of the labels look wrong, by the {self.surest:,} "
            f"inputs the network is surest about: {self.count:,} of {len(self.order):,} to look at"
        )

    def _repr_html_(self) -> str:
        return view([self.headline()], (), self.table())


@public(SuspectsSettings)
def suspects(
    target: AnyTarget,
    data: AnyData,
    *,
    out: str | Path | bool | None = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Suspects:
    """Labels of the data that look wrong, most suspicious first.

    target: a Target, an nn.Module, or text such as `py:model.py:build`. data: labelled inputs as `neurotest.data` takes them. The
    network need not be good, but it must not have been trained on these labels: it would have learned the wrong ones too. out: a
    run is written there (None: a new one in ./neurotest-runs; False: none).
    """
    chosen = SuspectsSettings.of(settings)
    network = open_target(target)
    source = open_data(network, data, limit=chosen.limit, strict=chosen.strict)
    with atomic_run("suspects", out, {**target_config(network), "data": stored_spec(source), "batch": chosen.batch}) as run:
        result = of_answers(network, source, answers(network, source, batch=chosen.batch, progress=progress))
        if run is not None:
            result = replace(result, run=run.path)
            _record(run, network, source, result)
            finish(run, result.to_dict())
    return result


def of_answers(target: Target, source: Source, said: Answers) -> Suspects:
    """The suspects among inputs whose answers are there already."""
    labels = source.labels
    if target.bins is not None:
        raise BadInput(
            "unsuitable",
            "outputs",
            "labels that look wrong are told by class probabilities, and the target predicts a quantity: `neurotest select "
            "--method disagreement` puts first what training data speak against, which may as well be a wrong label.",
        )
    if labels is None:
        raise BadInput(
            "no-labels", "data", f"{source.what} has no labels: suspects are labels that look wrong. Give labelled data."
        )
    if int(labels.max()) >= said.classes:
        raise BadInput(
            "out-of-range", "labels", f"{source.what} has label {int(labels.max())}, but the target has {said.classes} classes."
        )
    mistakes = _label_mistakes(said.log_probs, labels)
    against = evidence(said.log_probs, labels, np.arange(len(labels)), said.features, labels, mistakes)
    agrees = said.predicted == labels
    share = _wrong_share(said.confidence, agrees)
    return Suspects(
        order=np.argsort(-against.margin, kind="stable"), margin=against.margin, suggested=against.suggested, labels=labels,
        predicted=said.predicted, share=share, accuracy=float(agrees.mean()), surest=max(1, round(SUREST * len(labels))),
        classes=target.classes or source.classes, names=source.names, data=source.spec, target=target.spec,
    )  # fmt: skip


def _record(run: Run, target: Target, source: Source, result: Suspects) -> None:
    """Every suspect, ranked; the first of them as images."""
    chosen = result.indices
    ids = source.ids()
    rows = [
        InputRow(int(i), str(ids[i]), int(result.labels[i]), int(result.predicted[i]), about)
        for i, about in zip(np.sort(chosen), result.rows(np.sort(chosen)), strict=True)
    ]
    with run.transaction():
        run["classes"] = list(result.classes or ())
        run.add_inputs(rows)
        if len(chosen):
            run.add_ranking("suspects", chosen, result.margin[chosen], len(chosen))
            run.save_inputs(chosen[:FILES], source.read(chosen[:FILES]), "picked", target.bounds)
