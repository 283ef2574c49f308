"""Fault families: what was taken for what after which mutation, with the fault that shows it best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neurotest.campaign.api import campaign_config
from neurotest.campaign.result import class_name
from neurotest.campaign.store import Store, StoredMutant
from neurotest.generate.fuzz.mutants import Key
from neurotest.mutate.chain import words
from neurotest.runs.store import Run


@dataclass(frozen=True)
class FaultFamily:
    """One family; the representative is the fault with the fewest mutations and, among those, the smallest change."""

    key: Key
    faults: int
    roots: int
    representative: StoredMutant


@dataclass(frozen=True)
class Families:
    """The families of a campaign, most frequent first."""

    run: Path
    classes: tuple[str, ...] | None
    families: tuple[FaultFamily, ...]
    seeds: Mapping[int, str | None] = field(default_factory=dict)  # names of their files, where they are files
    answers: Mapping[int, float] = field(default_factory=dict)  # to the seeds, where the network predicts a quantity

    def table(self) -> list[dict[str, Any]]:
        return [
            {
                "true": class_name(f.key[0], self.classes),
                "predicted": class_name(f.key[1], self.classes),
                "operator": f.key[2],
                "faults": f.faults,
                "roots": f.roots,
                "fault": f.representative.number,
                "root": f.representative.root,
                "root_file": self.seeds.get(f.representative.root),
                "change": words(f.representative.chain),
                "linf": f.representative.distance[2],
                "file": None if f.representative.file is None else f.representative.file.name,
                **self._answers(f.representative),
            }
            for f in self.families
        ]

    def _answers(self, fault: StoredMutant) -> dict[str, float]:
        """Of a network that predicts a quantity: what it says before and after the change."""
        if fault.answer is None or (before := self.answers.get(fault.root)) is None:
            return {}
        return {"before": before, "after": fault.answer}

    def to_dict(self) -> dict[str, Any]:
        return {"run": str(self.run), "families": self.table()}


def grouped(faults: list[StoredMutant]) -> dict[Key, list[StoredMutant]]:
    families: dict[Key, list[StoredMutant]] = {}
    for fault in faults:
        families.setdefault(fault.family, []).append(fault)
    return families


def best(faults: list[StoredMutant]) -> StoredMutant:
    """Fewest mutations, then the smallest change; those with an image first."""
    return min(faults, key=lambda f: (f.file is None, len(f.chain), f.distance[1], f.number))


# The order of `best`, so that a long campaign need not be read as a whole.
BEST = """number IN (SELECT number FROM (
    SELECT number, row_number() OVER (
        PARTITION BY expected, predicted, operator ORDER BY file IS NULL, json_array_length(chain), l2, number) AS place
    FROM mutant WHERE oracle IS NOT NULL) WHERE place = 1)"""
COUNTS = """SELECT expected, predicted, operator, count(*), count(DISTINCT root) FROM mutant WHERE oracle IS NOT NULL
    GROUP BY expected, predicted, operator"""


def counted(run: Run) -> list[FaultFamily]:
    """The families of a run, most frequent first."""
    counts = {(int(e), int(p), str(operator)): (int(faults), int(roots)) for e, p, operator, faults, roots in run.rows(COUNTS)}
    rows = [FaultFamily(f.family, *counts[f.family], f) for f in Store(run).mutants(BEST) if f.family in counts]
    return sorted(rows, key=lambda f: (-f.faults, f.key))


def families(path: Path | str) -> Families:
    """The families of a campaign or of merged ones."""
    with Run.open(path) as run:
        campaign_config(run)
        rows = counted(run)
        inputs = list(run.inputs())
        seeds = {row.position: row.name for row in inputs}
        answers = {row.position: float(row.extra["answer"]) for row in inputs if row.extra.get("answer") is not None}
        classes = tuple(run["classes"]) if "classes" in run else ()
        return Families(run.path, classes or None, tuple(rows), seeds, answers)
