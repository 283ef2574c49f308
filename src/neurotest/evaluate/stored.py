"""`neurotest.evaluate`: judge the suites of runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from neurotest import rng
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.evaluate.bias import ClassBias, class_bias_report
from neurotest.evaluate.compare import Comparison
from neurotest.evaluate.features import Extractor
from neurotest.evaluate.judge import BATCH, Judgement, check_metrics, compare_suites, judge
from neurotest.evaluate.readers import Stored, read_suite
from neurotest.files import write_json
from neurotest.jobs.life import finish, whole
from neurotest.jobs.opening import AnyTarget
from neurotest.jobs.stored import target_config
from neurotest.runs.store import Run
from neurotest.stats.bootstrap import wilson
from neurotest.target import Target

LIMIT = 5000  # outputs judged per suite
PICTURES = 8  # of each suite in the report
# Where the numbers of a random campaign stand beside ours: part, metric -> key.
COUNTED = {
    ("defects", "faults"): "faults", ("defects", "families"): "families", ("defects", "roots"): "roots",
    ("defects", "fault_rate"): "fault_rate", ("defects", "faults_per_1000_forwards"): "faults_per_1000_forwards",
    ("impartiality", "faults"): "evenness", ("defects", "seeds_failed"): "seeds_failed",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Judgements by run, each beside its random control where the run has one, and two or more suites side by side."""

    judged: dict[str, Judgement]
    random: dict[str, Judgement | None]  # judged like the suite itself
    counted: dict[str, dict[str, Any] | None]  # numbers of a control whose inputs were not kept
    controls: dict[str, str | None]  # what the control is
    comparison: Comparison | None
    bias: dict[str, ClassBias] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    run: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        suites = {}
        for name, one in self.judged.items():
            other = self.random[name]
            suites[name] = {
                **one.to_dict(), "control": self.controls[name],
                "random": self.counted[name] if other is None else other.to_dict(),
                "class_bias": self.bias[name].to_dict() if name in self.bias else None,
            }  # fmt: skip
        return {
            "suites": suites,
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
            "notes": list(self.notes),
            "run": None if self.run is None else str(self.run),
        }

    def table(self) -> list[dict[str, Any]]:
        """One row per number and suite."""
        rows = []
        for name, one in self.judged.items():
            other, counted = self.random[name], self.counted[name] or {}
            noise = {} if other is None else {(row["part"], row["metric"]): row["value"] for row in other.table()}
            noise |= {place: counted[key] for place, key in COUNTED.items() if counted.get(key) is not None}
            rows += [{"suite": name, **row, "random": noise.get((row["part"], row["metric"]))} for row in one.table()]
        return rows

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        write_json(path, self.to_dict())
        return path


def evaluate(
    *runs: str | Path,
    target: AnyTarget | None = None,
    train: Source | str | None = None,
    extractor: str | Target | nn.Module | None = None,
    layer: str = "last_hidden",
    weights: str | Path | None = None,
    metrics: Sequence[str] = (),
    faults_only: bool = False,
    corrected: bool = False,
    paired: bool = False,
    classes: Source | str | None = None,
    limit: int = LIMIT,
    batch: int = BATCH,
    seed: int = 0,
    out: str | Path | bool | None = False,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Judge the suites of runs (attack, diff, fuzz, select, ...); two or more are compared, which must test one target.

    target: needed for runs that were made elsewhere with a target that is no zoo: network. extractor, layer, weights: what makes
    the features (`Extractor.of`). faults_only: leave out what does not fail. limit: larger suites are judged by a random part of
    this size. classes: labelled data for the report on favoured classes. out: where a run for `neurotest report` goes (False:
    nothing is written). The rest as in `judge` and `compare_suites`.
    """
    if not runs:
        raise BadInput("evaluate needs at least one run, for example neurotest-runs/attack-20250101-120000.")
    if limit < 1:
        raise BadInput(f"limit={limit}: expected an integer >= 1 (outputs judged per suite).")
    check_metrics(metrics)
    suites, sizes = _read(runs, target, faults_only, limit, seed)
    judged_on = next(iter(suites.values())).target
    work = _Work(
        suites, judged_on, Extractor.of(extractor, judged_on, layer=layer, weights=weights),
        {"train": train, "corrected": corrected, "batch": batch}, metrics, sizes, paired, classes, seed,
    )  # fmt: skip
    config = {**target_config(judged_on), "suites": {name: one.suite.spec for name, one in suites.items()}}
    with whole("evaluate", out, config) as run:
        evaluation = work.run(progress)
        if run is not None:
            evaluation = dataclasses.replace(evaluation, run=run.path)
            _record(run, evaluation, suites, judged_on)
    return evaluation


@dataclass(frozen=True, eq=False)
class _Work:
    """What is judged, and how."""

    read: dict[str, Stored]
    target: Target
    extractor: Extractor
    about: dict[str, Any]
    metrics: Sequence[str]
    sizes: dict[str, int]  # of the suites before anything was left out
    paired: bool
    classes: Source | str | None
    seed: int

    def run(self, progress: Callable[[int, int], None] | None) -> Evaluation:
        judged: dict[str, Judgement] = {}
        random: dict[str, Judgement | None] = {}
        about = {**self.about, "extractor": self.extractor}
        for done, (name, one) in enumerate(self.read.items(), 1):
            found = judge(self.target, one.suite, metrics=self.metrics, operators=one.operators, **about)
            judged[name] = _with_cost(found, one, len(one.suite) == self.sizes[name])
            random[name] = None if one.control is None else judge(self.target, one.control, operators=one.operators, **about)
            if progress is not None:
                progress(done, len(self.read))
        return Evaluation(
            judged, random, {n: one.random for n, one in self.read.items()}, {n: one.control_is for n, one in self.read.items()},
            compare_suites(judged, paired=self.paired, seed=self.seed) if len(judged) > 1 else None,
            {} if self.classes is None else _bias(self.target, self.classes, judged, self.seed), _notes(self.read, judged),
        )  # fmt: skip


def _read(
    runs: Sequence[str | Path], target: AnyTarget | None, faults_only: bool, limit: int, seed: int
) -> tuple[dict[str, Stored], dict[str, int]]:
    found: dict[str, Stored] = {}
    sizes: dict[str, int] = {}
    known: Target | None = None
    for name, path in zip(_names(runs), runs, strict=True):
        one = read_suite(path, known if known is not None else target)
        known, sizes[name] = one.target, len(one.suite)
        rows = np.flatnonzero(one.fault) if faults_only else np.arange(len(one.suite))
        if not len(rows):
            raise BadInput(f"{path} holds no faults: there is nothing to judge with --faults-only.")
        said = one.notes
        if len(rows) > limit:
            drawn = rng.stream("evaluate.sample", seed).permutation(len(rows))[:limit]
            said = (*said, f"{limit:,} of {len(rows):,} outputs were drawn at random and judged (--limit).")
            rows = rows[np.sort(drawn)]
        found[name] = dataclasses.replace(one.take(rows) if len(rows) < len(one.suite) else one, notes=said)
    return found, sizes


def _names(runs: Sequence[str | Path]) -> list[str]:
    short = [Path(run).name for run in runs]
    names = short if len(set(short)) == len(short) else [str(run) for run in runs]
    if len(set(names)) < len(names):
        raise BadInput("the same run was given twice: name each suite once.")
    return names


def _with_cost(found: Judgement, one: Stored, whole: bool) -> Judgement:
    """What the faults cost and which share of the seeds fails, where the run knows it and nothing was left out."""
    if not whole:
        return found
    defects = dict(found.defects)
    if one.tried:
        failed = wilson(min(defects["roots"], one.tried), one.tried)
        defects |= {"seeds_tried": one.tried, "seeds_failed": failed.value, "seeds_failed_interval": [failed.low, failed.high]}
    if one.forwards:
        defects |= {"forwards": one.forwards, "faults_per_1000_forwards": 1000 * defects["faults"] / one.forwards}
    return dataclasses.replace(found, defects=defects)


def _bias(target: Target, source: Source | str, judged: dict[str, Judgement], seed: int) -> dict[str, ClassBias]:
    found = {}
    for name, one in judged.items():
        wrong = one.predicted[(one.per_input["fault"] > 0) & (one.predicted >= 0)]
        found[name] = class_bias_report(target, source, predicted=wrong if len(wrong) else None, seed=seed)
    return found


def _notes(read: dict[str, Stored], judged: dict[str, Judgement]) -> tuple[str, ...]:
    said = [f"{name}: {note}" for name, one in read.items() for note in one.notes]
    for name, one in read.items():
        own, ours = int(one.fault.sum()), judged[name].defects["faults"]
        if own != ours and one.command != "diff":
            said.append(f"{name}: the run's own oracles reject {own:,} of these outputs; judged by label, {ours:,} fail.")
    sizes = {name: one.outputs for name, one in judged.items()}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} {n:,}" for name, n in sizes.items())
        said.append(
            f"the suites differ in size ({told}): FID, inception score, Vendi score, evenness and counts depend on it; compare "
            f"them at equal size (--limit {min(sizes.values())})."
        )
    return tuple(said)


def _record(run: Run, found: Evaluation, read: dict[str, Stored], target: Target) -> None:
    """What the report shows."""
    from neurotest.evaluate.samples import sheet

    pictures = {
        name: sheet(one.suite, found.judged[name], target, PICTURES)
        for name, one in read.items()
        if one.suite.originals is not None
    }
    matrix = {name: _matrix(one) for name, one in found.judged.items()}
    run["classes"] = list(target.classes or ())
    finish(run, {**found.to_dict(), "rows": found.table(), "pictures": pictures, "matrix": matrix})


def _matrix(found: Judgement) -> list[dict[str, int]]:
    """How many inputs of each class fail as which."""
    wrong = found.per_input["fault"] > 0
    pairs, counts = np.unique(np.stack([found.expected[wrong], found.predicted[wrong]]), axis=1, return_counts=True)
    return [
        {"true": int(t), "predicted": int(p), "faults": int(n)}
        for t, p, n in zip(pairs[0], pairs[1], counts, strict=True)
    ]  # fmt: skip
