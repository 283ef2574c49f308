"""`neurotest study deepsensor`: the tables and figures of both DeepSensor papers, with controls the papers do not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neurotest.registry import register
from neurotest.studies.deepsensor import cells, figures, published, tables
from neurotest.studies.deepsensor.cells import DEEP, FEW, GENERATORS, MAIN, METHODS, NARROW, SETS, SIZES
from neurotest.studies.frame import Cell, Results, Study, Subjects, below, cell, grouped

BALLS = (("linf", 0.05), ("linf", 0.1), ("linf", 0.2), ("linf", 0.3), ("l2", 1.0))
FAULTY = {
    "quick": ("+polluted10", "+polluted10-specific"),
    "full": ("+polluted10", "+polluted20", "+polluted30", "+polluted10-specific"),
}
INCOMPLETE = ("+underfit", "", "+overfit")


@register(
    "study",
    "deepsensor",
    paper="DeepSensor: sensitivity (tables II to VI, figures 3, 5, 6) and excitability (tables 3 to 5, figures 1, 3, 7, 10, 11)",
    cost="quick: LeNet-1, LeNet-5 and a few seeds on ResNet-20, three sets of seeds, about eleven minutes of one core, two of "
    "them for training faulty networks the first time; full: 1,000 seeds, a day",
    differs="Everything happens in a ball (L2 1, or Linf 0.1) and is rounded to 8 bits; the papers state none for most tables, "
    "and without one every method reaches any count. Seeds have odd numbers, settings were chosen on even ones. Noise of equal "
    "norm, PGD and a swarm on the margin stand beside; average categories are per seed. DeepXplore, DLFuzz and DeepHunter keep "
    "their own limits instead of the ball; DeepXplore has its published settings and pushes the network under test.",
)
class DeepSensorStudy(Study):
    """Whether swarms led by hidden neurons find more than noise of equal norm, and what of the papers' tables comes out again."""

    subjects = Subjects(("mnist-lenet1", MAIN, DEEP), ("mnist-lenet1", "mnist-lenet4", MAIN, DEEP))
    absent = published.PAPER["absent"]

    def each_cell(self, scale: str) -> Iterator[Cell]:
        size = SIZES[scale]
        for draw in range(SETS):
            yield cell(f"reach/{draw}", cells.reach, MAIN, scale, draw, size["reach"], "linf", 0.1, METHODS)
        for draw in range(SETS):
            seeds, most = size["deep"]
            yield cell(f"deep/{draw}", cells.reach, DEEP, scale, draw, seeds, "linf", NARROW, METHODS, most)
        for norm, radius in BALLS:
            yield cell(f"ball/{norm}-{radius}", cells.reach, MAIN, scale, 7, size["balls"], norm, radius, FEW)
        for name in self.subjects.here(scale):
            seeds, particles = size["deep errors"] if name == DEEP else (size["errors"], 100)
            for draw in range(SETS):
                for method in GENERATORS:
                    key = f"errors/{name}/{draw}/{method}"
                    yield cell(key, cells.errors, name, scale, draw, seeds, method, particles)
        for fault in ("", *FAULTY[scale]):
            for draw in range(SETS):
                yield cell(f"polluted/{MAIN}{fault}/{draw}", cells.polluted, MAIN + fault, scale, draw, size["faulty"])
        for fault in INCOMPLETE:
            yield cell(f"incomplete/{MAIN}{fault}", cells.incomplete, MAIN + fault, scale, 0, size["figures"])
        for figure in (figures.excited, figures.course, figures.coverage, figures.sweep, figures.overlap):
            seeds = size.get(figure.__name__, size["figures"])
            yield cell(f"{figure.__name__}/{MAIN}", figure, MAIN, scale, 0, seeds)

    def results(self, scale: str, done: dict[str, Any]) -> Results:
        reach, polluted = tables.reach(below(done, "reach/")), tables.polluted(below(done, "polluted/"))
        names = dict.fromkeys(self.subjects.here(scale), GENERATORS)
        course, coverage = below(done, "course/"), below(done, "coverage/")
        return {
            "what fails in Linf 0.1": reach,
            "what fails on ResNet-20 in Linf 2/255": tables.reach(below(done, "deep/")),
            "balls": tables.balls(below(done, "ball/")),
            "II, 3: adversarial inputs": tables.errors(grouped(done, "errors/{s}/{}/{m}", SETS, names)),
            "III, 4: polluted": polluted,
            "neurons that carry the patch": tables.carriers(below(done, "polluted/")),
            "IV, 5: incompletely trained": tables.incomplete(below(done, "incomplete/")),
            "figure 1: excitable neurons": tables.excited(below(done, "excited/")),
            "figure 3: fitness per iteration": tables.course(course),
            "figures 3, 6: coverage gained, points": tables.coverage(coverage),
            "figures 6, 11: start": tables.start(coverage),
            "figures 5, 10: lambda and epsilon": tables.sweep(below(done, "sweep/")),
            "figure 7: overlap of the ten most excitable": tables.overlap(below(done, "overlap/")),
            "VI: seconds per 100 examples": tables.seconds(course),
            "published": published.rows(),
        }, tables.checks(reach, polluted)
