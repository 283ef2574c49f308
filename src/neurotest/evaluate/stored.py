"""`neurotest.evaluate`: judge the suites of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from neurotest.data.source import ArraySource, Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.evaluate.compare import Comparison
from neurotest.evaluate.judge import BATCH, Judgement, compare_suites, judge
from neurotest.files import write_json
from neurotest.generate.gradient.record import SUITE
from neurotest.runs.store import Run
from neurotest.target import Target
from neurotest.target.load import load


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Judgements by run, each beside random noise of the same size, and two or more suites side by side."""

    judged: dict[str, Judgement]
    random: dict[str, Judgement]  # the same seeds with the same changes at random places
    comparison: Comparison | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "suites": {name: {**one.to_dict(), "random": self.random[name].to_dict()} for name, one in self.judged.items()},
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
        }

    def table(self) -> list[dict[str, Any]]:
        """One row per number and suite."""
        rows = []
        for name, one in self.judged.items():
            noise = {(row["part"], row["metric"]): row["value"] for row in self.random[name].table()}
            rows += [{"suite": name, **row, "random": noise.get((row["part"], row["metric"]))} for row in one.table()]
        return rows

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        write_json(path, self.to_dict())
        return path


def evaluate(
    *runs: str | Path,
    target: Target | str | None = None,
    train: Source | str | None = None,
    extractor: str | Target | nn.Module | None = None,
    corrected: bool = False,
    batch: int = BATCH,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Judge the suites of one or more runs of `neurotest attack`; two or more are compared.

    target: needed for runs that were made elsewhere with a target that is no zoo: network. The rest as in `judge`.
    """
    if not runs:
        raise BadInput("evaluate needs at least one run, for example neurotest-runs/attack-20250101-120000.")
    names = _names(runs)
    judged: dict[str, Judgement] = {}
    random: dict[str, Judgement] = {}
    options: dict[str, Any] = {"train": train, "extractor": extractor, "corrected": corrected, "batch": batch}
    known: Target | None = None
    for done, (name, path) in enumerate(zip(names, runs, strict=True), 1):
        known, suite, noise = read_suite(path, known if known is not None else target)
        judged[name], random[name] = judge(known, suite, **options), judge(known, noise, **options)
        if progress is not None:
            progress(done, len(runs))
    return Evaluation(judged, random, compare_suites(judged, seed=seed) if len(judged) > 1 else None)


def _names(runs: Sequence[str | Path]) -> list[str]:
    short = [Path(run).name for run in runs]
    names = short if len(set(short)) == len(short) else [str(run) for run in runs]
    if len(set(names)) < len(names):
        raise BadInput("the same run was given twice: name each suite once.")
    return names


def read_suite(path: str | Path, target: Target | str | None = None) -> tuple[Target, Source, Source]:
    """The target a run was made on (checked by fingerprint), its suite, and its random control; both know their seeds."""
    with Run.open(path) as run:
        if run["command"] != "attack":
            raise BadInput(f"{run.path} is a run of {run['command']!r}: only suites made by attack can be evaluated so far.")
        config, made_here, summary = run["config"], run.made_here, run["state"] == "done"
        where = run.path
    spec = str(config.get("target"))
    if target is None and not spec.startswith("zoo:") and not made_here:
        raise BadInput(f"{where} was made elsewhere and names the target {spec!r}, which could run code: pass --target yourself.")
    found = load(spec if target is None else target)
    if found.fingerprint != config.get("fingerprint"):
        raise BadInput(
            f"the target is not the one {where} was made on (fingerprint {found.fingerprint[:12]}, the run's is "
            f"{str(config.get('fingerprint'))[:12]}): suites are judged on one and the same target."
        )
    file = where / SUITE
    if not summary or not file.is_file():
        raise BadInput(f"{where} is not finished or has lost its {SUITE}: attack again.")
    arrays = [data(f"npz:{file}#{name},y", shape=found.shape) for name in ("seeds", "x", "random")]
    named = {"classes": found.classes, "spec": str(where)}
    seeds, suite, noise = (ArraySource(one.read(np.arange(len(one))), one.labels, **named) for one in arrays)
    return found, suite.with_originals(seeds), noise.with_originals(seeds)
