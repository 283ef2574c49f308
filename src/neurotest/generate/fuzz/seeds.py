"""What fuzzing starts from: inputs the target gets right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.data.source import Source
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.levels import Levels, levels_of
from neurotest.mutate.unit import from_unit, to_unit
from neurotest.oracles import Oracles, Roots, build_oracles, default_oracle, far, predicted
from neurotest.scan import aligned, batches, check_labels, fit
from neurotest.target import Target
from neurotest.target.outputs import Bins


@dataclass(frozen=True, eq=False)
class Seeds:
    """Inputs as they lie in the source (uint8, int16, or float32 in bounds), with their labels and predictions."""

    x: NDArray[np.generic]  # (n, *shape)
    positions: NDArray[np.int64]  # (n,) in the source
    contents: NDArray[np.str_]  # (n,)
    roots: Roots
    set_aside: int  # how many are left out because the target gets them wrong already
    bounds: tuple[float, float]
    classes: int
    names: NDArray[np.object_] | None = None  # (n,) of their files, where they are files
    bins: Bins | None = None  # where the target predicts a regression value

    def __len__(self) -> int:
        return len(self.x)

    @property
    def levels(self) -> Levels | None:
        return levels_of(self.x.dtype)

    @cached_property
    def expected(self) -> NDArray[np.int64]:
        """(n,) labels, or predictions where there is none; of a regression value the bins of the answers, from which it must not
        move."""
        if self.bins is not None:
            return self.roots.predicted
        return np.where(self.roots.labels >= 0, self.roots.labels, self.roots.predicted)

    @cached_property
    def values(self) -> NDArray[np.float64] | None:
        """(n,) the answers, where the target predicts a regression value."""
        return None if self.bins is None else self.roots.values(self.bins)

    def take(self, rows: NDArray[np.int64]) -> Seeds:
        """Some of them."""
        parts = (self.x[rows], self.positions[rows], self.contents[rows], self.roots[rows])
        names = None if self.names is None else self.names[rows]
        return Seeds(*parts, self.set_aside, self.bounds, self.classes, names, self.bins)

    def about(self, row: int) -> dict[str, Any]:
        """What a run stores of a seed beside its label: the name of its file, the answer where that is a regression value, and
        the truth."""
        about: dict[str, Any] = {} if self.names is None else {"name": str(self.names[row])}
        if self.values is not None:
            about["answer"] = float(self.values[row])
        if self.roots.quantities is not None:
            about["truth"] = float(self.roots.quantities[row])
        return about

    def answers(self, logits: torch.Tensor) -> NDArray[np.float64]:
        """(n,) the regression values behind logits; nothing, (n,) of NaN, where the target predicts a class."""
        if self.bins is None:
            return np.full(len(logits), np.nan)
        return np.asarray(self.bins.values(exact(logits)).cpu().numpy())

    def counted(self, logits: torch.Tensor, rows: NDArray[np.int64], tolerance: float | None = None) -> NDArray[np.int64]:
        """(n,) the classes that answers to mutants of these seeds count as: the expected one unless it is a fault."""
        if self.bins is None or self.values is None:
            return predicted(logits)
        expected, values = (torch.from_numpy(part[rows]) for part in (self.expected, self.values))
        return np.asarray(self.bins.counted(logits, expected.to(logits.device), values, tolerance).cpu().numpy(), dtype=np.int64)

    def unit(self, x: NDArray[np.generic], device: torch.device | str = "cpu") -> torch.Tensor:
        """Stored inputs in [0, 1], where mutations work."""
        tensor = torch.from_numpy(x).to(device)
        return self.levels.unit(tensor) if self.levels else to_unit(tensor, self.bounds).clamp(0, 1)

    def stored(self, x: torch.Tensor) -> NDArray[np.generic]:
        """The inverse: what is tested is what is saved."""
        if self.levels:
            return self.levels.stored(x)
        return np.asarray(from_unit(x, self.bounds).clamp(*self.bounds).float().cpu().numpy())


def _off(
    target: Target, source: Source, index: NDArray[np.int64], logits: torch.Tensor, tolerance: float | None
) -> NDArray[np.bool_]:
    """Which answers are not the label or, of a regression value, farther from it than allowed."""
    assert source.labels is not None
    if target.bins is None or tolerance is None or source.quantities is None:
        return np.asarray(predicted(logits) != source.labels[index])
    return far(target.bins, logits, source.quantities[index], tolerance)


def choose_seeds(
    target: Target, source: Source, oracles: Oracles | None = None, *, keep_wrong: bool = False, batch: int = 250
) -> Seeds:
    """The inputs of the source that may be seeds: those no oracle rejects as they are, and whose label is predicted.

    oracles: by default `label`, or `metamorphic` where the source has no labels. Of a regression value: whose truth lies within
    the tolerance of the oracle.
    """
    source = aligned(target, source)
    oracles = oracles or build_oracles(target, default_oracle(target, source.labels is not None))
    classes = fit(target, source)
    labels = source.labels
    if labels is None and oracles.needs_labels:
        raise BadInput(
            "no-labels",
            "seeds",
            f"{source.what} has no labels, and the oracle `label` needs them: give labelled seeds, or --oracle metamorphic.",
        )
    check_labels(source, classes)
    filled = np.full(len(source), -1, dtype=np.int64) if labels is None else labels
    logits, wrong = [], []
    with torch.inference_mode():
        for part in batches(target, source, batch=batch):
            out = target.logits(part.x)
            truth = None if source.quantities is None else np.asarray(source.quantities[part.index], dtype=np.float64)
            roots = Roots(filled[part.index], predicted(out), out.float().cpu().numpy(), truth)
            rejected = oracles(part.x, out, roots) >= 0
            if labels is not None:
                rejected |= _off(target, source, part.index, out, oracles.tolerance)
            logits.append(roots.logits)
            wrong.append(rejected)
    kept = np.arange(len(source)) if keep_wrong else np.flatnonzero(~np.concatenate(wrong))
    if not len(kept):
        raise BadInput(
            "empty",
            "seeds",
            f"none of the {len(source)} seeds of {source.what} is classified correctly: check labels, bounds and preprocessing "
            "(`neurotest doctor TARGET DATA`), or start from wrong seeds with --keep-wrong.",
        )
    values = np.concatenate(logits)[kept]
    finite = np.where(np.isfinite(values).all(1), values.argmax(1), -1)
    truth = None if source.quantities is None else np.asarray(source.quantities[kept], dtype=np.float64)
    set_aside, roots = len(source) - len(kept), Roots(filled[kept], finite, values, truth)
    names = None if source.names is None else source.names[kept]
    return Seeds(source.read(kept), kept, source.ids()[kept], roots, set_aside, target.bounds, classes, names, target.bins)
