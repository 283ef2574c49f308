"""`neurotest study fuzzing`: NSGen's tables 3, 4 and 12 for the twelve baseline criteria, random beside each."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from neurotest.registry import register
from neurotest_lab.studies import material
from neurotest_lab.studies.frame import Cell, Reason, Results, Study, Subjects, below, cell, grouped
from neurotest_lab.studies.fuzzing import inside, published, tables
from neurotest_lab.studies.fuzzing.cells import GUIDES, LIMITS, MOST, PHOTOGRAPHS, campaign, photographs

QUICK = ("mnist-lenet1", "fashion-lenet1")
SEEDS = {"quick": 3, "full": 5}
SHOWN = ("random", "kmnc", "nlc")  # guides on photographs


@register(
    "study",
    "fuzzing",
    paper="NSGen, tables 3, 4 and 12",
    cost="quick: two subjects, three sets of seeds, seven minutes of processor time; full: every zoo subject whose weights are "
    "here, five sets of 1,000 seeds, 10,000 iterations, days",
    differs="Seeds the target gets wrong are set aside and faults do not become seeds, which lowers every count against the "
    "paper. Only faults that the guide keeps count, as there. One campaign per guide serves all three protocols: its counts "
    "are read where it has spent the iterations, the outputs and the forward passes. Only then, and only if it "
    "has too few outputs for table 12, it goes on with coverage emptied whenever it is full or there was no output for 128 "
    "forward passes (full scale: 6,400); `resets` says how often. Random runs as a guide of its own, to the same limits.",
)
class FuzzingStudy(Study):
    """Which guide finds most faults at equal iterations, equal outputs and equal forward passes, and whether any beats random.

    And, for the guide goals, which is ours: what it forecasts from, at equal forward passes.
    """

    subjects = Subjects(QUICK, (*QUICK, "mnist-lenet5", "fashion-lenet5", "fashion-resnet20", "cifar10-resnet20"))
    absent = (
        ("NSGen itself", "has a study of its own: `neurotest study nsgen`"),
        ("CIFAR-100, Oxford 102 Flower", "neither data nor networks are here"),
        ("training on ImageNet", "its training set is not here; see `photographs` for networks that others trained"),
        ("ResNet50, VGG16_BN, MobileNet_v2", "too large for two cores; cifar10-resnet20 stands in for CIFAR-10"),
        ("style transfer among the mutations", "the published code's 95 rules have none; `rules98` adds a weight-free one"),
    )

    def each_cell(self, scale: str) -> Sequence[Cell]:
        return [
            cell(f"{subject}/{seed}/{guide}", campaign, subject, seed, guide, scale)
            for subject in self.subjects.here(scale)
            for seed in range(SEEDS[scale])
            for guide in GUIDES
        ] + [
            cell(f"inside/{subject}/{seed}/{variant}", inside.campaign, subject, seed, variant, scale)
            for subject in self.subjects.here(scale)
            for seed in range(SEEDS[scale])
            for variant in inside.VARIANTS
        ] + [
            Cell(f"photographs/{seed}/{guide}", functools.partial(photographs, seed, guide), optional=True)
            for seed in range(SEEDS["quick"])
            for guide in SHOWN
        ]  # fmt: skip

    def results(self, scale: str, done: dict[str, Any]) -> Results:
        names = {**dict.fromkeys(self.subjects.here(scale), GUIDES), "photographs": SHOWN}
        groups = grouped(done, "{s}/{}/{m}", SEEDS[scale], names)
        variants = dict.fromkeys(self.subjects.here(scale), inside.VARIANTS)
        looks = grouped(done, "inside/{s}/{}/{m}", SEEDS[scale], variants)
        return {
            "goals: what looking inside adds": inside.rows(looks),
            "3: equal iterations": tables.equal(groups, "iterations"),
            "4: diversity": tables.diversity(groups),
            "12: equal outputs": tables.equal(groups, "outputs"),
            "equal forward passes": tables.equal(groups, "forwards"),
            "published": published.rows(),
            "gallery": tables.gallery(groups),
            "budgets": [
                {"protocol": f"equal {name}", "limit": limit, "most forwards": MOST[scale], "repetitions": SEEDS[scale]}
                for name, limit in LIMITS[scale].items()
            ],
        }, {**tables.checks({key: cells for key, cells in groups.items() if key[0] != "photographs"}), **inside.checks(looks)}

    def left_out(self, scale: str, done: dict[str, Any]) -> Iterator[Reason]:
        if reason := material.missing_photographs():
            yield "photographs of ImageNet's classes", reason
        elif not below(done, "photographs/"):
            yield "photographs of ImageNet's classes", "they and a network are here, and slow: `--resume RUN --only photographs`"
        else:
            yield "photographs: a network of ours", f"somebody else's EfficientNet-Lite0 is used, within {PHOTOGRAPHS}"
