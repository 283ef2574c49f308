"""Several targets run together: logits and neurons in a graph, gradients that are checked, passes that are counted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.errors import BadInput
from neurotest.generate.differential.neurons import Neurons, Values
from neurotest.generate.gradient.engine import NOT_FINITE, Passes, gradient_of
from neurotest.mutate.space import from_unit
from neurotest.oracles import predicted
from neurotest.target import Probe, Target

EPSILON = 1e-5  # added to a gradient's size before dividing by it, as published


@dataclass(frozen=True, eq=False)
class Output:
    """Of one target's forward pass over a batch."""

    logits: Tensor  # (n, classes), part of the graph
    values: Values

    @property
    def predicted(self) -> NDArray[np.int64]:
        return predicted(self.logits.detach())


class Ensemble(Passes):
    """Targets that take the same inputs, each within its own bounds. Inputs here are in [0, 1]. A context manager."""

    def __init__(self, targets: Sequence[Target], layers: str, *, eight_bit: bool) -> None:
        super().__init__()
        self.targets, self.eight_bit = tuple(targets), eight_bit
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
                outputs.append(Output(trace.logits, neurons.read(trace[neurons.want])))
        return outputs

    def predict(self, u: Tensor) -> NDArray[np.int64]:
        """(n, targets) classes, without a graph."""
        self.forwards += len(u) * len(self)
        with torch.no_grad():
            classes = [predicted(target.logits(from_unit(u, target.bounds))) for target in self.targets]
        return np.stack(classes, axis=1)

    def direction(self, objective: Tensor, u: Tensor, *, first: bool = False) -> Tensor:
        """The gradient of the summed objective towards u, each input's scaled to a root mean square of 1."""
        gradient = self.backward(objective.sum(), u, first=first)
        size = gradient.flatten(1).double().square().mean(1).sqrt()
        return gradient / (size + EPSILON).to(gradient).view(-1, *[1] * (u.ndim - 1))

    def masked(self, u: Tensor) -> tuple[str, ...]:
        """Targets, of several, whose gradient is zero at all of these inputs: the others' would hide it."""
        specs = []
        for target in self.targets if len(self) > 1 else ():
            free = u.detach().requires_grad_()
            with torch.enable_grad():
                gradient = gradient_of(target.logits(from_unit(free, target.bounds)).amax(1).sum(), free)
            if gradient is not None and not bool(gradient.isfinite().all()):
                raise BadInput(f"{target.spec}: {NOT_FINITE}")
            if gradient is None or not bool(gradient.any()):
                specs.append(str(target.spec))
        return tuple(specs)

    def quantise(self, u: Tensor) -> Tensor:
        """What will be saved: 8-bit data on its grid, other data as it is."""
        u = u.detach().clamp(0, 1)
        return u.mul(255).round().div(255) if self.eight_bit else u
