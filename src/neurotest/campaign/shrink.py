"""Shrinking: for each family the smallest change that still fails: fewer mutations, milder ones, a smaller region.

As Hypothesis does it: try simpler variants in a fixed order, keep what still fails, stop when nothing simpler does. A variant
counts only if an oracle still rejects it, as it would be saved, and the same wrong class is predicted. A fault of a swarm is
no chain of mutations but a change of values: there, fewer values are changed, and by less.
"""

from __future__ import annotations

import dataclasses
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.campaign.families import best, grouped
from neurotest.campaign.replay import FaultReader
from neurotest.campaign.result import class_name
from neurotest.campaign.store import FAULTS, Store, StoredMutant
from neurotest.data.source import content_ids
from neurotest.errors import BadInput
from neurotest.files import alive
from neurotest.generate.fuzz.mutants import Key
from neurotest.generate.swarm.moves import SIDES, grid
from neurotest.jobs.opening import AnyTarget
from neurotest.mutate import chain as chains
from neurotest.mutate.base import PORTIONS
from neurotest.mutate.chain import CHANGED, REGION, Chain, Mutation, free, words
from neurotest.mutate.unit import distances
from neurotest.runs import codec
from neurotest.runs.folder import Folder, declare
from neurotest.runs.rows import dumps, loads
from neurotest.runs.store import ENDING, Run

JOBS, ROWS, ADOPTED = "jobs", "shrunk.json", "adopted.json"
LARGEST = 1 << 28  # bytes of a side job's rows
OURS = declare(rf"{JOBS}/shrink-(?P<process>[0-9]+)/(shrunk-[0-9]{{6,}}\.{ENDING}|shrunk\.json|adopted\.json)")
PART = 500  # variants in one forward pass


@dataclass(frozen=True)
class Shrunk:
    """A family before and after."""

    key: Key
    fault: int
    before: Chain
    after: Chain
    distance_before: tuple[float, float, float]
    distance_after: tuple[float, float, float]
    content: str
    tried: int
    file: str | None = None

    def to_dict(self, classes: tuple[str, ...] | None) -> dict[str, Any]:
        sizes = {"before": self.distance_before, "after": self.distance_after}
        return {
            "true": class_name(self.key[0], classes), "predicted": class_name(self.key[1], classes), "operator": self.key[2],
            "fault": self.fault, "before": words(self.before), "after": words(self.after),
            **{f"{name}_{when}": size[i] for when, size in sizes.items() for i, name in enumerate(("l0", "l2", "linf"))},
            "tried": self.tried, "file": self.file,
        }  # fmt: skip

    def row(self) -> list[Any]:
        """As the store keeps it."""
        about = {
            "before": chains.plain(self.before), "distance_before": self.distance_before, "distance_after": self.distance_after,
            "tried": self.tried,
        }  # fmt: skip
        return [*self.key, self.fault, self.content, dumps(chains.plain(self.after)), dumps(about), self.file]


Form = tuple[tuple[float, float], int | None]  # bounds and rate of the target's inputs
Result = tuple[Shrunk, NDArray[np.generic]]  # and the image


def shrink(
    path: Path | str,
    target: AnyTarget | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    fault: int | None = None,
) -> dict[str, Any]:
    """Shrink every family of a campaign; the results become part of the run, or wait in RUN/jobs while it is being written.

    fault: only the family of this one.
    """
    with Run.open(path) as run:
        reader = FaultReader(run, target)
        groups = grouped(reader.store.faults())
        if not groups:
            raise BadInput("empty", "faults", f"{run.path} has no faults: there is nothing to shrink.")
        if fault is not None:
            family = reader.fault(fault).family
            groups = {family: groups[family]}
        results = []
        for done, (key, faults) in enumerate(groups.items(), start=1):
            first = best(faults)
            results.append((_ValueSearch if free(first.operator) else _ChainSearch)(reader, key, first).shrunk())
            if progress is not None:
                progress(done, len(groups))
        classes, form = reader.classes, (reader.target.bounds, reader.target.preprocess.rate)
    return {"run": str(path), "families": [s.to_dict(classes) for s in _store(Path(path), results, form)]}


class _Search(ABC):
    """The simplest variant of one fault, as a chain and as it is saved."""

    def __init__(self, reader: FaultReader, key: Key, fault: StoredMutant) -> None:
        self.reader, self.key, self.fault = reader, key, fault
        self.root = reader.root(fault.root)
        self.tried = 0

    @abstractmethod
    def simplest(self) -> tuple[Chain, NDArray[np.generic]]: ...

    def shrunk(self) -> Result:
        chain, x = self.simplest()
        l0, l2, linf = (float(v) for v in distances(self.reader.unit(x[None]), self.reader.unit(self.root[None]))[0])
        fault = self.fault
        content = str(content_ids(x[None])[0])
        return Shrunk(self.key, fault.number, fault.chain, chain, fault.distance, (l0, l2, linf), content, self.tried), x


class _ChainSearch(_Search):
    """Variants are chains: fewer mutations, milder ones, a smaller rectangle."""

    def simplest(self) -> tuple[Chain, NDArray[np.generic]]:
        chain = self._fewer(self.fault.chain)
        for _ in range(3):
            milder = self._milder(chain)
            if milder == chain:
                break
            chain = milder
        if self.root.ndim == 3:
            chain = self._smaller(chain)
        return chain, self.reader.make(self.root[None], [chain])[0]

    def _failing(self, variants: list[Chain]) -> list[Chain]:
        """Those that still fail, in order."""
        if not variants:
            return []
        self.tried += len(variants)
        x = self.reader.make(np.repeat(self.root[None], len(variants), axis=0), variants)
        fails = self.reader.fails(self.fault.root, x, self.key[1])
        return [variant for variant, failing in zip(variants, fails, strict=True) if failing]

    def _fewer(self, chain: Chain) -> Chain:
        for size in range(1, len(chain)):
            failing = self._failing([tuple(chain[i] for i in places) for places in combinations(range(len(chain)), size)])
            if failing:
                return failing[0]
        return chain

    def _milder(self, chain: Chain) -> Chain:
        for place, step in enumerate(chain):
            variants = [(*chain[:place], milder, *chain[place + 1 :]) for milder in self._gentler(step)]
            if failing := self._failing(variants):
                chain = failing[0]
        return chain

    def _gentler(self, step: Mutation) -> Iterator[Mutation]:
        """The same mutation with less of it, least first."""
        for parameters in self.reader.mutations.find(step.operator).milder(step.parameters):
            yield Mutation(step.operator, parameters)

    def _smaller(self, chain: Chain) -> Chain:
        """The smallest rectangle in which the change is enough."""
        height, width = self.root.shape[-2:]
        region = (0, 0, height, width)
        while True:
            variants = [(*chain, Mutation(REGION, tuple(float(v) for v in box))) for box in _cuts(region)]
            failing = self._failing(variants)
            if not failing:
                break
            top, left, rows, columns = (int(v) for v in failing[0][-1].parameters)
            region = (top, left, rows, columns)
        return chain if region == (0, 0, height, width) else (*chain, Mutation(REGION, tuple(float(v) for v in region)))


class _ValueSearch(_Search):
    """Variants are inputs: tiles that are as in the seed again, from large ones to single values, and a smaller change."""

    def simplest(self) -> tuple[Chain, NDArray[np.generic]]:
        x = self.reader.again([self.fault])[0]
        for _ in range(3):
            smaller = self._milder(self._fewer(x))
            if np.array_equal(smaller, x):
                break
            x = smaller
        return (*self.fault.chain, Mutation(CHANGED, (float((x != self.root).sum()),))), x

    def _fails_by(self, variants: NDArray[np.generic]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        self.tried += len(variants)
        root, wrong = self.fault.root, self.key[1]
        parts = [self.reader.fails_by(root, variants[i : i + PART], wrong) for i in range(0, len(variants), PART)]
        fails, lead = (np.concatenate(side) for side in zip(*parts, strict=True))
        return fails, lead

    def _fewer(self, x: NDArray[np.generic]) -> NDArray[np.generic]:
        for number, share in enumerate(SIDES):
            draw = rng.torch_stream("shrink.tiles", self.fault.number, number)
            tiles = grid(self.root.shape, share, draw).numpy().reshape(self.root.shape)
            while (without := self._without(x, tiles)) is not None:
                x = without
        return x

    def _without(self, x: NDArray[np.generic], tiles: NDArray[np.int64]) -> NDArray[np.generic] | None:
        """Without as many tiles of the change as can go; None if each is needed."""
        changed = np.unique(tiles[x != self.root])
        if not len(changed):
            return None
        fails, lead = self._fails_by(np.where(tiles[None] == changed.reshape(-1, *[1] * tiles.ndim), self.root[None], x[None]))
        spare = changed[fails][np.argsort(-lead[fails], kind="stable")]  # those that matter least first
        if not len(spare):
            return None
        # All at once is too many as a rule: sixteen lengths of the list, and the longest that still fails.
        lengths = np.unique(np.linspace(1, len(spare), min(16, len(spare))).round().astype(int))
        variants = np.stack([np.where(np.isin(tiles, spare[:length]), self.root, x) for length in lengths])
        fails, _ = self._fails_by(variants)
        return variants[np.flatnonzero(fails)[-1]] if fails.any() else None

    def _milder(self, x: NDArray[np.generic]) -> NDArray[np.generic]:
        seed, now = (self.reader.unit(image[None]) for image in (self.root, x))
        portions = torch.from_numpy(1 - PORTIONS).to(now).view(-1, *[1] * self.root.ndim)
        variants = self.reader.stored((seed + portions * (now - seed)).clamp(0, 1))
        fails, _ = self._fails_by(variants)
        return np.asarray(variants[int(fails.argmax())]) if fails.any() else x


def _cuts(region: tuple[int, int, int, int]) -> list[tuple[int, int, int, int]]:
    """Rectangles inside this one: without a half, a quarter or one row or column on a side; the smallest first."""
    top, left, height, width = region
    cuts: list[tuple[int, int, int, int]] = []
    for rows in sorted({height // 2, height // 4, 1} - {0}, reverse=True):
        if rows < height:
            cuts += [(top + rows, left, height - rows, width), (top, left, height - rows, width)]
    for columns in sorted({width // 2, width // 4, 1} - {0}, reverse=True):
        if columns < width:
            cuts += [(top, left + columns, height, width - columns), (top, left, height, width - columns)]
    return sorted(dict.fromkeys(cuts), key=lambda box: box[2] * box[3])


def _store(path: Path, results: list[Result], form: Form) -> list[Shrunk]:
    """Into the run, if nobody writes it; otherwise into RUN/jobs, from where its owner takes it."""
    try:
        run = Run.open(path, write=True)
    except BadInput:
        folder, job = Folder(path), f"{JOBS}/shrink-{os.getpid()}"
        families = _write(folder, job, results, form)
        folder.file(f"{job}/{ROWS}").write(json.dumps([family.row() for family in families]))
        return families
    with run:
        families = _write(run.folder, FAULTS, results, form)
        Store(run).add_shrunk([family.row() for family in families])
    return families


def _write(folder: Folder, place: str, results: list[Result], form: Form) -> list[Shrunk]:
    families = []
    for family, image in results:
        file = codec.encode(image, folder.file(f"{place}/shrunk-{family.fault:06d}"), *form)
        families.append(dataclasses.replace(family, file=file.name))
    return families


def shrunk_of(run: Run) -> dict[Key, dict[str, Any]]:
    """The shrunk faults so far, by family."""
    families: dict[Key, dict[str, Any]] = {}
    for expected, predicted, operator, mutant, _, chain, about, file in Store(run).shrunk():
        details = loads(about, run.path)
        families[(int(expected), int(predicted), str(operator))] = {
            "fault": int(mutant), "before": words(chains.read(details["before"])),
            "after": words(chains.read(loads(chain, run.path))),
            "distance_before": details["distance_before"], "distance_after": details["distance_after"],
            "file": None if file is None else run.file(str(file)),
        }  # fmt: skip
    return families


def adopt(run: Run) -> int:
    """Take in what side jobs left in RUN/jobs while the run was being written; what is left of one that died goes."""
    jobs: dict[str, list[str]] = {}
    for name in run.folder.names():
        if OURS.fullmatch(name):
            jobs.setdefault(name.rpartition("/")[0], []).append(name)
    count = 0
    for job, names in sorted(jobs.items()):
        file = run.file(f"{job}/{ROWS}")
        if file.name in names:
            try:
                rows = json.loads(file.read(LARGEST))
                Store(run).add_shrunk(rows)
            except (ValueError, TypeError, BadInput):
                continue  # not ours: it stays where it is
            file.rename(ADOPTED)
            count += len(rows)
        elif f"{job}/{ADOPTED}" not in names and not alive(int(job.rpartition("-")[2])):
            for name in names:
                run.file(name).remove()
            run.folder.remove_folder(job)
    run.folder.remove_folder(JOBS)
    return count
