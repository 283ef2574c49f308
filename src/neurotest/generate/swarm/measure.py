"""What a fitness is: settings that begin a measure, which judges positions of a group of seeds in one forward pass each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import TracebackType
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor

from neurotest import rng
from neurotest.errors import BadInput
from neurotest.generate.swarm.ball import Ball
from neurotest.mutate.space import from_unit
from neurotest.target import Probe, Profile, Target, Want

STILL = (
    "the target gives every seed and random changes of it exactly the same logits, so its loss does not change in this ball: "
    "check that its layers are alive (`neurotest doctor TARGET DATA`), or take a larger --radius."
)


@dataclass(frozen=True, eq=False)
class Problem:
    """A group of seeds: x (n, *shape) in [0, 1], the class each must leave (n,), and what a measure may need to know."""

    target: Target
    seeds: Tensor
    y: Tensor
    ball: Ball
    layers: str | None = None
    neuron: str = "channel"
    profile: Profile | None = None  # spread of training data, for sensitivity
    random: int = 0


class Fitness(Protocol):
    """Settings of a fitness. `labels`: whether it needs the class of every seed."""

    name: ClassVar[str]
    labels: ClassVar[bool]

    def begin(self, problem: Problem) -> Measure: ...


@dataclass(eq=False)
class Measure(ABC):
    """Judges positions. A context manager; `forwards` and `backwards` count inputs, `cost` is what one position costs in them.

    `fresh` measures weigh neurons at a position: `renew` does it again at the best ones, and fitness is then counted from there.
    `local` ones say of their first layer, a map, how much of the fitness lies where.
    """

    problem: Problem
    wants: tuple[Want, ...] = ()
    cost: int = 1
    fresh: bool = False
    local: bool = False
    forwards: int = 0
    backwards: int = 0
    notes: list[str] = field(default_factory=list)
    avoided: Tensor = field(init=False)  # (n, classes) the seed's class, and wrong labels it already has

    def __post_init__(self) -> None:
        self._probe = Probe(self.problem.target, *self.wants)
        self.avoided = torch.nn.functional.one_hot(self.problem.y, self._alive()).bool()

    def _alive(self) -> int:
        """How many classes there are; a target that gives one answer everywhere in the ball has nothing to be led by."""
        problem, few = self.problem, self.problem.seeds[:20]
        tried = (problem.ball.noise(few, rng.torch_stream("swarm.alive", problem.random, number)) for number in range(3))
        with torch.inference_mode():
            said = problem.target.logits(from_unit(few, problem.target.bounds))
            if all(torch.equal(said, problem.target.logits(from_unit(u, problem.target.bounds))) for u in tried):
                raise BadInput(STILL)
        return int(said.shape[1])

    def __enter__(self) -> Self:
        self._probe.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._probe.__exit__(kind, error, trace)

    def __call__(self, u: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        """Positions (n, *shape) and whose they are (n,) -> fitness (n,), logits (n, classes)."""
        self.forwards += len(u)
        trace = self._probe(from_unit(u, self.problem.target.bounds))
        values = dict(trace.values) if self.wants else {}
        with torch.inference_mode():
            return self.judge(u, owner, values, trace.logits), trace.logits

    @abstractmethod
    def judge(self, u: Tensor, owner: Tensor, values: dict[str, Tensor], logits: Tensor) -> Tensor:
        """Fitness (n,) of positions, whose they are, from recorded values and logits."""

    def maps(self, x: Tensor) -> Tensor:
        """The first layer of inputs in the target's bounds, (n, channels, h, w); of a `local` measure."""
        raise NotImplementedError

    def places(self, u: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        """Fitness by place (n, h, w), and logits; of a `local` measure."""
        raise NotImplementedError

    def renew(self, u: Tensor, owner: Tensor) -> int:
        """Weigh neurons anew at these positions; what that cost each of them in forward passes."""
        return 0


def odds(logits: Tensor, avoided: Tensor) -> Tensor:
    """How far the other classes are ahead of the avoided ones, in log-odds: above 0 something else is likelier.

    Cross-entropy rises with it, but is flat in float32 where the network is sure; this is not.
    """
    values = logits.double()
    low = torch.finfo(values.dtype).min
    return values.masked_fill(avoided, low).logsumexp(1) - values.masked_fill(~avoided, low).logsumexp(1)
