"""A suite judged: faults, diversity, naturalness, impartiality, with the clean suite beside every number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.errors import BadInput, near
from neurotest.evaluate.bias import impartiality
from neurotest.evaluate.compare import Comparison, compare
from neurotest.evaluate.features import Extractor, Features
from neurotest.evaluate.metrics import Manifold, Score, distances, fid, inception_score, kid, spread, ssim, total_variation
from neurotest.generate.outcome import Outcome
from neurotest.mutate.unit import to_unit
from neurotest.oracles import predicted as predicted_classes
from neurotest.scan import aligned, batches, fit, read
from neurotest.stats.bootstrap import wilson
from neurotest.target import Target
from neurotest.target.load import load

BATCH = 250
PARTS = ("defects", "diversity", "naturalness", "impartiality")
# What numbers are made from, and what stands beside them: no rows of the table.
NOT_IN_TABLE = ("clean", "outputs", "classes", "fault_count", "seeds", "seeds_tried", "forwards")
# What may be required by name; `impartiality` is the evenness of the faults, `diversity` the Vendi score.
METRICS = (
    "success", "fid", "fid_shrunk", "kid", "inception_score", "ssim", "total_variation", "feature_distance", "outside",
    "l0", "l2", "linf", "impartiality", "diversity",
)  # fmt: skip
PART_OF = {"impartiality": ("impartiality", "faults"), "diversity": ("diversity", "vendi"), "success": ("defects", "success")}


@dataclass(frozen=True, eq=False)
class Judgement(Outcome):
    """The numbers of a suite. `per_input` holds one number per output and `roots` its seed, for comparisons with other suites."""

    target: str
    fingerprint: str
    extractor: str
    reference: str | None  # what FID and KID compare with
    outputs: int
    defects: dict[str, Any]
    diversity: dict[str, Any]
    naturalness: dict[str, Any]
    impartiality: dict[str, Any]
    warnings: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)  # metrics that cannot be computed, and why
    per_input: dict[str, NDArray[np.float64]] = field(default_factory=dict, repr=False)
    roots: NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype="U16"), repr=False)
    predicted: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    expected: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)

    def to_dict(self) -> dict[str, Any]:
        shown = ("target", "fingerprint", "extractor", "reference", "outputs", *PARTS, "refused")
        return {**{name: getattr(self, name) for name in shown}, "warnings": list(self.warnings)}

    def table(self) -> list[dict[str, Any]]:
        """One row per number, the clean suite's beside it where there is one."""
        rows = []
        for part in PARTS:
            numbers = getattr(self, part)
            clean = numbers.get("clean")
            beside = clean if isinstance(clean, dict) else {"all": clean}
            rows += [
                {
                    "part": part, "metric": name, "value": value, "clean": beside.get(name),
                    "interval": numbers.get(f"{name}_interval"),
                }
                for name, value in numbers.items()
                if isinstance(value, (int, float)) and not isinstance(value, bool) and name not in NOT_IN_TABLE
            ]  # fmt: skip
        return rows

    def require(self, metrics: Sequence[str]) -> None:
        """Refuse, in a sentence, a metric that cannot be computed for this suite."""
        for name in metrics:
            part, key = PART_OF.get(name, ("naturalness", name))
            if getattr(self, part).get(key) is None:
                raise BadInput(
                    "unsuitable",
                    name,
                    self.refused.get(name) or f"{name} cannot be had from this suite of {self.outputs} outputs.",
                )

    def headline(self) -> str:
        return f"{self.defects['faults']} faults in {self.outputs} outputs on {self.target}"


def check_metrics(metrics: Sequence[str]) -> None:
    for name in metrics:
        if name not in METRICS:
            raise BadInput("unknown-name", "metric", f"--metric {name}: unknown. {near(name, METRICS)}")


def judge(
    target: Target | str,
    suite: AnyData,
    *,
    originals: AnyData | None = None,
    train: AnyData | None = None,
    extractor: str | Target | nn.Module | Extractor | None = None,
    metrics: Sequence[str] = (),
    operators: Sequence[str] | None = None,
    corrected: bool = False,
    batch: int = BATCH,
) -> Judgement:
    """Judge a suite whose input i was made from `originals[i]` (by default what the suite itself remembers).

    Labels are those of the suite or of the originals; a suite without originals needs labels. train: data the network was trained
    on, for the share of inputs outside its manifold (and for FID and KID where there are no originals). extractor: what makes the
    features (see `Extractor.of`); the result names it. metrics: what is required; one that cannot be computed is refused.
    operators: what each input was made by, for fault families. corrected: Miller and Madow's entropy.
    """
    check_metrics(metrics)
    target = load(target)
    source = aligned(target, read(target, suite))
    if originals is not None:
        source = source.with_originals(aligned(target, read(target, originals)))
    if source.originals is None and source.labels is None:
        raise BadInput(
            "missing",
            "originals",
            f"{source.what} has no labels and does not say what its inputs were made from: give the originals, input by input.",
        )
    if operators is not None and len(operators) != len(source):
        raise BadInput("wrong-count", "operators", f"operators: {len(operators)} for {len(source)} inputs; expected one each.")
    classes = fit(target, source)
    if not isinstance(extractor, Extractor):
        extractor = Extractor.of(extractor, target)
    judgement = _Metrics(target, source, source.originals, classes, extractor, batch, operators).run(train, corrected)
    judgement.require(metrics)
    return judgement


@dataclass(eq=False)
class _Metrics:
    target: Target
    suite: Source
    originals: Source | None
    classes: int
    extractor: Extractor
    batch: int
    operators: Sequence[str] | None = None
    warnings: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def run(self, train: AnyData | None, corrected: bool) -> Judgement:
        predicted = predict(self.target, self.suite, self.batch)
        before = None if self.originals is None else predict(self.target, self.originals, self.batch)
        expected = self._expected(before)
        fault = (predicted != expected) & self._changed()
        self.roots = (self.suite if self.originals is None else self.originals).ids()
        features = self.extractor(self.target, self.suite, batch=self.batch)
        clean = None if self.originals is None else self.extractor(self.target, self._once(self.originals), batch=self.batch)
        per_input: dict[str, NDArray[np.float64]] = {"fault": fault.astype(np.float64)}
        natural, reference = self._naturalness(features, clean, train, per_input)
        fair = impartiality(
            predicted, fault, self.classes, clean=None if before is None else before[before >= 0], roots=self.roots,
            corrected=corrected,
        )  # fmt: skip
        self.warnings += fair.warnings
        one_class = len(np.unique(expected)) < 2
        if one_class or fair.faults is None:
            self.refused["impartiality"] = (
                "impartiality: the suite has inputs of one class only, which says nothing about favoured classes."
                if one_class
                else "impartiality: the suite has no faults, so nothing is favoured."
            )
        defects = self._defects(predicted, before, expected, fault)
        even: dict[str, Any] = {k: v for k, v in fair.to_dict().items() if k != "warnings"}
        if one_class:
            self.warnings.append(self.refused["impartiality"])
            even |= {"all": None, "faults": None, "all_interval": None, "faults_interval": None}
        return Judgement(
            self.target.spec, self.target.fingerprint, self.extractor.name, reference, len(self.suite), defects,
            self._diversity(features, clean), natural, even, tuple(dict.fromkeys(self.warnings)), self.refused, per_input,
            self.roots, predicted, expected,
        )  # fmt: skip

    def _expected(self, before: NDArray[np.int64] | None) -> NDArray[np.int64]:
        labels = self.suite.labels
        if labels is None and self.originals is not None:
            labels = self.originals.labels
        if labels is not None:
            return labels
        assert before is not None  # checked by `judge`
        self.warnings.append("the suite has no labels: faults are changes of the prediction.")
        return before

    def _once(self, source: Source) -> Source:
        """A seed of many outputs counts once in the clean suite."""
        return source.take(np.sort(np.unique(source.ids(), return_index=True)[1]))

    def _changed(self) -> NDArray[np.bool_]:
        """An output that is its own original shows nothing new, whatever is predicted."""
        if self.originals is None:
            return np.ones(len(self.suite), dtype=bool)
        return np.asarray(self.suite.ids() != self.originals.ids())

    def _defects(
        self, predicted: NDArray[np.int64], before: NDArray[np.int64] | None, expected: NDArray[np.int64],
        fault: NDArray[np.bool_],
    ) -> dict[str, Any]:  # fmt: skip
        pairs = list(zip(expected[fault].tolist(), predicted[fault].tolist(), strict=True))
        operators = (
            [self.operators[i] for i in np.flatnonzero(fault).tolist()] if self.operators is not None else [""] * len(pairs)
        )
        seeds = len(np.unique(self.roots))
        raw = wilson(int(fault.sum()), len(fault))
        numbers: dict[str, Any] = {
            "faults": int(fault.sum()), "fault_rate": raw.value, "fault_rate_interval": [raw.low, raw.high], "seeds": seeds,
            "roots": len(np.unique(self.roots[fault])), "faults_per_seed": float(fault.sum() / seeds),
            "root_label_pairs": len(set(zip(self.roots[fault].tolist(), predicted[fault].tolist(), strict=True))),
            "class_pairs": len(set(pairs)), "families": len(set(zip(pairs, operators, strict=True))),
            "true_classes": len(np.unique(expected[fault])),
            "predicted_classes": len(np.unique(predicted[fault & (predicted >= 0)])),
        }  # fmt: skip
        right = None if before is None else before == expected
        numbers["originally_correct"] = None if right is None else int(right.sum())
        if right is None:
            self.refused["success"] = "success: the suite does not know its originals, so nobody knows what was right before."
        elif right.any():
            success = wilson(int((fault & right).sum()), int(right.sum()))
            numbers |= {"success": success.value, "success_interval": [success.low, success.high]}
        else:
            self.refused["success"] = "no original is classified correctly: a success rate means nothing."
            self.warnings.append(self.refused["success"])
        return numbers

    def _diversity(self, features: Features, clean: Features | None) -> dict[str, Any]:
        if len(self.suite) < 2:
            self.refused["diversity"] = "one input has no diversity."
            self.warnings.append(self.refused["diversity"])
            return {}
        beside = {} if clean is None or len(clean.values) < 2 else {"clean": vars(spread(clean.values))}
        return {**vars(spread(features.values)), **beside}

    def _naturalness(
        self, features: Features, clean: Features | None, train: AnyData | None, per_input: dict[str, NDArray[np.float64]]
    ) -> tuple[dict[str, Any], str | None]:
        numbers: dict[str, Any] = {"clean": {}}
        if self.originals is not None:
            numbers |= self._pixels(per_input)
            away = self.extractor.distance(self.target, self.suite, self.originals, batch=self.batch)
            per_input["feature_distance"] = away
            numbers["feature_distance"] = float(away.mean())
        training = None
        if train is not None:
            training = self.extractor(self.target, read(self.target, train), batch=self.batch)
            try:
                numbers["clean"] |= self._manifold(numbers, features, clean, training, per_input)
            except BadInput as error:  # too few, perhaps: everything else is still computed
                self.refused["outside"] = str(error)
                self.warnings.append(str(error))
        else:
            self.refused["outside"] = "outside: training data is needed to know its manifold; give --train."
        reference = clean if clean is not None else training
        name = None if reference is None else "the originals" if clean is not None else "the training data"
        self._scores(numbers, features, clean, reference)
        return numbers, name

    def _manifold(
        self, numbers: dict[str, Any], features: Features, clean: Features | None, training: Features,
        per_input: dict[str, NDArray[np.float64]],
    ) -> dict[str, float]:  # fmt: skip
        manifold = Manifold.of(training.values)
        away = manifold.distance(features.values)
        per_input["from_training"] = away
        numbers["outside"] = float((away > 1).mean())
        return {} if clean is None else {"outside": float((manifold.distance(clean.values) > 1).mean())}

    def _scores(self, numbers: dict[str, Any], features: Features, clean: Features | None, reference: Features | None) -> None:
        scores: dict[str, Callable[[], Score]] = {
            "fid": lambda: fid(features.values, _against(reference)),
            "fid_shrunk": lambda: fid(features.values, _against(reference), covariance="shrunk"),
            "kid": lambda: kid(features.values, _against(reference)),
            "inception_score": lambda: inception_score(_probs(features)),
        }
        for name, make in scores.items():
            try:
                score = make()
            except BadInput as error:  # the other scores are still computed
                numbers[name], self.refused[name] = None, str(error)
                self.warnings.append(str(error))
            else:
                numbers[name] = score.value
                self.warnings += score.warnings
        if clean is not None and clean.probs is not None and numbers["inception_score"] is not None:
            try:
                numbers["clean"]["inception_score"] = inception_score(clean.probs).value
            except BadInput:  # fewer seeds than classes: nothing to stand beside
                numbers["clean"]["inception_score"] = None

    def _pixels(self, per_input: dict[str, NDArray[np.float64]]) -> dict[str, Any]:
        """Distances, and for images likeness and roughness; means over the suite."""
        assert self.originals is not None
        parts: dict[str, list[NDArray[np.float64]]] = {}
        for pair in zip(*(batches(self.target, s, batch=self.batch) for s in (self.suite, self.originals)), strict=True):
            x, original = (to_unit(part.x, self.target.bounds) for part in pair)
            for name, values in _pixel_numbers(x, original).items():
                parts.setdefault(name, []).append(values)
        values_of = {name: np.concatenate(values) for name, values in parts.items()}
        clean = values_of.pop("clean_variation", None)
        per_input.update(values_of)
        numbers: dict[str, Any] = {name: float(values.mean()) for name, values in values_of.items()}
        if clean is not None:
            variation = float(clean.mean())
            numbers["clean"] = {"total_variation": variation}
            numbers["total_variation_ratio"] = numbers["total_variation"] / variation if variation > 0 else None
        return {"clean": {}, **numbers}


def predict(target: Target, source: Source, batch: int = BATCH) -> NDArray[np.int64]:
    """(n,) predicted classes; -1 where logits are not finite."""
    with torch.inference_mode():
        parts = [predicted_classes(target.logits(part.x)) for part in batches(target, source, batch=batch)]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _pixel_numbers(x: Tensor, original: Tensor) -> dict[str, NDArray[np.float64]]:
    numbers = distances(x, original)
    if x.ndim == 4:
        numbers["ssim"] = ssim(x, original)
        numbers["total_variation"] = total_variation(x)
        numbers["clean_variation"] = total_variation(original)
    return numbers


def _against(reference: Features | None) -> NDArray[np.float64]:
    if reference is None:
        raise BadInput(
            "missing", "train", "FID and KID need something natural to compare with: originals, or training data (--train)."
        )
    return reference.values


def _probs(features: Features) -> NDArray[np.float64]:
    if features.probs is None or features.predicted is None:
        raise BadInput(
            "unsuitable",
            "extractor",
            "the inception score needs an extractor that is a classifier; this one gives features only.",
        )
    if len(features.predicted) > 1 and len(np.unique(features.predicted)) < 2:
        raise BadInput(
            "too-few", "classes", "inception score: the extractor sees one class only in this suite, so the score says nothing."
        )
    return features.probs


def compare_suites(judged: Mapping[str, Judgement], *, paired: bool = False, draws: int = 2000, seed: int = 0) -> Comparison:
    """Suites side by side by the metrics per input, one mean per seed: outputs of one seed are not independent.

    paired: only seeds that all suites share, each compared with itself. Suites judged on different targets are refused.
    """
    for what in ("fingerprint", "extractor"):
        if len({getattr(judgement, what) for judgement in judged.values()}) > 1:
            raise BadInput("conflict", what, f"the suites were judged with different {what}s: judge them alike to compare them.")
    seeds = {name: np.unique(judgement.roots) for name, judgement in judged.items()}
    if paired:
        shared = seeds[next(iter(seeds))]
        for others in seeds.values():
            shared = np.intersect1d(shared, others)
        if len(shared) < 2:
            raise BadInput(
                "too-few",
                "seeds",
                f"the suites share {len(shared)} seeds: paired comparison needs at least 2 that all of them used.",
            )
        seeds = dict.fromkeys(seeds, shared)
    tables = {
        name: {metric: _by_seed(values, judgement.roots, seeds[name]) for metric, values in judgement.per_input.items()}
        for name, judgement in judged.items()
    }
    return compare(tables, paired=paired, draws=draws, seed=seed)


def _by_seed(values: NDArray[np.float64], roots: NDArray[Any], seeds: NDArray[Any]) -> NDArray[np.float64]:
    names, owner = np.unique(roots, return_inverse=True)
    means = np.bincount(owner, values) / np.bincount(owner)
    means_of_seeds: NDArray[np.float64] = means[np.searchsorted(names, seeds)]
    return means_of_seeds
