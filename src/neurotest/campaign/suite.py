"""Campaigns read as suites for `neurotest evaluate`: images from their files or made again from their chains."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from neurotest.campaign.replay import FaultReader
from neurotest.campaign.store import Store, StoredMutant
from neurotest.data.source import ArraySource, content_ids
from neurotest.errors import BadInput
from neurotest.evaluate.readers import StoredSuite
from neurotest.jobs.opening import AnyTarget
from neurotest.jobs.stored import stored_target
from neurotest.registry import register
from neurotest.runs import codec
from neurotest.runs.store import Run
from neurotest.target import Target

AT_ONCE = 256
CONTROL = "a random campaign of as many forward passes"
NOISE = "as many random changes of the ball's size per seed"
Make = Callable[[list[StoredMutant]], np.ndarray]


@register("suite", "fuzz", paper="", cost="makes every output again from its seed: a few milliseconds each")
def fuzz_suite(run: Run, target: AnyTarget | None) -> StoredSuite:
    """What `neurotest fuzz` output, beside the numbers of its random control."""
    reader = FaultReader(run, target)
    return stored(run, reader.target, reader.again)


@register("suite", "merge", paper="", cost="as fuzz")
def merge_suite(run: Run, target: AnyTarget | None) -> StoredSuite:
    """What `neurotest merge` joined; merged campaigns have no common control."""
    return fuzz_suite(run, target)


@register("suite", "swarm", paper="", cost="reads the stored images")
def swarm_suite(run: Run, target: AnyTarget | None) -> StoredSuite:
    """The faults of `neurotest swarm` that it saved as images, beside random changes of the ball's size (its `noise` control)."""
    suite = stored(run, stored_target(run, target), None)
    noise = ((run["summary"] or {}).get("controls") or {}).get("noise")
    if not isinstance(noise, dict):
        return suite
    random = {"seeds_failed": noise.get("rate"), "roots": noise.get("failed")}
    return dataclasses.replace(suite, random=random, control_is=NOISE)


def stored(run: Run, target: Target, make: Make | None) -> StoredSuite:
    """The outputs of a campaign. Without `make` those that were not kept as files are left out, and the notes say so."""
    store = Store(run)
    outputs = store.mutants()
    mutants = outputs if make is not None else [m for m in outputs if m.file is not None]
    if not mutants:
        raise BadInput("empty", "suite", f"{run.path} made no output that can be judged.")
    parts = [_images(run, mutants[i : i + AT_ONCE], make) for i in range(0, len(mutants), AT_ONCE)]
    about: dict[str, Any] = {"classes": tuple(run["classes"]) or None, "spec": str(run.path)}
    labels = np.array([m.expected for m in mutants])
    expected = labels if (labels >= 0).all() else None
    seeds, rows = store.seeds()
    originals = ArraySource(np.array(seeds[[rows[m.root] for m in mutants]]), expected, **about)
    summary = run["summary"] if isinstance(run["summary"], dict) else {}
    random = summary.get("random") if isinstance(summary.get("random"), dict) else None
    if random is not None and random.get("roots") is not None and len(seeds):
        random = {**random, "seeds_failed": random["roots"] / len(seeds)}
    left = len(outputs) - len(mutants)
    return StoredSuite(
        target, ArraySource(np.concatenate(parts), expected, originals=originals, **about),
        np.array([m.oracle is not None for m in mutants]), str(run["command"]), None, random, CONTROL if random else None,
        [m.operator for m in mutants], summary.get("forwards"),
        (f"{left} of {len(outputs)} outputs were not kept as images and are left out.",) if left else (),
        len(seeds), [tuple(step.operator for step in m.chain) for m in mutants],
    )  # fmt: skip


def _images(run: Run, mutants: list[StoredMutant], make: Make | None) -> np.ndarray:
    """Inputs as they were tested: read where they were kept, made again elsewhere, and checked against their content."""
    images: dict[int, np.ndarray] = {i: np.asarray(codec.decode(m.file)) for i, m in enumerate(mutants) if m.file is not None}
    absent = [i for i in range(len(mutants)) if i not in images]
    if absent and make is not None:
        images |= dict(zip(absent, make([mutants[i] for i in absent]), strict=True))
    x = np.stack([images[i] for i in range(len(mutants))])
    wrong = np.flatnonzero(content_ids(x) != np.array([m.content for m in mutants]))
    if len(wrong):
        raise BadInput(
            "damaged",
            "suite",
            f"output {mutants[int(wrong[0])].number} of {run.path} does not come out again as it was: the run is damaged or was "
            "made by another version.",
        )
    return x
