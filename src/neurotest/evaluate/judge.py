"""A suite judged: faults, diversity, naturalness, impartiality, with the clean suite beside every number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
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
ABOUT = ("clean", "outputs", "classes", "fault_count")  # what numbers are made from, and what stands beside them


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a suite is worth. `per_input` holds one number per output, for comparisons with other suites."""

    target: str
    fingerprint: str
    extractor: str
    outputs: int
    defects: dict[str, Any]
    diversity: dict[str, Any]
    naturalness: dict[str, Any]
    impartiality: dict[str, Any]
    warnings: tuple[str, ...] = ()
    per_input: dict[str, NDArray[np.float64]] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        shown = ("target", "fingerprint", "extractor", "outputs", "defects", "diversity", "naturalness", "impartiality")
        return {**{name: getattr(self, name) for name in shown}, "warnings": list(self.warnings)}

    def table(self) -> list[dict[str, Any]]:
        """One row per number, the clean suite's beside it where there is one."""
        rows = []
        for part in ("defects", "diversity", "naturalness", "impartiality"):
            held = getattr(self, part)
            clean = held.get("clean")
            beside = clean if isinstance(clean, dict) else {"all": clean}
            rows += [
                {"part": part, "metric": name, "value": value, "clean": beside.get(name)}
                for name, value in held.items()
                if isinstance(value, (int, float)) and not isinstance(value, bool) and name not in ABOUT
            ]
        return rows

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        write_json(path, self.to_dict())
        return path


def judge(
    target: Target | str,
    suite: Source | str,
    *,
    originals: Source | str | None = None,
    train: Source | str | None = None,
    extractor: str | Target | nn.Module | None = None,
    corrected: bool = False,
    batch: int = BATCH,
) -> Judgement:
    """Judge a suite whose input i was made from `originals[i]` (by default what the suite itself remembers).

    Labels are those of the originals. train: data the network was trained on, for the share of inputs outside its manifold.
    extractor: what makes the features (see `Extractor.of`); the result names it. corrected: Miller and Madow's entropy.
    """
    target = load(target)
    given = aligned(target, data(suite, shape=target.shape))
    if originals is not None:
        given = given.with_originals(aligned(target, data(originals, shape=target.shape)))
    if given.originals is None:
        raise BadInput(f"{given.what} does not say what its inputs were made from: give the originals, input by input.")
    classes = fit(target, given)
    return _Judge(target, given, given.originals, classes, Extractor.of(extractor, target), batch).run(train, corrected)


@dataclass(eq=False)
class _Judge:
    target: Target
    suite: Source
    originals: Source
    classes: int
    extractor: Extractor
    batch: int
    warnings: list[str] = field(default_factory=list)

    def run(self, train: Source | str | None, corrected: bool) -> Judgement:
        said, before = self._predict(self.suite), self._predict(self.originals)
        labels = self.suite.labels if self.suite.labels is not None else self.originals.labels
        expected = before if labels is None else labels
        if labels is None:
            self.warnings.append("the suite has no labels: faults are changes of the prediction.")
        fault = (said != expected) & self._changed()
        found = self.extractor(self.target, self.suite, batch=self.batch)
        clean = self.extractor(self.target, self.originals, batch=self.batch)
        per_input: dict[str, NDArray[np.float64]] = {"fault": fault.astype(np.float64)}
        natural = self._naturalness(found, clean, train, per_input)
        fair = impartiality(said, fault, self.classes, clean=before[before >= 0], corrected=corrected)
        self.warnings += fair.warnings
        return Judgement(
            self.target.spec, self.target.fingerprint, self.extractor.name, len(self.suite),
            self._defects(said, before, expected, fault), self._diversity(found, clean), natural,
            {k: v for k, v in fair.to_dict().items() if k != "warnings"}, tuple(dict.fromkeys(self.warnings)), per_input,
        )  # fmt: skip

    def _predict(self, source: Source) -> NDArray[np.int64]:
        parts = []
        with torch.inference_mode():
            for part in batches(self.target, source, batch=self.batch):
                logits = self.target.logits(part.x)
                parts.append(torch.where(logits.isfinite().all(1), logits.argmax(1), -1).cpu().numpy())
        return np.concatenate(parts)

    def _changed(self) -> NDArray[np.bool_]:
        """An output that is its own original shows nothing new, whatever the network says of it."""
        return np.asarray(self.suite.ids() != self.originals.ids())

    def _defects(
        self, said: NDArray[np.int64], before: NDArray[np.int64], expected: NDArray[np.int64], fault: NDArray[np.bool_]
    ) -> dict[str, Any]:
        roots = self.originals.ids()
        right = before == expected
        found: dict[str, Any] = {
            "faults": int(fault.sum()),
            "roots": len(np.unique(roots[fault])),
            "root_label_pairs": len(set(zip(roots[fault].tolist(), said[fault].tolist(), strict=True))),
            "families": len(set(zip(expected[fault].tolist(), said[fault].tolist(), strict=True))),
            "predicted_classes": len(np.unique(said[fault & (said >= 0)])),
            "originally_correct": int(right.sum()),
        }
        if right.any():
            success = wilson(int((fault & right).sum()), int(right.sum()))
            found |= {"success": success.value, "success_interval": [success.low, success.high]}
        else:
            self.warnings.append("no original is classified correctly: a success rate means nothing.")
        return found

    def _diversity(self, found: Features, clean: Features) -> dict[str, Any]:
        if len(self.suite) < 2:
            self.warnings.append("one input has no diversity.")
            return {}
        return {**vars(spread(found.values)), "clean": vars(spread(clean.values))}

    def _naturalness(
        self, found: Features, clean: Features, train: Source | str | None, per_input: dict[str, NDArray[np.float64]]
    ) -> dict[str, Any]:
        numbers: dict[str, Any] = self._pixels(per_input)
        scores: dict[str, Callable[[], frechet.Score]] = {
            "fid": lambda: frechet.fid(found.values, clean.values),
            "kid": lambda: frechet.kid(found.values, clean.values),
            "inception_score": lambda: frechet.inception_score(_probs(found)),
        }
        for name, make in scores.items():
            try:
                score = make()
            except BadInput as error:  # a number that cannot be had is told, the others are still worth having
                numbers[name] = None
                self.warnings.append(str(error))
            else:
                numbers[name] = score.value
                self.warnings += score.warnings
        if clean.probs is not None and numbers["inception_score"] is not None:
            numbers.setdefault("clean", {})["inception_score"] = frechet.inception_score(clean.probs).value
        if train is not None:
            source = data(train, shape=self.target.shape)
            manifold = Manifold.of(self.extractor(self.target, source, batch=self.batch).values)
            away = manifold.distance(found.values)
            per_input["from_training"] = away
            numbers["outside"] = float((away > 1).mean())
            numbers.setdefault("clean", {})["outside"] = float((manifold.distance(clean.values) > 1).mean())
        return numbers

    def _pixels(self, per_input: dict[str, NDArray[np.float64]]) -> dict[str, Any]:
        """Distances, and for images likeness and roughness; means over the suite."""
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
        return numbers


def _pixel_numbers(x: Tensor, original: Tensor) -> dict[str, NDArray[np.float64]]:
    found = pixels.distances(x, original)
    if x.ndim == 4:
        found["ssim"] = pixels.ssim(x, original)
        found["total_variation"] = pixels.total_variation(x)
        found["clean_variation"] = pixels.total_variation(original)
    return found


def _probs(found: Features) -> NDArray[np.float64]:
    if found.probs is None:
        raise BadInput("the inception score needs an extractor that is a classifier; this one gives features only.")
    return found.probs


def compare_suites(judged: Mapping[str, Judgement], *, paired: bool = False, draws: int = 2000, seed: int = 0) -> Comparison:
    """Suites side by side by what was measured per input; suites judged on different targets or extractors are refused."""
    for what in ("fingerprint", "extractor"):
        if len({getattr(one, what) for one in judged.values()}) > 1:
            raise BadInput(f"the suites were judged with different {what}s: judge them alike to compare them.")
    return compare({name: one.per_input for name, one in judged.items()}, paired=paired, draws=draws, seed=seed)
