"""`neurotest.evaluate`: judge the suites of runs."""

from __future__ import annotations

import base64
import dataclasses
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from neurotest import rng
from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.evaluate.bias import ClassBias, class_bias_report
from neurotest.evaluate.compare import Comparison
from neurotest.evaluate.features import Extractor
from neurotest.evaluate.judge import Judgement, check_metrics, compare_suites, judge
from neurotest.evaluate.readers import StoredSuite, read_suite
from neurotest.generate.outcome import Outcome
from neurotest.jobs.life import atomic_run, finish
from neurotest.jobs.opening import AnyTarget
from neurotest.jobs.stored import target_config
from neurotest.mutate.unit import to_unit
from neurotest.public import public
from neurotest.runs.store import Run
from neurotest.settings.analyse import EvaluateSettings
from neurotest.stats.bootstrap import wilson
from neurotest.target import Target

AMPLIFICATION = 10
IMAGES = 8  # of each suite in the report
# Where the numbers of a random campaign stand beside ours: part, metric -> key.
COUNTED = {
    ("defects", "faults"): "faults", ("defects", "families"): "families", ("defects", "roots"): "roots",
    ("defects", "fault_rate"): "fault_rate", ("defects", "faults_per_1000_forwards"): "faults_per_1000_forwards",
    ("impartiality", "faults"): "evenness", ("defects", "seeds_failed"): "seeds_failed",
}  # fmt: skip


def _sheet(suite: Source, judgement: Judgement, target: Target, most: int) -> list[dict[str, Any]]:
    """Faults of as many different (true, predicted) pairs as fit, each as one strip of three images."""
    assert suite.originals is not None
    if len(suite.shape) != 3 or suite.shape[0] not in (1, 3):
        return []
    wrong = np.flatnonzero(judgement.per_input["fault"] > 0)
    _, first = np.unique(np.stack([judgement.expected[wrong], judgement.predicted[wrong]]), axis=1, return_index=True)
    rows = wrong[np.sort(first)][:most]
    if not len(rows):
        return []
    x, before = (to_unit(target.prepare(s.read(rows)), target.bounds).cpu().numpy() for s in (suite, suite.originals))
    change = np.clip(0.5 + AMPLIFICATION * (x - before), 0, 1)
    return [
        {
            "png": _png(np.concatenate([before[i], x[i], change[i]], axis=2)),
            "true": int(judgement.expected[row]),
            "predicted": int(judgement.predicted[row]),
            "linf": float(judgement.per_input["linf"][row]),
        }
        for i, row in enumerate(rows)
    ]


def _png(image: np.ndarray) -> str:
    from PIL import Image

    pixels = np.round(255 * image).clip(0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(out, format="PNG")
    return base64.b64encode(out.getvalue()).decode()


@dataclass(frozen=True, eq=False)
class Evaluation(Outcome):
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
        for name, judgement in self.judged.items():
            control = self.random[name]
            suites[name] = {
                **judgement.to_dict(),
                "control": self.controls[name],
                "random": self.counted[name] if control is None else control.to_dict(),
                "class_bias": self.bias[name].to_dict() if name in self.bias else None,
            }
        return {
            "suites": suites,
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
            "notes": list(self.notes),
            "run": None if self.run is None else str(self.run),
        }

    def table(self) -> list[dict[str, Any]]:
        """One row per number and suite."""
        rows = []
        for name, judgement in self.judged.items():
            control, counted = self.random[name], self.counted[name] or {}
            random = {} if control is None else {(row["part"], row["metric"]): row["value"] for row in control.table()}
            random |= {metric: counted[key] for metric, key in COUNTED.items() if counted.get(key) is not None}
            rows += [{"suite": name, **row, "random": random.get((row["part"], row["metric"]))} for row in judgement.table()]
        return rows

    def headline(self) -> str:
        return "; ".join(f"{name}: {judgement.headline()}" for name, judgement in self.judged.items())


@public(EvaluateSettings)
def evaluate(
    *runs: str | Path,
    target: AnyTarget | None = None,
    out: str | Path | bool | None = False,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Evaluation:
    """Judge the suites of runs (attack, diff, fuzz, select, ...); two or more are compared, which must test one target.

    target: needed for runs that were made elsewhere with a target that is no zoo: network. extractor, layer, weights: what makes
    the features (`Extractor.of`). faults_only: leave out what does not fail. limit: larger suites are judged by a random part of
    this size. classes: labelled data for the report on favoured classes. out: where a run for `neurotest report` goes (False:
    nothing is written). The rest as in `judge` and `compare_suites`.
    """
    if not runs:
        raise BadInput("missing", "runs", "evaluate needs at least one run, for example neurotest-runs/attack-20250101-120000.")
    chosen = EvaluateSettings.of(settings)
    check_metrics(chosen.metrics)
    suites, sizes = _read(runs, target, chosen)
    network = next(iter(suites.values())).target
    extractor = Extractor.of(chosen.extractor, network, layer=chosen.layer, weights=chosen.weights)
    same = {name: getattr(chosen, name) for name in ("train", "corrected", "batch")}
    config = {**target_config(network), "suites": {name: stored.suite.spec for name, stored in suites.items()}}
    with atomic_run("evaluate", out, config) as run:
        judged: dict[str, Judgement] = {}
        random: dict[str, Judgement | None] = {}
        for done, (name, stored) in enumerate(suites.items(), 1):
            judgement = judge(
                network, stored.suite, metrics=chosen.metrics, operators=stored.operators, extractor=extractor, **same
            )
            judged[name] = _with_cost(judgement, stored, len(stored.suite) == sizes[name])
            control = stored.control
            random[name] = (
                None if control is None else judge(network, control, operators=stored.operators, extractor=extractor, **same)
            )
            if progress is not None:
                progress(done, len(suites))
        evaluation = Evaluation(
            judged, random, {n: s.random for n, s in suites.items()}, {n: s.control_is for n, s in suites.items()},
            compare_suites(judged, paired=chosen.paired, seed=chosen.seed) if len(judged) > 1 else None,
            {} if chosen.classes is None else _bias(network, chosen.classes, judged, chosen.seed), _notes(suites, judged),
            None if run is None else run.path,
        )  # fmt: skip
        if run is not None:
            _record(run, evaluation, suites, network)
    return evaluation


def _read(
    runs: Sequence[str | Path], target: AnyTarget | None, settings: EvaluateSettings
) -> tuple[dict[str, StoredSuite], dict[str, int]]:
    """The suites by name, and their sizes before anything is left out."""
    suites: dict[str, StoredSuite] = {}
    sizes: dict[str, int] = {}
    for name, path in zip(_names(runs), runs, strict=True):
        stored = read_suite(path, target)
        target, sizes[name], notes = stored.target, len(stored.suite), stored.notes
        rows = np.flatnonzero(stored.fault) if settings.faults_only else np.arange(len(stored.suite))
        if not len(rows):
            raise BadInput("empty", "faults", f"{path} holds no faults: there is nothing to judge with --faults-only.")
        if len(rows) > settings.limit:
            sample = rng.stream("evaluate.sample", settings.seed).permutation(len(rows))[: settings.limit]
            notes = (*notes, f"{settings.limit:,} of {len(rows):,} outputs were drawn at random and judged (--limit).")
            rows = rows[np.sort(sample)]
        suites[name] = dataclasses.replace(stored.take(rows) if len(rows) < len(stored.suite) else stored, notes=notes)
    return suites, sizes


def _names(runs: Sequence[str | Path]) -> list[str]:
    short = [Path(run).name for run in runs]
    names = short if len(set(short)) == len(short) else [str(run) for run in runs]
    if len(set(names)) < len(names):
        raise BadInput("duplicate", "runs", "the same run was given twice: name each suite once.")
    return names


def _with_cost(judgement: Judgement, stored: StoredSuite, whole: bool) -> Judgement:
    """What the faults cost and which share of the seeds fails, where the run stores it and nothing was left out."""
    if not whole:
        return judgement
    defects, tried = dict(judgement.defects), stored.tried
    if tried:
        failed = wilson(min(defects["roots"], tried), tried)
        defects |= {"seeds_tried": tried, "seeds_failed": failed.value, "seeds_failed_interval": [failed.low, failed.high]}
    if stored.forwards:
        defects |= {"forwards": stored.forwards, "faults_per_1000_forwards": 1000 * defects["faults"] / stored.forwards}
    return dataclasses.replace(judgement, defects=defects)


def _bias(target: Target, source: AnyData, judged: dict[str, Judgement], seed: int) -> dict[str, ClassBias]:
    reports = {}
    for name, judgement in judged.items():
        wrong = judgement.predicted[(judgement.per_input["fault"] > 0) & (judgement.predicted >= 0)]
        reports[name] = class_bias_report(target, source, predicted=wrong if len(wrong) else None, seed=seed)
    return reports


def _notes(suites: dict[str, StoredSuite], judged: dict[str, Judgement]) -> tuple[str, ...]:
    notes = [f"{name}: {note}" for name, stored in suites.items() for note in stored.notes]
    for name, stored in suites.items():
        own, ours = int(stored.fault.sum()), judged[name].defects["faults"]
        if own != ours and stored.command != "diff":
            notes.append(f"{name}: the run's own oracles reject {own:,} of these outputs; judged by label, {ours:,} fail.")
    sizes = {name: judgement.outputs for name, judgement in judged.items()}
    if len(set(sizes.values())) > 1:
        text = ", ".join(f"{name} {n:,}" for name, n in sizes.items())
        notes.append(
            f"the suites differ in size ({text}): FID, inception score, Vendi score, evenness and counts depend on it; compare "
            f"them at equal size (--limit {min(sizes.values())})."
        )
    return tuple(notes)


def _record(run: Run, evaluation: Evaluation, suites: dict[str, StoredSuite], target: Target) -> None:
    """What the report shows."""
    images = {
        name: _sheet(stored.suite, evaluation.judged[name], target, IMAGES)
        for name, stored in suites.items()
        if stored.suite.originals is not None
    }
    matrix = {name: _matrix(judgement) for name, judgement in evaluation.judged.items()}
    run["classes"] = list(target.classes or ())
    finish(run, {**evaluation.to_dict(), "rows": evaluation.table(), "pictures": images, "matrix": matrix})


def _matrix(judgement: Judgement) -> list[dict[str, int]]:
    """How many inputs of each class fail as which."""
    wrong = judgement.per_input["fault"] > 0
    pairs, counts = np.unique(np.stack([judgement.expected[wrong], judgement.predicted[wrong]]), axis=1, return_counts=True)
    return [{"true": int(t), "predicted": int(p), "faults": int(n)} for t, p, n in zip(pairs[0], pairs[1], counts, strict=True)]
