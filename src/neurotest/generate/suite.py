"""What an attack produced: the suite and its numbers, compared with random noise of the same size, and how a run stores it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.data.source import ArraySource, content_ids
from neurotest.errors import BadInput
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.outcome import Outcome, class_name, interval
from neurotest.notebook import PICTURES, Picture, beside
from neurotest.runs.folder import declare
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run
from neurotest.stats.diversity import evenness
from neurotest.target import Target

SUITE = "suite.npz"
declare(r"suite\.npz")


@dataclass(frozen=True, eq=False)
class RandomControl:
    """The seeds with the attack's own changes shuffled over the pixels: predictions (n,), and which of them are faults."""

    x: NDArray[np.generic]  # (n, *shape)
    predicted: NDArray[np.int64]
    fault: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RegressionValues:
    """Of a target that predicts a regression value: its answers to the seeds and to the outputs (n,), and how far they may be
    apart."""

    before: NDArray[np.float64]
    after: NDArray[np.float64]
    tolerance: float

    @classmethod
    def of(cls, seeds: Seeds, after: NDArray[np.float64], rows: NDArray[np.int64] | None = None) -> RegressionValues | None:
        """rows: the seeds of the outputs, where they are not one for each."""
        if seeds.bins is None or seeds.values is None:
            return None
        return cls(seeds.values if rows is None else seeds.values[rows], after, seeds.bins.tolerance)

    def words(self, i: int) -> str:
        return f"{self.before[i]:.4g} becomes {self.after[i]:.4g}"

    def to_dict(self) -> dict[str, Any]:
        moved = np.abs(self.after - self.before)
        mean = float(moved.mean()) if len(moved) else None
        return {"tolerance": self.tolerance, "moved": mean, "moved_most": float(moved.max()) if len(moved) else None}


@dataclass(frozen=True, eq=False)
class AttackResult(Outcome):
    """One output per seed, as it would be saved; `fault` says which the oracle rejected when it was run again."""

    attack: str
    diversity: str | None
    x: NDArray[np.generic] = field(repr=False)  # (n, *shape)
    seeds: NDArray[np.generic] = field(repr=False)  # (n, *shape)
    positions: NDArray[np.int64] = field(repr=False)  # (n,) in the source
    expected: NDArray[np.int64] = field(repr=False)
    predicted: NDArray[np.int64] = field(repr=False)
    fault: NDArray[np.bool_] = field(repr=False)
    distance: NDArray[np.float64] = field(repr=False)  # (n, 3) L0, L2, Linf in [0, 1]
    control: RandomControl = field(repr=False)
    unstable: int  # failed before they were rounded to what is saved, not after
    set_aside: int
    forwards: int
    backwards: int
    seconds: float
    outputs_possible: int  # classes of the target
    classes: tuple[str, ...] | None = None
    run: Path | None = None
    notes: tuple[str, ...] = ()
    names: NDArray[np.object_] | None = field(default=None, repr=False)  # (n,) files of the seeds, where they are files
    quantities: RegressionValues | None = field(default=None, repr=False)  # where the target predicts one

    def __len__(self) -> int:
        return len(self.x)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """(n,) what the outputs are called in a run."""
        return self.positions

    def about(self, i: int) -> dict[str, Any]:
        """What a run stores of an output beside its class and prediction."""
        far = zip(("l0", "l2", "linf"), self.distance[i].tolist(), strict=True)
        name = {} if self.names is None else {"name": str(self.names[i])}
        values = self.quantities
        answers = {} if values is None else {"before": float(values.before[i]), "after": float(values.after[i])}
        return {"fault": bool(self.fault[i]), "operator": self.attack, **dict(far), **name, **answers}

    @property
    def faults(self) -> int:
        return int(self.fault.sum())

    @property
    def families(self) -> Counter[tuple[int, int]]:
        """(true, predicted) pairs of the faults."""
        return Counter(zip(self.expected[self.fault].tolist(), self.predicted[self.fault].tolist(), strict=True))

    @property
    def suite(self) -> ArraySource:
        """The outputs as data, each knowing its seed."""
        about: dict[str, Any] = {"spec": f"{self.attack} suite", "classes": self.classes}
        labels = self.expected
        return ArraySource(self.x, labels, originals=ArraySource(self.seeds, labels, classes=self.classes), **about)

    def to_dict(self) -> dict[str, Any]:
        predicted = Counter(self.predicted[self.fault].tolist())
        return {
            "outputs": len(self),
            "faults": self.faults,
            "families": len(self.families),
            "roots": len(np.unique(self.positions[self.fault])),
            "by_predicted": {class_name(k, self.classes): n for k, n in predicted.most_common()},
            "forwards": self.forwards,
            "seconds": round(self.seconds, 3),
            "run": str(self.run) if self.run else None,
            "attack": self.attack,
            "diversity": self.diversity,
            "success": _mean(self.fault),
            "success_interval": interval(self.faults, len(self)),
            "evenness": {
                "all": evenness(self.predicted[self.predicted >= 0], self.outputs_possible),
                "faults": evenness(self.predicted[self.fault & (self.predicted >= 0)], self.outputs_possible),
                "clean": evenness(self.expected, self.outputs_possible),
            },
            "distance": {name: _mean(self.distance[self.fault, i]) for i, name in enumerate(("l0", "l2", "linf"))},
            "random": {
                "faults": int(self.control.fault.sum()),
                "success": _mean(self.control.fault),
                "success_interval": interval(int(self.control.fault.sum()), len(self.control.fault)),
            },
            "backwards": self.backwards,
            "unstable": self.unstable,
            "set_aside": self.set_aside,
            "notes": list(self.notes),
            **({} if self.quantities is None else {"quantity": self.quantities.to_dict()}),
        }

    def table(self) -> list[dict[str, Any]]:
        """One row per (true, predicted) pair, most frequent first."""
        return [
            {"true": class_name(t, self.classes), "predicted": class_name(p, self.classes), "faults": n}
            for (t, p), n in self.families.most_common()
        ]

    def pictures(self) -> Iterator[Picture]:
        first = np.flatnonzero(self.fault)[:PICTURES]
        words = (
            f"{class_name(int(self.expected[i]), self.classes)} taken for {class_name(int(self.predicted[i]), self.classes)}"
            if self.quantities is None
            else self.quantities.words(i)
            for i in first
        )
        return beside(self.seeds[first], self.x[first], words)

    def record(self, run: Run, target: Target, stored: int) -> None:
        """Fill a new run: every output a row, the suite one file of data, the first `stored` faults and their seeds files."""
        with run.file(SUITE).writing() as out:
            arrays = {"x": self.x, "y": self.expected, "seeds": self.seeds, "random": self.control.x}
            arrays |= {"positions": self.positions, "fault": self.fault}
            np.savez_compressed(out, allow_pickle=False, **arrays)
        contents, numbers = content_ids(np.asarray(self.x)), self.numbers
        columns = zip(*(part.tolist() for part in (numbers, contents, self.expected, self.predicted)), strict=True)
        rows = (
            InputRow(position=number, content=content, label=label, predicted=predicted, extra=self.about(i))
            for i, (number, content, label, predicted) in enumerate(columns)
        )
        shown = np.flatnonzero(self.fault)[:stored]
        with run.transaction():
            run["classes"] = list(self.classes or ())
            run.clear_inputs()  # a crash may have come between this and the end
            run.add_inputs(rows)
            run.save_inputs(numbers[shown], self.x[shown], "fault", target.bounds)
            run.save_inputs(numbers[shown], self.seeds[shown], "original", target.bounds)
        for i in shown:  # what is saved is what failed
            if not np.array_equal(run.load_input(int(numbers[i]), "fault"), self.x[i]):
                raise BadInput("not-writable", "", f"{run.path} does not read back as it was written: is the disk in order?")

    def headline(self) -> str:
        noise = int(self.control.fault.sum())
        return f"{self.attack}: {self.faults} faults from {len(self)} seeds; random noise of the same size: {noise}"


def _mean(values: NDArray[np.float64] | NDArray[np.bool_]) -> float | None:
    return float(values.mean()) if len(values) else None


def shuffle(seed: Tensor, x: Tensor, positions: list[int], random: int) -> Tensor:
    """The changes x - seed at random places with random signs, reversed where they would leave [0, 1]."""
    size = (x - seed).flatten(1).abs()
    out = torch.empty_like(size)
    base = seed.flatten(1)
    for i, position in enumerate(positions):
        generator = rng.torch_stream("attack.control", random, position)
        places = torch.randperm(size.shape[1], generator=generator).to(size.device)
        sign = (torch.randint(0, 2, (size.shape[1],), generator=generator) * 2 - 1).to(size)
        change = size[i, places] * sign
        outside = (base[i] + change < 0) | (base[i] + change > 1)
        out[i] = base[i] + torch.where(outside, -change, change)
    return out.clamp(0, 1).view_as(seed)
