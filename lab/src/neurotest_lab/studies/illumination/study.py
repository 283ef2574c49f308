"""`neurotest study illumination`: every generator at an equal number of forward passes, by defects, naturalness, impartiality."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from neurotest.registry import register
from neurotest_lab.studies.frame import Cell, Reason, Results, Row, Study, Subjects, cell, grouped
from neurotest_lab.studies.illumination import cells, suites, tables

QUICK = ("fashion-lenet5", "cifar10-resnet20")
DRAWS = {"quick": 3, "full": 10}
GUIDES = ("nc", "kmnc", "nbc", "tknc", "dsc", "nlc", "deephunter")  # of the quick scale
FORWARDS = {"quick": (1000,), "full": (500, 1000, 2000)}


@register(
    "study",
    "illumination",
    paper="ours; the three judgements are those of Harel-Canada et al., FSE 2020",
    cost="quick: two subjects, three sets of 200 seeds, 25 generators with 1,000 forward passes each, 8 minutes of one core; "
    "full: four subjects, ten sets, all guides, 500 to 2,000 passes",
    differs="A backward pass is counted as two forward passes; those over the seeds and training data are not counted. Where "
    "the cost of a seed is not known before, seeds are taken until the budget is spent.",
)
class IlluminationStudy(Study):
    """How many (true, predicted) pairs each generator fills, how natural its faults are, and whether they favour classes."""

    subjects = Subjects(QUICK, (*QUICK, "mnist-lenet5", "fashion-resnet20"))
    absent = (
        ("DeepXplore on CIFAR-10", "it compares networks, and one CIFAR-10 network is embedded"),
        ("LPIPS, FID on InceptionV3, human ratings", "no such weights, and nobody to ask, here"),
    )
    absent_title = "not run"

    def each_cell(self, scale: str) -> Sequence[Cell]:
        return [cell(f"{name}/control", cells.control, name) for name in self.subjects.here(scale)] + [
            cell(f"{name}/{forwards}/{draw}/{generator}", cells.judged, name, draw, generator, forwards)
            for name in self.subjects.here(scale)
            for forwards in FORWARDS[scale]
            for draw in range(DRAWS[scale])
            for generator in generators(name, scale)
        ]

    def results(self, scale: str, done: dict[str, Any]) -> Results:
        results: dict[str, list[Row]] = {}
        checks: dict[str, float] = {}
        for forwards in FORWARDS[scale]:
            rows, compared = [], []
            for name in self.subjects.here(scale):
                by_key = grouped(done, f"{{s}}/{forwards}/{{}}/{{m}}", DRAWS[scale], {name: generators(name, scale)})
                groups = {generator: sets for (_, generator), sets in by_key.items()}
                rows += [tables.row(name, generator, sets) for generator, sets in groups.items()]
                beside, numbers = tables.against_best(name, groups)
                compared += beside
                checks |= {f"{key}, {forwards} forwards": value for key, value in numbers.items()}
            results[f"all generators, {forwards} forwards"] = rows
            results[f"illumination against the best coverage-guided run, {forwards} forwards"] = compared
        results["what counts as outside the training manifold, whatever the generator"] = [
            {"subject": key.removesuffix("/control"), **shares} for key, shares in done.items() if key.endswith("/control")
        ]
        return results, checks

    def left_out(self, scale: str, done: dict[str, Any]) -> Iterator[Reason]:
        for guide in suites.GUIDES:
            if scale == "quick" and guide not in GUIDES:
                yield guide, "a guide of the full scale only"


def generators(subject: str, scale: str) -> list[str]:
    """Names of what runs on a subject."""
    left_out = {name for name in suites.GUIDES if scale == "quick" and name not in GUIDES}
    if subject.partition("-")[0] not in suites.SECOND:
        left_out |= suites.DEEPXPLORE.keys()
    return [name for name in suites.GENERATORS if name not in left_out]
