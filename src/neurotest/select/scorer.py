"""What a selector looks like, and the one pass over the pool that serves all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from neurotest import rng
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.levels import EIGHT, levels_of
from neurotest.measure.context import Context
from neurotest.measure.several import Several
from neurotest.mutate.audio import AudioMutations, mild_variants
from neurotest.mutate.base import Mutations
from neurotest.mutate.mild import MildMutations
from neurotest.mutate.nss import NssMutations
from neurotest.mutate.pixel import WhiteNoise
from neurotest.mutate.space import from_unit, to_unit
from neurotest.scan import BATCH, Batch, Progress, each_batch, wanted
from neurotest.select.thinning import Thinned
from neurotest.sounds import is_sound
from neurotest.target import Probe, Target, Trace, Want

NOISE = 0.02  # spread of the weak noise, a share of the input range
Partners = Callable[[Probe, Batch], list[Trace]]


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


class Scorer(ABC):
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


class OutputScorer(Scorer):
    """Base of the methods that look at one input's class probabilities only: a subclass says `score`."""

    @abstractmethod
    def score(self, probs: Tensor) -> Tensor: ...

    def start(self, pool: Pool) -> State:
        return OutputState(self, len(pool))


class PerInput:
    """One score per candidate, eight bytes each."""

    def __init__(self, n: int) -> None:
        self.scores = np.full(n, np.nan)

    def value(self) -> np.ndarray:
        return self.scores


def doubt(trace: Trace) -> np.ndarray:
    """(n,) DeepGini, for methods that add it to what they see in hidden neurons; of a quantity there is none."""
    if trace.quantity:
        return np.zeros(len(trace.logits))
    return np.asarray((1 - trace.probs.square().sum(dim=1)).cpu().numpy())


class OutputState(PerInput):
    """Scores each candidate by its own probabilities."""

    def __init__(self, scorer: OutputScorer, n: int) -> None:
        super().__init__(n)
        self.scorer = scorer

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        self.scores[index] = self.scorer.score(trace.probs).cpu().numpy()


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


def score(
    pool: Pool, scorers: Mapping[str, Scorer], *, batch: int, several: Several | None = None, progress: Progress | None = None
) -> Scores:
    """Forward the pool once, and each kind of partner once, and let every scorer see what it needs.

    Methods that do not fit drop out, with their reasons in `several`.
    """
    several = Several(scorers) if several is None else several
    states, makers = _start(pool, scorers, several)
    predictions = np.full(len(pool), -1)

    def step(part: Batch, trace: Trace, probe: Probe) -> None:
        check_outputs(trace, part)
        traces: dict[Partner, list[Trace]] = {}
        for name in [name for name in states if name not in several.errors]:
            with several.attempt(name):
                partner = scorers[name].partner
                if partner is not None and partner not in traces:
                    traces[partner] = makers[partner](probe, part)
                states[name].update(part.index, trace, () if partner is None else traces[partner])
        predictions[part.index] = _counted(pool, part, trace)

    running = several.left(dict(scorers))
    order = sample_first(pool, {s.sample for s in running.values()})
    each_batch(pool.target, pool.source, step, wants=wanted(running.values()), order=order, batch=batch, progress=progress)
    scores = {}
    for name, state in several.left(states).items():
        with several.attempt(name):
            scores[name] = state.value()
    return Scores(scores, predictions, states)


def _start(pool: Pool, scorers: Mapping[str, Scorer], several: Several) -> tuple[dict[str, State], dict[Partner, Partners]]:
    """A state for each method whose layers and training data are there, after one pass over the training data for all."""
    needs = []
    for name, scorer in several.left(dict(scorers)).items():
        with several.attempt(name):
            if getattr(scorer, "quantities", False) and pool.target.bins is None:
                raise BadInput(f"{name} is for networks that predict a quantity: for a classifier use nearest, or deepgini.")
            if scorer.want is not None:
                pool.target.survey().find(scorer.want.layers)
            if (learns := getattr(scorer, "learns", None)) is not None:
                pool.context.need_train(name)
                needs.append(learns)
    profiles, traces = ([want for kind, want in needs if kind == wanted_kind] for wanted_kind in ("profile", "traces"))
    pool.context.gather(profiles, traces, "the selection")
    states: dict[str, State] = {}
    makers: dict[Partner, Partners] = {}
    for name, scorer in several.left(dict(scorers)).items():
        with several.attempt(name):
            if scorer.partner is not None and scorer.partner not in makers:
                makers[scorer.partner] = _partners(pool, scorer.partner)
            states[name] = scorer.start(pool)
    return states, makers


def _noisy(part: Batch, bounds: tuple[float, float], number: int, seed: int) -> Tensor:
    """A batch with white noise; which noise is a function of the seed, the number and an input's position."""
    spread = np.full(len(part.index), NOISE)
    streams = np.array([rng.stream("select.noise", seed, number, int(i)).integers(1 << 53) for i in part.index], dtype=np.float64)
    parameters = torch.from_numpy(np.column_stack([spread, streams]))
    return WhiteNoise().apply(to_unit(part.x, bounds), parameters).clamp(0, 1)


def _counted(pool: Pool, part: Batch, trace: Trace) -> np.ndarray:
    """(n,) the predicted classes; of a quantity that is known, the bin of the truth as long as the answer is near it."""
    source, bins = pool.source, pool.target.bins
    if bins is None or source.quantities is None or source.labels is None:
        return np.asarray(trace.predictions.cpu().numpy())
    labels, truth = (torch.from_numpy(np.asarray(one)[part.index]) for one in (source.labels, source.quantities))
    return np.asarray(bins.counted(trace.logits.cpu(), labels, truth).numpy())


def check_outputs(trace: Trace, part: Batch) -> None:
    finite = trace.logits.isfinite()
    if not bool(finite.all()):
        first = int(part.index[~finite.all(dim=1).cpu().numpy()].min())
        raise BadInput(f"the network gives NaN or infinite outputs, first for input {first}: it cannot be ranked.")


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


def _partners(pool: Pool, partner: Partner) -> Partners:
    """What gives the traces of a batch's partners."""
    target, bounds, mutants = pool.target, pool.target.bounds, partner.mutants
    if partner.reference == "original" and (originals := pool.source.originals) is not None:
        return lambda probe, part: [probe(target.prepare(originals.read(part.index)))]
    if partner.reference == "dropout":
        thinned = Thinned(target, pool.seed)
        return lambda probe, part: thinned.traces(part.x, mutants)
    if partner.reference == "noise":
        return lambda probe, part: [probe(from_unit(_noisy(part, bounds, n, pool.seed), bounds)) for n in range(mutants)]
    sound, levels = is_sound(pool.source.dtype, pool.source.shape), levels_of(pool.source.dtype)
    if partner.reference == "mild" and sound:
        return lambda probe, part: [
            probe(from_unit(x, bounds)) for x in islice(mild_variants(to_unit(part.x, bounds), levels), mutants)
        ]
    if partner.reference == "mild":
        mild = MildMutations(rounding="pool")
        return lambda probe, part: [probe(from_unit(x, bounds)) for x in mild.variants(to_unit(part.x, bounds))[:mutants]]
    mutations: Mutations = AudioMutations() if sound else NssMutations(rounding="pool")
    draws = [mutations.draw(rng.stream("select.remutate", pool.seed, number), len(pool)) for number in range(mutants)]

    def mutated(probe: Probe, part: Batch) -> list[Trace]:
        unit = to_unit(part.x, bounds)
        return [probe(from_unit(mutations.apply(unit, draw[part.index], levels=levels or EIGHT), bounds)) for draw in draws]

    return mutated
