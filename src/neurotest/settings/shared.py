"""Settings that mean the same in every command that has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neurotest.settings.declared import Batch, CommandSettings, Flag, Integer, Kind, Named, Place, another, setting


@dataclass(frozen=True, kw_only=True)
class Written(CommandSettings):
    """Of a command that makes a run."""

    out: str | Path | bool | None = setting(
        Place(), "Directory of the run (default: ./neurotest-runs/COMMAND-TIME).", stored=False
    )


@dataclass(frozen=True, kw_only=True)
class WrittenIfNamed(Written):
    """Python makes the run only where `out` says so; the command line always does."""

    out: str | Path | bool | None = another(Written, "out", False)


@dataclass(frozen=True, kw_only=True)
class Resumable(Written):
    """Of a command whose run can be resumed."""

    resume: str | Path | None = setting(Place(), "Resume this interrupted run.", stored=False)


@dataclass(frozen=True, kw_only=True)
class Limited(CommandSettings):
    limit: int | None = setting(Integer(least=1, usual="inputs that are used at most"), "Use at most N inputs.")


@dataclass(frozen=True, kw_only=True)
class Seeded(CommandSettings):
    seed: int = setting(Integer(), "Seed of every random choice.", 0)


@dataclass(frozen=True, kw_only=True)
class Sampled(Seeded, Limited):
    """Of a command that takes some of the inputs and makes random choices."""


@dataclass(frozen=True, kw_only=True)
class Scanned(Limited):
    """Of a command that runs the inputs through the network."""

    batch: int = setting(
        Batch(usual="inputs per forward pass"), "Inputs per forward pass, in smaller parts where the network is large.", 250
    )


@dataclass(frozen=True, kw_only=True)
class Batched(Sampled, Scanned):
    """The same, with random choices."""


@dataclass(frozen=True, kw_only=True)
class Strict(CommandSettings):
    strict: bool = setting(Flag(), "Fail on a corrupt or odd-sized file instead of skipping it.", False, stored=False)


@dataclass(frozen=True, kw_only=True)
class Trained(CommandSettings):
    train: Any = setting(Named(), "Training data, for what compares with it.")


@dataclass(frozen=True, kw_only=True)
class Layered(CommandSettings):
    layers: str | None = setting(Kind(), "Globs over layer names, pre_activation or post_activation.")


@dataclass(frozen=True, kw_only=True)
class Neurons(Layered):
    neuron: str | None = setting(Kind(), "channel (one value per map), unit (every element) or sample (1,000 units a layer).")


@dataclass(frozen=True, kw_only=True)
class FromSeeds(Resumable, Sampled):
    """Of a command that changes seeds until the network fails."""

    keep_wrong: bool = setting(Flag(), "Also start from seeds the target misclassifies.", False)


@dataclass(frozen=True, kw_only=True)
class Suite(FromSeeds):
    files: int = setting(Integer(least=0, usual="500 by default"), "How many faults are stored as images.", 500)
