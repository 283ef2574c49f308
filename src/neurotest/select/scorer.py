"""What a selector looks like, and the one pass over the pool that serves all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from neurotest import rng
from neurotest.coverage.context import Context
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.mutate.mild import MildMutations
from neurotest.mutate.nss import NssMutations
from neurotest.mutate.space import from_unit, to_unit
from neurotest.scan import BATCH, Batch, Progress, batches, wanted
from neurotest.select.thinning import Thinned
from neurotest.target import Probe, Target, Trace, Want


@dataclass(frozen=True)
class Partner:
    """What a paired scorer compares each candidate with: its original, `mutants` fresh mutations of it, or what the network
    says about it when dropout is on, `mutants` times."""

    reference: str  # original, remutate, mild or dropout
    mutants: int = 1


@dataclass(frozen=True)
class Pool:
    """The candidates of one selection, and what else is known: training data, how many are wanted, labels given so far."""

    target: Target
    source: Source
    seed: int
    train: Source | None = None
    picked: int = 1
    labels: np.ndarray | None = None  # (n,) int64, -1 where nobody has said anything
    batch: int = BATCH

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def context(self) -> Context:
        """What training data has to tell, gathered once for all methods."""
        return Context(target=self.target, train=self.train, batch=self.batch, seed=self.seed)


class State(Protocol):
    """Accumulates one score per candidate; `partners` are traces of the same inputs' partners, if the scorer asked for any.

    A state may also have `notes()`, sentences for the user, and `weights()`, the share of the pool that each pick stands for.
    """

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None: ...

    def value(self) -> np.ndarray: ...


class Scorer(Protocol):
    """Settings of a method; `start` begins to score a pool. Higher scores are labelled earlier.

    Optional: `pointwise = False` where a score depends on the other candidates too; `learns`, a pair of `profile` or `traces` and
    a want, where training data is needed.
    """

    @property
    def want(self) -> Want | None: ...

    @property
    def partner(self) -> Partner | None: ...

    @property
    def sample(self) -> int: ...

    def start(self, pool: Pool) -> State: ...


class OutputScorer:
    """Base of the methods that look at one input's class probabilities only: a subclass says `score`."""

    want: Want | None = None
    partner: Partner | None = None
    sample: int = 0

    def score(self, probs: Tensor) -> Tensor:
        raise NotImplementedError

    def start(self, pool: Pool) -> State:
        return PerInput(self, len(pool))


class PerInput:
    """One score per candidate from its own trace, eight bytes each."""

    def __init__(self, scorer: OutputScorer, n: int) -> None:
        self.scorer = scorer
        self.scores = np.full(n, np.nan)

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        self.scores[index] = self.scorer.score(trace.probs).cpu().numpy()

    def value(self) -> np.ndarray:
        return self.scores


@dataclass(frozen=True)
class Scores:
    """What one pass gave: a score per candidate and method, and what the target predicted."""

    by_method: Mapping[str, np.ndarray]  # each (n,) float64
    predictions: np.ndarray  # (n,) int64
    states: Mapping[str, State]

    def notes(self, method: str) -> tuple[str, ...]:
        told = getattr(self.states[method], "notes", None)
        return () if told is None else tuple(told())


def score(pool: Pool, scorers: Mapping[str, Scorer], *, batch: int, progress: Progress | None = None) -> Scores:
    """Forward the pool once, and each kind of partner once, and let every scorer see what it asked for."""
    _learn(pool, scorers)
    states = {name: scorer.start(pool) for name, scorer in scorers.items()}
    partners = tuple(dict.fromkeys(s.partner for s in scorers.values() if s.partner is not None))
    makers = {partner: _Partners(pool, partner) for partner in partners}
    predictions = np.full(len(pool), -1)
    order = _order(pool, {s.sample for s in scorers.values()})
    done = 0
    with Probe(pool.target, *wanted(list(scorers.values()))) as probe:
        for part in batches(pool.target, pool.source, batch=batch, order=order):
            trace = probe(part.x)
            if not bool(trace.logits.isfinite().all()):
                raise BadInput(
                    f"the network gives NaN or infinite outputs, first for input {_first_bad(trace, part)}: it cannot be ranked."
                )
            traces = {partner: maker.traces(probe, part) for partner, maker in makers.items()}
            for name, scorer in scorers.items():
                states[name].update(part.index, trace, traces[scorer.partner] if scorer.partner else ())
            predictions[part.index] = trace.predictions.cpu().numpy()
            done += len(part.index)
            if progress is not None:
                progress(done, len(pool))
    return Scores({name: state.value() for name, state in states.items()}, predictions, states)


def _learn(pool: Pool, scorers: Mapping[str, Scorer]) -> None:
    """Everything the methods need of the training data from one pass over it."""
    needs = [(*learns, name) for name, scorer in scorers.items() if (learns := getattr(scorer, "learns", None)) is not None]
    if needs:
        pool.context.need_train(needs[0][2])
        profiles, traces = ([want for kind, want, _ in needs if kind == wanted_kind] for wanted_kind in ("profile", "traces"))
        pool.context.gather(profiles, traces, needs[0][2])


def _first_bad(trace: Trace, part: Batch) -> int:
    bad = ~trace.logits.isfinite().all(dim=1).cpu().numpy()
    return int(part.index[bad].min())


def _order(pool: Pool, samples: Set[int]) -> np.ndarray:
    """Random samples of these sizes first, so that what needs one has it before the rest streams by; then the others.

    A smaller sample is the beginning of a larger one, so each method sees the sample it would see alone.
    """
    n = len(pool)
    ends = sorted(size for size in samples if 0 < size < n)
    if not ends:
        return np.arange(n)
    shuffled = rng.stream("select.sample", pool.seed).permutation(n)
    return np.concatenate([np.sort(part) for part in np.split(shuffled, ends)])


class _Partners:
    """Gives the traces of a batch's partners."""

    def __init__(self, pool: Pool, partner: Partner) -> None:
        self.pool, self.partner = pool, partner
        self.originals: Source | None = None
        self.draws: list[Any] = []
        if partner.reference == "original":
            self.originals = pool.source.originals
        elif partner.reference == "dropout":
            self.thinned = Thinned(pool.target, pool.seed)
        elif partner.reference == "mild":
            self.mild = MildMutations(rounding="pool")
        else:
            self.mutations = NssMutations(rounding="pool")
            streams = (rng.stream("select.remutate", pool.seed, number) for number in range(partner.mutants))
            self.draws = [self.mutations.draw(random, len(pool)) for random in streams]

    def traces(self, probe: Probe, part: Batch) -> list[Trace]:
        if self.partner.reference == "dropout":
            return self.thinned.traces(part.x, self.partner.mutants)
        return [probe(x) for x in self._batches(part)]

    def _batches(self, part: Batch) -> list[Tensor]:
        target = self.pool.target
        if self.originals is not None:
            return [target.prepare(self.originals.read(part.index))]
        unit = to_unit(part.x, target.bounds)
        if self.partner.reference == "mild":
            return [from_unit(x, target.bounds) for x in self.mild.variants(unit)[: self.partner.mutants]]
        return [from_unit(self.mutations.apply(unit, draws[part.index]), target.bounds) for draws in self.draws]
