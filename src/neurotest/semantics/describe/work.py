"""_Describing into a run, as a job: how far the pass over the data came is kept, so that it goes on from there."""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import registry
from neurotest.arrays import read_npz
from neurotest.data.objects import AnyData
from neurotest.errors import BadInput, Remark
from neurotest.jobs.life import resumed, resumed_settings
from neurotest.jobs.methods import read_method, stored_method
from neurotest.jobs.opening import AnyTarget, stored_source
from neurotest.jobs.stored import stored_target
from neurotest.jobs.work import Job, resume_job, run_job
from neurotest.runs.folder import LARGEST, declare
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.semantics.describe import record
from neurotest.semantics.describe.api import Layers, described, layers_to_describe, prepare
from neurotest.semantics.describe.material import Describer, Material
from neurotest.semantics.descriptions import DEFAULT, Descriptions
from neurotest.semantics.exemplars import Exemplars
from neurotest.settings.analyse import DescribeSettings
from neurotest.target import Trace, Want

PASS = "pass.npz"  # the exemplars of the inputs that were seen so far
declare(r"pass\.npz")
PAUSE = 30.0  # seconds between two snapshots, at least


@dataclass(frozen=True, eq=False)
class _Described:
    """A table and the run that holds it."""

    table: Descriptions
    run: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        return record.summary(self.table)


class Snapshots:
    """A consumer behind the exemplars: writes what they hold into the run every now and then."""

    want: Want | None = None

    def __init__(self, run: Run) -> None:
        self.run = run
        self.last = time.monotonic()
        self.exemplars: Exemplars | None = None

    def restore(self, exemplars: Exemplars) -> None:
        """Let the exemplars go on from the last snapshot, if there is one of theirs; they are watched from now on."""
        self.exemplars = exemplars
        file = self.run.file(PASS)
        if not file.exists() or not self.run.made_here:
            return
        try:
            state = read_npz(io.BytesIO(file.read()), str(file), largest=LARGEST)
            _check(state, exemplars.state_dict())
        except BadInput as error:
            warnings.warn(f"{error} The pass over the data begins again.", Remark, stacklevel=2)
            return
        exemplars.load(state)

    def fresh(self, start: int = 0) -> _Unwritten:
        """Workers have exemplars of a piece only, and write nothing."""
        return _Unwritten()

    def merge(self, other: _Unwritten) -> None:
        self._write()

    def update(self, trace: Trace) -> None:
        """Nothing: exemplars hold a batch when it is merged into them."""

    def _write(self) -> None:
        if self.exemplars is None or time.monotonic() - self.last < PAUSE:
            return
        with self.run.file(PASS).writing() as out:
            np.savez(out, allow_pickle=False, **self.exemplars.state_dict())
        self.last = time.monotonic()


class _Unwritten:
    """In place of snapshots where there is no run."""

    want: Want | None = None

    def update(self, trace: Trace) -> None:
        return None

    def fresh(self, start: int = 0) -> _Unwritten:
        return self


def _check(state: Mapping[str, NDArray[Any]], empty: Mapping[str, NDArray[Any]]) -> None:
    """Refuse a snapshot of other layers, k or classes. Samples grow, so only their width is compared."""
    same = state.keys() == empty.keys()
    for name in empty if same else ():
        grows = "/places" in name or "/inputs" in name
        mine, theirs = (array.shape[1:] if grows else array.shape for array in (empty[name], state[name]))
        same = same and mine == theirs and empty[name].dtype == state[name].dtype
    if not same:
        raise BadInput("changed", "layers", f"{PASS} is not of the layers and settings of this run.")


@dataclass(eq=False)
class _Describing(Job[_Described]):
    """One describer on its material."""

    describer: Describer
    material: Material
    settings: DescribeSettings
    command = "describe"

    @classmethod
    def prepare(
        cls, target: AnyTarget, data: AnyData | None, method: Any, layers: Layers, settings: DescribeSettings
    ) -> _Describing:
        chosen = {**settings.stored(), "strict": settings.strict, "cache": settings.cache}
        return cls(*prepare(target, data, method, layers, **chosen), settings)

    def config(self) -> dict[str, Any]:
        return {**record.config(self.material, self.describer), **self.settings.stored()}

    def work(self, run: Run | None, progress: Progress | None) -> _Described:
        self.material.progress = progress
        self.material.snapshots = None if run is None else Snapshots(run)
        return _Described(described(self.describer, self.material))

    def kept(self, run: Run) -> str:
        return "a part of the pass over the data" if run.file(PASS).exists() else ""

    def record(self, run: Run, result: _Described) -> None:
        record.fill(run, self.material, result.table)
        run.file(PASS).remove()


def recorded(
    target: AnyTarget | None,
    data: AnyData | None,
    method: Any = None,
    layers: str | None = None,
    *,
    out: Any = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> tuple[Descriptions, Path, dict[str, Any]]:
    """Describe into a run with exemplars and contact sheets: the table, the run's place, how many neurons have words.

    resume: an interrupted run to go on with; it keeps its settings, of which None is one that is not repeated.
    """
    if resume is None:
        assert target is not None
        job = _Describing.prepare(target, data, method or DEFAULT, layers, DescribeSettings.of(settings))
        done = run_job(job, out, progress)
    else:

        def again(run: Run, config: dict[str, Any]) -> _Describing:
            network = stored_target(run, target)
            chosen = resumed(DescribeSettings, run, config, settings)
            repeated = {
                "method": method and stored_method(registry.build("describer", method)),
                "layers": layers and [layer.name for layer in layers_to_describe(network, layers)],
            }
            resumed_settings(run, repeated, config)
            source = stored_source(run, config["data"], data, "data") if config["inputs"] else None
            return _Describing.prepare(network, source, read_method("describer", config["method"]), config["layers"], chosen)

        done = resume_job(resume, "describe", again, progress, out=out)
    assert done.run is not None
    return done.table, done.run, done.to_dict()
