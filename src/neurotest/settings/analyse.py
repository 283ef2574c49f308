"""Settings of the commands that look at a network and its faults: check, cover, evaluate, gate, robustness and others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from neurotest.settings.declared import (
    Batch,
    Choice,
    CommandSettings,
    Flag,
    Integer,
    Kind,
    Named,
    Number,
    Place,
    Several,
    Switch,
    Unless,
    another,
    setting,
)
from neurotest.settings.kinds import Duration
from neurotest.settings.shared import (
    Batched,
    Layered,
    Limited,
    Neurons,
    Resumable,
    Sampled,
    Scanned,
    Seeded,
    Strict,
    Trained,
    Written,
    WrittenIfNamed,
)

SHARE = "a share, such as 0.005"


@dataclass(frozen=True, kw_only=True)
class DemoSettings(Written, Seeded):
    pass


@dataclass(frozen=True, kw_only=True)
class DoctorSettings(Scanned):
    limit: int = another(Limited, "limit", 512)
    batch: int = another(Scanned, "batch", 100)


@dataclass(frozen=True, kw_only=True)
class CheckSettings(WrittenIfNamed, Resumable, Batched):
    train: Any = another(Trained, "train", None, stored=False)
    time: float | str = setting(Duration(), "How long all of it may take: 90s, 5m, 1h.", 300.0, default="5m")
    only: Sequence[str] | None = setting(Several(), "Only this check (`neurotest list check`); repeat for several.")
    skip: Sequence[str] | None = setting(Several(), "Leave this check out; repeat for several.")


@dataclass(frozen=True, kw_only=True)
class CoverSettings(WrittenIfNamed, Neurons, Batched, Strict):
    criteria: Any = setting(
        Several(),
        "kmnc:1000, nlc, ... (`neurotest list criterion`); repeat for several.",
        default="nc and nlc; with training data kmnc, nbc and tknc, too",
    )
    train: Any = another(Trained, "train", None, help="Training data, for criteria that compare with it.")
    profile: Any = setting(Place(), "A saved profile instead of --train.")
    by: Literal["class"] | None = setting(Choice(among=("class",)), "class: measure every class as well.")
    memory: float = setting(
        Number(usual="bytes that the states may need", above=0, unit=1e9), "Gigabytes the states may need.", 2e9, default="2"
    )
    cache: bool = setting(Unless(), "Neither use nor keep profiles in the cache.", True, flag="--no-cache")


@dataclass(frozen=True, kw_only=True)
class Describing(Batched):
    """How neurons are described, with a run or without."""

    k: int = setting(Integer(), "Exemplars per neuron.", 15)
    quantile: float = setting(Number(), "Level of a neuron's values at which masks are cut.", 0.99)
    cache: bool = setting(Unless(), "Neither use nor keep what was described before.", True, flag="--no-cache", stored=False)


@dataclass(frozen=True, kw_only=True)
class DescribeSettings(Resumable, Describing, Strict):
    method: Any = setting(Named(), "A name of `neurotest list describer`, with options.", default="combined", stored=False)
    layers: str | None = another(Layered, "layers", None, stored=False)


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(WrittenIfNamed, Batched):
    train: Any = another(Trained, "train", None, help="Training data: how many inputs lie outside its manifold?")
    extractor: Any = setting(Named(), "Network that makes the features: target, reference, or a target's spec.", default="target")
    layer: str = setting(
        Kind(),
        "last_hidden, globs over layer names, or output (it returns features).",
        "last_hidden",
        flag="--extractor-layer",
    )
    weights: str | Path | None = setting(Place(), "State dict for an extractor py:...", flag="--extractor-weights")
    metrics: Sequence[str] = setting(
        Several(), "A number that must be had (fid, kid, ...); if it cannot, exit 2.", (), flag="--metric", default=""
    )
    faults_only: bool = setting(Flag(), "Judge only what fails.", False)
    corrected: bool = setting(Flag(), "Entropy with Miller and Madow's correction.", False)
    paired: bool = setting(Flag(), "Compare seed by seed (seeds that all suites share).", False)
    classes: Any = setting(Named(), "Labelled data: do faults favour classes whose inputs cover more?", flag="--class-bias")
    limit: int = setting(
        Integer(least=1, usual="outputs judged per suite"),
        "Outputs judged per suite; larger ones are drawn from at random.",
        5000,
    )


@dataclass(frozen=True, kw_only=True)
class ExplainSettings(CommandSettings):
    train: Any = another(Trained, "train", None, help="Data to describe neurons with (default: the run's own).")
    describe: Any = setting(Named(), "A describer (`neurotest list describer`).")
    encoder: Any = setting(Named(), "How paths are compared (`neurotest list encoder`).")
    critical: Any = setting(Named(), "How neurons are chosen (`neurotest list critical`).")
    depth: int | None = setting(Integer(least=1, usual="layers of a path"), "How many layers a path has.")
    layers: str | None = another(Layered, "layers", None)
    limit: int = setting(
        Integer(least=1, usual="how many faults are read"), "Faults, and as many others, that are read for a whole campaign.", 500
    )


@dataclass(frozen=True, kw_only=True)
class GateSettings(WrittenIfNamed, Scanned):
    faults: Any = setting(Place(), "A run of fuzz, or a faults file: compared by family, too.")
    faults_data: Any = setting(Named(), "Where the seeds of a faults file are (default: DATA).")
    max_loss: float = setting(Number(usual=SHARE, least=0, most=1), "Accuracy may fall by so much.", 0.005)
    class_loss: float = setting(Number(usual=SHARE, least=0, most=1), "That of a class by so much, unless by chance.", 0.05)
    min_fixed: float | None = setting(
        Number(usual=SHARE, least=0, most=1), "Share of the kept faults that the new network must classify correctly."
    )
    alpha: float = setting(Number(usual="0.05 is usual", above=0, below=1), "Level of McNemar's exact test.", 0.05)
    certain: bool = setting(Flag(), "The interval must rule out a fall by more than --max-loss.", False)


@dataclass(frozen=True, kw_only=True)
class NeuronsSettings(Neurons, Seeded):
    top: int = setting(Integer(least=1, usual="10 by default"), "How many neurons to report.", 10)
    pairs: int = setting(Integer(least=1, usual="40 by default"), "Faults (with their seeds) to explain, at most.", 40)
    rounds: int = setting(Integer(), "Random orders per pair: more make narrower intervals.", 30)
    level: float = setting(Number(), "Level of the intervals.", 0.95)
    neuron: str = another(Neurons, "neuron", "channel")


@dataclass(frozen=True, kw_only=True)
class RepairSettings(Resumable, Sampled):
    train: Any = setting(Named(), "Training data; interpolated and head do without.", stored=False)
    holdout: Any = setting(Named(), "Labelled inputs nothing was trained on or made from.", stored=False)
    shift: Any = setting(Named(), "Further labelled inputs, of another origin, to judge by.", stored=False)
    pool: Any = setting(Named(), "What a run of select selected from, for random picks.", stored=False)
    protocol: Any = setting(
        Named(),
        "One of `neurotest list repair`, with options: default:epochs=5.",
        default="default; interpolated without --train",
        stored=False,
    )
    controls: Sequence[str] | None = setting(
        Several(), "schedule, random, static-pgd, mutated or none; repeat for several.", default="all", flag="--control"
    )
    attack: Sequence[str] | None = setting(
        Several(), "What attacks the networks at last, or none; repeat for several.", default="fgsm and pgd"
    )
    repeats: int = setting(Integer(least=1, usual="3 by default"), "Seeds; each trains the protocol and its controls anew.", 3)
    unseen: float = setting(
        Number(usual="0.3 by default", least=0, below=1), "Share of operator families that nothing is trained with.", 0.3
    )
    no_regression: bool = setting(Flag(), "Exit 1 and keep no weights if they break more of the holdout than they fix.", False)
    files: int = setting(
        Integer(least=0, usual="40 by default"), "How many fixed and broken inputs are stored as images, of each.", 40
    )


@dataclass(frozen=True, kw_only=True)
class RobustnessSettings(Resumable, Sampled):
    method: Any = setting(
        Named(),
        "clever, with options: clever:norm=linf,radius=0.3; clever:paper has the paper's.",
        default="clever",
        stored=False,
    )
    norm: str | None = setting(Kind(), "l2, l1 or linf.", default="l2", part="method")
    radius: float | None = setting(
        Number(), "How far it looks, a share of the input range.", default="l2 5, l1 100, linf 0.3", part="method"
    )
    samples: int | None = setting(Integer(), "Random points in a batch.", default="128; the paper's 1024", part="method")
    batches: int | None = setting(
        Integer(), "Batches whose largest gradients count.", default="50; the paper's 500", part="method"
    )
    inputs: int = setting(Integer(least=1, usual="20 by default"), "How many inputs, drawn at random.", 20)
    towards: str | int | None = setting(Kind(), "Distance to this class (name or number) instead of to any other.")
    attacks: bool = setting(Switch(), "Also look for the smallest change that attacks find.", True, flag="--attacks/--no-attacks")
    batch: int = setting(Batch(usual="10 by default"), "Inputs after which the work is saved.", 10)


@dataclass(frozen=True, kw_only=True)
class ServeSettings(CommandSettings):
    """Of a page that answers."""

    train: Any = another(
        Trained, "train", None, help="To explain faults: data to describe neurons with (default: the run's own)."
    )
    port: int | None = setting(
        Integer(least=0, most=65535, usual="0: any that is free"),
        "Where to listen on 127.0.0.1.",
        default="8731, or the next that is free",
    )
    browser: bool = setting(Unless(), "Only print the address.", True, flag="--no-browser")
