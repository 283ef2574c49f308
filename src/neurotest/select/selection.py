"""The result of a selection: an order of the pool, what was picked, and, where labels are known, how good the order is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.data.source import Source
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.files import write_json
from neurotest.notebook import Picture, table, view
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run
from neurotest.scan import batches
from neurotest.stats import faults as metrics
from neurotest.stats.bootstrap import Interval, fdr_interval, order_interval, random_fdr, random_interval, wilson
from neurotest.target import Target

DRAWS = 200  # for the metrics that have no closed form: enough for two digits of an interval
LIKELY = "likely classes"  # entry of the run: position -> [(class, probability)] of inputs that are stored as images
LIKELIEST = 3  # classes of each
OTHERS = 12  # of the methods after the first, so many picks are stored: enough for the report's images


@dataclass(frozen=True)
class Estimate:
    """The accuracy on the pool that follows from the labelled picks, with a 95 % interval, and the truth if there is one."""

    accuracy: Interval
    labelled: int
    truth: float | None = None

    @classmethod
    def of(cls, right: NDArray[np.bool_], weights: NDArray[np.float64], truth: float | None = None) -> Estimate:
        """right, weights: of the labelled picks. Unequal weights are worth fewer equal ones."""
        weights = weights / weights.sum()
        size = 1 / float(np.square(weights).sum())
        share = min(1.0, max(0.0, float((weights * right).sum())))
        interval = wilson(share * size, size)  # type: ignore[arg-type]  # a share of an effective number need not be an integer
        return cls(Interval(share, interval.low, interval.high), len(right), truth)

    def to_dict(self) -> dict[str, Any]:
        value, low, high = self.accuracy
        content = {"accuracy": value, "accuracy_interval": [low, high], "accuracy_labels": self.labelled}
        return content if self.truth is None else {**content, "accuracy_true": self.truth}


@dataclass(frozen=True)
class Nearness:
    """Share of picks that are near duplicates of another pick: with and without spreading, and in a random batch."""

    spread: float
    plain: float
    random: float

    def to_dict(self) -> dict[str, Any]:
        return {"near_duplicates": self.spread, "near_duplicates_unspread": self.plain, "near_duplicates_random": self.random}


@dataclass(frozen=True)
class Quality:
    """How an order finds faults, each number beside what random labelling gives, with 95 % intervals."""

    fdr: Interval
    relative_fdr: float
    apfd: Interval
    ftcr: float
    ftcr_auc: float  # no interval: a resampled pool loses fault types, so a bootstrap of their number is biased
    random_fdr: Interval
    random_ftcr_auc: Interval
    ceiling: float  # the highest FDR any order could have

    @classmethod
    def of(cls, order: np.ndarray, labels: np.ndarray, predictions: np.ndarray, picked: int, seed: int) -> Quality:
        wrong = labels != predictions
        types = metrics.fault_types(labels, predictions)
        n, total = len(order), int(wrong.sum())
        return cls(
            fdr=fdr_interval(wrong[order], picked, seed=seed), relative_fdr=metrics.relative_fdr(wrong[order], picked),
            apfd=order_interval(metrics.apfd, wrong[order], draws=DRAWS, seed=seed),
            ftcr=metrics.ftcr(types[order], picked), ftcr_auc=metrics.ftcr_auc(types[order]),
            random_fdr=random_fdr(n, total, picked), ceiling=min(1.0, total / picked),
            random_ftcr_auc=random_interval(metrics.ftcr_auc, types, draws=DRAWS, seed=seed),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        chance = {
            "fdr": self.random_fdr.value, "fdr_interval": _pair(self.random_fdr), "apfd": 0.5,
            "ftcr_auc": _number(self.random_ftcr_auc.value), "ftcr_auc_interval": _pair(self.random_ftcr_auc),
        }  # fmt: skip
        return {
            "fdr": self.fdr.value, "fdr_interval": _pair(self.fdr), "relative_fdr": _number(self.relative_fdr),
            "fdr_ceiling": self.ceiling, "apfd": _number(self.apfd.value), "apfd_interval": _pair(self.apfd),
            "ftcr": _number(self.ftcr), "ftcr_auc": _number(self.ftcr_auc), "random": chance,
        }  # fmt: skip


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _pair(interval: Interval) -> list[float | None]:
    return [_number(interval.low), _number(interval.high)]


@dataclass(frozen=True, eq=False)
class Selection:
    """Which inputs to label first by one method: `indices` into the pool, most valuable first, and their `scores`."""

    method: str  # as typed
    canonical: str  # the settings in full
    order: np.ndarray = field(repr=False)  # (n,) the whole pool
    all_scores: np.ndarray = field(repr=False)  # (n,) by position in the pool
    predictions: np.ndarray = field(repr=False)  # (n,) by position
    picked: int
    quality: Quality | None  # None without labels
    notes: tuple[str, ...] = ()
    in_training: tuple[int, ...] = ()  # positions of candidates that stand in the training data
    run: Path | None = None
    estimate: Estimate | None = None  # of the accuracy, by methods that are for that
    near: Nearness | None = None  # how alike the picks are, where they were spread
    details: Mapping[str, Any] = field(default_factory=dict)  # what the method itself has to say, as JSON takes it
    files: np.ndarray | None = field(default=None, repr=False)  # (n,) names by position, where the inputs are files
    first: tuple[Picture, ...] = field(default=(), repr=False)  # images of the first picks, for notebooks

    @property
    def indices(self) -> np.ndarray:
        return self.order[: self.picked]

    @property
    def scores(self) -> np.ndarray:
        return np.asarray(self.all_scores[self.indices])

    def to_dict(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "method": self.method, "canonical": self.canonical, "pool": len(self.order), "budget": self.picked,
            "indices": self.indices.tolist(), "scores": self.scores.tolist(),
            "predicted": self.predictions[self.indices].tolist(), "in_training": list(self.in_training),
            "notes": list(self.notes), "run": str(self.run) if self.run else None,
        }  # fmt: skip
        if self.files is not None:
            content["files"] = [str(name) for name in self.files[self.indices]]
        for more in (self.quality, self.estimate, self.near):
            content |= more.to_dict() if more is not None else {}
        return content | dict(self.details)

    def table(self) -> list[dict[str, Any]]:
        """One row per pick."""
        return [
            {"rank": rank, "index": int(i), **({} if self.files is None else {"file": str(self.files[i])}),
             "score": float(self.all_scores[i]), "predicted": int(self.predictions[i])}
            for rank, i in enumerate(self.indices, start=1)
        ]  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Write everything `to_dict` gives as JSON."""
        path = Path(path)
        write_json(path, self.to_dict())
        return path

    def __len__(self) -> int:
        return self.picked

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The indices, so that `x[selection]` gives the picked rows of an array."""
        return np.array(self.indices, dtype=dtype)

    def headline(self) -> str:
        text = f"{self.canonical}: {self.picked} of {len(self.order)}"
        if self.quality is None:
            return text
        found, chance = (f"{q.value:.1%} ({q.low:.1%} .. {q.high:.1%})" for q in (self.quality.fdr, self.quality.random_fdr))
        return f"{text}; {found} of them are faults, {chance} of as many at random"

    def _repr_html_(self) -> str:
        return view([self.headline(), *self.notes], self.first, self.table())


class Comparison(dict[str, Selection]):
    """Selections by method, as typed. `errors` says of each method that did not fit why."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__()
        self.errors = errors

    def __missing__(self, method: str) -> Selection:
        raise BadInput("unsuitable", method, self.errors[method]) if method in self.errors else KeyError(method)

    def to_dict(self) -> dict[str, Any]:
        """The first method's content, and each one's under `methods` when there are several; `error` where one did not fit."""
        first, *_ = self.values()
        content = first.to_dict()
        if len(self) + len(self.errors) > 1:
            content["notes"] = list(dict.fromkeys(note for selection in self.values() for note in selection.notes))
            unfit = {name: {"error": reason} for name, reason in self.errors.items()}
            content["methods"] = {name: selection.to_dict() for name, selection in self.items()} | unfit
        return content

    def table(self) -> list[dict[str, Any]]:
        """One row per method: FDR and APFD where the pool has labels, or why it did not run."""
        judged = {name: selection.quality for name, selection in self.items()}
        rows = [{"method": name, "fdr": q and q.fdr.value, "apfd": q and q.apfd.value} for name, q in judged.items()]
        return [*rows, *({"method": name, "error": reason} for name, reason in self.errors.items())]

    def _repr_html_(self) -> str:
        first = next(iter(self.values()), None)
        rows = self.table()
        if first is not None and first.quality is not None:
            rows.append({"method": "expected at random", "fdr": first.quality.random_fdr.value, "apfd": 0.5})
        columns = ("method", "fdr", "apfd", *(["error"] if self.errors else []))
        return view((one.headline() for one in self.values()), () if first is None else first.first) + table(rows, columns)


def record(run: Run, target: Target, source: Source, selections: Comparison, files: int | None) -> dict[str, Any]:
    """Fill a run that was just made, and give its summary; `files` bounds how many picks of the first method are stored."""
    first, *others = selections.values()
    labels = [None] * len(source) if source.labels is None else source.labels.tolist()
    rows = (
        InputRow(position, str(content), label, int(first.predictions[position]), _extra(source, position))
        for position, (content, label) in enumerate(zip(source.ids(), labels, strict=True))
    )
    with run.transaction():
        run["classes"] = list(target.classes or source.classes or ())
        run["training duplicates"] = list(first.in_training)
        run["skipped"] = [{"file": s.file, "reason": s.reason} for s in source.skipped]
        run.add_inputs(rows)
        for name, selection in selections.items():
            run.add_ranking(name, selection.order, selection.all_scores[selection.order], selection.picked)
        stored = [first.indices if files is None else first.indices[:files]]
        stored += [selection.indices[: OTHERS if files is None else files] for selection in others]
        for positions in stored:
            _store(run, target, source, positions)
        run[LIKELY] = _likely(target, source, np.unique(np.concatenate(stored)))
    methods: dict[str, Any] = {name: _summary(selection) for name, selection in selections.items()}
    unfit = [f"{name} did not run: {reason}" for name, reason in selections.errors.items()]
    methods[first.method]["notes"] += unfit  # the report shows the notes of what ran
    return {"methods": {**methods, **{name: {"error": reason} for name, reason in selections.errors.items()}}}


def _extra(source: Source, position: int) -> dict[str, Any]:
    """Where an input came from: its file, or what was done to its original."""
    extra: dict[str, Any] = {} if source.names is None else {"name": str(source.names[position])}
    draws = source.notes.get("draws")
    return extra if draws is None else {**extra, "draw": draws.describe(position)}


def _store(run: Run, target: Target, source: Source, positions: np.ndarray) -> None:
    """The inputs and, where the pool has them, what they were made from."""
    stored = {row.position for row in run.files("picked")}
    new = np.array([p for p in positions.tolist() if p not in stored], dtype=np.int64)
    if not len(new):
        return
    run.save_inputs(new, source.read(new), "picked", target.bounds)
    if source.originals is not None:
        run.save_inputs(new, source.originals.read(new), "original", target.bounds)


def _likely(target: Target, source: Source, positions: np.ndarray) -> dict[str, list[tuple[int, float]]]:
    """The most probable classes of inputs with their probabilities, by position."""
    likely: dict[str, list[tuple[int, float]]] = {}
    if target.bins is not None:  # a quantity has no probabilities
        return likely
    with torch.inference_mode():
        for batch in batches(target, source, order=positions):
            probs = exact(target.logits(batch.x)).softmax(dim=1)
            most, classes = probs.topk(min(LIKELIEST, probs.shape[1]))  # (n, 3)
            for position, numbers, values in zip(batch.index.tolist(), classes.tolist(), most.tolist(), strict=True):
                if np.isfinite(values).all():
                    likely[str(position)] = [*zip(numbers, (round(value, 6) for value in values), strict=True)]
    return likely


def _summary(selection: Selection) -> dict[str, Any]:
    left_out = {"indices", "scores", "predicted", "files", "run", "in_training"}  # the tables hold them
    return {key: value for key, value in selection.to_dict().items() if key not in left_out}
