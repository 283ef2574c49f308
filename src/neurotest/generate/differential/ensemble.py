"""Several targets looked at together: logits and neurons in a graph, gradients that are checked, passes that are counted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.errors import BadInput
from neurotest.generate.differential.neurons import Neurons, Values
from neurotest.generate.gradient.engine import BROKEN, ENOUGH, MASKED
from neurotest.mutate.space import from_unit
from neurotest.oracles import predicted
from neurotest.target import Probe, Target

FLAT = 1e-5  # added to a gradient's size before dividing by it, as published


@dataclass(frozen=True, eq=False)
class Seen:
    """One target's forward pass over a batch."""

    logits: Tensor  # (n, classes), part of the graph
    values: Values

    @property
    def predicted(self) -> NDArray[np.int64]:
        return predicted(self.logits.detach())


class Ensemble:
    """Targets that take the same inputs, each within its own bounds. Inputs here live in [0, 1]. A context manager."""

    def __init__(self, targets: Sequence[Target], layers: str, *, eight_bit: bool) -> None:
        self.targets, self.eight_bit = tuple(targets), eight_bit
        self.neurons = [Neurons(target, layers) for target in targets]
        self._probes = [Probe(t, n.want, grad=True) for t, n in zip(targets, self.neurons, strict=True)]
        self._open = ExitStack()
        self.forwards = self.backwards = self.asked = self.flat = 0

    def __len__(self) -> int:
        return len(self.targets)

    def __enter__(self) -> Ensemble:
        for probe in self._probes:
            self._open.enter_context(probe)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.__exit__(kind, error, trace)

    def look(self, u: Tensor) -> list[Seen]:
        """Forward once through every target, with the graph."""
        self.forwards += len(u) * len(self)
        found = []
        for target, neurons, probe in zip(self.targets, self.neurons, self._probes, strict=True):
            trace = probe(from_unit(u, target.bounds))
            with torch.enable_grad():
                found.append(Seen(trace.logits, neurons.read(trace[neurons.want])))
        return found

    def predict(self, u: Tensor) -> NDArray[np.int64]:
        """(n, targets) classes, without a graph."""
        self.forwards += len(u) * len(self)
        with torch.no_grad():
            said = [predicted(target.logits(from_unit(u, target.bounds))) for target in self.targets]
        return np.stack(said, axis=1)

    def direction(self, aim: Tensor, u: Tensor, *, first: bool = False) -> Tensor:
        """The gradient of the summed aim towards u, each input's brought to a root mean square of 1."""
        self.backwards += len(u) * len(self)
        found = torch.autograd.grad(aim.sum(), u, allow_unused=True)[0] if aim.requires_grad else None
        if found is None:
            raise BadInput(MASKED)
        rows = found.flatten(1)
        if not bool(rows.isfinite().all()):
            raise BadInput(BROKEN)
        size = rows.double().square().mean(1).sqrt()
        if first:
            self.asked += len(u)
            self.flat += int((rows.abs().amax(1) == 0).sum())
        return found / (size + FLAT).to(found).view(-1, *[1] * (u.ndim - 1))

    def masked(self, u: Tensor) -> tuple[str, ...]:
        """Targets, of several, that are flat around all of these inputs: the others lead, and nobody would notice."""
        found = []
        for target in self.targets if len(self) > 1 else ():
            free = u.detach().requires_grad_()
            with torch.enable_grad():
                aim = target.logits(from_unit(free, target.bounds)).amax(1).sum()
                slope = torch.autograd.grad(aim, free, allow_unused=True)[0] if aim.requires_grad else None
            if slope is not None and not bool(slope.isfinite().all()):
                raise BadInput(f"{target.spec}: {BROKEN}")
            if slope is None or not bool(slope.any()):
                found.append(str(target.spec))
        return tuple(found)

    def refuse_flat(self, *, last: bool) -> None:
        """Refuse targets that were flat around every input so far; before the last batch a few are not enough to tell."""
        if self.asked and self.flat == self.asked and (last or self.asked >= ENOUGH):
            raise BadInput(MASKED)

    def settle(self, u: Tensor) -> Tensor:
        """What will be saved: 8-bit data on its grid, other data as it is."""
        u = u.detach().clamp(0, 1)
        return u.mul(255).round().div(255) if self.eight_bit else u

    def counts(self) -> NDArray[np.int64]:
        return np.array([self.forwards, self.backwards, self.asked, self.flat], dtype=np.int64)

    def restore(self, counts: NDArray[np.int64]) -> None:
        self.forwards, self.backwards, self.asked, self.flat = (int(n) for n in counts)
