"""Settings of the commands that choose inputs and label them: select, score, suspects, label, labels and export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neurotest.settings.analyse import ServeSettings
from neurotest.settings.declared import CommandSettings, Flag, Integer, Kind, Named, Number, Place, Several, another, setting
from neurotest.settings.kinds import Amount, Methods
from neurotest.settings.shared import Batched, Neurons, Resumable, Scanned, Strict, Trained, Written, WrittenIfNamed


@dataclass(frozen=True, kw_only=True)
class Selecting(WrittenIfNamed, Neurons, Batched, Strict):
    """What `neurotest.select` and `neurotest.select.compare` have in common with the command."""

    train: Any = another(
        Trained, "train", None, help="Training data (adaptive, dsa, ...; known for zoo networks); candidates in it are reported."
    )
    originals: Any = setting(Named(), "What the candidates are variants of, one for one (nss).")
    labels: Any = setting(Place(), "Labels so far: CSV, JSON lines, Label Studio JSON or a folder per class.")
    spread: bool = setting(Flag(), "Pick a diverse batch from the top of the order.", False)
    files: int | None = setting(Integer(least=0, usual="images of picks"), "Save at most N picks as images.", default="all")


@dataclass(frozen=True, kw_only=True)
class SelectSettings(Selecting):
    methods: Any = setting(
        Several(),
        "nss, deepgini, ... (`neurotest list selector`); repeat to compare.",
        flag="--method",
        default="deepgini; for regression disagreement",
    )
    budget: Any = setting(Amount(), "How many to pick: 5% or 100.", default="5%")
    resume: Path | None = setting(Place(), "Propose the next batch of this adaptive selection.")
    status: Path | None = setting(
        Place(), "Say where this adaptive selection stands: labels, faults compared with random, whether to go on."
    )


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(Resumable, Batched, Strict):
    methods: Any = setting(
        Methods(),
        "deepgini, nss, mdsa, ... (`neurotest list selector`); repeat for several.",
        ("deepgini",),
        flag="--method",
        default="deepgini",
    )
    budget: str | float | None = setting(Amount(), "How many to pick by each method: 1000, 0.1%.", default="1000")
    spread: bool = setting(Flag(), "Pick a diverse batch from the top.", False)
    train: Any = another(Trained, "train", None, help="Training data, for methods that learn from it.", stored=False)
    timeout: float = setting(
        Number(usual="600 seconds by default", above=0),
        "Seconds after which a worker at one batch counts as hanging.",
        600.0,
        default="600",
        stored=False,
    )


@dataclass(frozen=True, kw_only=True)
class SuspectsSettings(WrittenIfNamed, Scanned, Strict):
    pass


@dataclass(frozen=True, kw_only=True)
class LabelSettings(Written, Batched, Strict):
    method: str | None = setting(
        Named(), "From nothing: adaptive, with options (adaptive:audit=0.1); for regression disagreement."
    )
    train: Any = another(Trained, "train", None, help="From nothing: training data (known for zoo networks).")
    pool: Any = setting(Named(), "The pool of RUN, if it was moved or the run is untrusted.")
    size: int | None = setting(
        Integer(least=1, usual="20 by default"), "Labels between two choices of the selector.", default="20", flag="--round"
    )
    stop: float | None = setting(
        Number(usual="for example 0.05", above=0, below=1),
        "Say that one can stop when the next batch is expected to have a lower fault rate.",
        default="0.05",
    )
    by: str = setting(Kind(), "Who labels (can be changed on the page).", "")
    port: int | None = another(ServeSettings, "port", None, default="8731, or the next that is free")
    browser: bool = another(ServeSettings, "browser", True)


@dataclass(frozen=True, kw_only=True)
class LabelsSettings(CommandSettings):
    by: str = setting(Kind(), "Who labelled.", "")
    replace: bool = setting(Flag(), "add: labels of the file replace those of the run.", False)
    confirmed: bool = setting(Flag(), "add: somebody looked at this folder, the network is right where nothing was moved.", False)


@dataclass(frozen=True, kw_only=True)
class ExportSettings(CommandSettings):
    method: str | None = setting(Named(), "Whose picks.", default="the run's first method")
    every: bool = setting(
        Flag(), "All rounds of an adaptive selection, with labels, instead of what is pending.", False, flag="--all"
    )
    per_family: int | None = setting(Integer(), "faults: how many of each family, the smallest changes first.", default="3")
