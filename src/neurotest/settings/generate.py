"""Settings of the commands that make inputs on which a network fails: attack, diff, illuminate, swarm and fuzz."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from neurotest.settings.declared import (
    PYTHON,
    Batch,
    Choice,
    CommandSettings,
    Flag,
    Integer,
    Kind,
    Listed,
    Named,
    Number,
    Numbers,
    Several,
    Switch,
    Unless,
    another,
    setting,
)
from neurotest.settings.shared import Batched, FromSeeds, Layered, Neurons, Suite, Trained

Norm = Literal["linf", "l2", "snr", "none"]


@dataclass(frozen=True, kw_only=True)
class AttackSettings(Suite, Batched, Layered):
    attack: Any = setting(
        Named(),
        "pgd, bim, fgsm, cw, deepfool, jsma or autoattack, with options: pgd:eps=0.1,steps=40.",
        default="pgd",
        stored=False,
    )
    diversity: Any = setting(Number(), "Weight (lambda) of the regulariser; 0: none.", default="0", stored=False)
    layers: str | None = another(
        Layered, "layers", None, help="Layers to make diverse: globs or a preset (default: pre_activation, all).", stored=False
    )
    reduce: str | None = setting(
        Kind(), "suite (default: units summed over a batch), instance, or batch as in the study's code.", stored=False
    )
    direction: str | None = setting(
        Kind(), "uniform (default): KL(uniform || shares); or shares: the other way round.", stored=False
    )
    attack_first: bool | None = setting(Flag(), "Make diverse only what already fails.", stored=False)
    eps: str | float | None = setting(Kind(), "Largest change, a share of the input range: 0.1 or 8/255.", part="method")
    steps: int | None = setting(Integer(), "Steps (pgd, bim, cw).", part="method")
    step: str | float | None = setting(Kind(), "Size of a step (pgd, bim).", part="method")
    kappa: float | None = setting(Number(), "Lead in logits another class must have (cw).", part="method")
    batch: int = another(Batched, "batch", 100)


@dataclass(frozen=True, kw_only=True)
class DiffSettings(Suite, Batched):
    method: Any = setting(
        Named(),
        "deepxplore:light|occlusion|blackout, dlfuzz:STRATEGY or adapt, with options.",
        default="deepxplore",
        stored=False,
    )
    layers: str | None = another(Layered, "layers", None, part="method")
    steps: int | None = setting(Integer(), "Steps along the gradient.", part="method")
    step: float | None = setting(Number(), "Size of a step, of a gradient of root mean square 1.", part="method")
    batch: int = another(Batched, "batch", 64)


@dataclass(frozen=True, kw_only=True)
class IlluminateSettings(Suite):
    forwards: int = setting(
        Integer(least=1, usual="ten classes take about 1000"),
        "Stop after N forward passes; a backward pass counts as two.",
        2000,
        changes=True,
    )
    changes: str | None = setting(Kind(), "all (default), or some of shading+bend+noise.", part="method")
    steps: int | None = setting(Integer(), "Steps towards an aimed class (8).", part="method")
    batch: int | None = another(Batched, "batch", None, default="32", part="method")


@dataclass(frozen=True, kw_only=True)
class Limits(CommandSettings):
    """When a campaign stops: at whichever limit it reaches first."""

    iterations: int | None = setting(
        Integer(least=1, usual="for example 10000"), "Stop after N turns of seeds.", part="budget", changes=True
    )
    forwards: int | None = setting(
        Integer(least=1, usual="for example 10000"), "Stop after N forward passes.", part="budget", changes=True
    )
    seconds: float | None = setting(
        Number(usual="for example 600", above=0),
        "Stop after N seconds of wall clock, everything included.",
        part="budget",
        changes=True,
    )
    outputs: int | None = setting(
        Integer(least=1, usual="for example 10000"), "Stop after N outputs.", flag="--max-outputs", part="budget", changes=True
    )
    faults: int | None = setting(Integer(least=1, usual="for example 10000"), "Stop after N faults.", part="budget", changes=True)
    until_dry: float | None = setting(
        Number(usual="new goals in 1,000 forward passes, for example 5", above=0),
        "Of --until-dry: stop below N expected new goals per 1,000 forward passes.",
        flag="--dry-below",
        default="5",
        part="budget",
        changes=True,
    )


@dataclass(frozen=True, kw_only=True)
class Loop(CommandSettings):
    """How a fuzzer works. A guide may bring published values for what the user does not name."""

    mutations: Any = setting(
        Named(), "rules95 (default), rules98, deephunter, tensorfuzz, nss, mild; for audio data: audio.", part="loop"
    )
    validity: Any = setting(
        Named(),
        "valid:alpha=0.2,beta=0.4, or nsgen-paper, nsgen-code, nlc-code, deephunter; for audio data: audible.",
        part="loop",
    )
    energy: str = setting(Choice(among=("constant", "potential")), "constant or potential.", "constant", part="loop")
    tries: int = setting(Integer(least=1, usual="the published code uses 64"), "Mutants per turn of a seed.", 64, part="loop")
    priority: str = setting(
        Choice(among=("uses", "deephunter", "uniform", "recent")), "Which seeds get a turn.", "uses", part="loop", flag=PYTHON
    )
    accept: str = setting(
        Choice(among=("first", "all")), "Keep the first mutant that gains, or all.", "first", part="loop", flag=PYTHON
    )
    reuse_failures: bool = setting(Flag(), "Let faults become seeds.", False, part="loop")
    every_fault: bool = setting(
        Unless(), "Drop faults the guide would not keep, as the papers' loops do.", True, flag="--only-accepted", part="loop"
    )
    batch: int = another(Batched, "batch", 256, kind=Batch(usual="256 is quick on two cores"), part="loop")
    chunk: int = setting(Integer(least=1, usual="16 wastes little"), "Mutants made at once.", 16, part="loop", flag=PYTHON)
    max_depth: int = setting(
        Integer(least=1, usual="5 keeps mutants recognisable"), "Mutations on top of each other.", 5, part="loop"
    )
    capacity: int = setting(
        Integer(least=1, usual="4096 seeds are kept in memory"), "Seeds kept in memory.", 4096, part="loop", flag=PYTHON
    )
    seed: int = another(Batched, "seed", 0, part="loop")


@dataclass(frozen=True, kw_only=True)
class FuzzSettings(Limits, Loop, FromSeeds, Neurons, Trained):
    guide: Any = setting(
        Named(),
        "goals: forecasts what mutations do and runs what is new; the only one that finds more families than random. "
        "random: the baseline. A criterion (kmnc:1000, nlc, ...) or deephunter: raises coverage; finds fewer than random. "
        "tensorfuzz: logits far from all before, for faults many small steps away. nsgen: other decision paths.",
        "goals",
    )
    oracle: Any = setting(
        Several(), "label (default; regression for regression networks), metamorphic, quantised:int8, ...; repeat for several."
    )
    keep: int = setting(
        Integer(least=0, usual="images per family"), "Images kept per family; all other faults are rows that can be replayed.", 5
    )
    disk: float = setting(
        Number(usual="bytes of images", least=0, unit=1e6), "Megabytes of images, at most.", 200e6, default="200"
    )
    control: bool = setting(
        Switch(), "Run a random campaign of equal forward passes as a baseline.", True, flag="--control/--no-control"
    )
    judge: Any = setting(Named(), "A second, better network that says which faults are valid (default: a learner of the seeds).")
    islands: int = setting(
        Integer(least=1, most=4096, usual="8 suit up to 8 workers"),
        "Fuzzers that share the seeds and what they learned; part of the campaign, whatever the number of workers.",
        1,
        default="1, with --workers or --ray 8",
    )
    train: Any = another(Trained, "train", None, help="Training data, for guides that compare with it.")
    resume: Any = another(FromSeeds, "resume", None, help="Resume this campaign (a budget given here wins).", stored=False)


@dataclass(frozen=True, kw_only=True)
class Movement(CommandSettings):
    """How a swarm moves, and how long."""

    norm: Norm = setting(Choice(among=get_args(Norm)), "The ball: linf, l2, none or, for audio, snr.", "linf", part="loop")
    radius: float = setting(
        Number(usual="a share of the input range, 0.1 is usual for linf", above=0),
        "Its radius, a share of the input range; of snr decibels, 30.",
        0.1,
        part="loop",
    )
    moves: str = setting(
        Choice(among=("auto", "lattice", "tiles", "tones", "chords", "velocity")),
        "auto: chords, tones, lattice or tiles, as fits; or velocity, the papers'.",
        "auto",
        part="loop",
    )
    particles: int = setting(
        Integer(least=1, usual="4 by default, 100 in the papers"), "Positions per seed and iteration.", 4, part="loop"
    )
    evaluations: int | None = setting(Integer(least=1, usual="1000"), "Forward passes per seed.", 1000, part="loop")
    iterations: int | None = setting(Integer(least=1, usual="10 or 20 in the papers"), "Iterations at most.", part="loop")
    labels: int | None = setting(
        Integer(least=1, usual="1: the first fault"),
        "Different wrong labels after which a seed is done.",
        1,
        flag="--wrong-labels",
        part="loop",
    )
    enough: float | None = setting(Number(), "Fitness at which a seed is done (the papers' epsilon).", part="loop")
    start: str = setting(
        Choice(among=("random", "fixed")), "random, or fixed: every particle at the seed.", "random", part="loop"
    )
    inertia: Sequence[float] = setting(Numbers(), "First and last inertia.", (0.9, 0.4), part="loop", flag=PYTHON)
    own: float = setting(
        Number(usual="2 in the papers", least=0), "Pull towards a particle's best.", 2.0, part="loop", flag=PYTHON
    )
    shared: float = setting(
        Number(usual="2 in the papers", least=0), "Pull towards the swarm's best.", 2.0, part="loop", flag=PYTHON
    )
    speed: float | None = setting(
        Number(usual="0.7 in the published code", above=0), "Largest velocity per value.", part="loop", flag=PYTHON
    )
    per_value: bool = setting(Flag(), "Draws per value of the input instead of per particle.", False, part="loop", flag=PYTHON)
    batch: int = another(Batched, "batch", 2500, part="loop")
    seed: int = another(Batched, "seed", 0, part="loop")


@dataclass(frozen=True, kw_only=True)
class SwarmSettings(Movement, FromSeeds, Neurons, Trained):
    fitness: Any = setting(Named(), "excitability (default), sensitivity or margin, with options: sensitivity:q0.9.")
    preset: str = setting(
        Kind(),
        "default, sensitivity-paper, -code, excitability-paper, -gradient or, for audio, -sound-paper, -sound-gradient.",
        "default",
    )
    labels_from: str = setting(
        Choice(among=("data", "prediction")), "data, or prediction: unlabelled seeds keep what the target says.", "data"
    )
    beside: Sequence[str] = setting(
        Listed(), "Baselines on the same seeds: noise, pgd, margin, or none.", ("noise", "pgd", "margin"), flag="--controls",
        default="noise,pgd,margin",
    )  # fmt: skip
    neuron: str = another(Neurons, "neuron", "channel")
    train: Any = another(Trained, "train", None, help="Data that says how far neurons spread (sensitivity).")
