"""Several targets run together: their neurons, logits in a graph, gradients that are checked, passes that are counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.checks import Settings
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.generate.gradient.engine import NOT_FINITE, Passes
from neurotest.jobs.parts import Arrays
from neurotest.levels import Levels
from neurotest.mutate.unit import from_unit
from neurotest.oracles import predicted
from neurotest.target import Probe, Target, Want
from neurotest.target.outputs import Bins
from neurotest.target.probe import Keep, reducer

Covered = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Values:
    """Of a batch: channel means (n, neurons), part of the graph, and the same scaled to 0 .. 1 within layer and input."""

    means: Tensor
    scaled: Tensor  # without graph; NaN where a layer is constant

    def covered(self, threshold: float) -> Covered:
        """(n, neurons) which neurons are covered; a constant layer covers nothing."""
        return np.asarray((self.scaled > threshold).cpu().numpy())


class Neurons:
    """Which neurons `layers` of a target have, in one row over all of them."""

    def __init__(self, target: Target, layers: str) -> None:
        self.target = target
        self.want = Want(layers=layers, keep="map")
        self.layers = target.survey().find(layers)
        self.widths = [layer.neurons() for layer in self.layers]
        channel = Want(layers=layers)
        self._means: dict[str, Keep] = {layer.name: reducer(channel, layer.axis, len(layer.shape) + 1) for layer in self.layers}

    def __len__(self) -> int:
        return sum(self.widths)

    def read(self, recorded: Mapping[str, Tensor]) -> _Values:
        """As DeepXplore scales: over every unit of the layer's maps, then averaged per channel."""
        means, scaled = [], []
        for layer in self.layers:
            maps = recorded[layer.name]
            mean = self._means[layer.name](maps)
            flat = maps.detach().reshape(len(maps), -1)
            low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
            means.append(mean)
            scaled.append((mean.detach() - low) / (high - low))
        return _Values(torch.cat(means, 1), torch.cat(scaled, 1))

    @property
    def place(self) -> NDArray[np.float64]:
        """(neurons,) where each neuron's layer stands, from 0 (first) up to 1."""
        return np.repeat(np.arange(len(self.layers)) / max(1, len(self.layers)), self.widths)

    @property
    def kinds(self) -> list[str]:
        return [layer.made_by for layer, width in zip(self.layers, self.widths, strict=True) for _ in range(width)]

    @property
    def weights(self) -> NDArray[np.float64]:
        """(neurons,) mean of each neuron's incoming weights; 0 where its layer has none."""
        parts = []
        for layer, width in zip(self.layers, self.widths, strict=True):
            weight = getattr(self.target.module.get_submodule(layer.module), "weight", None)
            if isinstance(weight, Tensor) and weight.ndim > 1 and len(weight) == width:
                parts.append(weight.detach().flatten(1).mean(1).cpu().double().numpy())
            else:
                parts.append(np.zeros(width))
        return np.concatenate(parts)


def rows_of(x: Tensor, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Tensor:
    return x[torch.from_numpy(rows).to(x.device)]


def pick(values: Tensor, chosen: NDArray[np.int64]) -> Tensor:
    """The sum of each row's chosen neurons: (n, neurons), (n, m) -> (n,)."""
    return values.gather(1, torch.from_numpy(chosen).to(values.device)).sum(1)


EPSILON = 1e-5  # added to a gradient's size before dividing by it, as published


@dataclass(frozen=True, eq=False)
class Output:
    """Of one target's forward pass over a batch."""

    logits: Tensor  # (n, classes), part of the graph
    values: _Values
    bins: Bins | None = None  # where the target predicts a regression value

    @property
    def predicted(self) -> NDArray[Any]:
        """(n,) classes, or regression values."""
        return answers(self.logits.detach(), self.bins)

    def away(self, own: Tensor) -> Tensor:
        """(n,) what an objective adds up: the logit of the own class, or the regression value in bins."""
        if self.bins is not None:
            return self.bins.values(self.logits) / self.bins.width
        return self.logits.gather(1, own[:, None])[:, 0]


def answers(logits: Tensor, bins: Bins | None) -> NDArray[Any]:
    """(n,) classes, -1 where a logit is not finite; of a regression value its value, NaN there."""
    return predicted(logits) if bins is None else np.asarray(bins.values(exact(logits)).cpu().numpy())


def apart(answered: NDArray[Any], tolerance: float | None) -> NDArray[np.bool_]:
    """(n, targets) -> (n,) which targets disagree: other classes, or regression values farther apart than the tolerance."""
    if tolerance is None:
        return np.asarray((answered != answered[:, :1]).any(1))
    return np.asarray(~(np.ptp(answered, axis=1) <= tolerance))


def left(answered: NDArray[Any], before: NDArray[Any], tolerance: float | None) -> NDArray[np.bool_]:
    """Which answers are not those of before: other classes, or regression values farther away than the tolerance. Same shapes."""
    if tolerance is None:
        return np.asarray(answered != before)
    return np.asarray(~(np.abs(answered - before) <= tolerance))


class Ensemble(Passes):
    """Targets that take the same inputs, each within its own bounds. Inputs here are in [0, 1]. A context manager."""

    def __init__(self, targets: Sequence[Target], layers: str, *, levels: Levels | None) -> None:
        super().__init__()
        self.targets, self.levels = tuple(targets), levels
        self.tolerance = targets[0].tolerance  # of a regression value
        self.neurons = [Neurons(target, layers) for target in targets]
        self._probes = [Probe(t, n.want, grad=True) for t, n in zip(targets, self.neurons, strict=True)]
        self._open = ExitStack()

    def __len__(self) -> int:
        return len(self.targets)

    def __enter__(self) -> Ensemble:
        for probe in self._probes:
            self._open.enter_context(probe)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def forward(self, u: Tensor) -> list[Output]:
        """Once through every target, with the graph."""
        self.forwards += len(u) * len(self)
        outputs = []
        for target, neurons, probe in zip(self.targets, self.neurons, self._probes, strict=True):
            trace = probe(from_unit(u, target.bounds))
            with torch.enable_grad():
                outputs.append(Output(trace.logits, neurons.read(trace[neurons.want]), target.bins))
        return outputs

    def predict(self, u: Tensor) -> NDArray[Any]:
        """(n, targets) classes or regression values, without a graph."""
        self.forwards += len(u) * len(self)
        with torch.no_grad():
            each = [answers(target.logits(from_unit(u, target.bounds)), target.bins) for target in self.targets]
        return np.stack(each, axis=1)

    def direction(self, objective: Tensor, u: Tensor, *, first: bool = False) -> Tensor:
        """The gradient of the summed objective towards u, each input's scaled to a root mean square of 1."""
        gradient = self.backward(objective.sum(), u, first=first)
        size = exact(gradient.flatten(1)).square().mean(1).sqrt()
        return gradient / (size + EPSILON).to(gradient).view(-1, *[1] * (u.ndim - 1))

    def masked(self, u: Tensor) -> tuple[str, ...]:
        """Targets, of several, whose gradient is zero at all of these inputs: the others' would hide it."""
        specs = []
        for target in self.targets if len(self) > 1 else ():
            free = u.detach().requires_grad_()
            with torch.enable_grad():
                gradient = self.gradient_of(target.logits(from_unit(free, target.bounds)).amax(1).sum(), free)
            if gradient is not None and not bool(gradient.isfinite().all()):
                raise BadInput("not-finite", "gradient", f"{target.spec}: {NOT_FINITE}")
            if gradient is None or not bool(gradient.any()):
                specs.append(str(target.spec))
        return tuple(specs)

    def quantise(self, u: Tensor) -> Tensor:
        """What will be saved: on the levels of 8 or 16 bits, floating point as it is."""
        u = u.detach().clamp(0, 1)
        return self.levels.nearest(u) if self.levels else u


@dataclass(frozen=True, eq=False)
class BatchOutputs:
    """The outputs of a batch, as they will be saved; a method may give several of one seed."""

    x: Tensor  # (m, *shape) in [0, 1]
    rows: NDArray[np.int64]  # (m,) of which seed of the batch
    steps: NDArray[np.int64]  # (m,) after how many steps
    unstable: int  # seeds that differed before rounding only


class Search(Protocol):
    """A method at work: it remembers what was covered, and can be saved between batches. classes: or regression values, where the
    targets predict one."""

    def batch(self, seed: Tensor, classes: NDArray[Any], positions: NDArray[np.int64]) -> BatchOutputs: ...

    def coverage(self) -> list[float]: ...

    def arrays(self) -> Arrays: ...

    def restore(self, arrays: Arrays) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Method(Settings, ABC):
    """Settings. `several`: whether it compares targets or tests a single one; `operator` is what its faults are named after."""

    name: ClassVar[str]
    several: ClassVar[bool]
    layers: str = "pre_activation"

    @property
    def operator(self) -> str:
        return self.name

    def check(self, shape: tuple[int, ...], *, audio: bool = False) -> None:
        """Refuse inputs that it cannot change."""

    @abstractmethod
    def begin(self, ensemble: Ensemble, random: int) -> Search: ...
