"""What a fitness is: settings that begin a measure, which computes it for positions of a group of seeds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor

from neurotest import rng
from neurotest.devices import widest
from neurotest.errors import BadInput
from neurotest.generate.swarm.ball import Ball
from neurotest.mutate.unit import from_unit
from neurotest.target import Probe, Profile, Target, Want

CONSTANT = (
    "the target gives every seed and random changes of it exactly the same logits, so its loss does not change in this ball: "
    "check that its layers are alive (`neurotest doctor TARGET DATA`), or take a larger --radius."
)


@dataclass(frozen=True, eq=False)
class Problem:
    """A group of seeds: x (n, *shape) in [0, 1], the class each must leave (n,), and what a measure may need."""

    target: Target
    seeds: Tensor
    y: Tensor
    ball: Ball
    layers: str | None = None
    neuron: str = "channel"
    profile: Profile | None = None  # spread of training data, for sensitivity
    random: int = 0
    answers: Tensor | None = None  # (n,) to the seeds, where the target predicts a regression value: a fault is far from them

    def classes(self, logits: Tensor, rows: Tensor) -> Tensor:
        """(n,) the classes that positions of these seeds count as; -1 where logits are not finite."""
        return self.target.counted(logits, self.y[rows], None if self.answers is None else self.answers[rows])


class Fitness(Protocol):
    """Settings of a fitness. `labels`: whether it needs the class of every seed."""

    name: ClassVar[str]
    labels: ClassVar[bool]

    def begin(self, problem: Problem) -> Measure: ...


@dataclass(eq=False)
class Measure(ABC):
    """Computes fitness. A context manager; `forwards` and `backwards` count inputs, `cost` is what one position costs in them.

    reweighs: it weighs neurons at a position; `reweigh` does it again at the best ones, and fitness is then counted from there.
    has_map: its first layer is a map, and it knows how much of the fitness lies where.
    """

    problem: Problem
    wants: tuple[Want, ...] = ()
    cost: int = 1
    reweighs: bool = False
    has_map: bool = False
    forwards: int = 0
    backwards: int = 0
    notes: list[str] = field(default_factory=list)
    avoided: Tensor = field(init=False)  # (n, classes) the seed's class, and wrong labels it already has

    def __post_init__(self) -> None:
        self._probe = Probe(self.problem.target, *self.wants)
        self.avoided = torch.nn.functional.one_hot(self.problem.y, self._classes()).bool()

    def _classes(self) -> int:
        """How many classes there are; a target whose logits are the same everywhere in the ball is refused."""
        problem, few = self.problem, self.problem.seeds[:20]
        noisy = (problem.ball.noise(few, rng.torch_stream("swarm.alive", problem.random, number)) for number in range(3))
        with torch.inference_mode():
            logits = problem.target.logits(from_unit(few, problem.target.bounds))
            if all(torch.equal(logits, problem.target.logits(from_unit(u, problem.target.bounds))) for u in noisy):
                raise BadInput("unsuitable", "constant", CONSTANT)
        return int(logits.shape[1])

    def __enter__(self) -> Self:
        self._probe.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._probe.__exit__(*error)

    def __call__(self, u: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        """Positions (n, *shape) and their seeds' rows (n,) -> fitness (n,), logits (n, classes)."""
        self.forwards += len(u)
        trace = self._probe(from_unit(u, self.problem.target.bounds))
        values = dict(trace.values) if self.wants else {}
        with torch.inference_mode():
            return self.fitness(u, owner, values, trace.logits), trace.logits

    @abstractmethod
    def fitness(self, u: Tensor, owner: Tensor, values: dict[str, Tensor], logits: Tensor) -> Tensor:
        """(n,) of positions and their seeds' rows, from recorded values and logits."""

    def first_layer(self, x: Tensor) -> Tensor:
        """Of inputs in the target's bounds, (n, channels, h, w), if `has_map`."""
        raise NotImplementedError

    def fitness_map(self, u: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        """Fitness by place (n, h, w), and logits, if `has_map`."""
        raise NotImplementedError

    def reweigh(self, u: Tensor, owner: Tensor) -> int:
        """Weigh neurons at these positions; what that cost each of them in forward passes."""
        return 0


def odds(logits: Tensor, avoided: Tensor) -> Tensor:
    """How far the other classes are ahead of the avoided ones, in log-odds: above 0 something else is likelier.

    Cross-entropy rises with it, but is constant in float32 where the network is sure; this is not.
    """
    values = logits.to(widest(logits.device))
    low = torch.finfo(values.dtype).min
    return values.masked_fill(avoided, low).logsumexp(1) - values.masked_fill(~avoided, low).logsumexp(1)
