"""Several campaigns against one target become one; every family stays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from neurotest.campaign.api import campaign_config
from neurotest.campaign.plan import FuzzPlan
from neurotest.campaign.result import class_name
from neurotest.campaign.status import tally_of
from neurotest.campaign.store import FAULTS, Store, StoredMutant, write_seeds
from neurotest.errors import BadInput
from neurotest.generate.fuzz.mutants import Key
from neurotest.jobs.life import atomic_run, finish
from neurotest.jobs.methods import stored_method
from neurotest.mutate import chain as chains
from neurotest.mutate.base import Mutations
from neurotest.mutate.chain import free
from neurotest.runs import codec
from neurotest.runs.rows import InputRow, dumps
from neurotest.runs.store import Run


def merge(paths: Sequence[Path | str], out: Path | str | None = None) -> dict[str, Any]:
    """A new run with the mutants of several; equal images of one family stand in it once."""
    if len(paths) < 2:
        raise BadInput("too-few", "runs", "merge needs at least two campaigns.")
    with ExitStack() as stack:
        runs = [stack.enter_context(Run.open(path)) for path in paths]
        config = _common(runs)
        # Its configuration is theirs: what it names must not be loaded as if this user had named it.
        merged = stack.enter_context(atomic_run("merge", out, config, trusted=all(run.made_here for run in runs)))
        assert merged is not None
        return _Merge(merged).fill(runs)


def _common(runs: list[Run]) -> dict[str, Any]:
    configs = [campaign_config(run) for run in runs]
    for run, config in zip(runs, configs, strict=True):
        if config.get("fingerprint") != configs[0].get("fingerprint"):
            raise BadInput(
                "changed", "target", f"{run.path} tests another target than {runs[0].path}: campaigns are merged per target."
            )
    oracles = list(dict.fromkeys(oracle for config in configs for oracle in config["oracle"]))
    first = configs[0]
    return {
        **{key: value for key, value in first.items() if key not in ("digests", "code")},
        "guide": "random",  # brings no settings of its own
        "options": {**{k: v for k, v in first["options"].items() if k in ("seed",)}, **_mutations(runs, configs)},
        "oracle": oracles,
        "merged": [str(run["id"]) for run in runs],
        "guides": [config["guide"] for config in configs],
    }


def _mutations(runs: list[Run], configs: list[dict[str, Any]]) -> dict[str, Any]:
    """The mutations by which all of them can be replayed; faults of swarms need none."""
    first: Mutations | None = None
    for run, config in zip(runs, configs, strict=True):
        if all(map(free, Store(run).operators())):
            continue
        mutations = FuzzPlan.read(config).mutations()
        if first is not None and mutations != first:
            raise BadInput(
                "changed",
                "mutations",
                f"{run.path} uses other mutations than {runs[0].path}: its faults could not be replayed beside them.",
            )
        first = mutations
    return {} if first is None else {"mutations": stored_method(first)}


class _Merge:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.images: list[np.ndarray] = []
        self.position: dict[tuple[str, int | None], int] = {}  # content and label -> new position
        self.rows: list[tuple[Any, ...]] = []
        self.added: set[tuple[str, Key]] = set()

    def fill(self, runs: list[Run]) -> dict[str, Any]:
        inputs: list[InputRow] = []
        for run in runs:
            store = Store(run)
            places = self._seeds(run, store, inputs)
            for mutant in store.mutants():
                self._add(mutant, places[mutant.root])
        write_seeds(self.run, np.stack(self.images))
        with self.run.transaction():
            self.run.add_inputs(inputs)
            Store(self.run).add_rows(self.rows)
            self.run["classes"] = runs[0]["classes"]
            self.run["budget"] = {}
            self.run["progress"] = self._tally(runs)
        summary = self._summary()
        finish(self.run, summary)
        return summary

    def _seeds(self, run: Run, store: Store, inputs: list[InputRow]) -> dict[int, int]:
        x, rows = store.seeds()
        places = {}
        for row in run.inputs():
            key = (row.content, row.label)
            if key not in self.position:
                self.position[key] = len(self.images)
                self.images.append(np.array(x[rows[row.position]]))
                inputs.append(row._replace(position=self.position[key]))
            places[row.position] = self.position[key]
        return places

    def _add(self, mutant: StoredMutant, root: int) -> None:
        if (mutant.content, mutant.family) in self.added:
            return
        self.added.add((mutant.content, mutant.family))
        number, name = len(self.rows), None
        if mutant.file is not None:
            place, rate = self.run.file(f"{FAULTS}/fault-{number:06d}"), codec.rate(mutant.file)
            name = codec.encode(codec.decode(mutant.file), place, rate=rate).name
        self.rows.append(
            (
                number, mutant.batch, mutant.iteration, root, mutant.content, mutant.expected, mutant.predicted, mutant.oracle,
                mutant.operator, int(mutant.accepted), mutant.gain, *mutant.distance, dumps(chains.plain(mutant.chain)), name,
                mutant.answer,
            )
        )  # fmt: skip

    def _tally(self, runs: list[Run]) -> dict[str, Any]:
        """Work adds up; faults are counted anew, because equal ones stand here once."""
        tallies = [tally_of(run) for run in runs]
        total = tallies[0]
        for other in tallies[1:]:
            for name in total.counts():
                setattr(total, name, getattr(total, name) + getattr(other, name))
            total.tried.update(other.tried)
        faults = [row for row in self.rows if row[7] is not None]
        total.outputs, total.faults = len(self.rows), len(faults)
        total.accepted, total.accepted_faults = sum(row[9] for row in self.rows), sum(row[9] for row in faults)
        for counter in (total.families, total.predicted, total.operators):
            counter.clear()
        total.families.update((row[5], row[6], row[8]) for row in faults)
        total.predicted.update(row[6] for row in faults)
        total.operators.update(row[8] for row in faults)
        total.roots = {row[3] for row in faults}
        return {**total.plain(), "control": None}  # controls count equal images of several campaigns twice: left out

    def _summary(self) -> dict[str, Any]:
        tally = tally_of(self.run)
        classes = tuple(self.run["classes"]) or None
        return {
            "outputs": tally.outputs, "faults": tally.faults, "families": len(tally.families), "roots": len(tally.roots),
            "by_predicted": {class_name(k, classes): n for k, n in tally.predicted.most_common()},
            "forwards": tally.forwards, "seconds": tally.seconds, "run": str(self.run.path),
        }  # fmt: skip
