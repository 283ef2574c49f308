"""The guide `goals` during a campaign: it forecasts, plans, and learns from what happened."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.coverage.criterion import Arrays
from neurotest.errors import BadInput
from neurotest.generate.fuzz.corpus import Corpus, Entry
from neurotest.generate.fuzz.goals.candidates import Arms, Cell, ParentRows, Parents
from neurotest.generate.fuzz.goals.features import HIDDEN, MANY_CLASSES, Beside, Features, Standing
from neurotest.generate.fuzz.goals.forecast import Expectations, Regressions, Temperature
from neurotest.generate.fuzz.goals.goal import CellGoalState, GoalSubject, Outcomes
from neurotest.generate.fuzz.goals.planning import Chooser, Forecasts, Planned, chances
from neurotest.generate.fuzz.guides import BatchContext, GuideBatch, GuideState, MutantPlan, Planner
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.fuzz.settings import Settings
from neurotest.measure.traces import array
from neurotest.target import Target, Trace, Want

if TYPE_CHECKING:
    from neurotest.generate.fuzz.goals.guide import Goals

TOP_CLASSES = 16  # of each parent that count, where there are many
DEPTHS = 8  # of mutants, for which the shares of valid ones are counted
FEW_VALID, CHECKED = 0.25, 8  # a rule of which fewer are valid, after so many checks, is not planned at that depth
RAMP = 16  # the planning batch is this part of the forward passes so far
VALUES_AT_ONCE = 1 << 22  # pixels or samples that are looked at together
RAISED = 0.5  # what a parent counts more that raised the criterion of `coverage`


class _PlannedBatch(GuideBatch):
    """Gains were settled when the batch was learned from: each mutant is a turn of its own."""

    def __init__(self, guide: GuideState, trace: Trace, gains: NDArray[np.float64]) -> None:
        self.guide, self.trace, self.gains = guide, trace, gains

    def keep_first(self, rows: list[int]) -> int | None:
        return next((row for row in rows if self.gains[row] > 0), None)


class GoalsState(GuideState, Planner):
    """Regressions, temperature, goals and parents of a campaign: all of it is state, saved and restored."""

    shares = True

    def __init__(self, settings: Goals, beside: Beside, bonus: GuideState | None = None) -> None:
        self.settings, self.beside, self.bonus = settings, beside, bonus
        self.planner = self
        self._begun: Seeds | None = None
        self._goals = settings.build_goals()
        neurons = (HIDDEN,) if any(goal.top_neurons for goal in self._goals.values()) else ()
        self._wants = (*beside.wants, *neurons, *(bonus.wants if bonus is not None else ()))
        self._plan: Planned | None = None
        self._retired: set[int] = set()
        self.rates = np.array([[1.0, 1.0], [0.0, 1.0]])  # faults and mutants, of predictions that changed and that did not
        self.expectations = Expectations()

    @property
    def wants(self) -> tuple[Want, ...]:
        return self._wants

    @property
    def passes(self) -> int:
        """Forward passes of the mutants so far."""
        return self.expectations.passes

    # -- the campaign

    def begin(self, target: Target, seeds: Seeds, settings: Settings) -> None:
        self.seeds, self.campaign = seeds, settings
        if self._begun is seeds:  # another island of the same campaign
            return
        self._begun = seeds
        self.features = Features(target, seeds, self.beside)
        self.arms = Arms.of(settings.mutations)
        self.neurons = Standing(target, seeds, max(goal.top_neurons for goal in self._goals.values()))
        subject = GoalSubject(
            len(seeds), seeds.classes, settings.mutations.names, self.neurons.count, tuple(target.classes or ())
        )
        self.goals = {name: goal.start(subject) for name, goal in self._goals.items()}
        width = self.features.seeds.shape[1]
        self.change = Regressions(self.arms, width, self.features.outputs)
        self.size = Regressions(self.arms, 3, 1)
        self.temperature = Temperature()
        self.energy = self._energy(seeds)
        self.parents = Parents(self._seed_rows(), len(self.arms))
        self.validity = np.zeros((2, len(self.arms), DEPTHS))  # checked, valid

    @staticmethod
    def _energy(seeds: Seeds) -> NDArray[np.float64]:
        """(seeds,) the sum of squares of each, in [0, 1]."""
        step = max(1, min(256, VALUES_AT_ONCE // int(np.prod(seeds.x.shape[1:]))))
        parts = (seeds.unit(np.ascontiguousarray(seeds.x[i : i + step])) for i in range(0, len(seeds), step))
        return np.concatenate([part.flatten(1).double().square().sum(1).numpy() for part in parts])

    def _seed_rows(self) -> ParentRows:
        seeds, n = self.seeds, len(self.seeds)
        classes, logits = self._top(seeds.roots.logits, seeds.expected)
        features, rows = self.features.seeds.astype(np.float32), np.arange(n)
        used, depth, change = np.zeros(n, dtype=bool), np.zeros(n, dtype=np.int64), np.zeros(n)
        return ParentRows(rows, rows, used, depth, change, features, classes, logits, self.neurons.seeds, np.ones(n))

    def _top(self, logits: NDArray[Any], true: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """(n, k) the classes that count, and their logits, centred and scaled; the expected one is always among them."""
        z = np.nan_to_num(np.asarray(logits, dtype=np.float64))
        z = ((z - z.mean(axis=1, keepdims=True)) / self.features.sigma).astype(np.float32)
        if z.shape[1] <= MANY_CLASSES:
            return np.broadcast_to(np.arange(z.shape[1]), z.shape).copy(), z
        classes = np.argpartition(-z, TOP_CLASSES, axis=1)[:, :TOP_CLASSES]
        classes = np.take_along_axis(classes, np.argsort(-np.take_along_axis(z, classes, 1), axis=1, kind="stable"), 1)
        missing = ~(classes == true[:, None]).any(axis=1)
        classes[missing, -1] = true[missing]
        return classes, np.take_along_axis(z, classes, 1)

    # -- planning

    def plan(self, corpus: Corpus, most: int, batch: int) -> MutantPlan:
        if len(corpus) != np.count_nonzero(self.parents.alive):  # it was full, and some had to go
            self.parents.keep_only({entry.number for entry in corpus.entries})
        random = rng.stream("fuzz.goals", self.campaign.seed, batch)
        alive = self.parents.rows
        sample = (
            alive if len(alive) <= self.settings.parents else np.sort(random.choice(alive, self.settings.parents, replace=False))
        )
        places = self._places(most)
        allowed = self._allowed(sample)
        forecasts = self._forecast(sample)
        chooser = Chooser(forecasts, list(self.goals.values()), self.arms, allowed)
        learning = self.passes < self.settings.start_random
        rows, arms = self._random(random, allowed, places if learning else round(self.settings.explore * places))
        chooser.spend(rows, arms)
        if not learning:
            more = chooser.take(places - len(rows))
            rows, arms = np.concatenate([more[0], rows]), np.concatenate([more[1], arms])
        logits, chance = forecasts.logits[rows, arms], forecasts.chance[rows, arms]
        self._plan = Planned(sample[rows], arms, forecasts.parents[rows], logits, chance, sum(chooser.expected), learning)
        draws = self.arms.draws(arms, random.random((len(arms), 2)))
        return MutantPlan(corpus.find(self._plan.parents.number.tolist()), draws)

    def _places(self, most: int) -> int:
        ramp = int(np.clip(self.passes // RAMP, self.settings.first_batch, max(self.settings.batch, self.settings.first_batch)))
        return min(ramp, most, self.settings.start_random) if self.passes < self.settings.start_random else min(ramp, most)

    def _allowed(self, sample: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n, arms) not tried yet, allowed for the lineage, and not usually invalid at that depth."""
        parents = self.parents[sample]
        checked, valid = self.validity
        invalid = (checked >= CHECKED) & (valid < FEW_VALID * checked)  # (arms, depths)
        allowed = ~(self.parents.tried[sample] & ~self.arms.repeatable)
        allowed &= ~(parents.used[:, None] & self.arms.once)
        allowed &= ~invalid.T[np.minimum(parents.depth, DEPTHS - 1)]
        return np.asarray(allowed & (parents.depth < self.campaign.max_depth)[:, None])

    def _forecast(self, sample: NDArray[np.int64]) -> Forecasts:
        parents = self.parents[sample]
        n, arms, k = len(parents), len(self.arms), parents.classes.shape[1]
        weights = self.change.weights.astype(np.float32)  # (arms, width, outputs)
        moved = (parents.features @ weights.transpose(1, 0, 2).reshape(weights.shape[1], -1)).reshape(n, arms, -1)
        if self.features.basis is not None:
            axes = self.features.basis.axes.astype(np.float32)[parents.classes]  # (n, k, outputs)
            moved = np.matmul(moved, axes.transpose(0, 2, 1))
        logits = parents.logits[:, None] + moved
        true = self.seeds.expected[parents.root]
        changed, same = (float(faults / mutants) for faults, mutants in self.rates)
        chance = chances(logits, parents.classes == true[:, None], self.temperature.value, (changed, same))
        squares = np.maximum(self._size_inputs(parents) @ self.size.weights[:, :, 0].T, 0)  # (n, arms)
        assert logits.shape == (n, arms, k)
        return Forecasts(parents, true, logits, chance, np.sqrt(squares))

    def _size_inputs(self, parents: ParentRows) -> NDArray[np.float64]:
        return np.column_stack([np.ones(len(parents)), self.energy[parents.root], parents.change**2])

    def _random(
        self, random: np.random.Generator, allowed: NDArray[np.bool_], count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Parents drawn equally often, then families, then their rules; what is not allowed is drawn again."""
        rows: list[int] = []
        arms: list[int] = []
        taken = set()
        for _ in range(8):
            parent, kind, value = random.random((3, 2 * count)) if count else np.zeros((3, 0))
            row = (parent * len(allowed)).astype(np.int64)
            blocks = [self.arms.blocks[int(i)] for i in kind * len(self.arms.blocks)]
            places = [block.start + int(v * (block.stop - block.start)) for block, v in zip(blocks, value, strict=True)]
            arm = np.array(places, dtype=np.int64)
            for i in np.flatnonzero(allowed[row, arm]).tolist() if count else []:
                if len(rows) < count and (row[i], arm[i]) not in taken:
                    taken.add((row[i], arm[i]))
                    rows.append(int(row[i]))
                    arms.append(int(arm[i]))
        return np.array(rows, dtype=np.int64), np.array(arms, dtype=np.int64)

    def checked(self, valid: NDArray[np.bool_]) -> None:
        plan = self._plan
        assert plan is not None
        self.parents.tried[plan.rows, plan.arms] = True
        depth = np.minimum(plan.parents.depth, DEPTHS - 1)
        np.add.at(self.validity[0], (plan.arms, depth), 1)
        np.add.at(self.validity[1], (plan.arms, depth), valid)

    # -- learning

    def prepare(self, trace: Trace, batch: BatchContext) -> Trace:
        assert self._plan is not None
        plan = self._plan.some(batch.proposals.owner)
        finite, fault = batch.predicted >= 0, batch.verdicts >= 0
        size = batch.proposals.distances[:, 1]
        true = self.seeds.expected[plan.parents.root]
        mutants = self._mutants(plan, trace, batch, true, size)
        self._learn(plan, mutants, trace, finite, size)
        outcomes = Outcomes(mutants.root, true, batch.predicted[:, None], self.arms.kind[plan.arms], mutants.neurons)
        reached = self._observe(plan, outcomes, fault & finite, size)
        changed = batch.predicted != true
        for row, which in enumerate((changed, ~changed)):
            self.rates[row] += [np.count_nonzero(fault & which), np.count_nonzero(which)]
        self.expectations.add(len(fault) + int(fault.sum()), plan.expected, int(reached[:, self._counted].sum()))
        self._candidates = mutants
        self._cells = self._won(mutants, true, finite & ~fault)
        kept = np.array([len(cells) for cells in self._cells], dtype=np.float64)
        self._gains = np.where(fault, reached.sum(axis=1), kept)
        return trace

    def _mutants(
        self, plan: Planned, trace: Trace, batch: BatchContext, true: NDArray[np.int64], size: NDArray[np.float64]
    ) -> ParentRows:
        """The mutants of a batch as parents to be; their numbers are given when they are admitted."""
        logits = np.nan_to_num(array(trace.logits).astype(np.float64))
        classes, top = self._top(logits, true)
        features = self.features(logits, true, self.beside.values(batch.x, trace, true)).astype(np.float32)
        root, depth, number = plan.parents.root, plan.parents.depth + 1, np.full(len(true), -1)
        used, neurons = plan.parents.used | self.arms.once[plan.arms], self.neurons(trace)
        return ParentRows(number, root, used, depth, size, features, classes, top, neurons, self._bonus(trace))

    def _bonus(self, trace: Trace) -> NDArray[np.float64]:
        """(n,) by how much parents count more because they raised the coverage criterion, which takes them all in."""
        if self.bonus is None:
            return np.ones(len(trace.logits))
        gains = self.bonus.gain(trace)
        self.bonus.keep(trace)
        return np.where(gains > 0, 1 + RAISED, 1.0)

    def _learn(
        self, plan: Planned, mutants: ParentRows, trace: Trace, finite: NDArray[np.bool_], size: NDArray[np.float64]
    ) -> None:
        """Regressions and temperature; nothing is learned from mutants whose logits are not finite."""
        rows, width = np.flatnonzero(finite), self.features.outputs
        before = plan.parents.features[rows].astype(np.float64)
        after = mutants.features[rows].astype(np.float64)
        self.change.update(plan.arms[rows], before, after[:, 1 : 1 + width] - before[:, 1 : 1 + width])
        self.size.update(plan.arms, self._size_inputs(plan.parents), size[:, None] ** 2)
        if not plan.learning:
            predicted = array(trace.logits)[rows].argmax(axis=1)
            same = plan.parents.classes[rows] == predicted[:, None]
            inside = same.any(axis=1)
            self.temperature.add(plan.logits[rows][inside], same[inside].argmax(axis=1))

    def _observe(
        self, plan: Planned, outcomes: Outcomes, fault: NDArray[np.bool_], size: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """(n, goals) which goals each mutant reached; what forecasts said of it is spent."""
        hoped = Outcomes(outcomes.root, outcomes.true, plan.parents.classes, outcomes.operator, plan.parents.neurons)
        reached = []
        for goal in self.goals.values():
            if (cells := goal.cells(hoped)) is not None:
                chance = plan.chance if cells.shape[1] > 1 else plan.chance.sum(axis=1, keepdims=True)
                goal.spend(cells, chance.astype(np.float64))
            reached.append(goal.observe(outcomes, fault, size))
        return np.stack(reached, axis=1)

    def _won(self, mutants: ParentRows, true: NDArray[np.int64], right: NDArray[np.bool_]) -> list[list[tuple[Cell, float]]]:
        """The cells (seed, class, once-only used) in which each mutant is closer to the class than any before it."""
        is_true = mutants.classes == true[:, None]
        own = np.where(is_true, mutants.logits, 0).sum(axis=1)
        margins = np.where(is_true, np.inf, own[:, None] - mutants.logits).tolist()
        won: list[list[tuple[Cell, float]]] = [[] for _ in margins]
        best: dict[Cell, tuple[float, int]] = {}
        classes, roots, used = mutants.classes.tolist(), mutants.root.tolist(), mutants.used.tolist()
        growing = right & (mutants.depth < self.campaign.max_depth)
        for row in np.flatnonzero(growing).tolist():
            for p, margin in zip(classes[row], margins[row], strict=True):
                cell = (roots[row], p, used[row])
                if margin < best.get(cell, self.parents.elites.get(cell, (np.inf, -1)))[0]:
                    best[cell] = (margin, row)
        for cell, (margin, row) in best.items():
            won[row].append((cell, margin))
        return won

    def admitted(self, row: int, entry: Entry) -> None:
        cells = self._cells[row]
        if not cells:
            self._retired.add(entry.number)
            return
        one = self._candidates[row : row + 1]
        self._retired |= self.parents.add(dataclasses.replace(one, number=np.array([entry.number])), cells)

    def retired(self) -> set[int]:
        retired, self._retired = self._retired, set()
        return retired

    def start_batch(self, trace: Trace) -> GuideBatch:
        return _PlannedBatch(self, trace, self._gains)

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        raise BadInput("unsupported", "gain", "the guide goals plans its mutants: it cannot judge those of others.")

    def keep(self, trace: Trace) -> None:
        raise BadInput("unsupported", "keep", "the guide goals plans its mutants: it cannot keep those of others.")

    # -- what it expects

    @property
    def _counted(self) -> list[int]:
        """Goals that have cells: they can be reached once, the others again and again."""
        return [i for i, goal in enumerate(self.goals.values()) if isinstance(goal, CellGoalState)]

    def expected(self) -> float | None:
        return self.expectations.next_window()

    def value(self) -> float | None:
        return float(sum(goal.count for goal in self.goals.values()))

    def details(self) -> dict[str, Any]:
        return {
            "goals": {name: goal.count for name, goal in self.goals.items()},
            "expected_in_next_1000": self.expected(),
            "features": self.beside.name,
            "temperature": self.temperature.value,
            "parents": int(self.parents.alive.sum()),
        }

    # -- saving

    @property
    def _learning(self) -> dict[str, Any]:
        """What learns, and is shared with other islands, by what the names of its arrays begin with."""
        goals = {f"goals/{i}.": goal for i, goal in enumerate(self.goals.values())}
        regressions = {"change/": self.change, "size/": self.size, "heat/": self.temperature}
        bonus = {} if self.bonus is None else {"bonus/": self.bonus}
        return {**goals, **regressions, "expected/": self.expectations, **bonus}

    def arrays(self) -> Arrays:
        parts = {"parents/": self.parents, **self._learning}
        arrays = _prefixed({start: part.arrays() for start, part in parts.items()})
        return {**arrays, "rates": self.rates, "validity": self.validity}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for start, part in {"parents/": self.parents, **self._learning}.items():
            part.restore(_below(arrays, start))
        self.rates, self.validity = np.array(arrays["rates"]), np.array(arrays["validity"])

    # -- islands: parents stay with their seed's; what rules do, and which goals are reached, is known to all

    def island_arrays(self) -> Arrays:
        bonus = {} if self.bonus is None else self.bonus.island_arrays()
        return _prefixed({"parents/": self.parents.arrays(), "expected/": self.expectations.arrays(), "bonus/": bonus})

    def begin_leg(self) -> None:
        self._marked = (self.rates.copy(), self.validity.copy())
        for part in self._learning.values():
            part.begin_leg()

    def changes(self) -> Arrays:
        changes = _prefixed({start: part.changes() for start, part in self._learning.items()})
        rates, validity = self._marked
        return {**changes, "rates": self.rates - rates, "validity": self.validity - validity}

    def learn(self, changes: Mapping[str, NDArray[Any]]) -> None:
        for start, part in self._learning.items():
            part.learn(_below(changes, start))
        self.rates, self.validity = self.rates + changes["rates"], self.validity + changes["validity"]


def _prefixed(parts: Mapping[str, Mapping[str, NDArray[Any]]]) -> Arrays:
    return {f"{start}{key}": value for start, arrays in parts.items() for key, value in arrays.items()}


def _below(arrays: Mapping[str, NDArray[Any]], start: str) -> Arrays:
    """Arrays whose names begin like this, without that beginning."""
    return {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}
