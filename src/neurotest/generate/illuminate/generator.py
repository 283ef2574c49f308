"""Rounds of illumination: which seeds are tried, the faults, and the archive of the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.gradient.engine import Engine
from neurotest.generate.illuminate.archive import Archive
from neurotest.generate.illuminate.climb import EVERY, Climb
from neurotest.generate.illuminate.settings import BACKWARD, Illuminate
from neurotest.jobs.parts import Arrays
from neurotest.mutate.distances import distances
from neurotest.oracles import predicted


@dataclass(frozen=True, eq=False)
class Faults:
    """Every fault that entered the archive, in the order they came; `elite` are those that still hold a cell."""

    x: NDArray[np.generic]
    rows: NDArray[np.int64]  # of the seeds
    predicted: NDArray[np.int64]
    way: NDArray[np.int64]
    steps: NDArray[np.int64]
    size: NDArray[np.float64]  # L2 to the seed
    elite: NDArray[np.int64]  # places in the others, by cell


class Generator:
    """One campaign in memory: `step` does a round and gives its faults; `absorb` takes over a round that was saved."""

    def __init__(self, engine: Engine, seeds: Seeds, settings: Illuminate) -> None:
        self.engine, self.seeds, self.settings = engine, seeds, settings
        self.ways = settings.ways(tuple(seeds.x.shape[1:]))
        self.true = seeds.expected
        self.archive = Archive(self.true, seeds.roots.logits.astype(np.float64), len(self.ways))
        self.rounds: list[Arrays] = []
        self.count = self.unstable = self.failed = 0
        self.exhausted = False

    @property
    def spent(self) -> int:
        """Forward passes, a backward pass counted as two."""
        return self.engine.forwards + BACKWARD * self.engine.backwards

    def step(self, left: float = np.inf) -> Arrays | None:
        """One round with at most `left` passes; None when every seed was tried for every cell, or nothing more is affordable."""
        # Of a task that takes all steps, and of running its result again as it is saved.
        cost = self.settings.steps + 2 + BACKWARD * -(-self.settings.steps // EVERY)
        way, rows, aim = self.archive.next(int(min(self.settings.batch, left // cost)))
        if not len(rows):
            self.exhausted = left >= cost
            return None
        device = self.engine.target.device
        seed = self.seeds.unit(self.seeds.x[rows], device)
        true, aimed = (torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in (self.true[rows], aim))
        first, before = not self.rounds, self.spent
        faults = Climb(self.engine, self.ways[way], seed, true, aimed).run(self.settings.steps, first=first)
        size = distances(faults.x, seed[torch.from_numpy(faults.rows).to(device)])[:, 1]
        better = self._better(self.true[rows[faults.rows]], faults.predicted, way, size)
        better = better[: int(min(len(better), left - (self.spent - before)))]  # each costs one pass
        x = self.seeds.stored(faults.x[torch.from_numpy(better).to(device)])
        # What enters the archive is run again as it is saved, in a batch of its own.
        classes = predicted(self.engine.predict(self.seeds.unit(x, device))) if len(x) else np.empty(0, dtype=np.int64)
        stable = classes == faults.predicted[better]
        kept = better[stable]
        part: Arrays = {
            "x": x[stable], "row": rows[faults.rows[kept]], "predicted": faults.predicted[kept], "size": size[kept],
            "steps": faults.steps[kept], "way": np.array(way), "tried": rows, "aim": aim,
            "lost": np.array(int((~stable).sum())), "failed": np.array(len(faults.rows)), "counts": self.engine.counts(),
        }  # fmt: skip
        self._take(part)
        return part

    def _better(
        self, true: NDArray[np.int64], classes: NDArray[np.int64], way: int, size: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Of a round's faults the smallest of each cell, where it is smaller than what the archive has; new pairs first."""
        best: dict[tuple[int, int], int] = {}
        for i in np.argsort(size, kind="stable").tolist():
            cell = (int(true[i]), int(classes[i]))
            if cell[1] >= 0 and 1e-6 < size[i] < self.archive.smallest[(*cell, way)]:
                best.setdefault(cell, i)
        some = np.asarray(self.archive.filled.any(axis=2))
        order = sorted(best, key=lambda cell: (bool(some[cell]), best[cell]))
        return np.array([best[cell] for cell in order], dtype=np.int64)

    def absorb(self, part: Arrays) -> None:
        """A round that was done before: tried seeds are counted, faults offered, passes taken over."""
        true, aim, way = self.true[part["tried"]], part["aim"], int(part["way"])
        self.archive.attempts[true, aim, way] += 1
        self.engine.restore(part["counts"])
        self._take(part)

    def _take(self, part: Arrays) -> None:
        way = int(part["way"])
        true = self.true[part["row"]]
        for t, p, size in zip(true.tolist(), part["predicted"].tolist(), part["size"].tolist(), strict=True):
            self.archive.offer(t, p, way, size, self.count)
            self.count += 1
        self.unstable += int(part["lost"])
        self.failed += int(part["failed"])
        self.rounds.append(part)

    def faults(self) -> Faults:
        """All so far."""
        rounds = self.rounds

        def joined(name: str, kind: type = np.int64) -> NDArray[Any]:
            return np.concatenate([np.empty(0, kind), *(part[name] for part in rounds)]).astype(kind)

        ways = np.repeat([int(part["way"]) for part in rounds], [len(part["row"]) for part in rounds]).astype(np.int64)
        return Faults(
            np.concatenate([self.seeds.x[:0], *(part["x"] for part in rounds)]), joined("row"), joined("predicted"), ways,
            joined("steps"), joined("size", np.float64), self.archive.elite[self.archive.filled],
        )  # fmt: skip
