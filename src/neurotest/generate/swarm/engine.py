"""The swarm: all seeds of a group and all their particles in one batch, until each seed is done or its budget is spent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from neurotest import rng
from neurotest.audio import NOMINAL, is_audio
from neurotest.devices import widest
from neurotest.errors import BadInput
from neurotest.generate.swarm.lattice import Footprint, Lattice, Slope
from neurotest.generate.swarm.measure import Measure
from neurotest.generate.swarm.moves import Tiles, Velocity
from neurotest.generate.swarm.settings import Settings
from neurotest.generate.swarm.tones import Chords, Reach, Tones
from neurotest.levels import SIXTEEN
from neurotest.target import Target


@dataclass(frozen=True, eq=False)
class Hit:
    """A position that fails: the first of its seed with this label."""

    row: int  # of the group
    x: Tensor  # (*shape) in [0, 1], as it is saved
    predicted: int  # -1: logits are not finite
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
    """The result of a group: best position and prediction per seed, faults, and how it stood after each round."""

    best: Tensor  # (n, *shape)
    predicted: Tensor  # (n,) at the best position
    fitness: Tensor  # (n,)
    spent: Tensor  # (n,) forward passes, a backward one counting two
    hits: list[Hit] = field(default_factory=list)
    history: list[Moment] = field(default_factory=list)

    @property
    def failed(self) -> set[int]:
        return {hit.row for hit in self.hits}


NEEDED = {  # by moves that read a map
    "lattice": "images whose first hidden layer is a map that keeps places apart; use tiles.",
    "chords": "a first hidden layer that is a map of bands and times; use tones.",
}
PHOTOGRAPH, MEMORY = 1 << 13, 1 << 29  # values of an input from which memory counts, and bytes of layers that may be looked at


def _positions_at_once(target: Target, seeds: Tensor) -> int:
    """How many positions are judged in one pass: fitness looks at their layers, and those of photographs are large."""
    shape = tuple(seeds.shape[1:])
    if math.prod(shape) <= PHOTOGRAPH:
        return 1 << 62
    values = sum(math.prod(layer.shape) for layer in target.survey(shape).layers)
    return max(1, MEMORY // (8 * values))


_MEASURED: WeakKeyDictionary[Target, dict[Any, Footprint | Reach | None]] = WeakKeyDictionary()


class Swarm:
    """Runs one group. `stop` is called after every round; True ends the search where it is."""

    def __init__(self, measure: Measure, settings: Settings, group: int = 0, stop: Callable[[], bool] | None = None) -> None:
        self.measure, self.settings, self.group = measure, settings, group
        self.stop = stop or (lambda: False)
        self.seeds, self.y, self.ball = measure.problem.seeds, measure.problem.y, measure.problem.ball
        self.batch = min(settings.batch, _positions_at_once(measure.problem.target, self.seeds))
        n, device = len(self.seeds), self.seeds.device
        self.spent = torch.zeros(n, dtype=torch.long, device=device)
        self.value = torch.full((n,), -torch.inf, dtype=widest(device), device=device)
        self.base = torch.zeros_like(self.value)  # fitness before neurons were last weighed anew
        self.predicted = torch.full((n,), -2, device=device)
        self.position = self.seeds.clone()
        self.labels: dict[int, set[int]] = {}
        self.hits: list[Hit] = []
        self.history: list[Moment] = []
        self.round = 0
        self.stopped = False

    def run(self) -> Trajectory:
        with self.measure, torch.no_grad():
            if self.settings.moves == "velocity":
                self._run_velocity(self._all_rows())
            else:
                self._run_flips()
        return Trajectory(self.position, self.predicted, self.value + self.base, self.spent, self.hits, self.history)

    def _all_rows(self) -> Tensor:
        return torch.arange(len(self.seeds), device=self.seeds.device)

    # -- judging

    def _judge(self, u: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        """Fitness and predictions of positions (n, *shape), in batches; faults are added to the hits."""
        values, classes = [], []
        for start in range(0, len(u), self.batch):
            part = slice(start, start + self.batch)
            fitness, logits = self.measure(u[part], owner[part])
            values.append(fitness.to(self.value).clone())
            classes.append(self.measure.problem.classes(logits, owner[part]))
        value, predicted = torch.cat(values), torch.cat(classes)
        self._add_hits(u, owner, value, predicted)
        return torch.where(value.isfinite(), value, -torch.inf), predicted

    def _judge_all(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The same for several positions of each seed: (n, p, *shape) -> (n, p), (n, p). They are paid for."""
        n, p = x.shape[:2]
        value, predicted = self._judge(x.flatten(0, 1), rows.repeat_interleave(p))
        self.spent[rows] += p * self.measure.cost
        return value.view(n, p), predicted.view(n, p)

    def _add_hits(self, u: Tensor, owner: Tensor, value: Tensor, predicted: Tensor) -> None:
        wrong = torch.nonzero(predicted != self.y[owner])[:, 0]
        rows = owner[wrong]
        columns = (wrong, rows, predicted[wrong], value[wrong] + self.base[rows], self.spent[rows])  # one copy to the host each
        for i, row, label, fitness, spent in zip(*(column.tolist() for column in columns), strict=True):
            labels = self.labels.setdefault(row, set())
            if label not in labels:
                labels.add(label)
                self.hits.append(Hit(row, u[i].clone(), label, fitness, self.round, spent + 1))

    def _active(self, rows: Tensor, cost: int, labels: int | None) -> Tensor:
        """Which of these seeds go on: (m,) bool."""
        settings = self.settings
        active = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        if settings.evaluations is not None:
            active &= self.spent[rows] + cost <= settings.evaluations
        if labels is not None and self.labels:
            counts = torch.tensor([len(self.labels.get(row, ())) for row in rows.tolist()], device=rows.device)
            active &= counts < labels
        if settings.enough is not None:
            active &= self.value[rows] + self.base[rows] <= settings.enough
        return active

    def _over(self) -> bool:
        self.stopped = self.stopped or self.stop()
        return self.stopped or (self.settings.iterations is not None and self.round >= self.settings.iterations)

    def _end_round(self) -> None:
        self.round += 1
        fitness = (self.value + self.base).tolist()  # one copy to the host; small tensors cost more than their values
        finite = [value for value in fitness if value > -math.inf]
        mean = math.fsum(finite) / len(finite) if finite else 0.0
        wrong = int(((self.predicted != self.y) & (self.predicted > -2)).sum())
        self.history.append(Moment(sum(self.spent.tolist()) / len(fitness), mean, len(self.labels), wrong))

    def _stream(self) -> torch.Generator:
        return rng.torch_stream("swarm.move", self.settings.seed, self.group, self.round)

    def _set_best(self, rows: Tensor, value: Tensor, predicted: Tensor, x: Tensor) -> None:
        self.value[rows], self.predicted[rows], self.position[rows] = value, predicted, x

    # -- the papers' swarm

    def _run_velocity(self, rows: Tensor) -> None:
        settings = self.settings
        cost = settings.particles * self.measure.cost
        rounds = settings.iterations or max(1, (settings.evaluations or 1) // cost)
        moves = Velocity(self.seeds, self.ball, settings, rounds)
        own = torch.full((len(rows), settings.particles), -torch.inf, dtype=self.value.dtype, device=rows.device)
        while len(rows) and not self._over():
            x = moves.propose(self._stream)
            value, predicted = self._judge_all(x, rows)
            better = value > own
            own = torch.where(better, value, own)
            moves.learn(better)
            top, which = value.max(1)
            improved = torch.nonzero(top > self.value[rows])[:, 0]
            best = which[improved]
            moves.set_best(improved, best)
            self._set_best(rows[improved], top[improved], predicted[improved, best], x[improved, best])
            self._end_round()
            active = self._active(rows, cost, settings.labels)
            if not bool(active.all()):
                rows, own = rows[active], own[active]
                moves.keep(active)

    # -- tiles and lattices

    def _run_flips(self) -> None:
        """One search per wrong label wanted; labels a seed already has are avoided in the next."""
        wanted = self.settings.labels
        reach, cost = self._reach()
        for number in range(1 if wanted is None else wanted):
            rows, labels = self._all_rows(), None if wanted is None else number + 1
            rows = rows[self._active(rows, self.measure.cost * self.settings.particles, labels)]
            if not len(rows) or self._over():
                return
            if number:
                self._avoid(rows)
            if reach is None:
                self._run_tiles(rows, labels)
            else:
                self._run_turns(self._surveying(rows, reach), rows, labels, cost)

    def _tones_fit(self) -> bool:
        """Whether the change can be made of tones: audio, in a ball that is a sphere."""
        audio = self.ball.levels is SIXTEEN and is_audio(SIXTEEN.dtype, tuple(self.seeds.shape[1:]))
        if self.settings.moves in ("tones", "chords") and not (audio and self.ball.round):
            raise BadInput(
                "unsuitable",
                "moves",
                f"moves={self.settings.moves!r}: it needs audio (16-bit samples) and norm=snr or l2; use tiles.",
            )
        return audio and self.ball.round

    def _reach(self) -> tuple[Footprint | Reach | None, int]:
        """How far a value, or a tone, reaches in the first layer, and what a turn costs; None: tiles or single tones are used."""
        settings, audio = self.settings, self._tones_fit()
        if settings.moves in ("tiles", "tones"):
            return None, 0
        reach = self._measured(audio and settings.moves != "lattice")
        if reach is None and settings.moves in NEEDED:
            raise BadInput(
                "conflict",
                "moves",
                f"moves={settings.moves!r}: it needs the fitness excitability (value=sum), and {NEEDED[settings.moves]}",
            )
        if reach is None:
            return None, 0
        cost = Chords.cost(reach) if isinstance(reach, Reach) else Lattice.cost(reach, int(self.seeds.shape[1]))
        too_much = settings.evaluations is not None and settings.evaluations < 4 + cost
        return (None, 0) if too_much else (reach, cost)

    def _measured(self, tones: bool) -> Footprint | Reach | None:
        """Of large inputs, which come few at a time, it is measured once for all groups: it takes a pass per line of an input."""
        problem, shape = self.measure.problem, tuple(self.seeds.shape[1:])
        kept = _MEASURED.setdefault(problem.target, {}) if math.prod(shape) > PHOTOGRAPH else {}
        key = (repr(getattr(self.measure, "settings", None)), problem.layers, shape, tones)
        if key not in kept:
            kept[key] = Reach.of(self.measure) if tones else Footprint.of(self.measure, self.batch)
        return kept[key]

    def _surveying(self, rows: Tensor, reach: Footprint | Reach) -> Chords | Lattice:
        if isinstance(reach, Reach):
            return Chords(self.seeds[rows], self.ball, reach)
        kind = Slope if self.ball.round else Lattice
        return kind(self.seeds[rows], self.ball, reach, self.settings.start == "fixed")

    def _avoid(self, rows: Tensor) -> None:
        for row in rows.tolist():
            for label in self.labels.get(row, ()):
                if label >= 0:
                    self.measure.avoided[row, label] = True
        self.value[rows], self.base[rows] = -torch.inf, 0.0

    def _start(self, moves: Tiles | Tones | Lattice | Chords, rows: Tensor) -> None:
        first = moves.start(self._stream())
        if self.measure.reweighs:
            self.spent[rows] += self.measure.reweigh(self.seeds[rows], rows)
        value, predicted = self._judge(first, rows)
        self._set_best(rows, value, predicted, first)
        self.spent[rows] += self.measure.cost
        self._end_round()

    def _reweigh(self, best: Tensor, rows: Tensor) -> None:
        """Weigh neurons at the best position: fitness counts from there."""
        self.spent[rows] += self.measure.reweigh(best, rows)
        self.base[rows] += torch.where(self.value[rows].isfinite(), self.value[rows], 0.0)
        self.value[rows] = 0.0

    def _run_tiles(self, rows: Tensor, labels: int | None) -> None:
        settings = self.settings
        moves: Tiles | Tones = Tiles(self.seeds[rows], self.ball, settings.particles, settings.start == "fixed")
        if self._tones_fit() and settings.moves != "tiles":
            rate = self.measure.problem.target.preprocess.rate or NOMINAL
            moves = Tones(self.seeds[rows], self.ball, settings.particles, rate)
        self._start(moves, rows)
        while not self._over():
            active = self._active(rows, self.measure.cost * settings.particles, labels)
            if not bool(active.all()):
                rows = rows[active]
                moves.keep(active)
            if not len(rows):
                return
            if moves.over:
                moves.begin(self._stream())
                if self.measure.reweighs:
                    self._reweigh(moves.best, rows)
            self._flip(moves, rows)

    def _flip(self, moves: Tiles | Tones, rows: Tensor) -> None:
        x = moves.propose(self._stream)  # (n, p, *shape)
        value, predicted = self._judge_all(x, rows)
        better = value > self.value[rows][:, None]
        helped = better.sum(1)
        several = torch.nonzero(helped > 1)[:, 0]
        if len(several):
            together = moves.join(several, better[several])  # before the best flip is taken over
        top, which = value.max(1)
        improved = torch.nonzero(helped)[:, 0]
        if len(improved):
            best = which[improved]
            moves.set_best(improved, moves.flip(improved, best), x[improved, best])
            self._set_best(rows[improved], top[improved], predicted[improved, best], x[improved, best])
        if len(several):
            joint = moves.positions(together, moves.seeds[several])
            joint_value, joint_predicted = self._judge(joint, rows[several])
            self.spent[rows[several]] += self.measure.cost
            more = joint_value > top[several]
            moves.set_best(several[more], together[more], joint[more])
            self._set_best(rows[several[more]], joint_value[more], joint_predicted[more], joint[more])
        self._end_round()

    def _run_turns(self, moves: Chords | Lattice, rows: Tensor, labels: int | None, cost: int) -> None:
        """Turns of lattices or chords, until a seed is done; where every turn tries the same, until nothing helps any more."""
        self._start(moves, rows)
        active = self._active(rows, cost, labels)
        while not self._over():
            if not bool(active.all()):
                rows = rows[active]
                moves.keep(active)
            if not len(rows):
                return
            moves.begin(self._stream())
            self._reweigh(moves.best, rows)
            size = max(1, self.batch // len(rows))
            for start in range(0, moves.count, size):
                self._survey(moves, rows, range(start, min(start + size, moves.count)))
            helped = self._join(moves, rows)
            self._end_round()
            active = self._active(rows, cost, labels) & (helped | moves.draws)

    def _survey(self, moves: Chords | Lattice, rows: Tensor, numbers: range) -> None:
        u, owner = moves.survey(numbers).flatten(0, 1), rows.repeat_interleave(len(numbers))
        maps, logits = self.measure.fitness_map(u, owner)
        if moves.inside:
            self._add_hits(u, owner, maps.flatten(1).sum(1).to(self.value), self.measure.problem.classes(logits, owner))
        self.spent[rows] += len(numbers)
        moves.learn(numbers, maps.view(len(rows), len(numbers), *maps.shape[1:]))

    def _join(self, moves: Chords | Lattice, rows: Tensor) -> Tensor:
        """Which seeds the best flips together have improved."""
        signs, x = moves.join()  # (n, shares, *shape)
        value, predicted = self._judge_all(x, rows)
        top, which = value.max(1)
        helped = top > self.value[rows]
        improved = torch.nonzero(helped)[:, 0]
        best = which[improved]
        moves.set_best(improved, signs[improved, best], x[improved, best])
        self._set_best(rows[improved], top[improved], predicted[improved, best], x[improved, best])
        return helped
