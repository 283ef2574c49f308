"""The study of NSGen without campaigns: the same mutants, their paths read once, and compared in every way.

Section 7.4, and tables 5, 8, 9, 11 and figure 6 for subjects on which a campaign per variant would take hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.errors import BadInput
from neurotest.generate.fuzz import choose_seeds
from neurotest.mutate.rules import Rules95
from neurotest.mutate.unit import from_unit, to_unit
from neurotest.mutate.validity import Validity
from neurotest.oracles import build_oracles
from neurotest.semantics.critical import path_layers
from neurotest.semantics.guidance import Guidance
from neurotest.semantics.paths import PathReader, Paths
from neurotest.semantics.soft import Contributions, Soft, Values, VectorReader, Vectors, cosines
from neurotest.semantics.threshold import tau
from neurotest.stats.comparison import ranks
from neurotest.target import Target
from neurotest_lab.studies.frame import ABSENT, Row
from neurotest_lab.studies.nsgen.cells import PER_CLASS, shared, subject_of

PAIRS = {"quick": (150, 4), "full": (500, 10)}  # images, mutants each
# Which table a way of comparing belongs to, and what it changes. Four layers, one neuron each, unless it says otherwise.
WAYS: dict[str, tuple[str, Row]] = {
    "nsgen (no label, lsa)": ("5, 8, 11, figure 6", {}),
    "encoder tokens": ("5", {"encoder": "tokens"}),
    "encoder wordnet": ("5", {"encoder": "wordnet"}),
    "encoder minilm": ("5", {"encoder": "minilm"}),
    "words in common": ("5", {"distance": "desc-jaccard"}),
    "with-label": ("8, 11", {"mode": "with-label"}),
    "with-label, 2 labels": ("8", {"mode": "with-label", "labels": 2}),
    "with-label, 3 labels": ("8", {"mode": "with-label", "labels": 3}),
    "label-only": ("8", {"mode": "label-only"}),
    "w/o NLDG": ("11", {"distance": "jaccard"}),
    "w/o CNS, with-label": ("11", {"critical": "all", "mode": "with-label"}),
    "random-words": ("11", {"mode": "random-words"}),
    "label+random-words": ("11", {"mode": "label+random-words"}),
    **{f"{k} layer{'s' * (k > 1)}": ("figure 6", {"depth": k}) for k in (1, 2, 3, 6, 8, 10)},
}
OWN = "nsgen, target=own"
# Without words, labels and top neurons: the cosine of what all neurons contributed, and of what they put out.
SOFT: dict[str, Soft] = {"path": Contributions(), "activation": Values()}


def pool(subject: str, scale: str) -> Row:
    """Is a mutant whose path differs more likely a fault? For every way of comparing the same paths."""
    target, test, train = subject_of(subject)
    images, each = PAIRS[scale]
    seeds = choose_seeds(target, test.take(np.arange(min(2 * images, len(test)))), build_oracles(target, "label"))
    x, roots, wrong = _mutants(target, seeds.x[:images], seeds.roots.labels[:images], each)
    common = shared(subject, PER_CLASS[scale])
    references, paths = _read(common.ready.reader, seeds.x[:images], x, roots)
    ways: Row = {}
    usual = None  # the similarities of the first way
    for name, (_, settings) in WAYS.items():
        guidance = Guidance(**settings)
        layers = path_layers(target, guidance.depth)
        try:
            if len(layers) < guidance.depth:
                raise BadInput("too-few", "layers", f"{subject} has only {len(layers)} layers a path could pass")
            comparer = guidance.comparison().start(layers, common.ready.bank, target.classes)
        except BadInput as error:
            ways[name] = {ABSENT: str(error)}
            continue
        columns = common.columns(layers)
        values = comparer.similarity(references[roots].through(columns), paths.through(columns))
        usual = values if usual is None else usual
        ways[name] = against(values, wrong, roots, usual)
    # Conductance for the mutant's own class shows what it is taken for: the prediction without any label.
    own = Guidance(target="own", tau=1.0, describe=common.ready.bank).start(target, train)
    references, paths = _read(own.reader, seeds.x[:images], x, roots)
    ways[OWN] = against(own.similarity(references[roots], paths), wrong, roots, usual)
    for name, soft in SOFT.items():
        reader = soft.reader(target, train)
        first, second = _vectors(reader, seeds.x[:images], x, roots)
        ways[name] = against(cosines(first[roots], second), wrong, roots, usual)
    return {"mutants": len(x), "faults": int(wrong.sum()), "ways": ways}


def _vectors(reader: VectorReader, images: NDArray[Any], x: torch.Tensor, roots: NDArray[np.int64]) -> tuple[Vectors, Vectors]:
    """Of images and of their mutants."""
    prepare = reader.target.prepare
    references = Vectors.joined([reader.references(prepare(images[i : i + 64])) for i in range(0, len(images), 64)])
    parts = [reader.mutants(x[i : i + 256], references[roots[i : i + 256]]) for i in range(0, len(x), 256)]
    return references, Vectors.joined(parts)


def _read(reader: PathReader, images: NDArray[Any], x: torch.Tensor, roots: NDArray[np.int64]) -> tuple[Paths, Paths]:
    """Paths of images and of their mutants."""
    prepare = reader.critic.target.prepare
    references = Paths.joined([reader.references(prepare(images[i : i + 64])) for i in range(0, len(images), 64)])
    parts = [reader.mutants(x[i : i + 256], references[roots[i : i + 256]]) for i in range(0, len(x), 256)]
    return references, Paths.joined(parts)


def _mutants(
    target: Target, images: NDArray[Any], labels: NDArray[np.int64], each: int
) -> tuple[torch.Tensor, NDArray[np.int64], NDArray[np.bool_]]:
    """So many valid mutants of every image: inputs, rows of their images, and which are faults."""
    space, validity = Rules95(bilateral=False), Validity()
    x = to_unit(target.prepare(np.ascontiguousarray(images)), target.bounds).repeat_interleave(4 * each, 0)
    draws = space.draw(rng.stream("study.nsgen.pairs", 0), len(x))
    once = torch.from_numpy(space.once[draws.kind])
    with torch.inference_mode():
        mutants = space.apply(x, draws)
        valid = ((mutants != x).flatten(1).any(1) & (once | validity.check(mutants, x))).numpy()
        roots = np.repeat(np.arange(len(images)), 4 * each)
        place = np.array([np.cumsum(valid[i : i + 4 * each]) for i in range(0, len(valid), 4 * each)]).reshape(-1)
        rows = np.flatnonzero(valid & (place <= each))
        kept = from_unit(mutants[torch.from_numpy(rows)], target.bounds)
        predicted = torch.cat([target.logits(part).argmax(1) for part in kept.split(256)]).numpy()
    return kept, roots[rows], predicted != labels[roots[rows]]


def against(
    values: NDArray[np.float64],
    wrong: NDArray[np.bool_],
    roots: NDArray[np.int64],
    usual: NDArray[np.float64] | None = None,
    draws: int = 500,
) -> Row:
    """Point-biserial correlation and AUC of dissimilarity for faults, also over the AUC of the `usual` way; and the share of
    faults in the lowest quarter over that of all mutants. Intervals are over images, the same ones drawn for every way."""
    from scipy.stats import pointbiserialr

    r, p = pointbiserialr(wrong, values) if wrong.any() and not wrong.all() and np.ptp(values) > 0 else (None, None)
    try:
        low = values < tau(values[None]).value
    except BadInput:  # all alike
        low = np.zeros(len(values), dtype=bool)
    usual = values if usual is None else usual
    random = rng.stream("study.nsgen.auc", 0)
    groups = [np.flatnonzero(roots == root) for root in np.unique(roots)]
    chosen = (np.concatenate([groups[i] for i in random.integers(0, len(groups), len(groups))]) for _ in range(draws))
    areas, over, lifts = zip(
        *(
            (auc(values[rows], wrong[rows]), _over(values[rows], usual[rows], wrong[rows]), _lift(wrong[rows], low[rows]))
            for rows in chosen
        ),
        strict=True,
    )
    return {
        "r": None if r is None else float(r), "p": None if p is None else float(p), "auc": auc(values, wrong),
        **_ends("auc", areas), "auc over nsgen's": _over(values, usual, wrong), **_ends("over", over),
        "base rate": float(wrong.mean()), "below": float(low.mean()),
        "rate below": float(wrong[low].mean()) if low.any() else None, "x all": _lift(wrong, low), **_ends("x all", lifts),
    }  # fmt: skip


def _over(values: NDArray[np.float64], usual: NDArray[np.float64], wrong: NDArray[np.bool_]) -> float | None:
    ours, theirs = auc(values, wrong), auc(usual, wrong)
    return None if ours is None or theirs is None else ours - theirs


def _lift(wrong: NDArray[np.bool_], low: NDArray[np.bool_]) -> float | None:
    return float(wrong[low].mean() / wrong.mean()) if low.any() and wrong.any() else None


def _ends(name: str, drawn: Sequence[float | None]) -> Row:
    defined = [value for value in drawn if value is not None]
    ends = np.quantile(defined, [0.025, 0.975]).tolist() if defined else (None, None)
    return {f"{name} low": ends[0], f"{name} high": ends[1]}


def auc(values: NDArray[np.float64], wrong: NDArray[np.bool_]) -> float | None:
    """How likely a fault is less similar to its image than a mutant that is none; ties count half.

    >>> auc(np.array([0.1, 0.5, 0.5, 0.9]), np.array([True, True, False, False]))
    0.875
    """
    n, m = int(wrong.sum()), int((~wrong).sum())
    if not n or not m:
        return None
    placed = np.asarray(ranks(-values))
    return float((placed[wrong].sum() - n * (n + 1) / 2) / (n * m))


def thresholds(subject: str, scale: str) -> Row:
    """Table 9: tau from samples of growing size."""
    per_class = PER_CLASS[scale]
    common = shared(subject, per_class)
    classes = common.sample.images // per_class
    values = {mode: common.similarities(Guidance(mode=mode)) for mode in ("no-label", "with-label")}
    return {
        mode: [{"per class": k, **tau(similarities[: k * classes]).to_dict()} for k in range(1, per_class + 1)]
        for mode, similarities in values.items()
    }
