"""Critical neurons: which neurons of a layer decide about an input, by conductance or by something cheaper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from neurotest import checks, registry
from neurotest.attribute.conductance import STEPS, Attribution, Conductance, channels, frozen, inner
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.scan import scan
from neurotest.semantics.exemplars import globs
from neurotest.target import Layer, Probe, Profile, Target, Want
from neurotest.target.failures import gradients

DEPTH = 4  # layers of a path
PROFILE = 1000  # training inputs for z-scores


@dataclass(eq=False)
class Critic:
    """A way to score neurons, ready for one target. passes: forward passes per input, a backward pass counted as one."""

    target: Target
    layers: tuple[Layer, ...]
    passes: int
    score: Callable[[Tensor, Tensor], Attribution]  # inputs, classes -> scores of every neuron for the logit of that class

    def __call__(self, x: Tensor, classes: Tensor) -> Attribution:
        return self.score(x, classes)


@dataclass(frozen=True, kw_only=True)
class CriticalSettings(checks.Settings, ABC):
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
        settings = self._settings(globs(layers))
        plan = settings.plan(target, data=data)
        return Critic(target, plan.layers, settings.passes, plan)


@registry.register(
    "critical", "gradient", paper="", cost="one forward and one backward pass", differs="A cheap substitute for conductance."
)
class ByGradient(CriticalSettings):
    """Gradient times activation: what the class would lose, to first order, if the neuron were silent."""

    def start(self, target: Target, layers: tuple[Layer, ...], data: Source | None) -> Critic:
        return _slopes(target, layers, 1.0)


@registry.register(
    "critical",
    "mask",
    paper="Aumann and Shapley; Shapley values by the gradient of a mask",
    cost="one forward and one backward pass",
    differs="One point of the diagonal, where all neurons of the chosen layers are at half strength: the cheapest estimate of "
    "Shapley values that ranks better than the gradient at full strength.",
    main="strength",
)
class ByMask(CriticalSettings):
    """The class's gradient towards each neuron's strength while all of them are at `strength`."""

    strength: float = checks.setting(0.5, "0.5 is usual", above=0, most=1)

    def start(self, target: Target, layers: tuple[Layer, ...], data: Source | None) -> Critic:
        return _slopes(target, layers, float(self.strength))


def _slopes(target: Target, layers: tuple[Layer, ...], strength: float) -> Critic:
    """Gradients towards the strength of neurons, all of them at one strength."""
    want = Want(layers=globs(layers), keep="map")

    def score(x: Tensor, classes: Tensor) -> Attribution:
        kept: dict[str, Tensor] = {}

        def dim(name: str, tensor: Tensor) -> Tensor:
            kept[name] = tensor * strength
            return kept[name]

        with torch.inference_mode(False), torch.enable_grad(), frozen(target.module):
            x, classes = x.clone().requires_grad_(True), classes.clone()
            with Probe(target, want, grad=True, edit=dim) as probe:
                logits = probe(x).logits
            answers = logits.gather(1, classes.unsqueeze(1)).sum()
            slopes = gradients(answers, [kept[layer.name] for layer in layers])
            if strength != 1:
                with torch.no_grad():
                    logits = target.logits(x)
        scores, activation = {}, {}
        for layer, slope in zip(layers, slopes, strict=True):
            value = kept[layer.name].detach() / strength
            scores[layer.name] = channels(torch.zeros_like(value) if slope is None else slope * value, layer, "sum")
            activation[layer.name] = channels(value, layer, "mean")
        return Attribution(scores, activation, logits.detach(), classes)

    return Critic(target, layers, 2 if strength == 1 else 3, score)


@registry.register(
    "critical",
    "activation",
    paper="",
    cost="one forward pass, and one over 1,000 training inputs to begin with",
    differs="Knows no class: the neuron that stands out most from its usual value.",
)
class ByActivation(CriticalSettings):
    """How far a neuron's activation is above its mean over training data, in standard deviations."""

    def start(self, target: Target, layers: tuple[Layer, ...], data: Source | None) -> Critic:
        if data is None or not len(data):
            raise BadInput(
                "missing", "train", "critical=activation needs training data for the usual values of neurons: give --train DATA."
            )
        want = Want(layers=globs(layers))
        profile = Profile.empty(target, want)
        scan(target, data.take(np.arange(min(PROFILE, len(data)))), [profile])
        usual = {}
        for name, moments in profile.layers.items():
            mean, variance = (torch.from_numpy(np.asarray(v, dtype=np.float32)) for v in (moments.mean, moments.variance))
            usual[name] = mean.to(target.device), variance.sqrt().clamp_min(1e-6).to(target.device)

        def score(x: Tensor, classes: Tensor) -> Attribution:
            with Probe(target, want) as probe:
                trace = probe(x)
            scores = {name: (value - usual[name][0]) / usual[name][1] for name, value in trace[want].items()}
            return Attribution(scores, dict(trace[want]), trace.logits, classes)

        return Critic(target, layers, 1, score)


def path_layers(target: Target, depth: int = DEPTH, layers: str | None = None) -> tuple[Layer, ...]:
    """The layers of a path: those named, else `depth` of them evenly spaced, outputs of blocks before what is inside them."""
    if layers is not None:
        return inner(target, layers)
    checks.count("depth", depth, f"layers of a path, {DEPTH} is usual")
    candidates = _candidates(target)
    if not candidates:
        raise BadInput(
            "unsuitable",
            "layers",
            "no layer of this network gives activations that a path could pass: name layers with --layers GLOB.",
        )
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
