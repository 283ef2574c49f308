"""Generators that make a suite from seeds (attack, diff, illuminate) as jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.data.source import Source, content_ids
from neurotest.errors import BadInput
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.suite import AttackResult
from neurotest.jobs.life import other_setting
from neurotest.jobs.methods import read_method, stored_method, with_options
from neurotest.jobs.opening import digests, stored_spec
from neurotest.jobs.parts import Arrays, Parts
from neurotest.jobs.stored import target_config
from neurotest.jobs.work import Job
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.settings.generate import AttackSettings, DiffSettings
from neurotest.settings.shared import Suite
from neurotest.target import Target

Result = TypeVar("Result", bound=AttackResult)


def old_method(run: Run, config: Mapping[str, Any], kind: str, method: Any, options: Mapping[str, Any], name: str = "") -> Any:
    """The method of a run that goes on; one that is repeated must be the run's, or the object the run cannot hold.

    name: that of the setting, where it is not the kind of the method.
    """
    stored = config["method"]
    repeated = {name: value for name, value in options.items() if value is not None}
    if method is not None and isinstance(stored, Mapping) and "object" in stored:
        again = with_options(kind, method, repeated)
        if stored_method(again) != stored:
            raise other_setting(run, name or kind, stored_method(again), stored)
        return again
    original = read_method(kind, stored)
    again = with_options(kind, original if method is None else method, repeated)
    if again != original:
        raise other_setting(run, name or kind, stored_method(again), stored_method(original))
    return original


@dataclass(eq=False, kw_only=True)
class Work(Job[Result], Generic[Result]):
    """One method on chosen seeds."""

    targets: list[Target]
    source: Source
    seeds: Seeds
    method: Any
    settings: Suite
    began: float = field(default_factory=time.monotonic)

    @property
    def target(self) -> Target:
        return self.targets[0]

    @property
    def seed(self) -> int:
        return self.settings.seed

    def config(self) -> dict[str, Any]:
        return {
            **target_config(*self.targets), "seeds": stored_spec(self.source), "contents": self._contents(),
            "method": stored_method(self.method), **self.settings.stored(), "threads": torch.get_num_threads(),
            "digests": digests(seeds=self.source),
        }  # fmt: skip

    def _contents(self) -> str:
        return str(content_ids(self.seeds.x.reshape(1, -1))[0])

    def restore(self, run: Run) -> None:
        if self._contents() != run["config"]["contents"]:
            raise BadInput(
                "changed", "seeds", f"the seeds are not those {run.path} was started with: resume it with the same data."
            )

    def record(self, run: Run, result: Result) -> None:
        result.record(run, self.target, self.settings.files)

    def about(self) -> dict[str, Any]:
        """What all results have in common."""
        return {
            "set_aside": self.seeds.set_aside, "seconds": time.monotonic() - self.began, "outputs_possible": self.seeds.classes,
            "classes": tuple(self.target.classes or self.source.classes or ()) or None,
        }  # fmt: skip


@dataclass(eq=False, kw_only=True)
class Batches(Work[Result]):
    """Work that goes through the seeds batch by batch."""

    settings: AttackSettings | DiffSettings
    done: list[Arrays] = field(default_factory=list)

    @property
    def batch(self) -> int:
        return self.settings.batch

    @property
    def count(self) -> int:
        return -(-len(self.seeds) // self.batch)

    def kept(self, run: Run) -> str:
        return f"{len(Parts(run))} of {self.count} batches" if len(Parts(run)) else ""

    def restore(self, run: Run) -> None:
        super().restore(run)
        self.done = list(Parts(run))

    def each(
        self, one: Callable[[NDArray[np.int64]], Arrays], check: Callable[[bool], None], run: Run | None,
        progress: Progress | None,
    ) -> None:  # fmt: skip
        """`one` for the rows of every batch that is not done; `check(last)` may refuse its result before it is kept."""
        for number in range(len(self.done), self.count):
            rows = np.arange(number * self.batch, min((number + 1) * self.batch, len(self.seeds)))
            part = one(rows)
            check(number + 1 == self.count)
            self.done.append(part)
            if run is not None:
                Parts(run).add(part)
            if progress is not None:
                progress(int(rows[-1]) + 1, len(self.seeds))

    def joined(self, *names: str) -> Arrays:
        try:
            return {name: np.concatenate([part[name] for part in self.done]) for name in names}
        except (KeyError, ValueError) as error:
            raise BadInput(
                "damaged", "parts", f"the parts of the run do not fit each other ({error}): it is damaged; start a new run."
            ) from error
