"""The pass of a measurement: the states of all criteria, all together and per class, and how they grow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.coverage.criterion import Arrays, Criterion, State
from neurotest.data.source import Source
from neurotest.measure.context import Context
from neurotest.measure.several import Several
from neurotest.measure.traces import part
from neurotest.pieces import Piece, in_place, pass_over
from neurotest.scan import Batch, Progress, wanted
from neurotest.target import Probe, Trace, Want

CURVE_POINTS = 40  # of the growth curve
PIECE_BATCHES = 16  # batches of a piece

States = dict[str, State]


@dataclass(eq=False)
class Measurement:
    """States of the whole, or of one piece. empty: what pieces begin with, None where order matters."""

    several: Several
    classes: tuple[str, ...]
    context: Context | None
    states: States
    empty: dict[str, State | None]
    pristine: States  # what classes begin with
    per_class: dict[int, States] = field(default_factory=dict)
    growth: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    steps: frozenset[int] = frozenset()
    labels: NDArray[np.int64] | None = None  # of the piece
    lead: int = 0

    @classmethod
    def start(cls, chosen: Mapping[str, Criterion], context: Context, several: Several, classes: tuple[str, ...]) -> Measurement:
        states: States = {}
        for name, criterion in chosen.items():
            with several.attempt(name):
                states[name] = criterion.start(context)
        empty = {name: state.fresh() for name, state in states.items()}
        pristine = {name: state.twin() for name, state in states.items()} if classes else {}
        return cls(several, classes, context, states, empty, pristine)

    def scan(self, source: Source, batch: int, progress: Progress | None) -> None:
        assert self.context is not None
        per = min(PIECE_BATCHES, max(1, -(-len(source) // (CURVE_POINTS * batch))))
        self.steps = frozenset(_steps(len(source), batch * per))
        pass_over(self.context.need_target(), source, self, batch=batch, per=per, progress=progress)

    # -- one pass, whole or in pieces

    @property
    def wants(self) -> tuple[Want, ...]:
        return wanted(self.states.values())

    def step(self, here: Batch, trace: Trace, probe: Probe) -> None:
        classes = self._classes(here, trace) if self.classes else None
        for name, state in list(self.states.items()):
            with self.several.attempt(name):
                state.update(trace)
                if classes is not None:
                    self._split(name, classes)
        self.states = self.several.left(self.states)

    def fresh(self, piece: Piece, *, here: bool) -> Measurement:
        states: States = {}
        live: set[str] = set()
        for name, state in self.states.items():
            if here and in_place(state, self.empty[name]):
                states[name] = state
                live.add(name)
            elif (empty := self.empty[name]) is not None:
                states[name] = empty.twin()
        per_class = {n: {name: state for name, state in mine.items() if name in live} for n, mine in self.per_class.items()}
        return dataclasses.replace(
            self, states=states, per_class=per_class, growth={}, labels=piece.source.labels, several=Several(self.several.names)
        )

    def merge(self, other: Measurement, piece: Piece) -> None:
        self.several.join(other.several)
        for name, state in self.several.left(other.states).items():
            with self.several.attempt(name):
                if self.states[name] is not state:
                    self.states[name].merge(state)
                self._merge_classes(name, other.per_class)
                if piece.end in self.steps:
                    self.growth.setdefault(name, []).append((piece.end, self.states[name].value().value))
        self.states = self.several.left(self.states)

    def portable(self) -> Measurement | None:
        states = {name: empty for name, empty in self.empty.items() if empty is not None and name in self.states}
        pristine = {name: state for name, state in self.pristine.items() if name in states}
        return dataclasses.replace(self, states=states, empty=dict(states), pristine=pristine, context=None) if states else None

    def result(self) -> tuple[Several, dict[str, Arrays], dict[int, dict[str, Arrays]]]:
        by_class = {n: {name: state.state_dict() for name, state in states.items()} for n, states in self.per_class.items()}
        return self.several, {name: state.state_dict() for name, state in self.states.items()}, by_class

    def receive(self, result: tuple[Several, dict[str, Arrays], dict[int, dict[str, Arrays]]], piece: Piece) -> None:
        several, states, by_class = result
        part = self.fresh(piece, here=False)
        part.several = several
        part.states = {name: _holding(part.states[name], arrays) for name, arrays in states.items() if name in part.states}
        for number, each in by_class.items():
            part.per_class[number] = {name: _holding(self.pristine[name].twin(), arrays) for name, arrays in each.items()}
        self.merge(part, piece)

    def rest(self) -> Measurement | None:
        left = {name: state for name, state in self.states.items() if self.empty[name] is None}
        return dataclasses.replace(self, states=left) if left else None  # growth and classes are those of the whole

    # -- by class

    def _classes(self, here: Batch, trace: Trace) -> dict[int, Trace]:
        """The trace of each class's inputs: by label, or by prediction where there are no labels."""
        numbers: NDArray[Any] = trace.predictions.cpu().numpy() if self.labels is None else self.labels[here.index]
        return {number: part(trace, numbers == number) for number in np.unique(numbers).tolist()}

    def _split(self, name: str, classes: Mapping[int, Trace]) -> None:
        for number, some in classes.items():
            states = self.per_class.setdefault(number, {})
            if name not in states:
                states[name] = self.pristine[name].twin()
            states[name].update(some)

    def _merge_classes(self, name: str, others: Mapping[int, States]) -> None:
        for number, states in others.items():
            if name not in states:
                continue
            mine = self.per_class.setdefault(number, {})
            if name not in mine:
                mine[name] = states[name]
            elif mine[name] is not states[name]:
                mine[name].merge(states[name])


def _holding(state: State, arrays: Arrays) -> State:
    state.load(arrays)
    return state


def _steps(total: int, piece: int) -> Iterator[int]:
    """After how many inputs the curve has a point: ends of pieces, at most POINTS of them, the last included."""
    ends = [*range(piece, total, piece), total]
    chosen = np.unique(np.linspace(0, len(ends) - 1, min(CURVE_POINTS, len(ends))).round().astype(int))
    return (ends[i] for i in chosen)
