"""`neurotest study coverage`: does higher neuron coverage go with more faults, more natural inputs, less favoured classes?"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurotest import zoo
from neurotest.registry import register
from neurotest_lab.studies import material
from neurotest_lab.studies.coverage import cells, correlations, tables, xplore
from neurotest_lab.studies.coverage import published as paper
from neurotest_lab.studies.coverage.cells import Plan
from neurotest_lab.studies.coverage.correlations import HOPED, METRICS, SHOWN
from neurotest_lab.studies.frame import Cell, Reason, Results, Row, Study, Subjects, below, cell

BORROWED = "cifar10-resnet56"  # the paper's own network: with somebody else's weights where they lie beside the project
DRIVING = ("driving-dave2", "driving-dave2n")  # where the frames are; they may not be passed on
SUBJECTS = tuple(name for name in paper.OURS if name != BORROWED and name not in DRIVING)
STRENGTHS = {"pgd": (0.1, 0.2, 0.3), "pgd-first": (0.1, 0.2, 0.3), "cw": (0.0, 20.0, 40.0)}
TURNS = (2.5, 5.0, 10.0)  # kappa of CW in pixels: shares of the span like the study's .05, .1 and .2 of radians
WEIGHTS = {"quick": (0.0, 1.0, 1e2, 1e4), "full": (0.0, 1.0, 10.0, 1e2, 1e3, 1e4, 1e5)}
FIGURE = "mnist-conv2d"  # the subject of table 7 and figures 2 and 8
BESIDE = ("subject", "layer", "lambda", "nc before", "nc after", "before png", "after png")  # figure 2
TITLES = {
    "asr": "4: coverage and defects", "is": "5: coverage and naturalness", "fid": "5: coverage and naturalness",
    "kid": "5: coverage and naturalness", "ssim": "5: coverage and naturalness", "oi": "6: coverage and impartiality",
    "oi faults": "6: coverage and impartiality",
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """How much of a subject a scale holds: suites of so many images, of which draws. optional: only where `--only` names them."""

    subject: str
    attacks: tuple[str, ...]
    images: int
    draws: tuple[int, ...]
    optional: bool = False


# Quick is bounded by about 14 minutes of one core: a suite of the ResNet costs 70 times one of FCNet5.
PARTS: dict[str, tuple[Part, ...]] = {
    "quick": (
        Part("mnist-fcnet5", ("pgd", "pgd-first", "cw"), 50, (0, 1, 2)),
        Part("mnist-fcnet10", ("pgd", "cw"), 50, (0,)),
        Part("mnist-conv1d", ("pgd", "cw"), 20, (0,)),
        Part("mnist-conv2d", ("pgd", "cw"), 20, (0,)),
        Part("cifar10-resnet20", ("pgd",), 20, (0,)),
        Part("cifar10-resnet20", ("cw",), 20, (1,), optional=True),
        Part(BORROWED, ("pgd",), 20, (0,), optional=True),
        *(Part(name, ("pgd", "cw"), 20, (0,), optional=True) for name in DRIVING),
    ),
    "full": tuple(Part(name, ("pgd", "pgd-first", "cw"), 100, (0, 1, 2)) for name in (*SUBJECTS, BORROWED, *DRIVING)),
}
LAYERS = {"quick": 3, "full": 6}
STEPS = 40
EPS = 0.3
OPTIONAL = (
    "CW on cifar10-resnet20",
    "30 suites of 20 images take 7 minutes more: `--resume RUN --only suite/cifar10-resnet20/1/cw`",
)
LEFT_OUT = (
    ("100 images, and three draws of others than FCNet5", "processor time: 50 images of FCNet5 and FCNet10, 20 of the others"),
    ("lambda 10, 1e3, 1e5; layers between first, middle and last", "not part of the quick scale"),
    ("CW with five searches of 1,000 steps", "one search of 200 steps from weight 1"),
    ("regularising after success only (pgd-first), DeepXplore", "on the first subject and on the LeNets only"),
)


@register(
    "study",
    "coverage",
    paper="Harel-Canada et al., Is Neuron Coverage a Meaningful Measure for Testing Deep Neural Networks?, FSE 2020",
    cost="quick: about 14 minutes on one core; full: five networks, 100 images, all layers (six of the ResNet), days; "
    "`--from-csv`: seconds",
    differs="Seeds are images the network gets right, so that a success is one. Beside the plain correlation stand the one given "
    "lambda, those within lambda and an interval over clusters of layer, strength and draw: suites that share images are not "
    "independent. A failed CW gives its last image, not the clean one. FID has shrunk covariances and named features.",
)
class CoverageStudy(Study):
    """Correlates neuron coverage of suites with the faults they show, how natural they are and how evenly they fail.

    from_csv: the published suites; only the statistics are run on them.
    """

    from_csv: str | None = None

    subjects = Subjects(SUBJECTS, SUBJECTS)
    absent = (
        ("DenseNet121", "too large to train here; cifar10-resnet20 stands in for the CIFAR-10 networks"),
        ("IS and FID by InceptionV3", "its weights are not available; the extractor is named beside every number"),
        ("figure 9 and section 5.2", "a discussion of other people's pictures of neurons, with nothing to measure"),
    )

    def __post_init__(self) -> None:
        if self.from_csv is not None:
            correlations.read_csv(self.from_csv)  # a file that does not fit is refused before there is a run

    def each_cell(self, scale: str) -> Iterator[Cell]:
        if self.from_csv is not None:
            yield cell("published suites", correlations.from_csv, self.from_csv)
            return
        for part in here(scale):
            for draw in part.draws:
                yield cell(f"clean/{part.subject}/{draw}", cells.original, part.subject, draw, part.images)
                for plan in plans(part, draw, scale):
                    yield Cell(plan.key, functools.partial(cells.suite, plan), part.optional)
        if zoo.find(FIGURE).weights is not None:
            yield cell(f"classes/{FIGURE}", cells.class_bias, FIGURE, WEIGHTS[scale], EPS, STEPS)
            for layer in ("conv1", "fc1"):
                yield cell(f"figure 2/{FIGURE}/{layer}", cells.activations, FIGURE, layer, 1e2, 50, EPS, STEPS)
        for suite in xplore.plans(scale):
            yield cell(suite.key, xplore.suite, suite)

    def tables(self, scale: str, done: dict[str, Any]) -> Row:
        if self.from_csv is None:
            return super().tables(scale, done)
        whole: Row = done.get("published suites", {"tables": {}, "checks": {}})
        return whole

    def results(self, scale: str, done: dict[str, Any]) -> Results:
        rows = list(below(done, "suite/").values())
        suites = [tables.as_suite(row) for row in rows]
        correlated = tables.beside_paper(correlations.correlations(suites, METRICS, paper.THRESHOLDS, HOPED))
        exists = [tables.as_suite(row, exists=True) for row in rows]
        between, across = xplore.tables(done)
        classes = tables.class_tables(done.get(f"classes/{FIGURE}"))
        return {
            "2: coverage gained": tables.gains(done, rows),
            **correlations.by_title(correlated, TITLES),
            "verdicts": correlations.verdicts(correlated, ("metric", "attack")),
            "coverage as DeepXplore defines it (some input)": correlations.correlations(
                exists, ("asr", "oi", "fid"), (cells.EXISTS,), HOPED
            ),
            "within lambda (t=.2)": correlations.within_lambda(suites, ("asr", "oi"), SHOWN),
            "by lambda (t=.2)": correlations.by_lambda(suites, METRICS, SHOWN),
            "lambda confounds": correlations.lambda_confounds(suites),
            "beside random noise of the same size": tables.beside_random(rows),
            **classes,
            "figure 2: activations": [{name: row[name] for name in BESIDE} for row in below(done, "figure 2/").values()],
            "figures 3, 4, 7: suites": [tables.point(row) for row in rows],
            "figures 5, 6: suites of low and high coverage": tables.samples(done, rows),
            "5.1: DeepXplore": between,
            "5.1: DeepXplore's suites": across,
            "budgets": budgets(scale, rows),
        }, tables.checks(correlated, between, classes.get("figure 8: classes favoured", []))

    def left_out(self, scale: str, done: dict[str, Any]) -> Iterator[Reason]:
        file = material.checkpoint(BORROWED)
        if not material.available(BORROWED):
            yield "ResNet56", f"no weights here: `neurotest zoo train {BORROWED}`, or a checkpoint in NEUROTEST_MATERIAL"
        elif not below(done, f"suite/{BORROWED}/"):
            yield "ResNet56", f"its weights are here; its suites take long: `--resume RUN --only suite/{BORROWED}`"
        elif zoo.find(BORROWED).weights is None and file is not None:
            yield "ResNet56, trained by us", f"somebody else's weights are used: {file.name}"
        for name, theirs in zip(DRIVING, ("Dave2", "Dave2-N"), strict=True):
            if not cells.here(name):
                how = f"`neurotest data get driving --from DIR`, `neurotest zoo train {name}`"
                yield theirs, f"the frames, or the network, are not here: {how}"
            elif not below(done, f"suite/{name}/"):
                yield theirs, f"it is here; its suites take long: `--resume RUN --only suite/{name}`"
        if scale == "quick":
            if not below(done, "suite/cifar10-resnet20/1/cw"):
                yield OPTIONAL
            yield from LEFT_OUT


def here(scale: str) -> list[Part]:
    return [part for part in PARTS[scale] if cells.here(part.subject)]


@functools.cache
def layers_of(subject: str, count: int) -> tuple[str, ...]:
    """Evenly spaced convolutions and dense layers, from the first to the last."""
    names = [layer.name for layer in cells.subject_of(subject).target.survey().find("pre_activation")]
    if subject.startswith("mnist") and count > 3:
        return tuple(names)
    return tuple(names[i] for i in np.unique(np.linspace(0, len(names) - 1, count).round().astype(int)))


def plans(part: Part, draw: int, scale: str) -> Iterator[Plan]:
    """Every suite of a subject; without a regulariser there is no layer to choose."""
    for attack in part.attacks:
        for strength in TURNS if attack == "cw" and part.subject in DRIVING else STRENGTHS[attack]:
            about: Row = {"subject": part.subject, "attack": attack, "strength": strength, "draw": draw, "images": part.images}
            for weight in WEIGHTS[scale]:
                for layer in (None,) if weight == 0 else layers_of(part.subject, LAYERS[scale]):
                    yield Plan(layer=layer, weight=weight, scale=scale, **about)


def budgets(scale: str, suites: list[Row]) -> list[Row]:
    rows = []
    for part in here(scale):
        own = [r for r in suites if r["subject"] == part.subject and r["draw"] in part.draws]
        if part.optional and not own:
            continue
        rows.append(
            {
                "subject": part.subject, "images": part.images, "draws": len(part.draws), "attacks": ", ".join(part.attacks),
                "layers": ", ".join(layers_of(part.subject, LAYERS[scale])), "suites": len(own),
                "forwards": sum(r["forwards"] for r in own), "backwards": sum(r["backwards"] for r in own),
            }
        )  # fmt: skip
    return rows
