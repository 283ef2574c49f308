"""The swarm: all seeds of a group and all their particles in one batch, until each seed is done or its budget is spent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from neurotest import rng
from neurotest.errors import BadInput
from neurotest.generate.swarm.lattice import SHARES, Footprint, Lattice, Slope
from neurotest.generate.swarm.measure import Measure
from neurotest.generate.swarm.moves import Tiles, Velocity
from neurotest.generate.swarm.settings import Settings


@dataclass(frozen=True, eq=False)
class Hit:
    """A position that fails: the first of its seed with this label."""

    row: int  # of the group
    x: Tensor  # (*shape) in [0, 1], as it is saved
    predicted: int  # -1: logits are no numbers
    fitness: float
    iteration: int
    spent: int  # forward passes of its seed up to then


@dataclass(frozen=True)
class Moment:
    """How the group stands after a round, over all its seeds."""

    evaluations: float  # forward passes per seed so far
    fitness: float  # mean of the best
    failed: int  # seeds with a fault
    wrong: int  # seeds whose best position fails now: the papers' test errors of this iteration


@dataclass(eq=False)
class Trajectory:
    """What a group gave: best position and prediction per seed, hits, and its course."""

    best: Tensor  # (n, *shape)
    predicted: Tensor  # (n,) at the best position
    fitness: Tensor  # (n,)
    spent: Tensor  # (n,) forward passes, a backward one counting two
    hits: list[Hit] = field(default_factory=list)
    course: list[Moment] = field(default_factory=list)

    @property
    def failed(self) -> set[int]:
        return {hit.row for hit in self.hits}


class Swarm:
    """Flies one group. `stop` is asked after every round; True ends the trajectory where it is."""

    def __init__(self, measure: Measure, settings: Settings, group: int = 0, stop: Callable[[], bool] | None = None) -> None:
        self.measure, self.settings, self.group = measure, settings, group
        self.stop = stop or (lambda: False)
        self.seeds, self.y, self.ball = measure.problem.seeds, measure.problem.y, measure.problem.ball
        n = len(self.seeds)
        device = self.seeds.device
        self.spent = torch.zeros(n, dtype=torch.long, device=device)
        self.value = torch.full((n,), -torch.inf, dtype=torch.float64, device=device)
        self.earned = torch.zeros(n, dtype=torch.float64, device=device)  # fitness before neurons were last weighed anew
        self.told = torch.full((n,), -2, device=device)
        self.position = self.seeds.clone()
        self.labels: dict[int, set[int]] = {}
        self.hits: list[Hit] = []
        self.course: list[Moment] = []
        self.round = 0
        self.stopped = False

    def run(self) -> Trajectory:
        with self.measure, torch.no_grad():
            if self.settings.moves == "velocity":
                self._fly(torch.arange(len(self.seeds), device=self.seeds.device))
            else:
                self._flips()
        return Trajectory(self.position, self.told, self.value + self.earned, self.spent, self.hits, self.course)

    # -- judging

    def _judge(self, u: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        """Fitness and predictions of positions (n, *shape), in batches; what fails is noted."""
        values, told = [], []
        for start in range(0, len(u), self.settings.batch):
            part = slice(start, start + self.settings.batch)
            fitness, logits = self.measure(u[part], owner[part])
            values.append(fitness.double().clone())
            told.append(_said(logits))
        value, said = torch.cat(values), torch.cat(told)
        self._note(u, owner, value, said)
        # A fitness that is no number must not lead anybody.
        return torch.where(value.isfinite(), value, -torch.inf), said

    def _note(self, u: Tensor, owner: Tensor, value: Tensor, said: Tensor) -> None:
        for i in torch.nonzero(said != self.y[owner])[:, 0].tolist():
            row, label = int(owner[i]), int(said[i])
            known = self.labels.setdefault(row, set())
            if label not in known:
                known.add(label)
                worth = float(value[i] + self.earned[row])
                self.hits.append(Hit(row, u[i].clone(), label, worth, self.round, int(self.spent[row]) + 1))

    def _open(self, rows: Tensor, ask: int, labels: int | None) -> Tensor:
        """Which of these seeds go on: (m,) bool."""
        said = self.settings
        going = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        if said.evaluations is not None:
            going &= self.spent[rows] + ask <= said.evaluations
        if labels is not None and self.labels:
            found = torch.tensor([len(self.labels.get(row, ())) for row in rows.tolist()], device=rows.device)
            going &= found < labels
        if said.enough is not None:
            going &= self.value[rows] + self.earned[rows] <= said.enough
        return going

    def _over(self) -> bool:
        self.stopped = self.stopped or self.stop()
        return self.stopped or (self.settings.iterations is not None and self.round >= self.settings.iterations)

    def _mark(self) -> None:
        self.round += 1
        worth = (self.value + self.earned).tolist()  # one copy to the host; small tensors cost more than their values
        known = [value for value in worth if value > -math.inf]
        mean = math.fsum(known) / len(known) if known else 0.0
        wrong = int(((self.told != self.y) & (self.told > -2)).sum())
        self.course.append(Moment(sum(self.spent.tolist()) / len(worth), mean, len(self.labels), wrong))

    def _stream(self) -> torch.Generator:
        return rng.torch_stream("swarm.move", self.settings.seed, self.group, self.round)

    # -- the papers' swarm

    def _fly(self, rows: Tensor) -> None:
        said = self.settings
        cost = said.particles * self.measure.cost
        rounds = said.iterations or max(1, (said.evaluations or 1) // cost)
        moves = Velocity(self.seeds, self.ball, said, rounds)
        own = torch.full((len(rows), said.particles), -torch.inf, dtype=torch.float64, device=rows.device)
        while len(rows) and not self._over():
            x = moves.propose(self._stream)
            value, told = (v.view(len(rows), -1) for v in self._judge(x.flatten(0, 1), rows.repeat_interleave(said.particles)))
            self.spent[rows] += cost
            better = value > own
            own = torch.where(better, value, own)
            moves.learn(better)
            top, which = value.max(1)
            ahead = torch.nonzero(top > self.value[rows])[:, 0]
            moves.lead(ahead, which[ahead])
            self.value[rows[ahead]], self.told[rows[ahead]] = top[ahead], told[ahead, which[ahead]]
            self.position[rows[ahead]] = x[ahead, which[ahead]]
            self._mark()
            going = self._open(rows, cost, said.labels)
            if not bool(going.all()):
                rows, own = rows[going], own[going]
                moves.keep(going)

    # -- tiles and lattices

    def _flips(self) -> None:
        """One trajectory per wrong label wanted; labels a seed already has are avoided in the next."""
        wanted = self.settings.labels
        reach = self._footprint()
        for number in range(1 if wanted is None else wanted):
            rows = torch.arange(len(self.seeds), device=self.seeds.device)
            going = self._open(rows, self.measure.cost * self.settings.particles, None if wanted is None else number + 1)
            rows = rows[going]
            if not len(rows) or self._over():
                return
            if number:
                self._avoid(rows)
            labels = None if wanted is None else number + 1
            if reach is None:
                self._sweeps(rows, labels)
            else:
                self._climb(rows, labels, reach)

    def _footprint(self) -> Footprint | None:
        """How far a value reaches in the first layer; None: tiles are to be flown."""
        said = self.settings
        if said.moves == "tiles":
            return None
        found = Footprint.of(self.measure)
        if found is None and said.moves == "lattice":
            raise BadInput(
                "moves='lattice': it needs the fitness excitability (value=sum), and images whose first hidden layer is a map "
                "that keeps places apart; use tiles."
            )
        short = said.evaluations is not None and found is not None and said.evaluations < 4 + self._ask(found)
        return None if short else found

    def _ask(self, reach: Footprint) -> int:
        """Forward passes of a turn: neurons are weighed, every lattice is flipped, the best flips are joined."""
        return 3 + int(self.seeds.shape[1]) * reach.spacing**2 + len(SHARES)

    def _avoid(self, rows: Tensor) -> None:
        for row in rows.tolist():
            for label in self.labels.get(row, ()):
                if label >= 0:
                    self.measure.avoided[row, label] = True
        self.value[rows], self.earned[rows] = -torch.inf, 0.0

    def _begin(self, moves: Tiles | Lattice, rows: Tensor) -> None:
        first = moves.start(self._stream())
        if self.measure.fresh:
            self.spent[rows] += self.measure.renew(self.seeds[rows], rows)
        self.value[rows], self.told[rows] = self._judge(first, rows)
        self.position[rows] = first
        self.spent[rows] += self.measure.cost
        self._mark()

    def _sweeps(self, rows: Tensor, labels: int | None) -> None:
        said, cost = self.settings, self.measure.cost
        moves = Tiles(self.seeds[rows], self.ball, said.particles, said.start == "fixed")
        self._begin(moves, rows)
        while not self._over():
            going = self._open(rows, cost * said.particles, labels)
            if not bool(going.all()):
                rows = rows[going]
                if moves.sweep < 0:
                    moves.order = torch.zeros((len(going), 0), device=rows.device)
                moves.keep(going)
            if not len(rows):
                return
            if moves.over:
                self._turn(moves, rows)
            self._flip(moves, rows)

    def _turn(self, moves: Tiles, rows: Tensor) -> None:
        """A new grid, and neurons weighed where the best position is: its fitness counts from there."""
        moves.begin(self._stream())
        if self.measure.fresh:
            self._weigh(moves.best, rows)

    def _weigh(self, best: Tensor, rows: Tensor) -> None:
        self.spent[rows] += self.measure.renew(best, rows)
        self.earned[rows] += torch.where(self.value[rows].isfinite(), self.value[rows], 0.0)
        self.value[rows] = 0.0

    def _flip(self, moves: Tiles, rows: Tensor) -> None:
        cost = self.measure.cost
        x = moves.propose(self._stream)  # (n, p, *shape)
        n, p = x.shape[:2]
        value, told = (v.view(n, p) for v in self._judge(x.flatten(0, 1), rows.repeat_interleave(p)))
        self.spent[rows] += cost * p
        better = value > self.value[rows][:, None]
        helped = better.sum(1)
        several = torch.nonzero(helped > 1)[:, 0]
        if len(several):
            together = moves.joined(several, better[several])  # before the best flip is taken over
        top, which = value.max(1)
        ahead = torch.nonzero(helped)[:, 0]
        if len(ahead):
            first = which[ahead]
            found = x[ahead, first]
            moves.settle(ahead, moves.flip(ahead, first), found)
            self._lead(rows[ahead], top[ahead], told[ahead, first], found)
        if len(several):
            joint = self.ball.corner(together, moves.seeds[several])
            sum_value, sum_told = self._judge(joint, rows[several])
            self.spent[rows[several]] += cost
            more = sum_value > top[several]
            moves.settle(several[more], together[more], joint[more])
            self._lead(rows[several[more]], sum_value[more], sum_told[more], joint[more])
        self._mark()

    def _climb(self, rows: Tensor, labels: int | None, reach: Footprint) -> None:
        """Turns of lattices, until a seed is done or no share of its flips helps any more."""
        kind = Slope if self.ball.norm == "l2" else Lattice
        moves = kind(self.seeds[rows], self.ball, reach, self.settings.start == "fixed")
        self._begin(moves, rows)
        helped = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        while not self._over():
            going = helped & self._open(rows, self._ask(reach), labels)
            if not bool(going.all()):
                rows = rows[going]
                moves.keep(going)
            if not len(rows):
                return
            self._weigh(moves.best, rows)
            size = max(1, self.settings.batch // len(rows))
            for start in range(0, moves.count, size):
                self._survey(moves, rows, range(start, min(start + size, moves.count)))
            helped = self._join(moves, rows)
            self._mark()

    def _survey(self, moves: Lattice, rows: Tensor, numbers: range) -> None:
        x = moves.survey(numbers)
        u, owner = x.flatten(0, 1), rows.repeat_interleave(len(numbers))
        maps, logits = self.measure.places(u, owner)
        if moves.inside:
            self._note(u, owner, maps.flatten(1).sum(1).double(), _said(logits))
        self.spent[rows] += len(numbers)
        moves.learn(numbers, maps.view(len(rows), len(numbers), *maps.shape[1:]))

    def _join(self, moves: Lattice, rows: Tensor) -> Tensor:
        signs, x = moves.joined()  # (n, shares, *shape)
        n, p = x.shape[:2]
        value, told = (v.view(n, p) for v in self._judge(x.flatten(0, 1), rows.repeat_interleave(p)))
        self.spent[rows] += p * self.measure.cost
        top, which = value.max(1)
        helped = top > self.value[rows]
        ahead = torch.nonzero(helped)[:, 0]
        first = which[ahead]
        found = x[ahead, first]
        moves.settle(ahead, signs[ahead, first], found)
        self._lead(rows[ahead], top[ahead], told[ahead, first], found)
        return helped

    def _lead(self, rows: Tensor, value: Tensor, told: Tensor, x: Tensor) -> None:
        self.value[rows], self.told[rows], self.position[rows] = value, told, x


def _said(logits: Tensor) -> Tensor:
    """Predictions; -1 where logits are no numbers."""
    return torch.where(logits.isfinite().all(1), logits.argmax(1), -1)
