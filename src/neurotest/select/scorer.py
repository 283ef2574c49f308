"""What a selector looks like, and the states that selectors share."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.checks import Settings
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.measure.context import Collector, Context, Traces
from neurotest.measure.traces import Layout, joined
from neurotest.scan import BATCH, Batch, Progress, scan
from neurotest.target import Target, Trace, Want

DIGITS = 9  # products round differently in batches of different sizes: what is equal must stay equal


@dataclass(frozen=True)
class Partner:
    """What a paired scorer compares each candidate with: its original, `mutants` fresh mutations of it, or what the network
    says about it when dropout is on, `mutants` times."""

    reference: str  # original, remutate, mild, noise or dropout
    mutants: int = 1


@dataclass(frozen=True)
class Pool:
    """The candidates of one selection, and what goes with them: training data, how many to pick, labels given so far."""

    target: Target
    source: Source
    seed: int
    train: Source | None = None
    picked: int = 1
    labels: np.ndarray | None = None  # (n,) int64, -1 where there is none
    batch: int = BATCH
    progress: Progress | None = None  # of passes that a method makes itself
    shared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)  # what several methods of one selection use

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def context(self) -> Context:
        """What the training data gives, gathered once for all methods."""
        return Context(target=self.target, train=self.train, batch=self.batch, seed=self.seed)


class State(Protocol):
    """Accumulates one score per candidate; `partners` are traces of the same inputs' partners, if the scorer has any.

    A state may also have `notes()`, sentences for the user, `details()`, what goes into the JSON and the report, and `weights()`,
    the share of the pool that each pick stands for.
    """

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None: ...

    def value(self) -> np.ndarray: ...


class Scorer(Settings, ABC):
    """Settings of a method; `start` begins to score a pool. Higher scores are labelled earlier.

    A subclass says of itself what it needs: `want`, what is recorded beside the logits; `learns`, a pair of `profile` or `traces`
    and a want, what training data has to give; `partner`, what each candidate is compared with; `sample`, how many random
    candidates it must see first; `pointwise = False`, that a score depends on the other candidates too; `quantities = True`, that
    it is for networks that predict a quantity, and for no others. Optional:
    `for_pool(source)`, which gives the method as it fits a pool, and sentences about that.
    """

    pointwise: ClassVar[bool] = True
    quantities: ClassVar[bool] = False

    @property
    def want(self) -> Want | None:
        return None

    @property
    def learns(self) -> tuple[str, Want] | None:
        return None

    @property
    def partner(self) -> Partner | None:
        return None

    @property
    def sample(self) -> int | None:
        return 0

    @abstractmethod
    def start(self, pool: Pool) -> State: ...


def entropy(probs: Tensor) -> Tensor:
    """In bits, over the last axis; 0 log 0 is 0."""
    bits: Tensor = -torch.special.xlogy(probs, probs).sum(dim=-1) / np.log(2)
    return bits


class OutputScorer(Scorer):
    """Base of the methods that look at class probabilities only, of an input or, where there are any, of its partners, (n,
    partners, k): a subclass says `score`."""

    @abstractmethod
    def score(self, probs: Tensor) -> Tensor: ...

    def start(self, pool: Pool) -> State:
        return _OutputState(self, len(pool))


class PerInput:
    """One score per candidate, eight bytes each."""

    def __init__(self, n: int) -> None:
        self.scores = np.full(n, np.nan)

    def value(self) -> np.ndarray:
        return self.scores

    # -- scored piece by piece, by any worker

    def fresh(self, n: int) -> Self | None:
        """An empty one for n candidates; None while it has to see more of the pool first."""
        part = copy.copy(self)
        part.scores = np.full(n, np.nan)
        return part

    def result(self) -> Any:
        """What a fresh one gives of its candidates."""
        return self.scores

    def merge(self, index: np.ndarray, result: Any) -> None:
        """Take in the result of the candidates at these positions."""
        self.scores[index] = result


def doubt(trace: Trace) -> np.ndarray:
    """(n,) DeepGini, for methods that add it to what they see in hidden neurons; of a quantity there is none."""
    if trace.quantity:
        return np.zeros(len(trace.logits))
    return np.asarray((1 - trace.probs.square().sum(dim=1)).cpu().numpy())


class _OutputState(PerInput):
    """Scores each candidate by its own probabilities, or those of its partners."""

    def __init__(self, scorer: OutputScorer, n: int) -> None:
        super().__init__(n)
        self.scorer = scorer

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        probs = torch.stack([partner.probs for partner in partners], dim=1) if partners else trace.probs
        self.scores[index] = self.scorer.score(probs).cpu().numpy()


class TrainedScorer(Scorer):
    """Base of the methods that compare hidden values of candidates with those of training inputs, at `layer` and `neuron`."""

    layer: str
    neuron: Literal["unit", "channel"]

    @property
    def want(self) -> Want:
        return Want(layers=self.layer, neuron=self.neuron)

    @property
    def learns(self) -> tuple[str, Want]:
        return "traces", self.want


class BlockState(PerInput):
    """Scores candidates by their hidden values, `block` at a time, which costs half of what batches of a few cost."""

    block: ClassVar[int]

    def __init__(self, want: Want, pool: Pool) -> None:
        super().__init__(len(pool))
        self.want, self.layout = want, pool.context.layout(want)
        self.foreign = 0  # candidates of a predicted class that no training input has
        self.waiting: list[tuple[np.ndarray, ...]] = []  # positions, and their `columns`

    def columns(self, trace: Trace) -> tuple[np.ndarray, ...]:
        """What scores depend on, a row per candidate."""
        return joined(trace, self.want, self.layout).values, trace.predictions.cpu().numpy()

    @abstractmethod
    def score(self, columns: Sequence[np.ndarray]) -> np.ndarray: ...

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        self.waiting.append((index, *self.columns(trace)))
        if sum(len(positions) for positions, *_ in self.waiting) >= self.block:
            self._flush()

    def _flush(self) -> None:
        if self.waiting:
            index, *columns = (np.concatenate(part) for part in zip(*self.waiting, strict=True))
            self.waiting = []
            self.scores[index] = self.score(columns)

    def value(self) -> np.ndarray:
        self._flush()
        return self.scores

    def fresh(self, n: int) -> Self:
        part = super().fresh(n)
        assert part is not None
        part.foreign, part.waiting = 0, []
        return part

    def result(self) -> tuple[np.ndarray, int]:
        return self.value(), self.foreign

    def merge(self, index: np.ndarray, result: tuple[np.ndarray, int]) -> None:
        self.scores[index] = result[0]
        self.foreign += result[1]


def steady(values: np.ndarray, digits: int = DIGITS) -> np.ndarray:
    """Values rounded to so many digits; what is not finite stays."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(values))))
        return np.where(np.isfinite(scale) & np.isfinite(values), np.round(values * scale) / scale, values)


@dataclass(frozen=True, kw_only=True)
class Hidden(Scorer):
    """layer: a glob or preset; default is the last hidden layer. neuron: `unit` or `channel`."""

    layer: str | None = None
    neuron: Literal["unit", "channel"] = "unit"

    @property
    def want(self) -> Want:
        if self.layer is None:
            return Want(layers="last_hidden", neuron="unit", inputs=True)
        return Want(layers=self.layer, neuron=self.neuron)


class HiddenState:
    """Holds every candidate's activations, in the order of the pool."""

    method: Any

    def __init__(self, method: Hidden, pool: Pool) -> None:
        self.method, self.pool, self.want = method, pool, method.want
        self.layout: Layout = pool.context.layout(self.want)
        self.values: NDArray[np.floating] = np.full((len(pool), self.layout.neurons), np.nan, dtype=np.float32)

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        self.values[index] = joined(trace, self.want, self.layout).values

    def check(self, who: str) -> None:
        if n := int((~np.isfinite(self.values).all(axis=1)).sum()):
            raise BadInput(
                "not-finite",
                "inputs",
                f"{who} cannot place {n} inputs (NaN or infinite activations): leave them out or use other --layers.",
            )


@dataclass(frozen=True)
class Scores:
    """What one pass gave: a score per candidate and method, and what the target predicted."""

    by_method: Mapping[str, np.ndarray]  # each (n,) float64
    predictions: np.ndarray  # (n,) int64
    states: Mapping[str, State]

    def notes(self, method: str) -> tuple[str, ...]:
        notes = getattr(self.states[method], "notes", None)
        return () if notes is None else tuple(notes())

    def details(self, method: str) -> dict[str, Any]:
        details = getattr(self.states[method], "details", None)
        return {} if details is None else details()


def check_outputs(trace: Trace, part: Batch) -> None:
    finite = trace.logits.isfinite()
    if not bool(finite.all()):
        first = int(part.index[~finite.all(dim=1).cpu().numpy()].min())
        raise BadInput(
            "not-finite", "outputs", f"the network gives NaN or infinite outputs, first for input {first}: it cannot be ranked."
        )


def sample_first(pool: Pool, samples: Set[int | None]) -> np.ndarray:
    """Random samples of these sizes first, so that what needs one has it before the rest streams by; then the others.

    A smaller sample is the beginning of a larger one, so each method sees the sample it would see alone.
    """
    n = len(pool)
    ends = sorted(size for size in samples if size is not None and 0 < size < n)
    if not ends:
        return np.arange(n)
    shuffled = rng.stream("select.sample", pool.seed).permutation(n)
    return np.concatenate([np.sort(part) for part in np.split(shuffled, ends)])


def activations(pool: Pool, source: Source, want: Want) -> Traces:
    """What the network does on some inputs."""
    collector = Collector(want, pool.context.layout(want))
    scan(pool.target, source, [collector], batch=pool.batch)
    return collector.traces(source.labels)
