"""Settings of the commands that make inputs on which a network fails: attack, diff, illuminate, swarm and fuzz."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neurotest.settings.declared import (
    Flag,
    Integer,
    Kind,
    Named,
    Number,
    another,
    setting,
)
from neurotest.settings.shared import Batched, Layered, Suite


@dataclass(frozen=True, kw_only=True)
class AttackSettings(Suite, Batched, Layered):
    attack: Any = setting(
        Named(),
        "pgd, bim, fgsm, cw, deepfool, jsma or autoattack, with options: pgd:eps=0.1,steps=40.",
        default="pgd",
        stored=False,
    )
    diversity: Any = setting(
        Number(usual="0: no regulariser"), "Weight (lambda) of the regulariser; 0: none.", default="0", stored=False
    )
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
    eps: str | float | None = setting(Kind(), "Largest change, a share of the input range: 0.1 or 8/255.", method=True)
    steps: int | None = setting(Integer(), "Steps (pgd, bim, cw).", method=True)
    step: str | float | None = setting(Kind(), "Size of a step (pgd, bim).", method=True)
    kappa: float | None = setting(Number(), "Lead in logits another class must have (cw).", method=True)
    batch: int = another(Batched, "batch", 100)


@dataclass(frozen=True, kw_only=True)
class DiffSettings(Suite, Batched):
    method: Any = setting(
        Named(),
        "deepxplore:light|occlusion|blackout, dlfuzz:STRATEGY or adapt, with options.",
        default="deepxplore",
        stored=False,
    )
    layers: str | None = another(Layered, "layers", None, method=True)
    steps: int | None = setting(Integer(), "Steps along the gradient.", method=True)
    step: float | None = setting(Number(), "Size of a step, of a gradient of root mean square 1.", method=True)
    batch: int = another(Batched, "batch", 64)


@dataclass(frozen=True, kw_only=True)
class IlluminateSettings(Suite):
    forwards: int = setting(
        Integer(least=1, usual="ten classes take about 1000"),
        "Stop after N forward passes; a backward pass counts as two.",
        2000,
        changes=True,
    )
    changes: str | None = setting(Kind(), "all (default), or some of shading+bend+noise.", method=True)
    steps: int | None = setting(Integer(), "Steps towards an aimed class (8).", method=True)
    batch: int | None = another(Batched, "batch", None, default="32", method=True)
