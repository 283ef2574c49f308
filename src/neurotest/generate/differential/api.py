"""`neurotest.diff`: drive targets apart from seeds on which they agree, test again what would be saved, and count."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.data.source import Source, content_ids
from neurotest.errors import BadInput
from neurotest.generate.differential.constraints import Constraint
from neurotest.generate.differential.deepxplore import DeepXplore
from neurotest.generate.differential.ensemble import Ensemble
from neurotest.generate.differential.method import Method, Outcome, Search
from neurotest.generate.differential.result import DiffResult
from neurotest.generate.fuzz.seeds import Seeds, choose_seeds
from neurotest.generate.gradient.engine import ENOUGH
from neurotest.generate.noise import shuffle
from neurotest.generate.suite import Control
from neurotest.generate.work import Batches, new_settings, old_method, old_settings
from neurotest.jobs.methods import with_options
from neurotest.jobs.opening import AnyTarget, open_data, open_target, stored_source
from neurotest.jobs.parts import Arrays
from neurotest.jobs.stored import stored_targets
from neurotest.jobs.work import carry_out, go_on
from neurotest.mutate.distances import SAME, distances
from neurotest.mutate.space import from_unit, to_unit
from neurotest.oracles import build_oracles, predicted
from neurotest.runs.store import Run
from neurotest.scan import Progress, fit
from neurotest.target import Target

BATCH = 64
MASKED_ONE = (
    "{spec}: every gradient towards the input is zero, it rounds, thresholds or detaches somewhere (or saturates): only "
    "the others lead."
)


def diff(
    targets: AnyTarget | Sequence[AnyTarget] | None = None,
    seeds: Source | str | None = None,
    method: str | Method | None = None,
    *,
    keep_wrong: bool | None = None,
    limit: int | None = None,
    batch: int | None = None,
    seed: int | None = None,
    files: int | None = None,
    out: str | Path | bool | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> DiffResult:
    """Climb the gradient from seeds on which all targets agree until they differ (deepxplore), or one fails (dlfuzz, adapt).

    method: `deepxplore` (default; two or more targets), `dlfuzz` or `adapt` (one), with options (`deepxplore:blackout,steps=50`,
    or steps=, constraint=, strategy= here). Seeds that some target gets wrong are set aside unless `keep_wrong`. batch: 64 by
    default. out: where the run goes (None: ./neurotest-runs; False: nothing is written). resume: an interrupted run to go on
    with; it keeps its settings.
    """
    several = list(targets) if isinstance(targets, Sequence) and not isinstance(targets, str) else [targets]
    named = [target for target in several if target is not None]
    settings = {"keep_wrong": keep_wrong, "limit": limit, "batch": batch, "seed": seed, "files": files}
    if resume is not None:

        def again(run: Run, config: dict[str, Any]) -> _Diff:
            old = old_method(run, config, "differential", method, options)
            chosen = old_settings(run, config, settings)
            return _Diff.begin(stored_targets(run, named), stored_source(run.path, config["seeds"], seeds), old, chosen)

        return go_on(resume, "diff", again, progress)
    if targets is None or seeds is None:
        raise BadInput("diff needs targets and seeds (or resume=RUN to go on with a run).")
    if not named:
        raise BadInput("diff needs at least one target.")
    chosen = new_settings(settings, batch=BATCH)
    searcher: Method = with_options("differential", method or "deepxplore", options)
    return carry_out(_Diff.begin([open_target(one) for one in named], seeds, searcher, chosen), out, progress)


def deepxplore_suite(
    targets: Sequence[Target | str],
    seeds: Source | str,
    *,
    constraint: Constraint = "light",
    neuron_weight: float = 0.1,
    threshold: float = 0.0,
    step: float = 10.0,
    steps: int = 20,
    eps: float = 1.0,
    patches: int | None = None,
    push: int | None = None,
    layers: str = "pre_activation",
    limit: int | None = None,
    seed: int = 0,
) -> DiffResult:
    """One suite of DeepXplore in memory, for studies, with the published settings: x and seeds (n, *shape), expected and fault
    (n,), said (n, targets)."""
    method = DeepXplore(
        constraint=constraint, neuron_weight=neuron_weight, threshold=threshold, step=step, steps=steps, eps=eps, patches=patches,
        push=push, layers=layers,
    )  # fmt: skip
    return diff(targets, seeds, method, limit=limit, seed=seed, out=False)


def agreeing(targets: Sequence[Target], source: Source, *, keep_wrong: bool, batch: int) -> tuple[Seeds, int]:
    """Seeds all targets give one class, the right one unless `keep_wrong`, and how many the targets differ on."""
    first = targets[0]
    oracle = "label" if source.labels is not None else "metamorphic"
    chosen = choose_seeds(first, source, build_oracles(first, oracle), keep_wrong=keep_wrong, batch=batch)
    same = np.ones(len(chosen), dtype=bool)
    with torch.inference_mode():
        for target in targets[1:]:
            shift = Seeds(chosen.x, chosen.positions, chosen.contents, chosen.roots, 0, target.bounds, chosen.classes)
            for start in range(0, len(chosen), batch):
                x = chosen.unit(chosen.x[start : start + batch], target.device)
                said = predicted(target.logits(target.prepare(shift.stored(x))))
                same[start : start + batch] &= said == chosen.roots.predicted[start : start + batch]
    if not same.any():
        raise BadInput(f"the targets agree on none of the {len(same)} seeds: are their classes in the same order?")
    kept = np.flatnonzero(same)
    seeds = Seeds(
        chosen.x[kept], chosen.positions[kept], chosen.contents[kept], chosen.roots[kept], chosen.set_aside, first.bounds,
        chosen.classes,
    )  # fmt: skip
    return seeds, int((~same).sum())


def check_targets(targets: Sequence[Target], method: Method, source: Source) -> None:
    """One size, one number of classes, one list of class names; as many targets as the method compares."""
    if method.several and len(targets) < 2:
        raise BadInput(f"{method.name} compares targets: give two or more (dlfuzz and adapt test a single one).")
    if not method.several and len(targets) > 1:
        raise BadInput(f"{method.name} tests a single target, {len(targets)} were given: use deepxplore to compare them.")
    shapes = {t.spec: t.shape for t in targets if t.shape is not None}
    if len(set(shapes.values())) > 1:
        told = ", ".join(f"{spec} takes {'x'.join(map(str, shape))}" for spec, shape in shapes.items())
        raise BadInput(f"targets: {told}. Differential testing needs inputs of one size.")
    classes = [fit(targets[0], source)]
    few = to_unit(targets[0].prepare(source.read(np.arange(min(4, len(source))))), targets[0].bounds)
    for target in targets[1:]:
        target.shape = target.shape or targets[0].shape
        classes.append(target.check_outputs(from_unit(few.to(target.device), target.bounds)))
    if len(set(classes)) > 1:
        told = ", ".join(f"{target.spec} has {n}" for target, n in zip(targets, classes, strict=True))
        raise BadInput(f"targets: {told} classes. Differential testing needs equal ones.")
    names = {target.classes for target in targets if target.classes is not None}
    if len(names) > 1:
        raise BadInput(f"targets: {targets[0].spec} and the others name different classes: what would it mean that they differ?")


@dataclass(eq=False, kw_only=True)
class _Diff(Batches[DiffResult]):
    """One method over seeds on which the targets agree, batch by batch."""

    command = "diff"
    disagreed: int

    @classmethod
    def begin(cls, targets: list[Target], seeds: Source | str, method: Method, settings: Mapping[str, Any]) -> _Diff:
        first = next((target for target in targets if target.shape is not None), targets[0])
        source = open_data(first, seeds, limit=settings["limit"])
        check_targets(targets, method, source)
        method.check(source.shape)
        for target in targets:
            target.survey().find(method.layers)  # a layer that is not there is refused before a run is made
        chosen, disagreed = agreeing(targets, source, keep_wrong=settings["keep_wrong"], batch=settings["batch"])
        return cls(targets=targets, source=source, seeds=chosen, disagreed=disagreed, method=method, settings=settings)

    def work(self, run: Run | None, progress: Progress | None) -> DiffResult:
        with Ensemble(self.targets, self.method.layers, eight_bit=self.seeds.eight_bit) as ensemble:
            search = self.method.begin(ensemble, self.seed)
            if self.done:
                search.restore(self.done[-1])
                ensemble.restore(self.done[-1]["counts_of_passes"])
            self._masked = ensemble.masked(self.seeds.unit(self.seeds.x[:ENOUGH], self.target.device))
            one = functools.partial(self._one, ensemble, search)
            self.each(one, lambda last: ensemble.refuse_flat(last=last), run, progress)
            return self._result(ensemble, search)

    def _one(self, ensemble: Ensemble, search: Search, rows: NDArray[np.int64]) -> Arrays:
        device = self.targets[0].device
        positions = self.seeds.positions[rows]
        seed = self.seeds.unit(self.seeds.x[rows], device)
        outcome = _distinct(search.batch(seed, self.seeds.roots.predicted[rows], positions))
        saved = self.seeds.stored(outcome.x)
        again = self.seeds.unit(saved, device)  # as it will be read back
        mine = seed[torch.from_numpy(outcome.rows).to(device)]
        numbers = (1000 * positions[outcome.rows] + outcome.steps).tolist()  # one draw of the control per output
        control = self.seeds.stored(shuffle(mine, again, numbers, self.seed))
        said, noise = ensemble.predict(again), ensemble.predict(self.seeds.unit(control, device))
        return {
            "x": saved, "row": rows[outcome.rows], "steps": outcome.steps, "said": said, "random": control, "random_said": noise,
            "distance": distances(again, mine), "unstable": np.array(outcome.unstable), "counts_of_passes": ensemble.counts(),
            **search.arrays(),
        }  # fmt: skip

    def _result(self, ensemble: Ensemble, search: Search) -> DiffResult:
        held = self.joined("x", "row", "steps", "said", "random", "random_said", "distance")
        rows, said, noise = held["row"], held["said"], held["random_said"]
        expected = self.seeds.roots.predicted[rows]
        changed = held["distance"][:, 2] > SAME
        scanned = len(self.source) + (len(self.targets) - 1) * (len(self.seeds) + self.disagreed)
        return DiffResult(
            attack=self.method.name, diversity=None, x=held["x"], seeds=self.seeds.x[rows],
            positions=self.seeds.positions[rows], expected=expected, predicted=deviant(said, expected),
            fault=differs(said, expected) & changed, distance=held["distance"],
            control=Control(held["random"], deviant(noise, expected), differs(noise, expected) & changed),
            unstable=sum(int(part["unstable"]) for part in self.done), forwards=ensemble.forwards + scanned,
            backwards=ensemble.backwards, notes=self._notes(ensemble), said=said, steps=held["steps"],
            targets=tuple(t.spec for t in self.targets), operator=self.method.operator, coverage=tuple(search.coverage()),
            disagreed=self.disagreed, **self.about(),
        )  # fmt: skip

    def _notes(self, ensemble: Ensemble) -> tuple[str, ...]:
        told = [MASKED_ONE.format(spec=spec) for spec in self._masked]
        if ensemble.flat:
            told.append(
                f"{ensemble.flat} of {ensemble.asked} seeds have a gradient of exactly 0 at the start: nothing moves there."
            )
        return tuple(told)


def differs(said: NDArray[np.int64], expected: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Several targets: they disagree. One: it left the class of the seed."""
    return np.asarray((said != said[:, :1]).any(1) if said.shape[1] > 1 else said[:, 0] != expected)


def deviant(said: NDArray[np.int64], expected: NDArray[np.int64]) -> NDArray[np.int64]:
    """What the first target says that left the seed's class; the class itself where none did."""
    left = said != expected[:, None]
    return np.where(left.any(1), said[np.arange(len(said)), left.argmax(1)], expected)


def _distinct(found: Outcome) -> Outcome:
    """Steps that end on the same saved image are one output: the first of them; in the order of the seeds."""
    ids = content_ids(found.x.cpu().numpy())
    keys = list(zip(found.rows.tolist(), ids.tolist(), strict=True))
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    kept = np.array(sorted(first.values(), key=lambda i: (found.rows[i], found.steps[i], i)), dtype=np.int64)
    return Outcome(found.x[torch.from_numpy(kept).to(found.x.device)], found.rows[kept], found.steps[kept], found.unstable)
