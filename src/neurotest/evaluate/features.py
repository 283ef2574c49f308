"""Features of inputs by a named extractor: the target itself, another network, or a user's module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from neurotest import zoo
from neurotest.data.source import Source, shape_text
from neurotest.devices import exact
from neurotest.errors import BadInput, NeurotestError
from neurotest.mutate.unit import from_unit, to_unit
from neurotest.scan import batches
from neurotest.target import Probe, Target, Want
from neurotest.target.failures import ForwardError
from neurotest.target.load import load

LAST = Want(layers="last_hidden", neuron="unit", inputs=True)
MAPS = Want(layers="pre_activation", keep="map")
MAPS_AT_ONCE = 50  # inputs at once where whole maps of all layers are kept


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
    want: Want | None = LAST  # None: what the network returns is the features

    @classmethod
    def of(
        cls,
        what: str | Target | nn.Module | None,
        target: Target,
        *,
        layer: str = "last_hidden",
        weights: str | Path | None = None,
    ) -> Extractor:
        """None or `target`: the last hidden layer of the target; `reference`: another embedded network for the same data; a
        target or its spec (with `weights` of your own): that network; a module: what it returns, (n, d), for the target's inputs.

        layer: `last_hidden`, a preset or globs over layer names, or `output` for a network that returns features.
        """
        own = what is None or what == "target"
        if weights is not None and not (isinstance(what, str) and what.startswith("py:")):
            raise BadInput(
                "conflict", "weights", f"weights={str(weights)!r}: they belong to an extractor py:FILE_OR_MODULE:CALLABLE."
            )
        if isinstance(what, nn.Module):
            return cls(f"the user's {type(what).__name__}", _module(what, target), None)
        network = target if own or what is None else load(_reference(target) if what == "reference" else what, weights=weights)
        if network.shape is not None and target.shape is not None and network.shape != target.shape:
            raise BadInput(
                "wrong-shape",
                "extractor",
                f"extractor {network.spec} takes inputs of {shape_text(network.shape)}, the target of "
                f"{shape_text(target.shape)}: choose another.",
            )
        network.shape = network.shape or target.shape
        where = f"the target itself ({target.spec})" if own else f"{network.spec}{'' if weights is None else f' with {weights}'}"
        if layer == "output":
            return cls(f"output of {where}", network, None)
        word = "last hidden layer" if layer == "last_hidden" else f"layers {layer}"
        return cls(f"{word} of {where}", network, LAST if layer == "last_hidden" else Want(layers=layer, neuron="unit"))

    @property
    def classifier(self) -> bool:
        return self.want is not None

    def __call__(self, target: Target, source: Source, *, batch: int = 250) -> Features:
        """Features of a source that is meant for `target`."""
        values, logits = [], []
        with self._named(source), Probe(self.network, *([self.want] if self.want else [])) as probe:
            for part in batches(target, source, batch=batch):
                x = self._rescaled(target, part.x)
                if self.want is None:
                    values.append(self._vectors(x))
                    continue
                trace = probe(x)
                values.append(torch.cat([v.flatten(1) for v in trace[self.want].values()], dim=1).cpu().double())
                logits.append(trace.logits.cpu().double())
        joined = torch.cat(values).numpy()
        if self.want is None:
            return Features(joined, None, None)
        scores = torch.cat(logits)
        probs = None if self.network.bins is not None else scores.softmax(1).numpy()  # a quantity has none
        return Features(joined, probs, scores.argmax(1).numpy())

    def distance(self, target: Target, source: Source, originals: Source, *, batch: int = MAPS_AT_ONCE) -> NDArray[np.float64]:
        """How differently the extractor sees each input and its original, 0 to 4: LPIPS with equal weights, on these features.

        At every place of every convolution and dense layer the channels are scaled to length 1; the squared difference is
        averaged over places, then over layers. For an extractor that only returns features: of those. (n,)
        """
        parts = []
        step = min(batch, MAPS_AT_ONCE)
        pairs = zip(batches(target, source, batch=step), batches(target, originals, batch=step), strict=True)
        with self._named(source), Probe(self.network, *([MAPS] if self.classifier else [])) as probe:
            for one, other in pairs:
                both = self._rescaled(target, torch.cat([one.x, other.x]))
                layers = [self._vectors(both)] if self.want is None else list(probe(both)[MAPS].values())
                axes = self._axes() if self.classifier else [1]
                parts.append(torch.stack([_apart(v, axis) for v, axis in zip(layers, axes, strict=True)]).mean(0))
        return np.asarray(torch.cat(parts).cpu().double().numpy())

    def _axes(self) -> list[int]:
        return [layer.axis for layer in self.network.survey().find(MAPS.layers)]

    def _rescaled(self, target: Target, x: Tensor) -> Tensor:
        return x if target.bounds == self.network.bounds else from_unit(to_unit(x, target.bounds), self.network.bounds)

    @contextmanager
    def _named(self, source: Source) -> Iterator[None]:
        """A user's network may raise anything: most likely the inputs do not fit it."""
        try:
            yield
        except Exception as error:
            if isinstance(error, NeurotestError) and not isinstance(error, ForwardError):
                raise
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise BadInput(
                "unsuitable",
                "extractor",
                f"extractor: {self.name} does not take inputs of size {shape_text(source.shape)}: {first}",
            ) from error

    def _vectors(self, x: Tensor) -> Tensor:
        """What a user's module returns, checked."""
        with torch.inference_mode():
            features = self.network.raw(x)
        if not isinstance(features, Tensor) or features.ndim < 2 or len(features) != len(x):
            raise BadInput(
                "wrong-shape", "features", f"extractor: {self.name} must return one row of features per input, (n, d)."
            )
        return features.flatten(1).cpu().double()


def _apart(values: Tensor, axis: int = 1) -> Tensor:
    """Squared distance of the first and the second half of a batch after scaling along `axis`, mean over places: (n,).

    >>> round(float(_apart(torch.tensor([[3.0, 4.0], [0.0, 2.0]]))), 6)  # (.6, .8) against (0, 1)
    0.4
    """
    values = exact(values)
    unit = values / values.norm(dim=axis, keepdim=True).clamp_min(1e-10)
    first, second = unit.chunk(2)
    away: Tensor = (first - second).square().sum(dim=axis)  # one number per input and place
    return away.flatten(1).mean(1) if away.ndim > 1 else away


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
    embedded = ", ".join(f"zoo:{s.name}" for s in zoo.catalogue() if s.embedded)
    raise BadInput(
        "unknown-name",
        "extractor",
        f"extractor='reference': no embedded network is known for the data of {target.spec}; name one ({embedded}) or your own.",
    )
