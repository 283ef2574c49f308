"""The outputs of a fuzzer, their counts, and which inputs were output already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.errors import BadInput
from neurotest.mutate.chain import Chain
from neurotest.stats.bootstrap import Interval
from neurotest.stats.diversity import chao1

Key = tuple[int, int, str]  # true class, predicted class, operator family
MOST_BARREN = 16  # turns without a single valid mutant at the start
RECENT = 8192  # numbers of outputs kept in a set before they are sorted in


@dataclass(frozen=True, eq=False)
class Mutant:
    """One output: accepted by the guide, rejected by an oracle, or both."""

    number: int
    batch: int
    iteration: int
    root: int  # row of Seeds
    content: str
    x: NDArray[np.generic]  # as it is saved
    chain: Chain
    label: int  # of the seed; -1 unknown
    expected: int  # the label, or the prediction for the seed
    predicted: int  # -1: logits are not finite
    oracle: str | None  # which rejected it; None: no fault
    accepted: bool
    gain: float
    distance: tuple[float, float, float]  # L0, L2, Linf to the seed, in [0, 1]
    answer: float | None = None  # the regression value, where the target predicts one

    @property
    def fault(self) -> bool:
        return self.oracle is not None

    @property
    def operator(self) -> str:
        """The family of the last mutation: the one that made it fail, because faults do not become seeds."""
        return self.chain[-1].operator

    @property
    def family(self) -> Key:
        return (self.expected, self.predicted, self.operator)


@dataclass(eq=False)
class Tally:
    """Counts over a campaign; everything here can be saved as JSON."""

    batches: int = 0
    iterations: int = 0  # finished turns
    forwards: int = 0
    tested: int = 0  # valid mutants that were run
    drawn: int = 0  # mutations that were drawn
    valid: int = 0  # and of them, those that changed something, were within validity and new
    rounds: int = 0  # how often a turn gave mutants to a batch
    idle: int = 0  # batches in a row that had nothing to run
    outputs: int = 0
    accepted: int = 0
    faults: int = 0
    accepted_faults: int = 0
    unstable: int = 0  # rejected, but not when run again from what would be saved
    rejected: int = 0  # of the tested
    seconds: float = 0.0
    last_family: int = 0  # forwards when the newest family was found
    families: Counter[Key] = field(default_factory=Counter)
    roots: set[int] = field(default_factory=set)
    predicted: Counter[int] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)  # faults by last operator
    tried: Counter[str] = field(default_factory=Counter)  # run, by last operator
    # When a seed first had a fault of a family, in forwards: too much for every batch, so it is saved with snapshots only. None:
    # the campaign was begun by a version that did not keep it.
    first: dict[tuple[int, Key], int] | None = field(default_factory=dict)

    def add(self, mutant: Mutant) -> bool:
        """Count an output; whether it opens a new family."""
        self.outputs += 1
        self.accepted += mutant.accepted
        if not mutant.fault:
            return False
        self.faults += 1
        self.accepted_faults += mutant.accepted
        new = mutant.family not in self.families
        if new:
            self.last_family = self.forwards
        self.families[mutant.family] += 1
        self.roots.add(mutant.root)
        if self.first is not None:
            self.first.setdefault((mutant.root, mutant.family), self.forwards)
        self.predicted[mutant.predicted] += 1
        self.operators[mutant.operator] += 1
        return new

    def check_valid(self) -> None:
        """Refuse mutations of which none is valid."""
        if not self.tested and self.iterations >= MOST_BARREN:
            raise BadInput(
                "empty",
                "validity",
                f"no valid mutant in {self.drawn:,} draws: loosen validity (--validity valid:alpha=0.4,beta=0.8) or choose "
                "other --mutations.",
            )

    def counts(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in COUNTS}

    @property
    def unseen(self) -> float | None:
        """Good and Turing's estimate of the chance that the next fault is of a new family."""
        return sum(n == 1 for n in self.families.values()) / self.faults if self.faults else None

    @property
    def richness(self) -> Interval:
        """How many families there are, seen or not."""
        return chao1(self.families.values())

    def plain(self) -> dict[str, Any]:
        return {
            **self.counts(),
            "families": [[*key, n] for key, n in self.families.items()],
            "roots": sorted(self.roots),
            "predicted": {str(k): n for k, n in self.predicted.items()},
            "operators": dict(self.operators),
            "tried": dict(self.tried),
        }

    def plain_first(self) -> list[list[Any]] | None:
        return None if self.first is None else [[root, *family, n] for (root, family), n in self.first.items()]

    def read_first(self, content: Any) -> None:
        """The inverse of `plain_first`."""
        self.first = None if content is None else {(int(r), (int(t), int(p), str(o))): int(n) for r, t, p, o, n in content}

    @classmethod
    def read(cls, content: dict[str, Any]) -> Tally:
        content = {"rejected": content.get("condemned"), **content}  # its name in the first version
        tally = cls(**{name: content[name] for name in COUNTS}, first=None)
        tally.families = Counter({(int(t), int(p), str(o)): int(n) for t, p, o, n in content["families"]})
        tally.roots = {int(r) for r in content["roots"]}
        tally.predicted = Counter({int(k): int(n) for k, n in content["predicted"].items()})
        tally.operators, tally.tried = Counter(content["operators"]), Counter(content["tried"])
        return tally


COUNTS = tuple(field.name for field in fields(Tally) if field.type in ("int", "float"))


class Seen:
    """Contents of outputs as 64-bit numbers, in eight bytes each: a campaign may output millions."""

    def __init__(self, keys: Iterable[int] = ()) -> None:
        self._sorted: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._recent: set[int] = set()
        self.update(keys)

    @classmethod
    def of(cls, numbers: NDArray[np.uint64]) -> Seen:
        """From the `numbers` of another."""
        seen = cls()
        seen._sorted = numbers
        return seen

    @property
    def numbers(self) -> NDArray[np.uint64]:
        """All of them, in order."""
        if self._recent:
            self._merge()
        return self._sorted

    def __len__(self) -> int:
        return len(self._sorted) + len(self._recent)

    def add(self, key: int) -> None:
        """A number that is not in it yet."""
        self._recent.add(key)
        if len(self._recent) >= RECENT:
            self._merge()

    def update(self, keys: Iterable[int]) -> None:
        self._recent.update(keys)
        self._merge()

    def _merge(self) -> None:
        recent = np.sort(np.fromiter(self._recent, dtype=np.uint64, count=len(self._recent)))
        joined = np.sort(np.concatenate([self._sorted, recent]), kind="stable")  # two sorted runs: merged in one go
        self._sorted = joined[np.r_[True, joined[1:] != joined[:-1]]] if len(joined) else joined
        self._recent = set()

    def new(self, keys: list[int]) -> list[bool]:
        """Which of these are not in it."""
        numbers = np.array(keys, dtype=np.uint64)
        place = np.minimum(np.searchsorted(self._sorted, numbers), max(0, len(self._sorted) - 1))
        old = self._sorted[place] == numbers if len(self._sorted) else np.zeros(len(keys), dtype=bool)
        return [not stored and key not in self._recent for stored, key in zip(old.tolist(), keys, strict=True)]
