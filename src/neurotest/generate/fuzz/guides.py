"""Guides: which mutants are worth keeping. Every coverage criterion is one; there are DeepHunter's and random, too.

`gain` judges a batch and changes nothing, `keep` takes mutants in. A guide that has a `planner` also says which mutants are made.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neurotest import checks, registry
from neurotest.coverage.bits import BitState
from neurotest.coverage.criterion import Arrays, Criterion, State
from neurotest.data.source import Source
from neurotest.errors import BadInput, near
from neurotest.measure.context import Context
from neurotest.measure.traces import Joined, from_joined, part
from neurotest.scan import scan
from neurotest.target import Trace, Want

if TYPE_CHECKING:
    from torch import Tensor

    from neurotest.generate.fuzz.corpus import Corpus, Entry
    from neurotest.generate.fuzz.proposals import Proposals
    from neurotest.generate.fuzz.seeds import Seeds
    from neurotest.generate.fuzz.settings import Settings
    from neurotest.mutate.base import Draws
    from neurotest.target import Target


@dataclass(frozen=True, eq=False)
class BatchContext:
    """What a trace of mutants does not hold: the mutants themselves, where they come from, and what the oracles said."""

    x: Tensor  # (n, *shape) in the target's bounds
    seeds: Seeds
    proposals: Proposals
    parents: Sequence[Entry]
    predicted: NDArray[np.int64]  # (n,) classes; -1: logits are not finite
    verdicts: NDArray[np.int64]  # (n,) which oracle rejected it, twice; -1: none

    @property
    def roots(self) -> NDArray[np.int64]:
        """(n,) rows of the seeds"""
        return self.proposals.roots


@dataclass(frozen=True, eq=False)
class MutantPlan:
    """What a guide wants run next: which mutation of which entry."""

    entries: list[Entry]
    draws: Draws  # one per entry


class Planner(ABC):
    """The part of a guide that plans the mutants itself, instead of judging those that turns of seeds draw."""

    @abstractmethod
    def begin(self, target: Target, seeds: Seeds, settings: Settings) -> None:
        """Called once, before anything else."""

    @abstractmethod
    def plan(self, corpus: Corpus, most: int, batch: int) -> MutantPlan:
        """At most so many mutants of entries of the corpus; `batch` numbers the batches of the campaign."""

    @abstractmethod
    def checked(self, valid: NDArray[np.bool_]) -> None:
        """Which of the plan changed something and are within validity."""

    @abstractmethod
    def admitted(self, row: int, entry: Entry) -> None:
        """A mutant of the batch that the guide kept has become an entry."""

    @abstractmethod
    def retired(self) -> set[int]:
        """Numbers of entries that are not needed any more."""


class GuideBatch:
    """A batch under a guide: the `gains` of its mutants, and which of some is the first to gain after those kept already."""

    def __init__(self, guide: GuideState, trace: Trace) -> None:
        self.guide, self.trace = guide, trace
        self.gains = guide.gain(trace)
        self.changed = False  # whether the guide has kept something of this batch

    def keep_first(self, rows: list[int]) -> int | None:
        """The first of these rows that gains now; the guide keeps it."""
        guide = self.guide
        if self.changed and rows and not guide.shrinking:
            self.gains[rows] = guide.gain(guide.some(self.trace, rows))
        for row in rows:
            if self.gains[row] <= 0:  # gains of a shrinking guide do not rise again
                continue
            one = guide.some(self.trace, [row])
            if self.changed and guide.shrinking:
                self.gains[row] = guide.gain(one)[0]
                if self.gains[row] <= 0:
                    continue
            guide.keep(one)
            self.changed = True
            return row
        return None

    def close(self) -> None:
        """The batch is over."""


class _BitsBatch(GuideBatch):
    """The same for criteria whose state is one bit per obligation: read once per batch, updated once at its end."""

    def __init__(self, guide: CoverageState, trace: Trace) -> None:
        self.guide, self.trace, self.changed = guide, trace, False
        state: Any = guide.state
        rows, self.hit = state.obligations(trace)
        self.edges = np.searchsorted(rows, np.arange(len(trace.logits) + 1)).tolist()
        self.bits: NDArray[np.bool_] = state.bits.reshape(-1)  # a view: `update` sets the same bits again
        self.total = max(1, state.total)
        self.gains = np.bincount(rows[~self.bits[self.hit]], minlength=len(trace.logits)) / self.total
        self.kept: list[int] = []

    def keep_first(self, rows: list[int]) -> int | None:
        for row in rows:
            if self.gains[row] <= 0:
                continue
            obligations = self.hit[self.edges[row] : self.edges[row + 1]]
            if self.kept:
                self.gains[row] = np.count_nonzero(~self.bits[obligations]) / self.total
                if self.gains[row] <= 0:
                    continue
            self.bits[obligations] = True
            self.kept.append(row)
            return row
        return None

    def close(self) -> None:
        if self.kept:
            self.guide.keep(self.guide.some(self.trace, self.kept))


class _KeepAllBatch(GuideBatch):
    """The same for a guide that keeps everything."""

    def keep_first(self, rows: list[int]) -> int | None:
        return rows[0] if rows else None


class GuideState(ABC):
    """A guide at work."""

    want: Want | None = None
    shrinking: bool = False  # gains never rise when more is kept
    forwards: int = 0  # passes the guide has made itself: they count in the budget
    usual: int = 4  # mutants a turn is expected to take before any turn has ended
    planner: Planner | None = None  # plans the mutants of each batch, if the guide does so
    # Of a campaign in islands: how many there are, whether each takes in what the others learned, and whether an entry may go on
    # on another island.
    islands: int = 1
    shares: bool = False
    moves: bool = False

    @property
    def wants(self) -> tuple[Want, ...]:
        """What is recorded of every mutant."""
        return () if self.want is None else (self.want,)

    def prepare(self, trace: Trace, batch: BatchContext) -> Trace:
        """Called once per batch, first; a guide that needs more than recorded values adds it to the trace."""
        return trace

    def start_batch(self, trace: Trace) -> GuideBatch:
        return GuideBatch(self, trace)

    @abstractmethod
    def gain(self, trace: Trace) -> NDArray[np.float64]:
        """(n,) above 0: worth keeping."""

    @abstractmethod
    def keep(self, trace: Trace) -> None:
        """Take in a trace of mutants that are kept."""

    def some(self, trace: Trace, rows: list[int]) -> Trace:
        """The trace of some of a batch's mutants."""
        return part(trace, np.array(rows, dtype=np.int64))

    def value(self) -> float | None:
        """The guide's own measure of progress, for the screen."""
        return None

    def expected(self) -> float | None:
        """How many new goals it expects of the next 1,000 forward passes; None: it cannot say (yet)."""
        return None

    def details(self) -> dict[str, Any]:
        """More numbers for the run's summary."""
        return {}

    def arrays(self) -> Arrays:
        return {}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        return None

    # -- islands: a guide that `shares` says what a leg taught it, and learns what legs of others taught them

    def begin_leg(self) -> None:
        """From here on `changes` counts."""
        return None

    def changes(self) -> Arrays:
        """What it learned in this leg."""
        return {}

    def learn(self, changes: Mapping[str, NDArray[Any]]) -> None:
        """Take in the changes of a leg on an island that knew the same before."""
        return None

    def island_arrays(self) -> Arrays:
        """Of its `arrays`, those that are about one island alone."""
        return {} if self.shares else self.arrays()


@dataclass(frozen=True, kw_only=True)
class Guide(checks.Settings, ABC):
    """Settings."""

    @property
    def defaults(self) -> dict[str, Any]:
        """The fuzzer's settings this guide was published with, where the user sets no others."""
        return {}

    @abstractmethod
    def start(self, context: Context, seeds: Source) -> GuideState: ...


@registry.register("guide", "random", paper="", cost="nothing")
class RandomGuide(Guide):
    """Keep every valid mutant: what any other guide has to beat."""

    def start(self, context: Context, seeds: Source) -> GuideState:
        return KeepAll()


class KeepAll(GuideState):
    """Every mutant is worth keeping."""

    shrinking = True
    shares = True  # nothing
    usual = 1

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        return np.ones(len(trace.logits))

    def keep(self, trace: Trace) -> None:
        return None

    def start_batch(self, trace: Trace) -> GuideBatch:
        return _KeepAllBatch(self, trace)


class CoverageState(GuideState):
    """A criterion's state as a guide. empty: its arrays before it had seen anything; without them islands share nothing."""

    def __init__(self, state: State, empty: Arrays | None = None) -> None:
        self.state, self.empty = state, empty
        self.want = state.want
        self.shrinking = isinstance(state, BitState)
        self.shares = self.moves = empty is not None and state.criterion.mergeable
        self._leg: State | None = None  # what a leg adds, by itself

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        return np.nan_to_num(self.state.gain(trace), nan=0.0)

    def keep(self, trace: Trace) -> None:
        self.state.update(trace)
        if self._leg is not None:
            self._leg.update(trace)

    def start_batch(self, trace: Trace) -> GuideBatch:
        return _BitsBatch(self, trace) if self.shrinking and hasattr(self.state, "obligations") else super().start_batch(trace)

    def some(self, trace: Trace, rows: list[int]) -> Trace:
        """Bit states read joined values only, and rows of those are twenty times quicker than rows of every layer's tensor."""
        joined = self.state.read(trace) if self.shrinking else None
        if joined is None or joined.bad is not None:  # how many values are not finite is counted per layer
            return super().some(trace, rows)
        return from_joined(trace.logits[:0], self.state.want, Joined(joined.values[rows], None))

    def value(self) -> float | None:
        return float(self.state.value().value)

    def arrays(self) -> Arrays:
        return self.state.state_dict()

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.state.load(arrays)

    def begin_leg(self) -> None:
        if self.shares and self.empty is not None:
            self._leg = self.state.twin()
            self._leg.load(self.empty)

    def changes(self) -> Arrays:
        return {} if self._leg is None else self._leg.state_dict()

    def learn(self, changes: Mapping[str, NDArray[Any]]) -> None:
        if self.shares:
            other = self.state.twin()
            other.load(changes)
            self.state.merge(other)


@dataclass(frozen=True, kw_only=True)
class CoverageGuide(Guide):
    """Keep what raises a coverage criterion."""

    criterion: Criterion
    name: str

    def start(self, context: Context, seeds: Source) -> GuideState:
        if self.criterion.needs:
            context.need_train(f"the guide {self.name}")
        state = self.criterion.start(context)
        empty = state.state_dict()
        if not self.criterion.starts_empty:
            scan(context.need_target(), context.train if context.train is not None else seeds, [state], batch=context.batch)
        return CoverageState(state, empty)


@registry.register(
    "guide",
    "deephunter",
    paper="Xie et al., DeepHunter, ISSTA 2019",
    cost="as its criterion",
    differs="Brings its mutations, validity, 20 mutants per turn and its priorities along, each of which can be set otherwise. "
    "Every mutant with new coverage is kept, and faults never become seeds.",
    main="criterion",
)
class DeepHunter(Guide):
    """Keep whatever sets a new bit of a coverage criterion (KMNC with 1,000 sections), as DeepHunter's queue does."""

    criterion: str = "kmnc"

    @property
    def defaults(self) -> dict[str, Any]:
        mutations = {"mutations": "deephunter", "validity": "valid:preset=deephunter"}
        return {**mutations, "tries": 20, "priority": "deephunter", "accept": "all"}

    def start(self, context: Context, seeds: Source) -> GuideState:
        criterion = registry.build("criterion", self.criterion)
        return CoverageGuide(criterion=criterion, name=f"deephunter with {self.criterion}").start(context, seeds)


def build_guide(guide: str | Guide | Criterion, *, layers: str | None = None, neuron: str | None = None) -> Guide:
    """A registered guide, or a criterion such as `kmnc:1000`."""
    if isinstance(guide, Guide):
        return guide
    if isinstance(guide, Criterion):
        return CoverageGuide(criterion=guide, name=repr(guide))
    options = {key: value for key, value in (("layers", layers), ("neuron", neuron)) if value}
    name = registry.parse(guide)[0]
    guides = registry.names("guide")
    if name not in guides | registry.names("criterion"):
        allowed = [*registry.entries("guide"), *registry.entries("criterion")]
        raise BadInput("unknown-name", "guide", f"unknown guide {name!r}. {near(name, allowed)}")
    method = registry.build("guide" if name in guides else "criterion", guide)
    if name in guides and not {f.name for f in dataclasses.fields(method)} >= options.keys():
        raise BadInput("conflict", "layers", f"the guide {name} takes no --layers or --neuron: they belong to coverage criteria.")
    method = dataclasses.replace(method, **options) if options else method
    return method if isinstance(method, Guide) else CoverageGuide(criterion=method, name=guide)
