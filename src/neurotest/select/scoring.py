"""The one pass over the pool that serves all selectors, whole or piece by piece."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.measure.several import Several
from neurotest.pieces import Piece, pass_over
from neurotest.scan import Batch, Progress, wanted
from neurotest.select.scorer import Partner, Pool, Scorer, Scores, State, check_outputs, sample_first
from neurotest.target import Probe, Target, Trace, Want

if TYPE_CHECKING:
    from neurotest.select.partners import Partners

Result = tuple[Several, dict[str, Any], NDArray[np.int64]]


def score(
    pool: Pool, scorers: Mapping[str, Scorer], *, batch: int, several: Several | None = None, progress: Progress | None = None
) -> Scores:
    """Forward the pool once, and each kind of partner once, and let every scorer see what it needs.

    Methods that do not fit drop out, with their reasons in `several`.
    """
    several = Several(scorers) if several is None else several
    scoring = begin(pool, scorers, several)
    samples = {scorer.sample for scorer in several.left(dict(scorers)).values()}
    order = sample_first(pool, samples)
    scoring.lead = max((size for size in samples if size is not None), default=0)
    pass_over(pool.target, pool.source, scoring, order=order, batch=batch, progress=progress)
    scores = {}
    for name, state in several.left(scoring.states).items():
        with several.attempt(name):
            scores[name] = state.value()
    return Scores(scores, scoring.predictions, scoring.states)


def begin(pool: Pool, scorers: Mapping[str, Scorer], several: Several) -> Scoring:
    """A state for each method whose layers and training data are there, after one pass over the training data for all."""
    needs = []
    for name, scorer in several.left(dict(scorers)).items():
        with several.attempt(name):
            if getattr(scorer, "quantities", False) and pool.target.bins is None:
                raise BadInput(
                    "unsuitable",
                    "outputs",
                    f"{name} is for networks that predict a quantity: for a classifier use nearest, or deepgini.",
                )
            if scorer.want is not None:
                pool.target.survey().find(scorer.want.layers)
            if (learns := getattr(scorer, "learns", None)) is not None:
                pool.context.need_train(name)
                needs.append(learns)
    profiles, traces = ([want for kind, want in needs if kind == wanted_kind] for wanted_kind in ("profile", "traces"))
    pool.context.gather(profiles, traces, "the selection")
    states: dict[str, State] = {}
    partners = _partners(pool, scorers)
    for name, scorer in several.left(dict(scorers)).items():
        with several.attempt(name):
            if scorer.partner is not None and partners is not None:
                partners.check(pool.target, scorer.partner)
            states[name] = scorer.start(pool)
    return Scoring(dict(scorers), states, several, partners, np.full(len(pool), -1))


def _partners(pool: Pool, scorers: Mapping[str, Scorer]) -> Partners | None:
    """None where no method has any: mutations are imported for those that do."""
    if all(scorer.partner is None for scorer in scorers.values()):
        return None
    from neurotest.select.partners import Partners

    return Partners(pool.seed, len(pool))


def _counted(source: Source, target: Target, part: Batch, trace: Trace) -> NDArray[np.int64]:
    """(n,) the predicted classes; of a quantity that is known, the bin of the truth as long as the answer is near it."""
    if target.bins is None or source.quantities is None or source.labels is None:
        return np.asarray(trace.predictions.cpu().numpy())
    labels, truth = (torch.from_numpy(np.asarray(one)[part.index]) for one in (source.labels, source.quantities))
    return np.asarray(target.bins.counted(trace.logits.cpu(), labels, truth).numpy())


@dataclass(eq=False)
class Scoring:
    """States of all methods for a pool, or for one piece of it. lead: so many candidates have to be seen first, in order."""

    scorers: Mapping[str, Scorer]
    states: dict[str, State]
    several: Several
    partners: Partners | None
    predictions: NDArray[np.int64]
    lead: int = 0
    piece: Piece | None = None
    live: frozenset[str] = frozenset()  # states of the whole pool, which know candidates by their positions in it

    @property
    def wants(self) -> tuple[Want, ...]:
        return wanted(self.scorers[name] for name in self.several.left(self.states))

    def step(self, part: Batch, trace: Trace, probe: Probe) -> None:
        assert self.piece is not None
        places = self.piece.index[part.index]
        check_outputs(trace, Batch(places, part.x))
        traces: dict[Partner, list[Trace]] = {}
        for name in [name for name in self.states if name not in self.several.refusals]:
            with self.several.attempt(name):
                partner = self.scorers[name].partner
                if partner is not None and partner not in traces:
                    assert self.partners is not None
                    traces[partner] = self.partners.traces(partner, probe, self.piece.source, self.piece.index, part)
                index = places if name in self.live else part.index
                self.states[name].update(index, trace, () if partner is None else traces[partner])
        self.predictions[part.index] = _counted(self.piece.source, probe.target, part, trace)

    def fresh(self, piece: Piece, *, here: bool) -> Scoring:
        states: dict[str, State] = {}
        live = set()
        for name, state in self.several.left(self.states).items():
            if (new := _fresh(state, len(piece.index))) is not None:
                states[name] = new
            elif here:
                states[name] = state
                live.add(name)
        predictions = np.full(len(piece.index), -1)
        return dataclasses.replace(
            self, states=states, several=Several(self.several.names), predictions=predictions, piece=piece, live=frozenset(live)
        )

    def merge(self, other: Scoring, piece: Piece) -> None:
        self._take(other.several, other._results(), other.predictions, piece)

    def _take(self, several: Several, results: Mapping[str, Any], predictions: NDArray[np.int64], piece: Piece) -> None:
        self.several.join(several)
        for name, result in self.several.left(dict(results)).items():
            with self.several.attempt(name):
                self.states[name].merge(piece.index, result)  # type: ignore[attr-defined]
        self.predictions[piece.index] = predictions

    def _results(self) -> dict[str, Any]:
        states: dict[str, Any] = self.several.left(self.states)
        results = {}
        for name in [name for name in states if name not in self.live]:
            with self.several.attempt(name):
                results[name] = states[name].result()
        return self.several.left(results)

    def result(self) -> Result:
        results = self._results()
        return self.several, results, self.predictions

    def receive(self, result: Result, piece: Piece) -> None:
        self._take(*result, piece)

    def portable(self) -> Scoring | None:
        states = {name: new for name, state in self.several.left(self.states).items() if (new := _fresh(state, 0)) is not None}
        scorers = {name: self.scorers[name] for name in states}
        empty = np.empty(0, dtype=np.int64)
        partners = self.partners and self.partners.portable()
        return dataclasses.replace(self, states=states, scorers=scorers, partners=partners, predictions=empty) if states else None

    def rest(self) -> Scoring | None:
        left = {name: state for name, state in self.several.left(self.states).items() if _fresh(state, 0) is None}
        return dataclasses.replace(self, states=left) if left else None


def _fresh(state: Any, n: int) -> Any:
    """None for a state that has to see the whole pool itself."""
    fresh = getattr(state, "fresh", None)
    return None if fresh is None else fresh(n)
