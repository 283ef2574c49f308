"""Decision paths: per layer the neuron that decided, in words, and what the network predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import checks
from neurotest.attribute.conductance import Attribution
from neurotest.errors import BadInput
from neurotest.semantics.critical import Critic
from neurotest.semantics.descriptions import DEAD, Descriptions
from neurotest.target import Layer

MARGIN = 0.02  # neurons closer than this share of the score are a tie, and the reference's stays
LABELS = 4  # predicted classes that are remembered per path
TARGETS = ("reference", "own", "true")


@dataclass(frozen=True, eq=False)
class Paths:
    """Many paths as numbers."""

    units: NDArray[np.int64]  # (n, layers, top)
    scores: NDArray[np.float32]  # (n, layers, top)
    labels: NDArray[np.int64]  # (n, up to LABELS) predicted classes, likeliest first
    classes: NDArray[np.int64]  # (n,) whose logit was attributed

    def __len__(self) -> int:
        return len(self.units)

    def __getitem__(self, rows: Any) -> Paths:
        return Paths(self.units[rows], self.scores[rows], self.labels[rows], self.classes[rows])

    def through(self, layers: Sequence[int]) -> Paths:
        """The same paths through some of their layers."""
        chosen = list(layers)
        return Paths(self.units[:, chosen], self.scores[:, chosen], self.labels, self.classes)

    @staticmethod
    def joined(parts: Sequence[Paths]) -> Paths:
        return Paths(*(np.concatenate([getattr(p, field.name) for p in parts]) for field in fields(Paths)))

    def text(self, i: int, layers: Sequence[Layer], bank: Descriptions, classes: Sequence[str]) -> str:
        """One of them in words."""
        words = [bank[layer.name, int(u)].text for layer, units in zip(layers, self.units[i], strict=True) for u in units]
        return sentence(words, [classes[int(self.labels[i, 0])]])


def sentence(descriptions: Sequence[str], labels: Sequence[str] = (), *, repeats: bool = False) -> str:
    """The template: layer order is kept, and no description stands twice unless `repeats` are wanted.

    >>> sentence(["red", "stripes", "red"], ["cat", "dog"])
    'a photo of a cat or dog with red, stripes'
    >>> sentence(["red"])
    'a photo with red'
    >>> sentence(["red", "red"], repeats=True)
    'a photo with red, red'
    """
    words = ", ".join(descriptions if repeats else dict.fromkeys(descriptions))
    of = f" of a {' or '.join(labels)}" if labels else ""
    return f"a photo{of}" + (f" with {words}" if words else "")


class Reader:
    """Reads paths: scores neurons and takes the first `top` of every layer, leaving out those that never react.

    For a mutant, neurons of the reference's path stay unless another is ahead by more than `margin`, and by default the class
    whose logit is attributed is the reference's: a class of its own would give its prediction away.
    """

    def __init__(
        self, critic: Critic, *, top: int = 1, margin: float = MARGIN, target: str = "reference", dead: Descriptions | None = None
    ) -> None:
        checks.count("top", top, "neurons per layer, 1 is usual")
        checks.number("margin", margin, "a share of the score, 0.02 is usual", least=0, below=1)
        checks.one_of("target", target, TARGETS)
        self.critic, self.top, self.margin, self.target = critic, top, margin, target
        self.layers = critic.layers
        self._silent = {}
        for layer in self.layers:
            described = dead.layer(layer.name) if dead is not None and layer.name in dead.layers else []
            self._silent[layer.name] = torch.tensor([d.neuron for d in described if d.text == DEAD], dtype=torch.int64)
            if layer.neurons() - len(self._silent[layer.name]) < top:
                raise BadInput(
                    "too-few",
                    "neurons",
                    f"layer {layer.name!r} has fewer than {top} neurons that react: choose another with --layers.",
                )

    def references(self, x: Tensor, labels: NDArray[np.int64] | None = None) -> Paths:
        """Paths of inputs for what they are taken for (target=true: for their labels)."""
        with torch.inference_mode():
            classes = self.critic.target.logits(x).argmax(1)
        if self.target == "true" and labels is not None:
            classes = torch.from_numpy(np.where(labels < 0, classes.cpu().numpy(), labels)).to(classes.device)
        return self._read(self.critic(x, classes), None)

    def mutants(self, x: Tensor, references: Paths, predicted: Tensor | None = None) -> Paths:
        """Paths of mutants, each beside its reference."""
        if self.target != "own":
            predicted = torch.from_numpy(references.classes).to(x.device)
        elif predicted is None:
            with torch.inference_mode():
                predicted = self.critic.target.logits(x).argmax(1)
        return self._read(self.critic(x, predicted), references)

    def _read(self, attribution: Attribution, references: Paths | None) -> Paths:
        units, scores = [], []
        for number, layer in enumerate(self.layers):
            shown = attribution.scores[layer.name].detach().nan_to_num(nan=-torch.inf)
            if len(silent := self._silent[layer.name]):
                shown = shown.index_fill(1, silent.to(shown.device), -torch.inf)
            ranked = shown
            if references is not None and self.margin:
                reference = torch.from_numpy(references.units[:, number]).to(shown.device)
                ahead = shown.gather(1, reference)
                lifted = torch.where(ahead > 0, ahead / (1 - self.margin), ahead * (1 - self.margin))
                ranked = shown.scatter(1, reference, lifted)
            best = ranked.topk(self.top, dim=1).indices
            units.append(best)
            scores.append(shown.gather(1, best))
        labels = attribution.logits.topk(min(LABELS, attribution.logits.shape[1]), dim=1).indices
        columns = torch.stack(units, 1), torch.stack(scores, 1).float(), labels, attribution.classes
        return Paths(*(column.cpu().numpy() for column in columns))
