"""Critical neurons: which neurons of a layer decide about an input, by conductance or by something cheaper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from neurotest import registry
from neurotest.attribute.conductance import STEPS, Attribution, Conductance, channels, frozen
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.semantics.exemplars import globs
from neurotest.target import Layer, Probe, Profile, Target, Want

DEPTH = 4  # layers of a path
PROFILE = 1000  # training inputs for z-scores


class Critic(ABC):
    """A way to score neurons, ready for one target. passes: forward passes per input, a backward pass counted as one."""

    target: Target
    layers: tuple[Layer, ...]
    passes: int

    @abstractmethod
    def __call__(self, x: Tensor, classes: Tensor) -> Attribution:
        """Scores of every neuron for the logit of each input's class; logits belong to it."""


@dataclass(frozen=True, kw_only=True)
class CriticalSettings(ABC):
    """Settings of a critic."""

    @abstractmethod
    def start(self, target: Target, layers: tuple[Layer, ...], data: Source | None) -> Critic: ...


@registry.register(
    "critical",
    "conductance",
    paper="Dhamdhere et al., How important is a neuron, ICLR 2019; NSGen, section 4.3.1",
    cost="17 forward passes of ResNet-20 for all its layers together; captum, layer by layer with 50 steps, about 330 for four",
    differs="All layers come from one shared pass. The grid has more points near the empty image and the trapezoid rule; "
    "captum's drops both ends of its nodes (`grid=captum,rule=left` repeats it). The empty image is the mean colour.",
    main="steps",
)
@dataclass(frozen=True, kw_only=True)
class ByConductance(CriticalSettings):
    """What the class gained between an empty image and the input, as far as it went through the neuron."""

    steps: int = STEPS
    grid: Literal["uniform", "early", "captum"] = "early"
    rule: Literal["trapezoid", "left"] = "trapezoid"
    baseline: Literal["mean", "black"] = "mean"

    def __post_init__(self) -> None:
        self._settings("post_activation")

    def _settings(self, layers: str) -> Conductance:
        return Conductance(layers=layers, steps=self.steps, grid=self.grid, rule=self.rule, baseline=self.baseline)

    def start(self, target: Target, layers: tuple[Layer, ...], data: Source | None) -> Critic:
        return _Conducting(self._settings(globs(layers)), target, layers, data)


class _Conducting(Critic):
    def __init__(self, settings: Conductance, target: Target, layers: tuple[Layer, ...], data: Source | None) -> None:
        self.plan = settings.plan(target, data=data)
        self.target = target
        self.layers, self.passes = self.plan.layers, settings.passes

    def __call__(self, x: Tensor, classes: Tensor) -> Attribution:
        return self.plan(x, classes)


@registry.register(
    "critical", "gradient", paper="", cost="one forward and one backward pass", differs="A cheap substitute for conductance."
)
@dataclass(frozen=True, kw_only=True)
class ByGradient(CriticalSettings):
    """Gradient times activation: what the class would lose, to first order, if the neuron were silent."""

    def start(self, target: Target, layers: tuple[Layer, ...], data: Source | None) -> Critic:
        return _Slope(target, layers, 1.0)


@registry.register(
    "critical",
    "mask",
    paper="Aumann and Shapley; Shapley values by the gradient of a mask",
    cost="one forward and one backward pass",
    differs="One point of the diagonal, where all neurons of the chosen layers are at half strength: the cheapest estimate of "
    "Shapley values that ranks better than the gradient at full strength.",
    main="strength",
)
@dataclass(frozen=True, kw_only=True)
class ByMask(CriticalSettings):
    """The class's gradient towards each neuron's strength while all of them are at `strength`."""

    strength: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.strength, (int, float)) or not 0 < self.strength <= 1:
            raise BadInput(f"strength={self.strength!r}: expected a number above 0 and up to 1 (0.5 is usual).")

    def start(self, target: Target, layers: tuple[Layer, ...], data: Source | None) -> Critic:
        return _Slope(target, layers, float(self.strength))


class _Slope(Critic):
    """Gradients towards the strength of neurons, all of them at one strength."""

    passes = 2

    def __init__(self, target: Target, layers: tuple[Layer, ...], strength: float) -> None:
        self.target, self.layers, self.strength = target, layers, strength
        self.want = Want(layers=globs(layers), keep="map")
        self.passes = 2 if strength == 1 else 3

    def __call__(self, x: Tensor, classes: Tensor) -> Attribution:
        kept: dict[str, Tensor] = {}
        strength = self.strength

        def dim(name: str, tensor: Tensor) -> Tensor:
            kept[name] = tensor * strength
            return kept[name]

        with torch.inference_mode(False), torch.enable_grad(), frozen(self.target.module):
            x, classes = x.clone().requires_grad_(True), classes.clone()
            with Probe(self.target, self.want, grad=True, edit=dim) as probe:
                logits = probe(x).logits
            answers = logits.gather(1, classes.unsqueeze(1)).sum()
            slopes = torch.autograd.grad(answers, [kept[layer.name] for layer in self.layers], allow_unused=True)
            if strength != 1:
                with torch.no_grad():
                    logits = self.target.logits(x)
        scores, activation = {}, {}
        for layer, slope in zip(self.layers, slopes, strict=True):
            value = kept[layer.name].detach() / strength
            scores[layer.name] = channels(torch.zeros_like(value) if slope is None else slope * value, layer, "sum")
            activation[layer.name] = channels(value, layer, "mean")
        return Attribution(scores, activation, logits.detach(), classes)


@registry.register(
    "critical",
    "activation",
    paper="",
    cost="one forward pass, and one over 1,000 training inputs to begin with",
    differs="Knows no class: the neuron that stands out most from its usual value.",
)
@dataclass(frozen=True, kw_only=True)
class ByActivation(CriticalSettings):
    """How far a neuron's activation is above its mean over training data, in standard deviations."""

    def start(self, target: Target, layers: tuple[Layer, ...], data: Source | None) -> Critic:
        if data is None or not len(data):
            raise BadInput("critical=activation needs training data for the usual values of neurons: give --train DATA.")
        return _Standing(target, layers, data)


class _Standing(Critic):
    passes = 1

    def __init__(self, target: Target, layers: tuple[Layer, ...], data: Source) -> None:
        from neurotest.scan import scan

        self.target, self.layers, self.want = target, layers, Want(layers=globs(layers))
        profile = Profile.empty(target, self.want)
        scan(target, data.take(np.arange(min(PROFILE, len(data)))), [profile])
        self.mean, self.spread = {}, {}
        for name, moments in profile.layers.items():
            self.mean[name] = torch.from_numpy(np.asarray(moments.mean, dtype=np.float32)).to(target.device)
            spread = torch.from_numpy(np.sqrt(np.asarray(moments.variance, dtype=np.float32))).to(target.device)
            self.spread[name] = spread.clamp_min(1e-6)

    def __call__(self, x: Tensor, classes: Tensor) -> Attribution:
        with Probe(self.target, self.want) as probe:
            trace = probe(x)
        values = trace[self.want]
        scores = {name: (value - self.mean[name]) / self.spread[name] for name, value in values.items()}
        return Attribution(scores, dict(values), trace.logits, classes)


def path_layers(target: Target, depth: int = DEPTH, layers: str | None = None) -> tuple[Layer, ...]:
    """The layers of a path: those named, else `depth` of them evenly spaced, outputs of blocks before what is inside them."""
    if layers is not None:
        from neurotest.attribute.conductance import inner

        return inner(target, layers)
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 1:
        raise BadInput(f"depth={depth!r}: expected how many layers a path has, an integer >= 1 ({DEPTH} is usual).")
    candidates = _candidates(target)
    if not candidates:
        raise BadInput("no layer of this network gives activations that a path could pass: name layers with --layers GLOB.")
    if depth == 1:
        return (candidates[-1],)
    chosen = np.unique(np.linspace(0, len(candidates) - 1, min(depth, len(candidates))).round().astype(int))
    return tuple(candidates[i] for i in chosen)


def _candidates(target: Target) -> list[Layer]:
    """Activations, and outputs of blocks; what lies inside a block that may branch does not count."""
    survey = target.survey()
    modules: dict[str, Any] = dict(target.module.named_modules())
    blocks = {
        name for name, m in modules.items() if name and not isinstance(m, nn.Sequential) and any(True for _ in m.children())
    }
    last = survey.layers[-1].time
    by_time: dict[int, Layer] = {}
    for layer in survey.layers:
        owners = {layer.name[:i].partition("#")[0] for i, c in enumerate(layer.name) if c == "."}
        if not layer.name or layer.time >= last or owners & blocks:
            continue
        if layer.made_by == "activation" or layer.module in blocks:
            by_time.setdefault(layer.time, layer)
        elif layer.time in by_time and len(layer.module) < len(by_time[layer.time].module):
            by_time[layer.time] = layer  # the same tensor under a shorter name
    candidates = [by_time[time] for time in sorted(by_time)]
    if candidates:
        return candidates
    kinds = ("activation", "convolution", "dense")
    return [layer for layer in survey.layers if layer.made_by in kinds and layer.time < last]
