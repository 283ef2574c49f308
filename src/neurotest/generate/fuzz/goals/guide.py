"""The guide `goals`: every forward pass goes to the mutant that is expected to reach most goals not reached before."""

from __future__ import annotations

from typing import Literal

from neurotest import registry
from neurotest.checks import setting, shown
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.generate.fuzz.goals.features import HIDDEN, KINDS, Beside
from neurotest.generate.fuzz.goals.goal import Goal
from neurotest.generate.fuzz.goals.state import GoalsState
from neurotest.generate.fuzz.guides import Guide, GuideState, build_guide
from neurotest.measure.context import Context
from neurotest.target import Target

GOALS = ("family", "pair", "seed", "smaller")


@registry.register(
    "guide",
    "goals",
    paper="ours",
    cost="about as much as making the mutants: products of matrices and a softmax per batch, over parents and rules",
    differs="Nobody else has it. It plans parents and rules itself, so `tries`, `energy`, `priority` and `accept` do not matter.",
    main="goals",
)
class Goals(Guide):
    """Forecast what every rule would do to every parent, and run what is expected to reach most goals not reached yet.

    goals: what counts (`neurotest list goal`), a name or several; each may have options: `('family', 'seed:2')`. features: what
    forecasts are made from beside logits and label: `neurons` (principal components of the last hidden layer), `pixels` (of
    the input: the control) or `logits` (nothing). first_batch, batch: mutants planned together, from the beginning to the end of
    a ramp. explore: share of random mutants. parents: how many are planned over at a time, drawn anew for each batch.
    start_random: mutants before the first plan. coverage: a criterion; parents that raised it count half as much again (no gain
    over the pixels was measured).
    """

    goals: tuple[str | Goal, ...] | str = GOALS
    features: Literal["neurons", "pixels", "logits"] = "neurons"
    coverage: str = ""
    first_batch: int = setting(64, "64 by default")
    batch: int = setting(256, "256 by default")
    explore: float = setting(0.1, "0.1 by default", least=0, most=1)
    parents: int = setting(1024, "1024 by default")
    start_random: int = setting(64, "64 by default")

    def __post_init__(self) -> None:
        if isinstance(self.goals, (str, Goal)):
            object.__setattr__(self, "goals", (self.goals,))
        if not isinstance(self.goals, tuple | list):
            raise BadInput(
                "wrong-type", "goals", f"goals={shown(self.goals)}: name goals (`neurotest list goal`), for example family."
            )
        if not self.goals:
            raise BadInput("missing", "goals", "goals=(): name at least one (`neurotest list goal`), for example family.")
        for goal in self.goals:
            if not isinstance(registry.build("goal", goal), Goal):
                raise BadInput("wrong-type", "goal", f"goals: {goal!r} is not a goal (`neurotest list goal`).")
        super().__post_init__()

    def start(self, context: Context, seeds: Source) -> GuideState:
        bonus = build_guide(self.coverage).start(context, seeds) if self.coverage else None
        beside = KINDS[self.features]()
        if HIDDEN in beside.wants and not _has_hidden(context.need_target()):
            beside = Beside()
        return GoalsState(self, beside, bonus)

    def build_goals(self) -> dict[str, Goal]:
        built = [registry.build("goal", goal) for goal in self.goals]
        return {goal if isinstance(goal, str) else registry.text(goal): one for goal, one in zip(self.goals, built, strict=True)}


def _has_hidden(target: Target) -> bool:
    """Whether the target has a last hidden layer."""
    try:
        return bool(target.survey().find(HIDDEN.layers))
    except BadInput:
        return False
