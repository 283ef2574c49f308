"""Features of inputs by a named extractor: the target itself, another network, or a user's module."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from neurotest import zoo
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.mutate.space import from_unit, to_unit
from neurotest.scan import batches
from neurotest.target import Probe, Target, Want
from neurotest.target.load import load

LAST = Want(layers="last_hidden", neuron="unit", inputs=True)


@dataclass(frozen=True, eq=False)
class Features:
    """Features (n, d) and, where the extractor is a classifier, its probabilities (n, classes)."""

    values: NDArray[np.float64]
    probs: NDArray[np.float64] | None
    predicted: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class Extractor:
    """What makes features. `name` goes into every result: numbers of different extractors are not comparable."""

    name: str
    network: Target
    classifier: bool

    @classmethod
    def of(cls, what: str | Target | nn.Module | None, target: Target) -> Extractor:
        """None or `target`: the last hidden layer of the target; `reference`: another embedded network for the same data; a
        target or its spec: that network's last hidden layer; a module: what it returns, (n, d), for the target's inputs."""
        if what is None or what == "target":
            return cls(f"last hidden layer of the target itself ({target.spec})", target, True)
        if isinstance(what, nn.Module):
            return cls(f"the user's {type(what).__name__}", _module(what, target), False)
        network = load(_reference(target) if what == "reference" else what)
        if network.shape is not None and target.shape is not None and network.shape != target.shape:
            raise BadInput(
                f"extractor {network.spec} takes inputs of {network.shape}, the target of {target.shape}: choose another."
            )
        network.shape = network.shape or target.shape
        return cls(f"last hidden layer of {network.spec}", network, True)

    def __call__(self, target: Target, source: Source, *, batch: int = 250) -> Features:
        """Features of a source that is meant for `target`."""
        values, logits = [], []
        with Probe(self.network, *([LAST] if self.classifier else [])) as probe:
            for part in batches(target, source, batch=batch):
                if not self.classifier:
                    values.append(self._vectors(part.x))
                    continue
                trace = probe(_moved(part.x, target.bounds, self.network.bounds))
                (found,) = trace[LAST].values()
                values.append(found.flatten(1).double().cpu())
                logits.append(trace.logits.double().cpu())
        joined = torch.cat(values).numpy()
        if not self.classifier:
            return Features(joined, None, None)
        scores = torch.cat(logits)
        return Features(joined, scores.softmax(1).numpy(), scores.argmax(1).numpy())

    def _vectors(self, x: Tensor) -> Tensor:
        """What a user's module returns, checked."""
        with torch.inference_mode():
            try:
                found = self.network.raw(x)
            except Exception as error:  # a stranger's code may raise anything
                size = "x".join(map(str, x.shape[1:]))
                first = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise BadInput(f"extractor: {self.name} does not take inputs of size {size}: {first}") from error
        if not isinstance(found, Tensor) or found.ndim < 2 or len(found) != len(x):
            raise BadInput(f"extractor: {self.name} must return one row of features per input, (n, d).")
        return found.flatten(1).double().cpu()


def _moved(x: Tensor, bounds: tuple[float, float], to: tuple[float, float]) -> Tensor:
    return x if bounds == to else from_unit(to_unit(x, bounds), to)


def _module(module: nn.Module, target: Target) -> Target:
    return Target(module, bounds=target.bounds, shape=target.shape, device=target.device, spec=type(module).__name__)


def _reference(target: Target) -> str:
    """An embedded network for the data of a zoo target, not the target itself."""
    if target.spec.startswith("zoo:"):
        own = target.spec.removeprefix("zoo:")
        family = own.partition("-")[0]
        others = [s.name for s in zoo.catalogue() if s.family == family and s.embedded and s.name != own]
        if others:
            return f"zoo:{others[-1]}"
    known = ", ".join(f"zoo:{s.name}" for s in zoo.catalogue() if s.embedded)
    raise BadInput(
        f"extractor='reference': no embedded network is known for the data of {target.spec}; name one ({known}) or your own."
    )
