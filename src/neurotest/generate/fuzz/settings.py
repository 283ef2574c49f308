"""How a fuzzer works, and how long."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from neurotest.errors import BadInput
from neurotest.mutate.rules import Rules95
from neurotest.mutate.validity import Validity
from neurotest.settings.generate import Limits, Loop


@dataclass(frozen=True, kw_only=True)
class Settings(Loop):
    """Everything that shapes a campaign beside target, seeds, guide and oracles.

    tries: mutants per turn of a seed. energy: `constant` gives every turn `tries`, `potential` more to seeds that have more
    room to change. priority: which seeds get a turn: `uses` (less often those that gained often), `deephunter` (less often those
    chosen often), `uniform`, `recent` (TensorFuzz: the five newest, and one of all). accept: `first` mutant that gains ends the
    turn, or `all` that gain are kept. reuse_failures: faults become seeds. every_fault: keep faults that bring no gain, too.
    batch: mutants per forward pass. max_depth: mutations on top of each other. capacity: seeds kept in memory.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mutations is None:
            object.__setattr__(self, "mutations", Rules95())
        if self.validity is None:
            object.__setattr__(self, "validity", Validity())


@dataclass(frozen=True, kw_only=True)
class Budget(Limits):
    """When to stop: after so many turns of seeds, forward passes, seconds, outputs or faults, whichever comes first.

    until_dry: or when the guide expects fewer new goals than this of the next 1,000 forward passes.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.to_dict():
            raise BadInput(
                "missing",
                "budget",
                "budget: none was given. Say --iterations, --forwards, --seconds, --max-outputs, --faults or --until-dry.",
            )

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def spent(self, counts: dict[str, float]) -> str | None:
        """The limit that is reached, if any."""
        return next((name for name, limit in self.to_dict().items() if counts.get(name, 0) >= limit), None)
