"""Labelling as it stands: what is shown next to whom, and every answer stored before it is confirmed.

All of this runs in the thread that owns the run. The selector works beside it: whatever it chose last is at hand, so a person
never waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from neurotest.data.objects import AnyData
from neurotest.errors import BadInput
from neurotest.runs.rows import InputRow, LabelRow
from neurotest.runs.store import Run
from neurotest.select.adaptive.stored import SETTINGS, facts_of
from neurotest.select.exchange import classes_of, rounds_of
from neurotest.serve.chooser import Choice, Entry, Request
from neurotest.serve.media import PoolMedia, class_words
from neurotest.serve.models import Taken

ROUND = 20  # labels between two choices, at most
LEASE = 120.0  # seconds for which an input is kept for whoever looks at it; the page asks for more while it is open
GRID = 30  # inputs that are looked at together
GRID_LEASE = 5 * LEASE
GRID_NAME = ", grid"  # ends the name of such a round
CHOOSING, DONE, SHOW = "choosing", "done", "show"


class Labelling:
    """The labels of one adaptive selection, the inputs that are out, and what comes next.

    ask: how the selector is asked. later: how a chore is put off until nobody waits.
    """

    def __init__(
        self, path: Path, *, size: int | None = None, stop: float | None = None, pool: AnyData | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.clock, self.stop = clock, stop
        self.run = Run.open(path, write=True)
        try:
            self._read(pool)
        except BaseException as error:
            blamed = self.run.blamed(error)
            self.run.close()
            raise blamed or error from error
        self.size = size or min(ROUND, max(1, len(self.predicted)))
        self.ask: Callable[[Request], None] = lambda request: None
        self.later: Callable[[Callable[[], Any]], None] = lambda work: None
        self.choice: Choice | None = None
        self.fresh = False  # whether its batch has not been handed out yet
        self.asked = self.dirty = False
        self.problem = ""
        self.spent = 0  # labels since the last batch was begun
        self.skipped: dict[str, set[int]] = {}
        self.first: dict[str, list[int]] = {}  # what a holder has to look at before anything else

    def _read(self, pool: AnyData | None) -> None:
        run = self.run
        self.rounds = rounds_of(run)
        rows = run.inputs()
        facts, _ = facts_of(run)
        bounds = run[SETTINGS].get("bounds", [0.0, 1.0])
        words = class_words(classes_of(run), facts.outputs.count)
        self._take_inputs(rows, words, (float(bounds[0]), float(bounds[1])), pool)
        self.given = {p for one in self.rounds for p in one["positions"]}
        if not self.given <= set(range(len(rows))):
            raise BadInput("damaged", "rounds", f"{run.path} proposes inputs that it does not have: it is damaged.")
        self.grids = [one["positions"] for one in self.rounds if one["ranking"].endswith(GRID_NAME) and one["positions"]]
        self.pending: list[int] = [p for p in self.rounds[-1]["positions"] if p not in self.labels]
        self.chances = np.zeros(len(rows), dtype=np.float32)
        for row in run.ranking(self.rounds[0]["ranking"]):
            self.chances[row.position] = (row.score or 0.0) % 1.0  # a pick's whole part may count the picks still to come

    def _take_inputs(self, rows: list[InputRow], classes: list[str], bounds: tuple[float, float], pool: AnyData | None) -> None:
        """The inputs, what the network says of them, their pictures; labels and leases as they stand."""
        run = self.run
        self.contents = [row.content for row in rows]
        self.names = {row.position: row.name for row in rows if row.name is not None}
        self.predicted = np.array([-1 if row.predicted is None else row.predicted for row in rows], dtype=np.int64)
        self.classes = classes
        if not len(rows) or self.predicted.min() < 0 or self.predicted.max() >= len(self.classes):
            raise BadInput("damaged", "ranking", f"{run.path} lacks what the network says of its inputs: it is damaged.")
        self.pictures = PoolMedia(run, self.contents, bounds, pool)
        self.labels: dict[int, LabelRow] = {row.position: row for row in run.labels()}
        self.leases: dict[int, tuple[str, float]] = {r.position: (r.holder, r.until) for r in run.leases(self.clock())}
        if not any(map(self.pictures.has, range(len(rows)))):
            raise BadInput(
                "unreadable",
                "pool",
                f"{run.path} stores no image, and its pool cannot be read: {self.pictures.problem} Say --pool POOL.",
            )

    # -- what comes next

    def next(self, holder: str) -> Entry:
        """The input for this holder: the one it has before it, else the most valuable that nobody else has."""
        position = self._held(holder)
        over = self.spent >= self.size and self.fresh  # the selector knows better by now
        if position is None and not over:
            position = self._waiting(holder)
        if position is None:
            self._begin_batch()
            position = self._waiting(holder)
        if position is None:
            left = len(self.predicted) - len(self.labels)
            return {"state": CHOOSING if left and not self.problem else DONE, "input": None}
        self._lease([position], holder)
        return {"state": SHOW, "input": self._about(position)}

    def _about(self, position: int) -> Entry:
        return {"position": position, "name": self.names.get(position), "picture": f"/api/inputs/{position}/picture"}

    def _held(self, holder: str) -> int | None:
        """What this holder has been given and not answered; the page was loaded anew, perhaps."""
        held: list[int] = [*self.first.get(holder, ()), *(p for p, (who, _) in self.leases.items() if who == holder)]
        for position in held:
            if self._free(position, holder) and position not in self.skipped.get(holder, ()):
                return position
        return None

    def _waiting(self, holder: str) -> int | None:
        skipped = self.skipped.get(holder, ())
        return next((p for p in self.pending if p not in skipped and self._free(p, holder)), None)

    def _free(self, position: int, holder: str) -> bool:
        who, until = self.leases.get(position, (holder, 0.0))
        return position not in self.labels and (who == holder or not self._holds(until)) and self.pictures.has(position)

    def _out(self) -> list[int]:
        """What is before somebody, or about to be."""
        coming = [p for p in self.pending if p not in self.labels][: max(0, self.size - self.spent)]
        return sorted({*coming, *(p for p in self._leased() if p not in self.labels)})

    def _leased(self, holder: str | None = None) -> list[int]:
        """What is kept for somebody, this holder left out."""
        return [p for p, (who, until) in self.leases.items() if self._holds(until) and who != holder]

    def _unlabelled(self, holder: str | None = None) -> np.ndarray:
        """(n,) Whether an input can be handed out: to this holder, or as part of a batch."""
        free = np.full(len(self.predicted), self.pictures.source is not None)
        free[list(self.pictures.files)] = True
        free[list(self.labels)] = False
        free[self._leased(holder)] = False
        return free

    def _begin_batch(self) -> bool:
        """Take up what the selector chose; if people are faster than it, the best by what it last said."""
        free, draw = self._unlabelled(), {}
        if self.choice is not None and self.fresh:
            batch, draw = [p for p in self.choice.batch if free[p]], self.choice.draw
        elif self.choice is not None:
            free[self.pending] = False
            batch = self._best(free, self.size)
        else:
            return False
        if not batch:
            return False
        self._add_round(f"round {len(self.rounds) + 1}", batch, draw)
        self.pending, self.fresh, self.spent = batch, False, 0
        self.skipped.clear()
        self._ask_selector()
        return True

    def _best(self, free: np.ndarray, n: int) -> list[int]:
        places = np.flatnonzero(free)
        order: list[int] = places[np.argsort(-self.chances[places], kind="stable")[:n]].tolist()
        return order

    def _add_round(self, name: str, batch: list[int], draw: Entry) -> None:
        """Write down what is handed out, and what was expected of it, before anybody sees it."""
        ranking = f"{self.rounds[0]['ranking']} {name}"
        said: list[list[float]] = [[] for _ in batch] if self.choice is None else self.choice.experts[batch].tolist()
        entry = {"ranking": ranking, "positions": batch, "said": said, **draw}
        entry["expected_faults"] = float(self.chances[batch].sum())
        with self.run.transaction(durable=True):
            self.run.add_ranking(ranking, batch, self.chances[batch], len(batch))
            self.run.add_round(entry)
        self.rounds.append(entry)
        self.given.update(batch)
        self._keep_later(batch)

    def _keep_later(self, batch: list[int]) -> None:
        for position in batch:
            if position not in self.pictures.files:
                self.later(partial(self._keep_picture, position))

    def _keep_picture(self, position: int) -> None:
        """Into the run, so that exports and reports have it."""
        if position in self.pictures.files or self.pictures.source is None:
            return
        stored = self.run.save_input(position, self.pictures.read(position), "picked", self.pictures.bounds)
        self.pictures.files[position] = self.run.file(stored.relative_to(self.run.path).as_posix())

    # -- leases

    def _holds(self, until: float) -> bool:
        """A lease that ends later than one can be given for is of a clock that was put back since; nobody waits for that."""
        return 0 < until - self.clock() <= GRID_LEASE

    def _lease(self, positions: list[int], holder: str, seconds: float = LEASE) -> None:
        until = self.clock() + seconds
        self.run.lease(positions, holder, until)
        self.leases.update(dict.fromkeys(positions, (holder, until)))

    def _release(self, positions: Iterable[int]) -> None:
        gone = [p for p in positions if p in self.leases]
        self.run.release(gone)
        for position in gone:
            del self.leases[position]

    def renew(self, holder: str) -> Entry:
        """The page is still open: what it shows stays with it."""
        held = [p for p, (who, _) in self.leases.items() if who == holder and p not in self.labels]
        if held:
            self._lease(held, holder)
        return {"held": held}

    def _refuse_taken(self, position: int, holder: str) -> None:
        if not 0 <= position < len(self.predicted) or position not in self.given:
            raise Taken("conflict", "position", f"input {position} was never handed out: ask for the next one.")
        if position in self.labels:
            raise Taken("exists", "label", f"input {position} has been labelled meanwhile.")
        if not self._free(position, holder):
            raise Taken("busy", "position", f"input {position} is before somebody else now.")

    # -- answers

    def label(self, holder: str, position: int, label: int | None, *, valid: bool = True, by: str = "") -> Entry:
        """Store an answer: a class, None for "cannot tell" or, with valid=False, for what is no valid input."""
        self._refuse_taken(position, holder)
        self._check_class(label)
        if label is not None and not valid:
            raise BadInput("conflict", "label", "an input that is not valid has no class: leave out the label.")
        self._store({position: label}, holder, by, invalid=() if valid else (position,))
        return {"position": position, "fault": self._fault(position), "labels": len(self.labels)}

    def _check_class(self, label: int | None) -> None:
        if label is not None and not 0 <= label < len(self.classes):
            raise BadInput(
                "out-of-range",
                "label",
                f"label {label}: the target has {len(self.classes)} classes, 0 to {len(self.classes) - 1}.",
            )

    def _store(
        self, labels: dict[int, int | None], holder: str, by: str, invalid: Iterable[int] = (),
        values: Mapping[int, float] | None = None,
    ) -> None:  # fmt: skip
        invalid, values = set(invalid), values or {}
        with self.run.transaction(durable=True):
            numbers = self.run.add_labels(labels, by, invalid=invalid, session=holder, values=values)
            self._release(labels)
        pairs = zip(numbers, labels.items(), strict=True)
        rows = [LabelRow(n, p, label, by, "", None, int(p not in invalid), holder, values.get(p)) for n, (p, label) in pairs]
        self.labels |= {row.position: row for row in rows}
        self.spent += len(labels)
        self._ask_selector()

    def _recount(self, positions: Iterable[int]) -> None:
        """The labels that count now for these inputs."""
        wanted = set(positions)
        for position in wanted:
            self.labels.pop(position, None)
        self.labels |= {row.position: row for row in self.run.labels() if row.position in wanted}

    def _fault(self, position: int) -> bool | None:
        label = self.labels[position].label
        return None if label is None else label != int(self.predicted[position])

    def skip(self, holder: str, position: int) -> Entry:
        """Not now: somebody else may have it, and the selector may bring it again."""
        self._refuse_taken(position, holder)
        self.skipped.setdefault(holder, set()).add(position)
        self.first[holder] = [p for p in self.first.get(holder, ()) if p != position]
        self._release([position])
        return {"position": position}

    def undo(self, holder: str, by: str = "") -> Entry:
        """Take back what this holder answered last; it comes before the holder again."""
        rows = self.run.last_labels(session=holder)
        if not rows:
            raise Taken("empty", "labels", "there is nothing to take back that was answered here.")
        self.run.undo_labels([row.n for row in rows], by, session=holder)
        positions = [row.position for row in rows]
        self._recount(positions)
        again = [p for p in positions if p not in self.labels]
        self.skipped.get(holder, set()).difference_update(again)
        self._lease(again, holder)
        self.first[holder] = [*again, *(p for p in self.first.get(holder, ()) if p not in again)]
        self.spent = max(0, self.spent - len(rows))
        self._ask_selector()
        return {"undone": positions, "labels": len(self.labels)}

    # -- many at once

    def grid(self, holder: str, predicted: int | None = None) -> Entry:
        """Thirty inputs that the network takes for one class, the most suspicious first; by default of the class that promises
        the most faults. A grid of which nothing was answered is given again."""
        self._check_class(predicted)
        self._release([p for p, (who, _) in self.leases.items() if who == holder])
        free = self._unlabelled(holder)
        number = self._most_promising(free) if predicted is None else predicted
        self.grids = [one for one in self.grids if not any(p in self.labels for p in one)]
        again = (one for one in reversed(self.grids) if self.predicted[one[0]] == number and free[one].all())
        batch: list[int] = next(again, [])
        if not batch and (batch := self._best(free & (self.predicted == number), GRID)):
            self._add_round(f"round {len(self.rounds) + 1}{GRID_NAME}", batch, {})
            self.grids.append(batch)
        if batch:
            self._lease(batch, holder, GRID_LEASE)
        return {"predicted": number, "name": self.classes[number], "inputs": [self._about(p) for p in batch]}

    def _most_promising(self, free: np.ndarray) -> int:
        """The predicted class whose most suspicious inputs, as many as a grid shows, hold the most faults as far as is known."""
        places = np.flatnonzero(free)
        places = places[np.lexsort((-self.chances[places], self.predicted[places]))]  # class by class, the most suspicious first
        kinds = self.predicted[places]
        rank = np.arange(len(places)) - np.searchsorted(kinds, kinds)
        shown = places[rank < GRID]
        return int(np.bincount(self.predicted[shown], self.chances[shown], len(self.classes)).argmax())

    def answer_grid(self, holder: str, right: list[int], wrong: list[int], by: str = "") -> Entry:
        """Of the inputs of a grid: the network is right about these, wrong about those. What the wrong ones are is asked one by
        one, unless there is only one other class."""
        if set(right) & set(wrong) or len({*right, *wrong}) != len(right) + len(wrong):
            raise BadInput("conflict", "grid", "an input of the grid is right or wrong, once.")
        for position in (*right, *wrong):
            self._refuse_taken(position, holder)
        labels: dict[int, int | None] = {p: int(self.predicted[p]) for p in right}
        if len(self.classes) == 2:
            labels |= {p: 1 - int(self.predicted[p]) for p in wrong}
            wrong = []
        if labels:
            self._store(labels, holder, by)
        if wrong:
            self._lease(wrong, holder)
            self.first[holder] = [*wrong, *(p for p in self.first.get(holder, ()) if p not in wrong)]
        return {"stored": len(labels), "to_name": len(wrong), "labels": len(self.labels)}

    # -- the selector

    def _ask_selector(self) -> None:
        if self.asked:
            self.dirty = True
            return
        self.asked, self.dirty = True, False
        self.ask(Request(self.size, tuple(self._out()), self.stop))

    def start(self, ask: Callable[[Request], None], later: Callable[[Callable[[], Any]], None]) -> None:
        self.ask, self.later = ask, later
        self._ask_selector()

    def take(self, answer: Choice | str) -> None:
        """The selector has answered."""
        self.asked = False
        if isinstance(answer, str):
            self.problem = answer
            return
        self.choice, self.chances, self.fresh, self.problem = answer, answer.chances, True, ""
        if self.dirty:
            self._ask_selector()

    # -- for people

    def guess(self, position: int) -> Entry:
        """What the network says; the page asks for it only when the person does."""
        if position not in self.given:
            raise Taken("conflict", "position", f"input {position} was never handed out: ask for the next one.")
        number = int(self.predicted[position])
        return {"predicted": number, "name": self.classes[number], "chance": float(self.chances[position])}

    def about(self) -> Entry | None:
        """The quantity that is asked for; None: classes are."""
        return None

    def progress(self) -> Entry:
        rows = sorted(self.labels.values())
        judged = [row for row in rows if row.label is not None]
        wrong = [row.label != int(self.predicted[row.position]) for row in judged]
        standing = self.choice.standing if self.choice is not None else None
        return {
            "labels": len(rows), "judged": len(judged), "faults": sum(wrong),
            "unclear": sum(row.label is None and bool(row.valid) for row in rows), "invalid": sum(not row.valid for row in rows),
            "fault_at": [number for number, fault in enumerate(wrong, start=1) if fault],
            "pool": len(self.predicted), "round": len(self.rounds), "round_size": self.size,
            "round_spent": min(self.spent, self.size), "choosing": self.asked, "problem": self.problem, "standing": standing,
            "can_stop": standing is not None and not standing["go_on"] and len(judged) >= self.size,
            "people": sorted({row.by for row in rows if row.by}),
            "looking": len({self.leases[position][0] for position in self._leased()}),
        }  # fmt: skip

    def close(self) -> None:
        """Bring the exports up to date and let go of the run."""
        try:
            self.run.export()
        finally:
            self.run.close()
