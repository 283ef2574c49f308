"""The goal `again`: families that an earlier campaign found."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from neurotest import registry
from neurotest.checks import setting
from neurotest.errors import BadInput
from neurotest.generate.fuzz.goals.goal import FamilyState, Goal, GoalState, GoalSubject, Integers, Outcomes


@registry.register("goal", "again", paper="", cost="as `family`", main="run")
class FoundAgain(Goal):
    """A family that an earlier campaign found (`run`): whether faults of the network's last version are still there."""

    opens: ClassVar[tuple[str, ...]] = ("run",)

    weight: float = setting(2.0, "2 by default", least=0)
    run: str = ""

    def start(self, subject: GoalSubject) -> GoalState:
        state = _AgainState(self, subject)
        families = self._families()
        wanted = [
            (t, p, subject.operators.index(o))
            for t, p, o in families
            if o in subject.operators and 0 <= t < subject.classes and 0 <= p < subject.classes
        ]
        if not wanted:
            raise BadInput("empty", "families", f"the goal again: {self.run} holds no family of these classes and mutations.")
        true, predicted, operator = np.array(wanted).T
        none = np.zeros((len(true), 0), dtype=np.int64)
        state.wanted[state.families(Outcomes(true * 0, true, predicted[:, None], operator, none))[:, 0]] = True
        return state

    def _families(self) -> list[tuple[int, int, str]]:
        from neurotest.runs.store import Run

        if not self.run:
            raise BadInput("missing", "run", "the goal again needs a campaign: write again:RUN.")
        with Run.open(self.run) as run:
            if run["command"] not in ("fuzz", "swarm", "merge"):
                raise BadInput("wrong-run", "", f"the goal again: {run.path} is a run of {run['command']!r}, not of fuzz.")
            rows = run.rows("SELECT DISTINCT expected, predicted, operator FROM mutant WHERE oracle IS NOT NULL")
        return [(int(t), int(p), str(o)) for t, p, o in rows]


class _AgainState(FamilyState):
    def __init__(self, goal: Goal, subject: GoalSubject) -> None:
        super().__init__(goal, subject)
        self.wanted = np.zeros(self.size, dtype=bool)

    def families(self, outcomes: Outcomes) -> Integers:
        return super().cells(outcomes)

    def cells(self, outcomes: Outcomes) -> Integers:
        families = self.families(outcomes)
        return np.where(self.wanted[families], families, -1)
