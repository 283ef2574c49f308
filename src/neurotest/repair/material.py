"""The faults of a run, or inputs that it selected and somebody labelled, and how they are split: never evaluated on what was
trained on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.data.source import ArraySource, Source
from neurotest.errors import BadInput
from neurotest.evaluate.readers import StoredSuite, read_suite
from neurotest.repair.operators import Operators, family_of
from neurotest.target import Target

LEARN = 0.5  # share of the roots whose faults are trained on
Family = tuple[int, int, str]


@dataclass(frozen=True, eq=False)
class Material:
    """Inputs of a run with their labels. roots: ids of what they were made from, or their own. operators: all that made them."""

    inputs: Source
    predicted: NDArray[np.int64]
    roots: NDArray[np.str_]
    operators: tuple[frozenset[str], ...]
    families: tuple[Family, ...]
    kind: str  # faults or picks
    command: str
    benign: Source | None = None  # everything the run started from, each once, with labels

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: NDArray[np.int64]) -> Material:
        index = rows.tolist()
        return Material(
            self.inputs.take(rows), self.predicted[rows], self.roots[rows], tuple(self.operators[i] for i in index),
            tuple(self.families[i] for i in index), self.kind, self.command, self.benign,
        )  # fmt: skip

    @property
    def originals(self) -> Source | None:
        """What they were made from, each once."""
        if self.inputs.originals is None or not len(self):
            return None
        _, first = np.unique(self.roots, return_index=True)
        rows = np.sort(first)
        source, labels = self.inputs.originals, self.inputs.labels
        assert labels is not None
        return ArraySource(source.read(rows), labels[rows], classes=self.inputs.classes, spec=self.inputs.spec)


def read_material(path: str | Path, target: Target) -> Material:
    """What a run holds that can be learned from, each input once; the run must be one of this target."""
    stored = read_suite(path, target)
    if stored.suite.labels is None:
        raise BadInput(
            "no-labels", "seeds", f"{path} was made from seeds without labels: nobody knows what is right for its faults."
        )
    rows = np.arange(len(stored.suite)) if stored.command == "select" else np.flatnonzero(stored.fault)
    ids = stored.suite.ids()[rows]
    _, first = np.unique(ids, return_index=True)
    rows = rows[np.sort(first)]
    if not len(rows):
        raise BadInput("empty", "faults", f"{path} holds no faults: there is nothing to repair.")
    return _material(stored, rows)


def _material(stored: StoredSuite, rows: NDArray[np.int64]) -> Material:
    suite = stored.suite.take(rows)
    assert suite.labels is not None
    from neurotest.repair.lessons import predictions

    predicted = predictions(stored.target, suite)
    last = [family_of(stored.operators[i]) if stored.operators else stored.command for i in rows.tolist()]
    chains = [frozenset(map(family_of, stored.chains[i])) if stored.chains else frozenset({last[n]}) for n, i in enumerate(rows)]
    families = tuple(zip(suite.labels.tolist(), predicted.tolist(), last, strict=True))
    roots = suite.ids() if suite.originals is None else suite.originals.ids()
    kind = "picks" if stored.command == "select" else "faults"
    return Material(suite, predicted, roots, tuple(chains), families, kind, stored.command, _benign(stored.suite))


def _benign(suite: Source) -> Source | None:
    """What the inputs of a run were made from, those of its harmless outputs too."""
    if suite.originals is None or suite.labels is None:
        return None
    _, first = np.unique(suite.originals.ids(), return_index=True)
    rows = np.sort(first)
    return ArraySource(suite.originals.read(rows), suite.labels[rows], classes=suite.classes, spec=suite.spec)


@dataclass(frozen=True, eq=False)
class Split:
    """learn: trained on. The others are not, and come from other roots: of families in `learn`, of families that are not in it,
    and made by operators that nothing is trained with."""

    learn: Material
    seen: Material
    unseen: Material
    withheld: Material


def split(material: Material, withheld: tuple[str, ...], seed: int) -> Split:
    """By root first, so that no two mutants of one image end up on both sides; then by operator and by family."""
    roots = np.unique(material.roots)
    shuffled = rng.stream("repair.roots", seed).permutation(roots)
    learning = set(shuffled[: max(1, round(LEARN * len(roots)))].tolist())
    ours = np.array([root in learning for root in material.roots.tolist()])
    other = np.array([bool(names & set(withheld)) for names in material.operators])
    learn = np.flatnonzero(ours & ~other)
    families = {material.families[i] for i in learn.tolist()}
    shared = np.array([family in families for family in material.families])
    parts = (learn, *map(np.flatnonzero, (~ours & ~other & shared, ~ours & ~other & ~shared, ~ours & other)))
    return Split(*map(material.take, parts))


def set_aside(material: Material, held: set[str], share: float, seed: int) -> tuple[Material, Source, Material, Source]:
    """Without training data: what is trained on, faults and benign inputs, and what decides, the same. held: roots of neither."""
    benign = material.benign if material.benign is not None else material.originals
    if benign is None:  # nothing but the faults themselves
        benign = material.inputs
    benign = benign.take(np.array([one not in held for one in benign.ids().tolist()]))
    order = rng.stream("repair.aside", seed).permutation(np.unique(material.roots))
    deciding = set(order[: max(1, round(share * len(order)))].tolist()) if len(order) > 1 else set()
    ours = np.array([root not in deciding for root in material.roots.tolist()])
    plain = np.array([one not in deciding for one in benign.ids().tolist()])
    further = np.flatnonzero(plain & ~np.isin(benign.ids(), material.roots))  # of those without a fault a share decides, too
    plain[further[:: max(1, round(1 / share))]] = False
    if not ours.any() or ours.all() or not plain.any() or plain.all():
        return material, benign, material, benign
    parts = material.take(np.flatnonzero(ours)), benign.take(plain), material.take(np.flatnonzero(~ours)), benign.take(~plain)
    return parts


def withheld_operators(operators: Operators, share: float, seed: int) -> tuple[str, ...]:
    """Operator families that nothing is trained with, so that there is something unseen to judge by."""
    count = min(round(share * len(operators)), len(operators) - 1)
    drawn = rng.stream("repair.operators", seed).permutation(len(operators))[:count]
    return tuple(operators.names[i] for i in sorted(drawn.tolist()))


def campaign_weights(material: Material, operators: Operators, classes: int) -> NDArray[np.float64]:
    """(operators, classes) shares of the faults that are trained on; operators the campaign did not have get the mean."""
    counts = Counter((family[0], family[2]) for family in material.families)
    weights = np.array([[counts[(label, name)] for label in range(classes)] for name in operators.names], dtype=np.float64)
    by_class = np.bincount([family[0] for family in material.families], minlength=classes).astype(np.float64)
    absent = weights.sum(axis=1) == 0
    present = max(1, int((~absent).sum()))
    weights[absent] = by_class / present
    return np.asarray(weights / max(1.0, weights.sum()))


def refuse_leaks(trained: dict[str, Source | None], judged: dict[str, Source | None]) -> None:
    """Refuse data that would be trained on and judged by, input by input, by content."""
    for name, source in trained.items():
        ids = set() if source is None else set(source.ids().tolist())
        for other, held in judged.items():
            if held is None or not ids:
                continue
            common = sum(one in ids for one in held.ids().tolist())
            if common:
                raise BadInput(
                    "conflict",
                    other,
                    f"--{other}: {common:,} of its {len(held):,} inputs are also {name}, and what was trained on proves nothing: "
                    "give data that neither the training nor the campaign has used, for example DATA[:5000] to the campaign and "
                    f"DATA[5000:] as --{other}.",
                )
