"""A suite judged: faults, diversity, naturalness, impartiality, with the clean suite beside every number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.errors import BadInput, near
from neurotest.evaluate import frechet, pixels
from neurotest.evaluate.compare import Comparison, compare
from neurotest.evaluate.features import Extractor, Features
from neurotest.evaluate.impartiality import impartiality
from neurotest.evaluate.manifold import Manifold, spread
from neurotest.files import write_json
from neurotest.mutate.space import to_unit
from neurotest.scan import aligned, batches, fit
from neurotest.stats.bootstrap import wilson
from neurotest.target import Target
from neurotest.target.load import load

BATCH = 250
PARTS = ("defects", "diversity", "naturalness", "impartiality")
ABOUT = (
    "clean",
    "outputs",
    "classes",
    "fault_count",
    "seeds",
    "seeds_tried",
    "forwards",
)  # what numbers are made from, and what stands beside them
# What may be asked for by name; `impartiality` is the evenness of the faults, `diversity` the Vendi score.
METRICS = (
    "success", "fid", "fid_shrunk", "kid", "inception_score", "ssim", "total_variation", "feature_distance", "outside",
    "l0", "l2", "linf", "impartiality", "diversity",
)  # fmt: skip
LONG = {"impartiality": ("impartiality", "faults"), "diversity": ("diversity", "vendi"), "success": ("defects", "success")}


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a suite is worth. `per_input` holds one number per output and `roots` its seed, for comparisons with other suites."""

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
    refused: dict[str, str] = field(default_factory=dict)  # numbers that cannot be had, and why
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
            held = getattr(self, part)
            clean = held.get("clean")
            beside = clean if isinstance(clean, dict) else {"all": clean}
            rows += [
                {
                    "part": part,
                    "metric": name,
                    "value": value,
                    "clean": beside.get(name),
                    "interval": held.get(f"{name}_interval"),
                }
                for name, value in held.items()
                if isinstance(value, (int, float)) and not isinstance(value, bool) and name not in ABOUT
            ]
        return rows

    def asked(self, metrics: Sequence[str]) -> None:
        """Refuse, in a sentence, a metric that was asked for and cannot be had from this suite."""
        for name in metrics:
            part, key = LONG.get(name, ("naturalness", name))
            if getattr(self, part).get(key) is None:
                raise BadInput(self.refused.get(name) or f"{name} cannot be had from this suite of {self.outputs} outputs.")

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        write_json(path, self.to_dict())
        return path


def check_metrics(metrics: Sequence[str]) -> None:
    for name in metrics:
        if name not in METRICS:
            raise BadInput(f"--metric {name}: unknown. {near(name, METRICS)}")


def judge(
    target: Target | str,
    suite: Source | str,
    *,
    originals: Source | str | None = None,
    train: Source | str | None = None,
    extractor: str | Target | nn.Module | Extractor | None = None,
    metrics: Sequence[str] = (),
    operators: Sequence[str] | None = None,
    corrected: bool = False,
    batch: int = BATCH,
) -> Judgement:
    """Judge a suite whose input i was made from `originals[i]` (by default what the suite itself remembers).

    Labels are those of the suite or of the originals; a suite without originals needs labels. train: data the network was trained
    on, for the share of inputs outside its manifold (and for FID and KID where there are no originals). extractor: what makes the
    features (see `Extractor.of`); the result names it. metrics: what must be had; one that cannot is refused. operators: what
    each input was made by, for fault families. corrected: Miller and Madow's entropy.
    """
    check_metrics(metrics)
    target = load(target)
    given = aligned(target, data(suite, shape=target.shape))
    if originals is not None:
        given = given.with_originals(aligned(target, data(originals, shape=target.shape)))
    if given.originals is None and given.labels is None:
        raise BadInput(
            f"{given.what} has no labels and does not say what its inputs were made from: give the originals, input by input."
        )
    if operators is not None and len(operators) != len(given):
        raise BadInput(f"operators: {len(operators)} for {len(given)} inputs; expected one each.")
    classes = fit(target, given)
    made = extractor if isinstance(extractor, Extractor) else Extractor.of(extractor, target)
    found = _Judge(target, given, given.originals, classes, made, batch, operators).run(train, corrected)
    found.asked(metrics)
    return found


@dataclass(eq=False)
class _Judge:
    target: Target
    suite: Source
    originals: Source | None
    classes: int
    extractor: Extractor
    batch: int
    operators: Sequence[str] | None = None
    warnings: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def run(self, train: Source | str | None, corrected: bool) -> Judgement:
        said = self._predict(self.suite)
        before = None if self.originals is None else self._predict(self.originals)
        expected = self._expected(before)
        fault = (said != expected) & self._changed()
        self.roots = (self.suite if self.originals is None else self.originals).ids()
        found = self.extractor(self.target, self.suite, batch=self.batch)
        clean = None if self.originals is None else self.extractor(self.target, self._once(self.originals), batch=self.batch)
        per_input: dict[str, NDArray[np.float64]] = {"fault": fault.astype(np.float64)}
        natural, reference = self._naturalness(found, clean, train, per_input)
        fair = impartiality(
            said,
            fault,
            self.classes,
            clean=None if before is None else before[before >= 0],
            roots=self.roots,
            corrected=corrected,
        )
        self.warnings += fair.warnings
        one_class = len(np.unique(expected)) < 2
        if one_class or fair.faults is None:
            self.refused["impartiality"] = (
                "impartiality: the suite has inputs of one class only, which says nothing about favoured classes."
                if one_class else "impartiality: the suite has no faults, so nothing is favoured."
            )  # fmt: skip
        defects = self._defects(said, before, expected, fault)
        even: dict[str, Any] = {k: v for k, v in fair.to_dict().items() if k != "warnings"}
        if one_class:
            self.warnings.append(self.refused["impartiality"])
            even |= {"all": None, "faults": None, "all_interval": None, "faults_interval": None}
        return Judgement(
            self.target.spec, self.target.fingerprint, self.extractor.name, reference, len(self.suite), defects,
            self._diversity(found, clean), natural, even, tuple(dict.fromkeys(self.warnings)), self.refused, per_input,
            self.roots, said, expected,
        )  # fmt: skip

    def _expected(self, before: NDArray[np.int64] | None) -> NDArray[np.int64]:
        labels = self.suite.labels
        if labels is None and self.originals is not None:
            labels = self.originals.labels
        if labels is not None:
            return labels
        assert before is not None  # judge has seen to it
        self.warnings.append("the suite has no labels: faults are changes of the prediction.")
        return before

    def _once(self, source: Source) -> Source:
        """A seed of many outputs counts once in the clean suite."""
        return source.take(np.sort(np.unique(source.ids(), return_index=True)[1]))

    def _predict(self, source: Source) -> NDArray[np.int64]:
        parts = []
        with torch.inference_mode():
            for part in batches(self.target, source, batch=self.batch):
                logits = self.target.logits(part.x)
                parts.append(torch.where(logits.isfinite().all(1), logits.argmax(1), -1).cpu().numpy())
        return np.concatenate(parts)

    def _changed(self) -> NDArray[np.bool_]:
        """An output that is its own original shows nothing new, whatever the network says of it."""
        if self.originals is None:
            return np.ones(len(self.suite), dtype=bool)
        return np.asarray(self.suite.ids() != self.originals.ids())

    def _defects(
        self,
        said: NDArray[np.int64],
        before: NDArray[np.int64] | None,
        expected: NDArray[np.int64],
        fault: NDArray[np.bool_],
    ) -> dict[str, Any]:
        pairs = list(zip(expected[fault].tolist(), said[fault].tolist(), strict=True))
        ways = [self.operators[i] for i in np.flatnonzero(fault).tolist()] if self.operators is not None else [""] * len(pairs)
        seeds = len(np.unique(self.roots))
        raw = wilson(int(fault.sum()), len(fault))
        found: dict[str, Any] = {
            "faults": int(fault.sum()), "fault_rate": raw.value, "fault_rate_interval": [raw.low, raw.high], "seeds": seeds,
            "roots": len(np.unique(self.roots[fault])), "faults_per_seed": float(fault.sum() / seeds),
            "root_label_pairs": len(set(zip(self.roots[fault].tolist(), said[fault].tolist(), strict=True))),
            "class_pairs": len(set(pairs)), "families": len(set(zip(pairs, ways, strict=True))),
            "true_classes": len(np.unique(expected[fault])), "predicted_classes": len(np.unique(said[fault & (said >= 0)])),
        }  # fmt: skip
        right = None if before is None else before == expected
        found["originally_correct"] = None if right is None else int(right.sum())
        if right is None:
            self.refused["success"] = "success: the suite does not know its originals, so nobody knows what was right before."
        elif right.any():
            success = wilson(int((fault & right).sum()), int(right.sum()))
            found |= {"success": success.value, "success_interval": [success.low, success.high]}
        else:
            self.refused["success"] = "no original is classified correctly: a success rate means nothing."
            self.warnings.append(self.refused["success"])
        return found

    def _diversity(self, found: Features, clean: Features | None) -> dict[str, Any]:
        if len(self.suite) < 2:
            self.refused["diversity"] = "one input has no diversity."
            self.warnings.append(self.refused["diversity"])
            return {}
        beside = {} if clean is None or len(clean.values) < 2 else {"clean": vars(spread(clean.values))}
        return {**vars(spread(found.values)), **beside}

    def _naturalness(
        self, found: Features, clean: Features | None, train: Source | str | None, per_input: dict[str, NDArray[np.float64]]
    ) -> tuple[dict[str, Any], str | None]:
        numbers: dict[str, Any] = {"clean": {}}
        if self.originals is not None:
            numbers |= self._pixels(per_input)
            away = self.extractor.distance(self.target, self.suite, self.originals, batch=self.batch)
            per_input["feature_distance"] = away
            numbers["feature_distance"] = float(away.mean())
        known = None
        if train is not None:
            source = data(train, shape=self.target.shape)
            known = self.extractor(self.target, source, batch=self.batch)
            numbers["clean"] |= self._manifold(numbers, found, clean, known, per_input)
        else:
            self.refused["outside"] = "outside: training data is needed to know its manifold; give --train."
        reference = clean if clean is not None else known
        named = None if reference is None else "the originals" if clean is not None else "the training data"
        self._scores(numbers, found, clean, reference)
        return numbers, named

    def _manifold(
        self, numbers: dict[str, Any], found: Features, clean: Features | None, known: Features,
        per_input: dict[str, NDArray[np.float64]],
    ) -> dict[str, float]:  # fmt: skip
        manifold = Manifold.of(known.values)
        away = manifold.distance(found.values)
        per_input["from_training"] = away
        numbers["outside"] = float((away > 1).mean())
        return {} if clean is None else {"outside": float((manifold.distance(clean.values) > 1).mean())}

    def _scores(self, numbers: dict[str, Any], found: Features, clean: Features | None, reference: Features | None) -> None:
        scores: dict[str, Callable[[], frechet.Score]] = {
            "fid": lambda: frechet.fid(found.values, _against(reference)),
            "fid_shrunk": lambda: frechet.fid(found.values, _against(reference), covariance="shrunk"),
            "kid": lambda: frechet.kid(found.values, _against(reference)),
            "inception_score": lambda: frechet.inception_score(_probs(found)),
        }
        for name, make in scores.items():
            try:
                score = make()
            except BadInput as error:  # a number that cannot be had is told, the others are still worth having
                numbers[name], self.refused[name] = None, str(error)
                self.warnings.append(str(error))
            else:
                numbers[name] = score.value
                self.warnings += score.warnings
        if clean is not None and clean.probs is not None and numbers["inception_score"] is not None:
            try:
                numbers["clean"]["inception_score"] = frechet.inception_score(clean.probs).value
            except BadInput:  # fewer seeds than classes: nothing to stand beside
                numbers["clean"]["inception_score"] = None

    def _pixels(self, per_input: dict[str, NDArray[np.float64]]) -> dict[str, Any]:
        """Distances, and for images likeness and roughness; means over the suite."""
        assert self.originals is not None
        parts: dict[str, list[NDArray[np.float64]]] = {}
        for one, other in zip(
            batches(self.target, self.suite, batch=self.batch),
            batches(self.target, self.originals, batch=self.batch),
            strict=True,
        ):
            x, original = (to_unit(part.x, self.target.bounds) for part in (one, other))
            for name, values in _pixel_numbers(x, original).items():
                parts.setdefault(name, []).append(values)
        held = {name: np.concatenate(values) for name, values in parts.items()}
        rough = held.pop("clean_variation", None)
        per_input.update(held)
        numbers: dict[str, Any] = {name: float(values.mean()) for name, values in held.items()}
        if rough is not None:
            numbers["clean"] = {"total_variation": float(rough.mean())}
            numbers["total_variation_ratio"] = numbers["total_variation"] / float(rough.mean()) if rough.mean() > 0 else None
        return {"clean": {}, **numbers}


def _pixel_numbers(x: Tensor, original: Tensor) -> dict[str, NDArray[np.float64]]:
    found = pixels.distances(x, original)
    if x.ndim == 4:
        found["ssim"] = pixels.ssim(x, original)
        found["total_variation"] = pixels.total_variation(x)
        found["clean_variation"] = pixels.total_variation(original)
    return found


def _against(reference: Features | None) -> NDArray[np.float64]:
    if reference is None:
        raise BadInput("FID and KID need something natural to compare with: originals, or training data (--train).")
    return reference.values


def _probs(found: Features) -> NDArray[np.float64]:
    if found.probs is None or found.predicted is None:
        raise BadInput("the inception score needs an extractor that is a classifier; this one gives features only.")
    if len(found.predicted) > 1 and len(np.unique(found.predicted)) < 2:
        raise BadInput("inception score: the extractor sees one class only in this suite, so the score says nothing.")
    return found.probs


def compare_suites(judged: Mapping[str, Judgement], *, paired: bool = False, draws: int = 2000, seed: int = 0) -> Comparison:
    """Suites side by side by what was measured per input, one mean per seed: outputs of one seed are not independent.

    paired: only seeds that all suites share, each compared with itself. Suites judged on different targets are refused.
    """
    for what in ("fingerprint", "extractor"):
        if len({getattr(one, what) for one in judged.values()}) > 1:
            raise BadInput(f"the suites were judged with different {what}s: judge them alike to compare them.")
    seeds = {name: np.unique(one.roots) for name, one in judged.items()}
    if paired:
        shared = seeds[next(iter(seeds))]
        for others in seeds.values():
            shared = np.intersect1d(shared, others)
        if len(shared) < 2:
            raise BadInput(f"the suites share {len(shared)} seeds: paired comparison needs at least 2 that all of them used.")
        seeds = dict.fromkeys(seeds, shared)
    tables = {name: {m: _by_seed(v, one.roots, seeds[name]) for m, v in one.per_input.items()} for name, one in judged.items()}
    return compare(tables, paired=paired, draws=draws, seed=seed)


def _by_seed(values: NDArray[np.float64], roots: NDArray[Any], seeds: NDArray[Any]) -> NDArray[np.float64]:
    names, owner = np.unique(roots, return_inverse=True)
    means = np.bincount(owner, values) / np.bincount(owner)
    found: NDArray[np.float64] = means[np.searchsorted(names, seeds)]
    return found
