"""Conductance: how much of what the target class gained on the way from an empty image to this one went through each neuron.

All layers come from one shared pass: the points between the empty image and the inputs are stacked into a batch, and one
backward pass gives the gradients towards every layer at once. The empty image itself is run once per class, not per input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from neurotest.checks import Settings, setting
from neurotest.errors import BadInput
from neurotest.target import Probe, Target, Want
from neurotest.target.failures import gradients
from neurotest.target.layers import Layer

POINTS = 128  # inputs of one forward pass with its graph
KEPT_CLASSES = 64  # classes whose empty image is remembered
STEPS = 7


@dataclass(frozen=True)
class Attribution:
    """Per layer (n, neurons): what went through each neuron, summed over its map; the mean activation beside.

    `gained` is F(x) - F(empty) of the class. In a layer that everything passes through, the contributions add up to it; where
    they do not, the layer lies in a branch or the steps are too few.
    """

    scores: Mapping[str, Tensor]
    activation: Mapping[str, Tensor]
    logits: Tensor  # (n, classes)
    classes: Tensor  # (n,) whose logit was attributed
    gained: Tensor | None = None  # (n,)

    def completeness(self) -> dict[str, Tensor]:
        """Per layer (n,): the share of `gained` that the layer's neurons add up to; 1 is complete."""
        if self.gained is None:
            return {}
        whole = torch.where(self.gained.abs() > 1e-12, self.gained, torch.full_like(self.gained, torch.nan))
        return {name: scores.sum(1) / whole for name, scores in self.scores.items()}


@dataclass(frozen=True, kw_only=True)
class Conductance(Settings):
    """Conductance of every neuron of `layers`.

    steps: intervals between the empty image and the input. grid: `uniform`; `early` has more points near the empty image, where
    a network changes most; `captum` are Gauss-Legendre's nodes, whose ends are left out. rule: `trapezoid`, or `left` as captum
    does. baseline: the empty image: `mean` is the mean colour (the target's own, or that of the data given to `plan`), `black`
    the lower bound.
    """

    layers: str = "post_activation"
    steps: int = setting(STEPS, f"{STEPS} is usual, captum's default is 50")
    grid: Literal["uniform", "early", "captum"] = "early"
    rule: Literal["trapezoid", "left"] = "trapezoid"
    baseline: Literal["mean", "black"] = "mean"

    @property
    def passes(self) -> int:
        """What an input costs, a backward pass counted as a forward pass."""
        return 2 * (self.steps + (self.grid == "captum"))

    def alphas(self) -> np.ndarray:
        """Places between the empty image (0) and the input (1)."""
        if self.grid == "captum":
            nodes = np.polynomial.legendre.leggauss(self.steps + 1)[0]
            return np.asarray((nodes + 1) / 2)
        even = np.linspace(0, 1, self.steps + 1)
        return even if self.grid == "uniform" else even**1.5

    def plan(self, target: Target, *, empty: Tensor | None = None, data: Any = None) -> ConductancePlan:
        """For one target. empty: the empty image itself, in bounds. data: a Source for the mean colour, where it is needed."""
        layers = inner(target, self.layers)
        return ConductancePlan(self, target, layers, _blank(target, self.baseline, data) if empty is None else empty)


def inner(target: Target, layers: str) -> tuple[Layer, ...]:
    """The layers these words stand for, without what the network ends in: answers are no neurons of a path to them."""
    survey = target.survey()
    hidden = tuple(layer for layer in survey.find(layers) if layer.time < survey.layers[-1].time)
    if not hidden:
        message = f"layers={layers!r}: only the output layer is among them; choose others with --layers."
        raise BadInput("unsuitable", "layers", message)
    return hidden


def _blank(target: Target, baseline: str, data: Any = None) -> Tensor:
    """The empty image (1, *shape) in bounds."""
    shape = target.shape
    if shape is None:
        raise BadInput("missing", "size", "the size of the network's inputs is unknown: pass --size, for example --size 3x32x32.")
    if baseline == "black":
        return torch.full((1, *shape), float(target.bounds[0]), device=target.device)
    places = (-1,) + (1,) * (len(shape) - 1)
    if target.mean is not None:
        colour = torch.tensor(target.mean, device=target.device)
    elif data is None or not len(data):
        message = "baseline='mean': the target states no mean, so data is needed to take it from; or say baseline=black."
        raise BadInput("missing", "baseline", message)
    else:
        x = target.prepare(data.read(np.arange(min(1000, len(data)))))
        colour = x.mean(dim=(0, *range(2, x.ndim)))
    return colour.view(places).expand(shape).unsqueeze(0).clone()


class ConductancePlan:
    """Conductance for one target: `plan(x, classes)`; classes default to what is predicted for x."""

    def __init__(self, settings: Conductance, target: Target, layers: tuple[Layer, ...], empty: Tensor) -> None:
        if target.shape is not None and tuple(empty.shape[1:]) != target.shape:
            message = f"the empty image has shape {tuple(empty.shape[1:])}, the target takes {target.shape}."
            raise BadInput("wrong-shape", "baseline", message)
        self.settings, self.target, self.layers, self.empty = settings, target, layers, empty.to(target.device)
        self.want = Want(layers=",".join(layer.name for layer in layers), keep="map")
        alphas = torch.from_numpy(settings.alphas()).float().to(target.device)
        self.starts = float(alphas[0]) == 0.0  # whether the empty image itself is a point
        self.alphas = alphas[1:] if self.starts else alphas
        self._empties: dict[int, _Points] = {}

    def __call__(self, x: Tensor, classes: Tensor | None = None) -> Attribution:
        """(n, *shape) in bounds -> attribution of every layer."""
        module = self.target.module
        with torch.inference_mode(False), torch.enable_grad(), frozen(module), Probe(self.target, self.want, grad=True) as probe:
            x = x.clone() if x.is_inference() else x.detach()
            if classes is None:
                with torch.no_grad():
                    classes = self.target.logits(x).argmax(1)
            classes = classes.clone() if classes.is_inference() else classes
            if self.starts:
                self._learn(probe, classes)
            parts = max(1, POINTS // len(self.alphas))
            return _joined([self._part(probe, a, t) for a, t in zip(x.split(parts), classes.split(parts), strict=True)])

    def _points(self, probe: Probe, x: Tensor, classes: Tensor) -> _Points:
        """Run points and take the gradients of their classes' logits towards every layer."""
        if x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)  # convolutions take a tenth to a fifth less so
        trace = probe(x.requires_grad_(True))
        answers = trace.logits.gather(1, classes.unsqueeze(1)).squeeze(1)
        maps = [trace[self.want][layer.name] for layer in self.layers]
        towards = gradients(answers.sum(), maps)
        slopes = [torch.zeros_like(m) if g is None else g for m, g in zip(maps, towards, strict=True)]
        return _Points([m.detach() for m in maps], slopes, trace.logits.detach(), answers.detach())

    def _learn(self, probe: Probe, classes: Tensor) -> None:
        new = [int(c) for c in classes.unique().tolist() if int(c) not in self._empties]
        if len(self._empties) + len(new) > KEPT_CLASSES:
            self._empties.clear()
            new = [int(c) for c in classes.unique().tolist()]
        for some in (new[i : i + POINTS] for i in range(0, len(new), POINTS)):
            images = self.empty.repeat(len(some), *[1] * (self.empty.ndim - 1))
            points = self._points(probe, images, torch.tensor(some, device=self.target.device))
            self._empties.update((c, points.row(i)) for i, c in enumerate(some))

    def _part(self, probe: Probe, x: Tensor, classes: Tensor) -> Attribution:
        n, k = len(x), len(self.alphas)
        between = torch.lerp(self.empty, x.unsqueeze(1), self.alphas.view(1, -1, *[1] * (x.ndim - 1)))  # (n, k, *shape)
        points = self._points(probe, between.flatten(0, 1), classes.repeat_interleave(k))
        before = [self._empties[int(c)] for c in classes.tolist()] if self.starts else []
        last = slice(k - 1, n * k, k)
        scores, activation = {}, {}
        for number, layer in enumerate(self.layers):
            values, slopes = (tensors[number].unflatten(0, (n, k)) for tensors in (points.maps, points.slopes))
            if before:
                values = torch.cat([torch.stack([b.maps[number] for b in before]), values], 1)  # (n, k + 1, *map)
                slopes = torch.cat([torch.stack([b.slopes[number] for b in before]), slopes], 1)
            weight = slopes[:, :-1] if self.settings.rule == "left" else (slopes[:, 1:] + slopes[:, :-1]) / 2
            scores[layer.name] = channels((weight * values.diff(dim=1)).sum(1), layer, "sum")
            activation[layer.name] = channels(values[:, -1], layer, "mean")
        gained = points.answers[last] - torch.cat([b.answers for b in before]) if before else None
        return Attribution(scores, activation, points.logits[last], classes, gained)


@dataclass(frozen=True, eq=False)
class _Points:
    """Of some points: maps and gradients of every layer, logits, and the logit of the class."""

    maps: list[Tensor]
    slopes: list[Tensor]
    logits: Tensor
    answers: Tensor

    def row(self, i: int) -> _Points:
        """One of them, with a batch of one."""
        one = slice(i, i + 1)
        maps, slopes = ([tensor[one].clone() for tensor in tensors] for tensors in (self.maps, self.slopes))
        return _Points(maps, slopes, self.logits[one], self.answers[one])


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Weights ask for no gradient meanwhile: a tenth of the work falls away."""
    asking = [p for p in module.parameters() if p.requires_grad]
    for parameter in asking:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in asking:
            parameter.requires_grad_(True)


def channels(maps: Tensor, layer: Layer, how: Literal["sum", "mean", "peak"]) -> Tensor:
    """(n, *map) -> (n, neurons); peak: the greatest absolute value."""
    others = tuple(d for d in range(1, maps.ndim) if d != layer.axis)
    maps = maps.abs() if how == "peak" else maps
    if not others:
        return maps
    return maps.amax(others) if how == "peak" else maps.sum(others) if how == "sum" else maps.mean(others)


def _joined(parts: list[Attribution]) -> Attribution:
    first, *others = parts
    if not others:
        return first
    return Attribution(
        {name: torch.cat([part.scores[name] for part in parts]) for name in first.scores},
        {name: torch.cat([part.activation[name] for part in parts]) for name in first.activation},
        torch.cat([part.logits for part in parts]),
        torch.cat([part.classes for part in parts]),
        None if first.gained is None else torch.cat([part.gained for part in parts if part.gained is not None]),
    )
