"""Decision paths: per layer the neuron that decided, in words, and what the network predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import checks, rng
from neurotest.attribute.conductance import Attribution
from neurotest.errors import BadInput
from neurotest.semantics import encoders
from neurotest.semantics.critical import Critic
from neurotest.semantics.describe.material import distinct
from neurotest.semantics.descriptions import DEAD, Descriptions
from neurotest.target import Layer

MARGIN = 0.02  # neurons closer than this share of the score are a tie, and the reference's stays
LABELS = 4  # predicted classes that are remembered per path
TARGETS = ("reference", "own", "true")
Mode = Literal["no-label", "with-label", "label-only", "random-words", "label+random-words"]
Similarities = NDArray[np.float64]


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
        return _sentence(words, [classes[int(self.labels[i, 0])]])


def _sentence(descriptions: Sequence[str], labels: Sequence[str] = (), *, repeats: bool = False) -> str:
    """The template: layer order is kept, and no description stands twice unless `repeats` are wanted.

    >>> _sentence(["red", "stripes", "red"], ["cat", "dog"])
    'a photo of a cat or dog with red, stripes'
    >>> _sentence(["red"])
    'a photo with red'
    >>> _sentence(["red", "red"], repeats=True)
    'a photo with red, red'
    """
    words = ", ".join(descriptions if repeats else dict.fromkeys(descriptions))
    of = f" of a {' or '.join(labels)}" if labels else ""
    return f"a photo{of}" + (f" with {words}" if words else "")


class PathReader:
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


@dataclass(frozen=True, kw_only=True)
class PathComparison(checks.Settings):
    """How paths are compared.

    mode: `no-label`; `with-label`, as published; `label-only` compares predictions and nothing else; `random-words` gives every
    neuron another neuron's description, `label+random-words` with the label. distance: `text` by an encoder, `jaccard` on
    neurons (without descriptions), `desc-jaccard` on the words of descriptions. labels: predicted classes in a path. shuffle: in
    random order instead of the likeliest first. repeats: a description that several layers share stands there as often.
    everything: descriptions of all neurons of the layers instead of the critical ones'.
    """

    mode: Mode = "no-label"
    distance: Literal["text", "jaccard", "desc-jaccard"] = "text"
    encoder: Any = "lsa"
    fallback: str | None = None
    labels: int = checks.setting(1, "predicted classes that stand in a path", most=LABELS)
    shuffle: bool = False
    repeats: bool = False
    everything: bool = False
    seed: int = 0

    @property
    def labelled(self) -> bool:
        return self.mode in ("with-label", "label-only", "label+random-words")

    @property
    def worded(self) -> bool:
        """Whether descriptions are read at all."""
        return self.mode != "label-only" and self.distance != "jaccard"

    def start(self, layers: Sequence[Layer], bank: Descriptions | None, classes: Sequence[str] | None) -> PathComparer:
        return PathComparer(self, layers, bank, classes)


class PathComparer:
    """Compares paths of one target; every distinct text is encoded once."""

    def __init__(
        self, settings: PathComparison, layers: Sequence[Layer], bank: Descriptions | None, classes: Sequence[str] | None
    ) -> None:
        self.settings, self.layers = settings, tuple(layers)
        self.classes = _names(classes) if settings.labelled else ()
        self.texts: list[list[str]] = []
        if settings.worded:
            if bank is None:
                raise BadInput(
                    "missing",
                    "descriptions",
                    "paths are compared by their words, so descriptions are needed: `neurotest describe TARGET DATA`.",
                )
            self.texts = [[d.text for d in bank.layer(layer.name)] for layer in layers]
            if settings.mode.endswith("random-words"):  # every neuron gets another's description, whichever layer that is of
                every = [text for part in self.texts for text in part]
                mixed = iter(rng.stream("semantics.words", settings.seed).permutation(len(every)))
                self.texts = [[every[next(mixed)] for _ in part] for part in self.texts]
        self._whole = ", ".join(dict.fromkeys(t for texts in self.texts for t in texts)) if settings.everything else ""
        self._encode: Any = None
        if settings.worded and settings.distance == "text":
            every = [*(t for texts in self.texts for t in texts), *self.classes]
            self._encode = encoders.start(settings.encoder, every, settings.fallback)
        self._rows: dict[bytes, int] = {}
        self._vectors: list[NDArray[np.float32]] = []
        self._pairs: dict[tuple[str, str], float] = {}
        self._words: Any = None

    def text(self, units: NDArray[np.int64], labels: NDArray[np.int64]) -> str:
        """The sentence of one path: units (layers, top)."""
        each = [texts[int(u)] for texts, row in zip(self.texts, units, strict=False) for u in row]
        words = [self._whole] if self._whole else each
        names = [self.classes[int(c)] for c in labels[: self.settings.labels]] if self.classes else []
        if self.settings.shuffle and len(names) > 1:
            # The draw belongs to the path: a text is made once and kept, and a resumed campaign has to make the same.
            drawn = rng.stream("semantics.shuffle", self.settings.seed, *units.reshape(-1).tolist(), *labels.tolist())
            names = [names[i] for i in drawn.permutation(len(names))]
        return _sentence(words, names, repeats=self.settings.repeats)

    def similarity(self, references: Paths, paths: Paths) -> Similarities:
        """(n,) how alike each path is to its reference; 1 is the same."""
        settings = self.settings
        if settings.mode == "label-only":
            k = settings.labels
            return (references.labels[:, :k] == paths.labels[:, :k]).mean(1)  # type: ignore[no-any-return]
        if settings.distance == "jaccard":
            return self._neurons(references, paths)
        if settings.distance == "desc-jaccard":
            one, other = self._word_sets(references), self._word_sets(paths)
            either = (one | other).sum(1)
            return np.where(either > 0, (one & other).sum(1) / np.maximum(either, 1), 1.0)
        if hasattr(self._encode, "pair"):
            return self._by_layer(references, paths)
        cosines = (self._encoded(references) * self._encoded(paths)).sum(1)
        return np.asarray(cosines, dtype=np.float64).round(6)  # equal texts are 1, whatever the last bits say

    def _neurons(self, references: Paths, paths: Paths) -> Similarities:
        """Jaccard on (layer, neuron), and labels where they belong to the path."""
        same = (references.units[:, :, :, None] == paths.units[:, :, None, :]).any(3).sum((1, 2))  # (n,)
        each = int(np.prod(paths.units.shape[1:]))
        if self.settings.everything:
            same = np.full(len(paths), each)
        if self.classes:
            k = self.settings.labels
            both = references.labels[:, :k, None] == paths.labels[:, None, :k]
            same, each = same + both.any(2).sum(1), each + k
        return np.asarray(same / (2 * each - same), dtype=np.float64)

    def _word_sets(self, paths: Paths) -> NDArray[np.bool_]:
        """(n, words) which words stand in each path."""
        if self._words is None:
            split = [[encoders.tokens(t) for t in texts] for texts in self.texts]
            named = [encoders.tokens(c) or [c] for c in self.classes]
            numbers = {w: i for i, w in enumerate(dict.fromkeys(w for part in (*split, named) for words in part for w in words))}
            self._words = [_marked(part, numbers) for part in (*split, named)]
        *layers, named = self._words
        present = np.zeros((len(paths), named.shape[1] if len(named) else layers[0].shape[1]), dtype=bool)
        for number, marks in enumerate(layers):
            present |= marks.any(0) if self.settings.everything else marks[paths.units[:, number]].any(1)
        if self.classes:
            present |= named[paths.labels[:, : self.settings.labels]].any(1)
        return present

    def _encoded(self, paths: Paths) -> NDArray[np.float32]:
        """Vectors of the paths' sentences (n, d)."""
        k = self.settings.labels if self.classes else 0
        keys = np.concatenate([paths.units.reshape(len(paths), -1), paths.labels[:, :k]], 1)
        distinct, where = np.unique(keys, axis=0, return_inverse=True)
        names = [row.tobytes() for row in distinct]
        new = [i for i, name in enumerate(names) if name not in self._rows]
        if new:
            width = int(np.prod(paths.units.shape[1:]))
            units = distinct[:, :width].reshape(len(distinct), *paths.units.shape[1:])
            texts = [self.text(units[i], distinct[i, width:]) for i in new]
            unique = list(dict.fromkeys(texts))  # neurons of equal meaning make equal sentences
            vectors = dict(zip(unique, encoders.unit(self._encode(unique), len(unique)), strict=True))
            for i, text in zip(new, texts, strict=True):
                self._rows[names[i]] = len(self._vectors)
                self._vectors.append(vectors[text])
        rows = np.array([self._rows[name] for name in names])[where.reshape(-1)]
        return np.stack([self._vectors[row] for row in rows])

    def _by_layer(self, references: Paths, paths: Paths) -> Similarities:
        """The mean over layers (and the label, where it belongs to the path) of a similarity of descriptions."""
        columns = [(texts, references.units[:, i, 0], paths.units[:, i, 0]) for i, texts in enumerate(self.texts)]
        if self.settings.everything:
            columns = [(texts, np.zeros_like(a), np.zeros_like(a)) for texts, a, _ in columns]
        if self.classes:
            columns += [(list(self.classes), references.labels[:, i], paths.labels[:, i]) for i in range(self.settings.labels)]
        total = np.zeros(len(paths))
        for texts, ones, others in columns:
            pairs, where = np.unique(np.stack([ones, others], 1), axis=0, return_inverse=True)
            total += np.array([self._pair(texts[a], texts[b]) for a, b in pairs])[where.reshape(-1)]
        return (total / len(columns)).round(6)

    def _pair(self, one: str, other: str) -> float:
        key = (one, other) if one <= other else (other, one)
        if key not in self._pairs:
            self._pairs[key] = 1.0 if one == other else float(self._encode.pair(*key))
        return self._pairs[key]

    @property
    def distinct(self) -> int:
        """How many different paths were put into words."""
        return len(self._rows)


def _marked(part: list[list[str]], numbers: dict[str, int]) -> NDArray[np.bool_]:
    marks = np.zeros((len(part), len(numbers)), dtype=bool)
    for row, words in enumerate(part):
        marks[row, [numbers[w] for w in words]] = True
    return marks


def _names(classes: Sequence[str] | None) -> tuple[str, ...]:
    if not classes:
        raise BadInput(
            "missing",
            "classes",
            "paths with labels need names of the classes: pass --classes FILE, one name per line, or mode=no-label.",
        )
    return distinct(classes)
