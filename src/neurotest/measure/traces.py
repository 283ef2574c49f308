"""What criteria read: the values of a trace as one numpy array, put together once for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.errors import BadInput
from neurotest.target import Trace, Want

Values = NDArray[np.floating]
_JOINED = "_joined"


@dataclass(frozen=True)
class Layout:
    """Which layers stand where in a joined array: names, neurons of each, and the axis of the channels in whole maps."""

    sizes: Mapping[str, int]
    axes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.sizes)

    @cached_property
    def neurons(self) -> int:
        return sum(self.sizes.values())

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *self.sizes.values()])[:-1].astype(np.int64)

    @cached_property
    def slices(self) -> dict[str, slice]:
        return {name: slice(int(s), int(s) + self.sizes[name]) for name, s in zip(self.names, self.starts, strict=True)}

    @cached_property
    def widths(self) -> NDArray[np.int64]:
        return np.array(list(self.sizes.values()), dtype=np.int64)


@dataclass(frozen=True)
class Joined:
    """The reduced values of all layers of a want side by side, and how many of them are no finite numbers."""

    values: Values  # (n, neurons)
    bad: NDArray[np.int64] | None  # per layer; None when everything is finite

    @cached_property
    def finite_rows(self) -> NDArray[np.bool_]:
        return np.asarray(np.isfinite(self.values).all(axis=1))

    @cached_property
    def extremes(self) -> tuple[Values, Values]:
        """The least and the greatest value of every neuron; NaN counts in neither."""
        if len(self.values) == 1:
            return self.values[0], self.values[0]
        if self.bad is None:
            return self.values.min(axis=0), self.values.max(axis=0)
        return np.fmin.reduce(self.values, axis=0), np.fmax.reduce(self.values, axis=0)


def array(tensor: Tensor) -> Values:
    """A tensor as numpy; a view where it lies in the host's memory already."""
    try:
        return tensor.numpy()
    except (RuntimeError, TypeError):  # on a device, with a graph, or of a type numpy does not have
        tensor = tensor.detach().cpu()
        return tensor.numpy() if tensor.dtype.itemsize != 2 else tensor.float().numpy()


def joined(trace: Trace, want: Want, layout: Layout) -> Joined:
    """All layers of a want as one array; kept with the trace, because several criteria read the same."""
    kept = vars(trace).setdefault(_JOINED, {})  # the trace is frozen, and this is only its own values in another form
    values = kept.get(want)
    if values is None:
        values = kept[want] = _join(trace[want], layout)
    return values  # type: ignore[no-any-return]


def from_joined(logits: Tensor, want: Want, values: Joined) -> Trace:
    """A trace that has the joined values of one want only."""
    trace = Trace(logits)
    vars(trace)[_JOINED] = {want: values}
    return trace


def _join(recorded: Mapping[str, Tensor], layout: Layout) -> Joined:
    parts = [array(recorded[name]) for name in layout.names]
    values = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
    if values.shape[1] != layout.neurons:
        raise BadInput(
            "changed",
            "layers",
            f"the trace has {values.shape[1]} neurons, the criterion was started for {layout.neurons}: "
            "inputs of another size, or a profile of another target.",
        )
    return checked(values, layout.starts)


def checked(values: Values, starts: NDArray[np.int64]) -> Joined:
    """Values of layers that begin at `starts`, with the number of those that are not finite."""
    with np.errstate(all="ignore"):
        total = values.sum(dtype=np.float64)
    if np.isfinite(total):
        return Joined(values, None)
    bad = np.add.reduceat(~np.isfinite(values), starts, axis=1, dtype=np.int64).sum(axis=0)
    return Joined(values, bad if bad.any() else None)


def part(trace: Trace, index: NDArray[np.int64] | NDArray[np.bool_]) -> Trace:
    """The trace of some of a batch's inputs."""
    chosen = torch.from_numpy(np.flatnonzero(index) if index.dtype == bool else index).to(trace.logits.device)
    with torch.inference_mode():
        recorded = {want: {name: values[chosen] for name, values in layers.items()} for want, layers in trace.recorded.items()}
        return Trace(trace.logits[chosen], recorded, quantity=trace.quantity)
