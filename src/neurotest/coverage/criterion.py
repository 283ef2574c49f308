"""What a coverage criterion is: settings that start a state, and a state that accumulates over traces."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from neurotest.checks import Settings
from neurotest.errors import BadInput
from neurotest.measure.context import Context
from neurotest.measure.traces import Joined, Layout, joined
from neurotest.memory import check_memory
from neurotest.target import Trace, Want

Arrays = dict[str, NDArray[Any]]
NAMED_LAYERS = 8  # layers named in a note


@dataclass(frozen=True)
class Share:
    """Covered of total, for one layer or for all; `value` is their ratio, or the count where there is no total."""

    covered: float
    total: int | None
    value: float
    dead: int

    @classmethod
    def ratio(cls, covered: float, total: int, dead: int) -> Share:
        return cls(covered, total, covered / total if total else 0.0, dead)

    @classmethod
    def count(cls, covered: float, dead: int = 0) -> Share:
        return cls(covered, None, float(covered), dead)

    def to_dict(self) -> dict[str, Any]:
        whole = (float(self.covered).is_integer() and self.total is not None) or isinstance(self.covered, int)
        covered = int(self.covered) if whole else float(self.covered)
        return {"covered": covered, "total": self.total, "value": self.value, "dead": self.dead}


@dataclass(frozen=True)
class Value:
    """What a state gives: the whole, each layer, neurons of which nothing was covered, and sentences about the numbers."""

    whole: Share
    layers: Mapping[str, Share] = field(default_factory=dict)
    never: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    nonfinite: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def covered(self) -> float:
        return self.whole.covered

    @property
    def total(self) -> int | None:
        return self.whole.total

    @property
    def value(self) -> float:
        return self.whole.value

    @property
    def dead(self) -> int:
        return self.whole.dead


def first_few(names: list[str]) -> str:
    """For a note: the first of some layers."""
    return ", ".join(names[:NAMED_LAYERS]) + (" and more" if len(names) > NAMED_LAYERS else "")


def _large(criterion: Criterion, layout: Layout) -> tuple[str, str]:
    """What needs memory, and how to need less."""
    widest = max(layout.sizes, key=lambda name: layout.sizes[name], default="")
    where = f"{type(criterion).__name__.lower()} on {len(layout.sizes)} layers"
    return f"{where} (the widest, {widest!r}, has {layout.sizes.get(widest, 0):,} neurons)", f"use {criterion.shrink}"


class State(ABC):
    """Accumulates over traces. `gain` says what each input alone would add to the value and changes nothing."""

    def __init__(self, criterion: Criterion, layout: Layout) -> None:
        check_memory(criterion.memory(layout, 0, 0), *_large(criterion, layout))
        self.criterion = criterion
        self.layout = layout
        self.want: Want = criterion.want
        self.bad: NDArray[np.int64] = np.zeros(len(layout.names), dtype=np.int64)
        self.seen = 0

    def read(self, trace: Trace) -> Joined:
        return joined(trace, self.want, self.layout)

    def update(self, trace: Trace) -> None:
        """Take in a batch."""
        batch = self.read(trace)
        self.seen += len(batch.values)
        if batch.bad is not None:
            self.bad += batch.bad
        self._update(batch, trace)

    @abstractmethod
    def _update(self, joined: Joined, trace: Trace) -> None: ...

    @abstractmethod
    def gain(self, trace: Trace) -> NDArray[np.float64]:
        """By how much `value` would rise with each input alone: (n,)."""

    def merge(self, other: Self) -> None:
        """Take in what another state accumulated over other inputs."""
        if not self.criterion.mergeable:
            raise BadInput(
                "unsupported",
                "merge",
                f"{self.criterion!r} depends on the order of inputs: its states cannot be merged; use one worker.",
            )
        if (self.criterion, dict(self.layout.sizes)) != (other.criterion, dict(other.layout.sizes)):
            raise BadInput(
                "conflict",
                "merge",
                f"states of other criteria or layers cannot be merged: {self.criterion!r} and {other.criterion!r}.",
            )
        self.seen += other.seen
        self.bad = self.bad + other.bad
        self._merge(other)

    @abstractmethod
    def _merge(self, other: Self) -> None: ...

    @abstractmethod
    def value(self) -> Value: ...

    @abstractmethod
    def arrays(self) -> Arrays:
        """Everything that accumulated, as arrays."""

    @abstractmethod
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `arrays` gave."""

    def state_dict(self) -> Arrays:
        """Everything that accumulated, as arrays (safetensors and npz take it as it is); profiles and the like are not in it."""
        return {"seen": np.array([self.seen], dtype=np.int64), "nonfinite": self.bad.copy(), **self.arrays()}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `state_dict` of an equally started state gave."""
        if missing := sorted({*self.state_dict()} - set(state)):
            raise BadInput(
                "damaged",
                "state",
                f"the saved state of {self.criterion!r} lacks {', '.join(missing)}: it belongs to another criterion.",
            )
        if np.asarray(state["nonfinite"]).shape != self.bad.shape:
            raise BadInput("changed", "layers", f"the saved state of {self.criterion!r} is of a network with other layers.")
        self.seen = int(np.asarray(state["seen"]).ravel()[0])
        self.bad = np.array(state["nonfinite"], dtype=np.int64)
        self.restore(state)

    def twin(self) -> Self:
        """A copy that goes on by itself; what was learned from training data is shared."""
        new = copy.copy(self)
        new.load(self.state_dict())
        return new

    @property
    def exact(self) -> bool:
        """Whether merging gives what updating gives, bit for bit: sets do, sums round."""
        return False

    def fresh(self, start: int = 0) -> Self | None:
        """An empty one that can be merged into this one; None where order matters, or this one has seen inputs already."""
        return self.twin() if self.criterion.mergeable and not self.seen else None

    def nonfinite(self) -> dict[str, int]:
        if not self.bad.any():
            return {}
        return {name: int(n) for name, n in zip(self.layout.names, self.bad, strict=True) if n}

    def warnings(self) -> tuple[str, ...]:
        """What is wrong with what was seen, in sentences."""
        named = first_few([f"{name} ({n})" for name, n in self.nonfinite().items()])
        return (f"NaN or infinite activations were seen (NaN covers nothing): {named}.",) if named else ()


@dataclass(frozen=True, kw_only=True)
class Criterion(Settings, ABC):
    """Settings of a criterion. layers: a preset or globs. neuron: `channel`, `unit` or `sample`."""

    layers: str = "pre_activation"
    neuron: Literal["channel", "unit", "sample"] = "channel"

    needs: ClassVar[str] = ""  # what training data has to give: profile, traces or source; empty: none is needed
    growing: ClassVar[bool] = True  # more inputs never lower the value
    obligations: ClassVar[bool] = False  # its states say which input covers what: `obligations(trace)`
    # What to do when the memory is too much; {setting} is filled in.
    shrink: ClassVar[str] = "--neuron channel, --neuron sample or fewer --layers"
    starts_empty: ClassVar[bool] = False  # published fuzzers begin with nothing covered, not with the training data

    @property
    def want(self) -> Want:
        return Want(layers=self.layers, neuron=self.neuron)

    @property
    def mergeable(self) -> bool:
        return True

    @abstractmethod
    def start(self, context: Context) -> State:
        """An empty state for the target (and training data) of the context."""

    def memory(self, layout: Layout, inputs: int, train: int) -> int:
        """About how many bytes a state needs for so many tested and training inputs."""
        return layout.neurons
