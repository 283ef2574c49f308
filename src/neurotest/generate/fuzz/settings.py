"""How a fuzzer works, and how long."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypedDict

from neurotest.checks import integer, number, one_of
from neurotest.errors import BadInput
from neurotest.mutate.base import Mutations
from neurotest.mutate.rules import Rules95
from neurotest.mutate.validity import Validity, ValidityRule


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that shapes a campaign beside target, seeds, guide and oracles.

    tries: mutants per turn of a seed. energy: `constant` gives every turn `tries`, `potential` more to seeds that have more
    room to change. priority: which seeds get a turn: `uses` (less often those that gained often), `deephunter` (less often those
    chosen often), `uniform`, `recent` (TensorFuzz: the five newest, and one of all). accept: `first` mutant that gains ends the
    turn, or `all` that gain are kept. reuse_failures: faults become seeds. every_fault: keep faults that bring no gain, too.
    batch: mutants per forward pass. max_depth: mutations on top of each other. capacity: seeds kept in memory.
    """

    mutations: Mutations = field(default_factory=Rules95)
    validity: ValidityRule = field(default_factory=Validity)
    energy: Literal["constant", "potential"] = "constant"
    tries: int = 64
    priority: Literal["uses", "deephunter", "uniform", "recent"] = "uses"
    accept: Literal["first", "all"] = "first"
    reuse_failures: bool = False
    every_fault: bool = True
    batch: int = 256
    chunk: int = 16
    max_depth: int = 5
    capacity: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        integer("tries", self.tries, 1, "the published code uses 64")
        integer("batch", self.batch, 1, "256 is quick on two cores")
        integer("chunk", self.chunk, 1, "16 wastes little")
        integer("max_depth", self.max_depth, 1, "5 keeps mutants recognisable")
        integer("capacity", self.capacity, 1, "4096 seeds are kept in memory")
        one_of("energy", self.energy, ("constant", "potential"))
        one_of("priority", self.priority, ("uses", "deephunter", "uniform", "recent"))
        one_of("accept", self.accept, ("first", "all"))


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When to stop: after so many turns of seeds, forward passes, seconds, outputs or faults, whichever comes first.

    until_dry: or when the guide expects fewer new goals than this of the next 1,000 forward passes.
    """

    iterations: int | None = None
    forwards: int | None = None
    seconds: float | None = None
    outputs: int | None = None
    faults: int | None = None
    until_dry: float | None = None

    def __post_init__(self) -> None:
        for name in ("iterations", "forwards", "outputs", "faults"):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), 1, "for example 10000")
        if self.seconds is not None:
            number("seconds", self.seconds, "for example 600", above=0)
        if self.until_dry is not None:
            number("until_dry", self.until_dry, "new goals in 1,000 forward passes, for example 5", above=0)
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


class FuzzOptions(TypedDict, total=False):
    """The fields of `Settings` and `Budget` as `neurotest.fuzz` takes them; mutations and validity may be text."""

    mutations: Mutations | str | None
    validity: ValidityRule | str | None
    energy: Literal["constant", "potential"] | None
    tries: int | None
    priority: Literal["uses", "deephunter", "uniform", "recent"] | None
    accept: Literal["first", "all"] | None
    reuse_failures: bool | None
    every_fault: bool | None
    batch: int | None
    chunk: int | None
    max_depth: int | None
    capacity: int | None
    seed: int | None
    iterations: int | None
    forwards: int | None
    seconds: float | None
    outputs: int | None
    faults: int | None
    until_dry: float | None
