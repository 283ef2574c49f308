"""The faults of a run: those of campaigns as seed and chain, those of swarms and attacks as images beside their seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from neurotest.arrays import read_npz
from neurotest.campaign.api import campaign_config
from neurotest.campaign.differences import WIDER, difference
from neurotest.campaign.families import best, grouped
from neurotest.campaign.plan import FuzzPlan
from neurotest.campaign.store import Store
from neurotest.checks import integer
from neurotest.data.source import content_ids
from neurotest.errors import BadInput
from neurotest.generate.fuzz.mutants import Key
from neurotest.generate.suite import SUITE
from neurotest.jobs.stored import named_code
from neurotest.mutate.base import Mutations
from neurotest.mutate.chain import Chain, free, words
from neurotest.runs import codec
from neurotest.runs.folder import LARGEST
from neurotest.runs.store import Run

PER_FAMILY = 3
CAMPAIGNS, SUITES = ("fuzz", "merge", "swarm"), ("attack", "diff", "illuminate")


@dataclass(frozen=True)
class Kept:
    """One fault: its seed, what was done to it, and what it was taken for."""

    position: int
    seed: str  # hash of the seed's content
    content: str  # and of the mutant's
    family: Key
    chain: Chain
    difference: str = ""  # what was added to the seed, where no chain leads to it

    @property
    def change(self) -> str:
        return words(self.chain) if self.chain else self.family[2]


@dataclass(frozen=True, eq=False)
class StoredFaults:
    """Faults of a run. images, by content: those that were saved and follow no rule; seeds by position."""

    faults: list[Kept]
    images: dict[str, NDArray[np.generic]]
    seeds: Mapping[int, NDArray[np.generic]]
    mutations: Mutations | None
    where: str = field(default="the run")

    def seed(self, fault: Kept) -> NDArray[np.generic]:
        if fault.position not in self.seeds:
            raise BadInput("damaged", "seeds", f"{self.where} names a seed that it does not hold: it is damaged.")
        return np.asarray(self.seeds[fault.position])

    def portable(self, fault: Kept) -> Kept | None:
        """A fault as it can be made again without the run; None for one that cannot: no rule, and no levels to count."""
        if fault.content not in self.images:
            return None if self.mutations is None or any(free(step.operator) for step in fault.chain) else fault
        image, seed = np.asarray(self.images[fault.content]), self.seed(fault)
        if image.dtype not in WIDER or seed.dtype != image.dtype or image.shape != seed.shape:
            return None
        return dataclasses.replace(fault, chain=(), difference=difference(seed, image))


def stored_faults(run: Run, per_family: int = PER_FAMILY) -> StoredFaults:
    """The faults of a run that show each family best, the largest family first."""
    integer("per_family", per_family, 1, f"{PER_FAMILY} by default")
    command = str(run["command"])
    if command in CAMPAIGNS:
        return _of_campaign(run, per_family)
    if command in SUITES:
        return _of_suite(run, per_family)
    raise BadInput(
        "wrong-run", "", f"{run.path} is a run of {command!r}: faults are kept of runs of {', '.join((*CAMPAIGNS, *SUITES))}."
    )


def _of_campaign(run: Run, per_family: int) -> StoredFaults:
    config = campaign_config(run)
    ruled = run["command"] != "swarm"
    if ruled and not run.made_here:
        refuse_code(str(run.path), str(config["options"]), str(config["guide"]))
    contents = {row.position: row.content for row in run.inputs()}
    faults: list[Kept] = []
    images: dict[str, NDArray[np.generic]] = {}
    for family, group in sorted(grouped(Store(run).faults()).items(), key=lambda one: (-len(one[1]), one[0])):
        left = [one for one in group if ruled or one.file is not None]
        for _ in range(min(per_family, len(left))):
            one = best(left)
            left.remove(one)
            if one.file is not None and (not ruled or any(free(step.operator) for step in one.chain)):
                images[one.content] = np.asarray(codec.decode(one.file))
            faults.append(Kept(one.root, str(contents.get(one.root, "")), one.content, family, one.chain))
    x, rows = Store(run).seeds()
    seeds = {one.position: np.array(x[rows[one.position]]) for one in faults if one.position in rows}
    return StoredFaults(faults, images, seeds, FuzzPlan.read(config).mutations() if ruled else None, str(run.path))


def _of_suite(run: Run, per_family: int) -> StoredFaults:
    """Of what an attack or the like made: all of it is in one file, beside its seeds. The smallest changes come first."""
    file = run.file(SUITE)
    if run["state"] != "done" or not file.exists():
        raise BadInput("unfinished", "", f"{run.path} is not finished, or has lost its {SUITE}: there are no faults to keep.")
    with file.open() as stream:
        arrays = read_npz(stream, str(file), largest=LARGEST, names=("x", "y", "seeds", "positions", "fault"))
    x, y, seeds, positions, fault = (arrays[name] for name in ("x", "y", "seeds", "positions", "fault"))
    rows = run.inputs()
    if x.shape != seeds.shape or any(len(one) != len(x) for one in (y, positions, fault, rows)):
        raise BadInput("damaged", "suite", f"{file} holds arrays that do not fit each other or the run: it is damaged.")
    distance = np.abs(x.astype(np.float64) - seeds).reshape(len(x), -1).sum(axis=1)
    contents, places = content_ids(np.asarray(seeds)), positions.astype(np.int64)
    families: dict[Key, list[int]] = {}
    for i in sorted(np.flatnonzero(fault).tolist(), key=lambda one: (distance[one], one)):
        families.setdefault((int(y[i]), int(rows[i].predicted or 0), str(run["command"])), []).append(i)
    faults: list[Kept] = []
    images = {}
    for family, group in sorted(families.items(), key=lambda one: (-len(one[1]), one[0])):
        for i in group[:per_family]:
            images[rows[i].content] = x[i]
            faults.append(Kept(int(places[i]), str(contents[i]), rows[i].content, family, ()))
    return StoredFaults(faults, images, {int(p): seeds[i] for i, p in enumerate(places)}, None, str(run.path))


def refuse_code(where: str, *methods: str) -> None:
    """A method may name a further network: what comes from elsewhere must not make us load one."""
    for text in methods:
        if named_code({"method": text}):
            raise BadInput(
                "untrusted",
                "",
                f"{where} names {text:.80}, which could run code: find the faults yourself with `neurotest fuzz`.",
            )
