"""Runs read as suites: each kind of run has a reader, registered under its command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import registry
from neurotest.arrays import read_npz
from neurotest.data.source import ArraySource, Source
from neurotest.errors import BadInput
from neurotest.generate.suite import SUITE
from neurotest.jobs.opening import AnyTarget
from neurotest.jobs.stored import stored_target
from neurotest.registry import register
from neurotest.runs.folder import LARGEST
from neurotest.runs.store import Run
from neurotest.stats.bootstrap import random_fdr
from neurotest.target import Target

NOISE = "the same changes at random places with random signs"


@dataclass(frozen=True, eq=False)
class StoredSuite:
    """A suite of a run. control: random inputs of the same run, judged in the same way; random: numbers of its random control."""

    target: Target
    suite: Source
    fault: NDArray[np.bool_]  # by the run's own oracle
    command: str
    control: Source | None = None
    random: dict[str, Any] | None = None
    control_is: str | None = None
    operators: Sequence[str] | None = None
    forwards: int | None = None
    notes: tuple[str, ...] = ()
    tried: int | None = None  # seeds the run worked on, also those nothing came of
    chains: Sequence[tuple[str, ...]] | None = None  # all operators that made an input, the last of which is in `operators`

    def take(self, rows: NDArray[np.int64]) -> StoredSuite:
        """A part of it; a control that stands input by input beside the suite is cut alike."""
        operators = None if self.operators is None else [self.operators[i] for i in rows.tolist()]
        chains = None if self.chains is None else [self.chains[i] for i in rows.tolist()]
        control = None if self.control is None else self.control.take(rows)
        return replace(
            self, suite=self.suite.take(rows), fault=self.fault[rows], operators=operators, control=control, chains=chains
        )


def read_suite(path: str | Path, target: AnyTarget | None = None) -> StoredSuite:
    """The suite of a finished run, with the target it was made on (checked by fingerprint)."""
    with Run.open(path) as run:
        command = str(run["command"])
        if command not in registry.names("suite"):
            readers = ", ".join(registry.entries("suite"))
            raise BadInput(
                "wrong-run", "", f"{run.path} is a run of {command!r}, which makes no suite: evaluate runs of {readers}."
            )
        if run["state"] != "done":
            raise BadInput("unfinished", "", f"{run.path} is not finished: finish it first, then judge it.")
        if not isinstance(run["config"], dict):
            raise BadInput("damaged", "config", f"{run.path} has no configuration: it is damaged.")
        suite: StoredSuite = registry.find("suite", command).make(run, target)
        return suite


@register("suite", "illuminate", paper="", cost="reads one file")
@register("suite", "diff", paper="", cost="reads one file")
@register("suite", "attack", paper="", cost="reads one file")
def generated_suite(run: Run, target: AnyTarget | None) -> StoredSuite:
    """What the generator made, beside its own changes shuffled over the pixels; of diff on its first target, or `--target`."""
    network = stored_target(run, target)
    file = run.file(SUITE)
    if not file.exists():
        raise BadInput("not-found", "suite", f"{run.path} has lost its {SUITE}: make the suite again.")
    with file.open() as stream:
        stored = read_npz(stream, str(file), largest=LARGEST, names=("seeds", "x", "random", "y", "fault"))
    y, fault = stored["y"], stored["fault"].astype(bool)
    parts = [stored[name] for name in ("seeds", "x", "random")]
    if any(part.ndim < 2 or part.shape[1:] != parts[1].shape[1:] for part in parts) or fault.shape != (len(parts[1]),):
        raise BadInput("damaged", "suite", f"{file} holds arrays that do not fit each other: the run is damaged.")
    about = {"classes": network.classes, "spec": str(run.path)}
    seeds, suite, noise = (ArraySource(part, y if len(part) == len(y) else None, **about) for part in parts)
    summary = run["summary"] if isinstance(run["summary"], dict) else {}
    rows = run.inputs()
    operators = [str(row.extra.get("operator", "")) for row in rows] if len(rows) == len(suite) else None
    beside = noise.with_originals(seeds) if len(noise) == len(seeds) else None
    return StoredSuite(
        network, suite.with_originals(seeds), fault, str(run["command"]), beside, None, None if beside is None else NOISE,
        operators, summary.get("forwards"), _note_on_targets(run, network), summary.get("seeds") or _attacked(run, seeds),
    )  # fmt: skip


def _attacked(run: Run, seeds: Source) -> int | None:
    """An attack outputs every seed it worked on."""
    return len(np.unique(seeds.ids())) if run["command"] == "attack" else None


def _note_on_targets(run: Run, target: Target) -> tuple[str, ...]:
    targets = run["config"].get("targets") or ()
    if len(targets) < 2:
        return ()
    return (
        f"made by driving {len(targets)} targets apart and judged on one of them, {target.spec}: a fault is an input this one "
        f"gets wrong; the run itself counts disagreements ({(run['summary'] or {}).get('faults')}).",
    )


@register("suite", "select", paper="", cost="reads the picked inputs")
def select_suite(run: Run, target: AnyTarget | None) -> StoredSuite:
    """What `neurotest select` picked (by its first method), beside as many inputs picked at random."""
    network = stored_target(run, target)
    methods = run.methods()
    if not methods:
        raise BadInput("damaged", "ranking", f"{run.path} holds no ranking: it is damaged.")
    stored = {file.position for file in run.files("picked")}
    picked = [row.position for row in run.ranking(methods[0].name) if row.picked]
    positions = [position for position in picked if position in stored]
    if not positions:
        raise BadInput("not-found", "picks", f"{run.path} stores none of its picks as files: select again without --files 0.")
    rows = {row.position: row for row in run.inputs()}
    labels = [rows[p].label for p in positions]
    if any(label is None for label in labels):
        raise BadInput(
            "no-labels", "data", f"{run.path} was made from unlabelled data: nobody knows which of its picks are faults."
        )
    suite: Source = ArraySource(
        np.stack([run.load_input(p, "picked") for p in positions]), np.array(labels), classes=network.classes, spec=str(run.path)
    )
    originals = {file.position for file in run.files("original")}
    if originals.issuperset(positions):
        suite = suite.with_originals(
            ArraySource(np.stack([run.load_input(p, "original") for p in positions]), spec=str(run.path))
        )
    fault = np.array([rows[p].label != rows[p].predicted for p in positions])
    wrong = sum(row.label != row.predicted for row in rows.values())
    by_chance = random_fdr(len(rows), wrong, len(positions))
    random = {
        "fault_rate": by_chance.value,
        "fault_rate_interval": [by_chance.low, by_chance.high],
        "faults": by_chance.value * len(positions),
    }
    notes = () if len(positions) == len(picked) else (f"{len(positions)} of {len(picked)} picks are stored as files and judged.",)
    operators = [str((rows[p].extra.get("draw") or {}).get("operator", "")) for p in positions]
    return StoredSuite(
        network, suite, fault, "select", None, random, f"{len(positions)} inputs picked at random from the pool of {len(rows)}",
        operators, len(rows), notes,
    )  # fmt: skip
