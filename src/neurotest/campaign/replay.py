"""Making a stored fault again from its seed and its chain, and running the target on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.campaign.api import campaign_config
from neurotest.campaign.plan import FuzzPlan
from neurotest.campaign.result import class_name
from neurotest.campaign.store import FAULTS, Store, StoredMutant
from neurotest.data.source import content_ids
from neurotest.devices import exact
from neurotest.errors import BadInput, command
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.jobs.opening import AnyTarget
from neurotest.jobs.stored import guarded, stored_target
from neurotest.mutate.base import Mutations
from neurotest.mutate.chain import Chain, free, words
from neurotest.mutate.chain import replay as make
from neurotest.oracles import Oracles, Roots, build_oracles, predicted
from neurotest.runs import codec
from neurotest.runs.store import Run


@dataclass(frozen=True)
class Replayed:
    """Whether the fault came out again: the same values, and the same class predicted."""

    fault: int
    change: str
    true: str
    expected: str  # what the run says was predicted
    predicted: str
    same_values: bool
    fails: bool

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self)}


class FaultReader:
    """Everything needed to make a campaign's mutants again."""

    def __init__(self, run: Run, target: AnyTarget | None = None) -> None:
        self.run, self.store = run, Store(run)
        self.config = campaign_config(run)
        self.target = stored_target(run, target)
        self.x, self.rows = self.store.seeds()
        self.classes = tuple(run["classes"]) or None
        empty = np.empty(0, dtype=np.int64)
        # only its conversions are used here
        self._seeds = Seeds(
            self.x, empty, empty.astype(str), Roots(empty, empty, np.empty((0, 0), np.float32)), 0, self.target.bounds, 0
        )

    @cached_property
    def mutations(self) -> Mutations:
        with guarded(self.run):
            return self.plan.mutations()

    @cached_property
    def plan(self) -> FuzzPlan:
        return FuzzPlan.read(self.config)

    def fault(self, number: int) -> StoredMutant:
        faults = self.store.mutants("number = ? AND oracle IS NOT NULL", number)
        if not faults:
            raise BadInput(
                "not-found", "fault", f"{self.run.path} has no fault {number}: `{command('families', self.run.path)}` lists some."
            )
        return faults[0]

    def root(self, position: int) -> NDArray[np.generic]:
        if position not in self.rows:
            raise BadInput("damaged", "seeds", f"{self.run.path} has no seed {position}: it is damaged.")
        return np.array(self.x[self.rows[position]])

    def unit(self, x: NDArray[np.generic]) -> torch.Tensor:
        return self._seeds.unit(x)

    def stored(self, x: torch.Tensor) -> NDArray[np.generic]:
        return self._seeds.stored(x)

    def make(self, roots: NDArray[np.generic], chains: list[Chain]) -> NDArray[np.generic]:
        """Mutants as they would be saved, from seeds (n, *shape)."""
        with torch.inference_mode():
            return self.stored(make(self.mutations, self.unit(roots), chains, levels=self._seeds.levels))

    def again(self, mutants: Sequence[StoredMutant]) -> NDArray[np.generic]:
        """Mutants as they would be saved: from their chains or, where nothing but the image says what was done, read back."""
        images: dict[int, NDArray[np.generic]] = {}
        ruled = [i for i, m in enumerate(mutants) if not free(m.operator)]
        if ruled:
            roots = np.stack([self.root(mutants[i].root) for i in ruled])
            images = dict(zip(ruled, self.make(roots, [mutants[i].chain for i in ruled]), strict=True))
        for i, mutant in enumerate(mutants):
            if i not in images:
                if mutant.file is None:
                    raise BadInput(
                        "damaged",
                        "images",
                        f"{self.run.path} has no image of fault {mutant.number}, and nothing else says what was done.",
                    )
                images[i] = np.asarray(codec.decode(mutant.file))
        return np.stack([images[i] for i in range(len(mutants))])

    def predict(self, x: NDArray[np.generic], root: int | None = None) -> NDArray[np.int64]:
        """The classes of inputs; of a quantity those that they count as beside the answer to the seed at `root`."""
        with torch.inference_mode():
            logits = self.target.logits(self.target.prepare(np.array(x)))
            if root is None or self.target.bins is None:
                return predicted(logits)
            seed = self.target.logits(self.target.prepare(self.root(root)[None]))
            empty = np.zeros(len(x), dtype=np.int64)
            return self._counted(logits, seed, Roots(empty, predicted(seed).repeat(len(x)), np.empty((0, 0), np.float32)))

    @cached_property
    def oracles(self) -> Oracles:
        with guarded(self.run):
            return build_oracles(self.target, list(self.config["oracle"]))

    def fails(self, root: int, x: NDArray[np.generic], wrong: int) -> NDArray[np.bool_]:
        """Which of these mutants of one seed an oracle rejects while `wrong` is predicted."""
        return self.fails_by(root, x, wrong)[0]

    def fails_by(self, root: int, x: NDArray[np.generic], wrong: int) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """The same, and how far the logit of `wrong` is above the largest other one."""
        with torch.inference_mode():
            seed = self.target.logits(self.target.prepare(self.root(root)[None]))
            inputs = self.target.prepare(np.ascontiguousarray(x))
            logits = self.target.logits(inputs)
            label = self.labels[root]
            roots = Roots(
                np.full(len(x), -1 if label is None else label), predicted(seed).repeat(len(x)),
                np.repeat(seed.float().cpu().numpy(), len(x), axis=0),
            )  # fmt: skip
            classes = self._counted(logits, seed, roots)
            bad = np.asarray((self.oracles(inputs, logits, roots) >= 0) & (classes == wrong))
            others = exact(logits).clone()
            lead = others[:, max(wrong, 0)].clone()
            others[:, max(wrong, 0)] = -torch.inf
            return bad, np.asarray((lead - others.amax(1)).cpu().numpy())

    def _counted(self, logits: torch.Tensor, seed: torch.Tensor, roots: Roots) -> NDArray[np.int64]:
        """The classes that answers to mutants of one seed count as."""
        if (bins := self.target.bins) is None:
            return predicted(logits)
        expected = torch.from_numpy(roots.predicted).to(logits.device)
        truth = bins.values(exact(seed)).expand(len(logits))
        return np.asarray(bins.counted(logits, expected, truth, self.oracles.tolerance).cpu().numpy(), dtype=np.int64)

    @cached_property
    def labels(self) -> dict[int, int | None]:
        return {row.position: row.label for row in self.run.inputs()}


def replay(file: Path | str, target: AnyTarget | None = None) -> Replayed:
    """Make the fault of RUN/faults/fault-NUMBER.png (or RUN and `#NUMBER`) again and run the target on it."""
    path, number = _which(str(file))
    with Run.open(path) as run:
        reader = FaultReader(run, target)
        return check(reader, reader.fault(number))


def check(reader: FaultReader, fault: StoredMutant) -> Replayed:
    x = reader.again([fault])
    same = str(content_ids(x)[0]) == fault.content
    if fault.file is not None:
        same = same and np.array_equal(codec.decode(fault.file), x[0])
    now = int(reader.predict(x, fault.root)[0])
    true, before, after = (class_name(n, reader.classes) for n in (fault.expected, fault.predicted, now))
    return Replayed(fault.number, words(fault.chain), true, before, after, same, now == fault.predicted)


def _which(text: str) -> tuple[Path, int]:
    """The run and the number of a fault, from its image or from RUN#NUMBER."""
    run, hash_, number = text.rpartition("#")
    if hash_ and number.isdigit():
        return Path(run), int(number)
    path = Path(text)
    digits = path.name.partition(".")[0].removeprefix("fault-")
    if path.parent.name != FAULTS or not path.name.startswith("fault-") or not digits.isdigit():
        raise BadInput("syntax", "fault", f"{text} is no fault of a campaign: give RUN/{FAULTS}/fault-000123.png, or RUN#123.")
    return path.parent.parent, int(digits)
