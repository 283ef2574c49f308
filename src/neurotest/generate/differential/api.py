"""`neurotest.diff`: drive targets apart from seeds on which they agree, test again what would be saved, and count."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import registry
from neurotest.audio import is_audio
from neurotest.data.objects import AnyData
from neurotest.data.source import Source, content_ids
from neurotest.errors import BadInput
from neurotest.generate.differential.ensemble import BatchOutputs, Ensemble, Method, Search, answers, apart, left, rows_of
from neurotest.generate.differential.result import DiffResult
from neurotest.generate.fuzz.seeds import Seeds, choose_seeds
from neurotest.generate.gradient.engine import FLAT_INPUTS
from neurotest.generate.suite import RandomControl, RegressionValues, shuffle
from neurotest.generate.work import Batches, old_method
from neurotest.jobs.life import resumed
from neurotest.jobs.methods import with_options
from neurotest.jobs.opening import AnyTarget, open_data, open_target, stored_source
from neurotest.jobs.parts import Arrays
from neurotest.jobs.stored import stored_targets
from neurotest.jobs.work import resume_job, run_job
from neurotest.mutate.unit import SAME, distances, from_unit, to_unit
from neurotest.public import public
from neurotest.runs.store import Run
from neurotest.scan import Progress, fit
from neurotest.settings.generate import DiffSettings
from neurotest.target import Target

MASKED_ONE = (
    "{spec}: every gradient towards the input is zero, it rounds, thresholds or detaches somewhere (or saturates): only "
    "the others lead."
)


@public(DiffSettings, method=True)
def diff(
    targets: AnyTarget | Sequence[AnyTarget] | None = None,
    seeds: AnyData | None = None,
    method: str | Method | None = None,
    *,
    out: str | Path | bool | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> DiffResult:
    """Climb the gradient from seeds on which all targets agree until they differ (deepxplore), or one fails (dlfuzz, adapt).

    method: `deepxplore` (default; two or more targets), `dlfuzz` or `adapt` (one), with options (`deepxplore:blackout,steps=50`,
    or steps=, constraint=, strategy= here). Seeds that some target gets wrong are set aside unless `keep_wrong`. batch: 64 by
    default. out: where the run goes (None: ./neurotest-runs; False: nothing is written). resume: an interrupted run to go on
    with; it keeps its settings.
    """
    several = list(targets) if isinstance(targets, Sequence) and not isinstance(targets, str) else [targets]
    named = [target for target in several if target is not None]
    options = DiffSettings.of_part("method", settings)
    if resume is not None:

        def again(run: Run, config: dict[str, Any]) -> _Diff:
            old = old_method(run, config, "differential", method, options)
            chosen = resumed(DiffSettings, run, config, settings)
            return _Diff.begin(stored_targets(run, named), stored_source(run, config["seeds"], seeds), old, chosen)

        return resume_job(resume, "diff", again, progress, out=out)
    if targets is None or seeds is None:
        raise BadInput("missing", "targets", "diff needs targets and seeds (or resume=RUN to go on with a run).")
    if not named:
        raise BadInput("too-few", "targets", "diff needs at least one target.")
    searcher: Method = with_options("differential", method or "deepxplore", options)
    return run_job(_Diff.begin([open_target(one) for one in named], seeds, searcher, DiffSettings.of(settings)), out, progress)


def deepxplore_suite(
    targets: Sequence[AnyTarget], seeds: AnyData, *, limit: int | None = None, seed: int = 0, **options: Any
) -> DiffResult:
    """One suite of DeepXplore in memory, for studies, with the published settings (and options in their place)."""
    return diff(targets, seeds, "deepxplore:preset=mnist-paper", limit=limit, seed=seed, out=False, **options)


def agreeing(targets: Sequence[Target], source: Source, *, keep_wrong: bool, batch: int) -> tuple[Seeds, int]:
    """Seeds for which all targets predict one class (or regression values within the tolerance of the first), the right one
    unless `keep_wrong`, and how many the targets differ on."""
    seeds = choose_seeds(targets[0], source, keep_wrong=keep_wrong, batch=batch)
    same = np.ones(len(seeds), dtype=bool)
    with torch.inference_mode():
        for target in targets[1:]:
            in_bounds = replace(seeds, bounds=target.bounds)
            for start in range(0, len(seeds), batch):
                x = seeds.unit(seeds.x[start : start + batch], target.device)
                said = answers(target.logits(target.prepare(in_bounds.stored(x))), target.bins)
                same[start : start + batch] &= ~left(said, _of_seeds(seeds)[start : start + batch], targets[0].tolerance)
    if not same.any():
        raise BadInput(
            "empty", "seeds", f"the targets agree on none of the {len(same)} seeds: are their classes in the same order?"
        )
    return seeds.take(np.flatnonzero(same)), int((~same).sum())


def _of_seeds(seeds: Seeds) -> NDArray[Any]:
    """(n,) what the first target says of the seeds: classes, or regression values."""
    return seeds.roots.predicted if seeds.values is None else seeds.values


def _check_targets(targets: Sequence[Target], method: Method, source: Source) -> None:
    """One size, one number of classes, one list of class names; as many targets as the method compares."""
    methods = registry.entries("differential").items()
    others = " or ".join(name for name, entry in methods if getattr(entry.make, "several", None) is not method.several)
    if method.several and len(targets) < 2:
        raise BadInput("too-few", "targets", f"{method.name} compares targets: give two or more (for a single one use {others}).")
    if not method.several and len(targets) > 1:
        raise BadInput(
            "conflict",
            "targets",
            f"{method.name} tests a single target, {len(targets)} were given: use {others} to compare them.",
        )
    shapes = {t.spec: t.shape for t in targets if t.shape is not None}
    if len(set(shapes.values())) > 1:
        sizes = ", ".join(f"{spec} takes {'x'.join(map(str, shape))}" for spec, shape in shapes.items())
        raise BadInput("wrong-shape", "targets", f"targets: {sizes}. Differential testing needs inputs of one size.")
    classes = [fit(targets[0], source)]
    few = to_unit(targets[0].prepare(source.read(np.arange(min(4, len(source))))), targets[0].bounds)
    for target in targets[1:]:
        target.shape = target.shape or targets[0].shape
        classes.append(target.check_outputs(from_unit(few.to(target.device), target.bounds)))
    if len(set(classes)) > 1:
        numbers = ", ".join(f"{target.spec} has {n}" for target, n in zip(targets, classes, strict=True))
        raise BadInput("wrong-count", "classes", f"targets: {numbers} classes. Differential testing needs equal ones.")
    names = {target.classes for target in targets if target.classes is not None}
    if len(names) > 1:
        raise BadInput(
            "conflict",
            "classes",
            f"targets: {targets[0].spec} and the others name different classes: what would it mean that they differ?",
        )


@dataclass(eq=False, kw_only=True)
class _Diff(Batches[DiffResult]):
    """One method over seeds on which the targets agree, batch by batch."""

    command = "diff"
    disagreed: int

    @classmethod
    def begin(cls, targets: list[Target], seeds: AnyData, method: Method, settings: DiffSettings) -> _Diff:
        first = next((target for target in targets if target.shape is not None), targets[0])
        source = open_data(first, seeds, limit=settings.limit)
        _check_targets(targets, method, source)
        method.check(source.shape, audio=is_audio(source.dtype, source.shape))
        for target in targets:
            target.survey().find(method.layers)  # a missing layer is refused before a run is made
        chosen, disagreed = agreeing(targets, source, keep_wrong=settings.keep_wrong, batch=settings.batch)
        return cls(targets=targets, source=source, seeds=chosen, disagreed=disagreed, method=method, settings=settings)

    def work(self, run: Run | None, progress: Progress | None) -> DiffResult:
        with Ensemble(self.targets, self.method.layers, levels=self.seeds.levels) as ensemble:
            search = self.method.begin(ensemble, self.seed)
            if self.done:
                search.restore(self.done[-1])
                ensemble.restore(self.done[-1]["counts_of_passes"])
            self._masked = ensemble.masked(self.seeds.unit(self.seeds.x[:FLAT_INPUTS], self.target.device))
            one = functools.partial(self._one, ensemble, search)
            self.each(one, lambda last: ensemble.refuse_flat(last=last), run, progress)
            return self._result(ensemble, search)

    def _one(self, ensemble: Ensemble, search: Search, rows: NDArray[np.int64]) -> Arrays:
        device = self.target.device
        positions = self.seeds.positions[rows]
        seed = self.seeds.unit(self.seeds.x[rows], device)
        outcome = _distinct(search.batch(seed, _of_seeds(self.seeds)[rows], positions))
        saved = self.seeds.stored(outcome.x)
        x = self.seeds.unit(saved, device)  # as it will be read back
        start = rows_of(seed, outcome.rows)
        numbers = (1000 * positions[outcome.rows] + outcome.steps).tolist()  # one draw of the control per output
        control = self.seeds.stored(shuffle(start, x, numbers, self.seed))
        return {
            "x": saved, "row": rows[outcome.rows], "steps": outcome.steps, "said": ensemble.predict(x), "random": control,
            "random_said": ensemble.predict(self.seeds.unit(control, device)), "distance": distances(x, start),
            "unstable": np.array(outcome.unstable), "counts_of_passes": ensemble.counts(), **search.arrays(),
        }  # fmt: skip

    def _result(self, ensemble: Ensemble, search: Search) -> DiffResult:
        arrays = self.joined("x", "row", "steps", "said", "random", "random_said", "distance")
        rows, predictions, noise = arrays["row"], arrays["said"], arrays["random_said"]
        expected, tolerance = _of_seeds(self.seeds)[rows], self.target.tolerance
        changed = arrays["distance"][:, 2] > SAME
        first, noisy = (deviant(said, expected, tolerance) for said in (predictions, noise))
        quantities = RegressionValues.of(self.seeds, first, rows)
        scanned = len(self.source) + (len(self.targets) - 1) * (len(self.seeds) + self.disagreed)
        return DiffResult(
            attack=self.method.name, diversity=None, x=arrays["x"], seeds=self.seeds.x[rows],
            positions=self.seeds.positions[rows], expected=self.seeds.roots.predicted[rows], predicted=self._classes(first, rows),
            fault=differs(predictions, expected, tolerance) & changed, distance=arrays["distance"], quantities=quantities,
            control=RandomControl(arrays["random"], self._classes(noisy, rows), differs(noise, expected, tolerance) & changed),
            left=left(predictions, expected[:, None], tolerance),
            unstable=sum(int(part["unstable"]) for part in self.done), forwards=ensemble.forwards + scanned,
            backwards=ensemble.backwards, notes=self._notes(ensemble), predictions=predictions, steps=arrays["steps"],
            targets=tuple(t.spec for t in self.targets), operator=self.method.operator, coverage=tuple(search.coverage()),
            disagreed=self.disagreed, names=None if self.seeds.names is None else self.seeds.names[rows], **self.about(),
        )  # fmt: skip

    def _classes(self, said: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Classes as they are; regression values as the bins they count as beside the answers to the seeds."""
        bins = self.target.bins
        return said if bins is None else self.seeds.counted(bins.logits(torch.from_numpy(said)), rows)

    def _notes(self, ensemble: Ensemble) -> tuple[str, ...]:
        notes = [MASKED_ONE.format(spec=spec) for spec in self._masked]
        if ensemble.flat:
            notes.append(
                f"{ensemble.flat} of {ensemble.starts} seeds have a gradient of exactly 0 at the start: nothing moves there."
            )
        return tuple(notes)


def differs(predictions: NDArray[Any], expected: NDArray[Any], tolerance: float | None = None) -> NDArray[np.bool_]:
    """(n, targets), (n,) -> (n,). Several targets: they disagree. One: it left the class of the seed."""
    if predictions.shape[1] > 1:
        return apart(predictions, tolerance)
    return left(predictions[:, 0], expected, tolerance)


def deviant(predictions: NDArray[Any], expected: NDArray[Any], tolerance: float | None = None) -> NDArray[Any]:
    """The prediction of the first target that left the seed's class; the class itself where none did. Of regression values that
    of the target that is farthest from the answer to the seed."""
    rows = np.arange(len(predictions))
    if tolerance is not None:
        return np.asarray(predictions[rows, np.abs(predictions - expected[:, None]).argmax(1)])
    gone = predictions != expected[:, None]
    return np.where(gone.any(1), predictions[rows, gone.argmax(1)], expected)


def _distinct(outcome: BatchOutputs) -> BatchOutputs:
    """Steps that end on the same saved image are one output: the first of them; in the order of the seeds."""
    keys = list(zip(outcome.rows.tolist(), content_ids(outcome.x.cpu().numpy()).tolist(), strict=True))
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    kept = np.array(sorted(first.values(), key=lambda i: (outcome.rows[i], outcome.steps[i], i)), dtype=np.int64)
    return BatchOutputs(rows_of(outcome.x, kept), outcome.rows[kept], outcome.steps[kept], outcome.unstable)
