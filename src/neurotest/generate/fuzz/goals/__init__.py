"""The guide `goals`: forecasts of what every mutation would do, and a plan for the goals that are still open."""

from neurotest.generate.fuzz.goals.goal import CellGoalState, Goal, GoalState, GoalSubject, Outcomes
from neurotest.generate.fuzz.goals.guide import Goals

__all__ = ["CellGoalState", "Goal", "GoalState", "GoalSubject", "Goals", "Outcomes"]
