"""What fuzzing starts from: inputs the target gets right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.mutate.space import from_unit, to_unit
from neurotest.oracles import Oracles, Roots, predicted
from neurotest.scan import aligned, batches, fit
from neurotest.target import Target


@dataclass(frozen=True, eq=False)
class Seeds:
    """Inputs as they lie in the source (uint8, or float32 in bounds), with what is known of them."""

    x: NDArray[np.generic]  # (n, *shape)
    positions: NDArray[np.int64]  # (n,) in the source
    contents: NDArray[np.str_]  # (n,)
    roots: Roots
    set_aside: int  # how many are left out because the target gets them wrong already
    bounds: tuple[float, float]
    classes: int

    def __len__(self) -> int:
        return len(self.x)

    @property
    def eight_bit(self) -> bool:
        return self.x.dtype == np.uint8

    def unit(self, x: NDArray[np.generic], device: torch.device | str = "cpu") -> torch.Tensor:
        """Stored inputs in [0, 1], where mutations work."""
        tensor = torch.from_numpy(x).to(device)
        return tensor.float().div_(255) if self.eight_bit else to_unit(tensor, self.bounds).clamp(0, 1)

    def stored(self, x: torch.Tensor) -> NDArray[np.generic]:
        """The inverse: what is tested is what is saved."""
        if self.eight_bit:
            return np.asarray(x.mul(255).round_().to(torch.uint8).cpu().numpy())
        return np.asarray(from_unit(x, self.bounds).clamp(*self.bounds).float().cpu().numpy())


def choose_seeds(target: Target, source: Source, oracles: Oracles, *, keep_wrong: bool = False, batch: int = 250) -> Seeds:
    """The inputs of the source that may be seeds: those no oracle rejects as they are, and whose label is predicted."""
    source = aligned(target, source)
    classes = fit(target, source)
    labels = source.labels
    if labels is None and oracles.needs_labels:
        raise BadInput(
            f"{source.what} has no labels, and the oracle `label` needs them: give labelled seeds, or --oracle metamorphic."
        )
    if labels is not None and int(labels.max()) >= classes:
        raise BadInput(f"{source.what} has label {int(labels.max())}, but the target has {classes} classes (0 to {classes - 1}).")
    known = np.full(len(source), -1, dtype=np.int64) if labels is None else labels
    logits, wrong = [], []
    with torch.inference_mode():
        for part in batches(target, source, batch=batch):
            out = target.logits(part.x)
            here = Roots(known[part.index], predicted(out), out.float().cpu().numpy())
            rejected = oracles(part.x, out, here) >= 0
            if labels is not None:
                rejected |= here.predicted != here.labels
            logits.append(here.logits)
            wrong.append(rejected)
    aside = np.concatenate(wrong)
    kept = np.arange(len(source)) if keep_wrong else np.flatnonzero(~aside)
    if not len(kept):
        raise BadInput(
            f"none of the {len(source)} seeds of {source.what} is classified correctly: check labels, bounds and preprocessing "
            "(`neurotest doctor TARGET DATA`), or start from wrong seeds with --keep-wrong."
        )
    values = np.concatenate(logits)[kept]
    finite = np.where(np.isfinite(values).all(1), values.argmax(1), -1)
    known, left = known[kept], len(source) - len(kept)
    return Seeds(source.read(kept), kept, source.ids()[kept], Roots(known, finite, values), left, target.bounds, classes)
