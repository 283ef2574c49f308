"""`neurotest study deepsensor`: the tables and figures of both DeepSensor papers, with controls the papers do not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neurotest.registry import register
from neurotest_lab.studies import material
from neurotest_lab.studies.deepsensor import cells, examples, figures, published, tables
from neurotest_lab.studies.deepsensor.cells import DEEP, FAULTY_METHODS, FEW, MAIN, METHODS, NARROW, SETS, SIZES
from neurotest_lab.studies.deepsensor.generators import BORROWED
from neurotest_lab.studies.deepsensor.subjects import QUICK
from neurotest_lab.studies.excitable import course_rows, excited_rows
from neurotest_lab.studies.frame import Cell, Reason, Results, Row, Study, Subjects, below, cell, grouped
from neurotest_lab.studies.suites import GENERATORS, PAPERS

BALLS = (("linf", 0.05), ("linf", 0.1), ("linf", 0.2), ("linf", 0.3), ("l2", 1.0))
# Networks trained wrongly: of every subject, and of LeNet-5 for a closer look (Linf 0.1, neurons that carry the patch).
FAULTS = {
    "quick": ("+polluted10", "+underfit", "+overfit"),
    "full": ("+polluted10", "+polluted20", "+polluted30", "+underfit", "+overfit"),
}
CLOSER = {
    "quick": ("+polluted10", "+polluted10-specific"),
    "full": ("+polluted10", "+polluted20", "+polluted30", "+polluted10-specific"),
}
SWEPT = ("", "+polluted10", "+overfit")  # figures 5, 6, 10, 11


@register(
    "study",
    "deepsensor",
    paper="DeepSensor: sensitivity (tables II to IV, VI; figures 3, 5 to 8), excitability (tables 3 to 5; figures 1, 3, 7 to 11)",
    cost="quick: LeNet-1, LeNet-5 and ten seeds on ResNet-20, three sets of seeds, twenty minutes of processor time "
    "(`--workers 2` uses two cores), a third of them for training faulty networks the first time; full: 1,000 seeds, days",
    differs="Everything happens in a ball (L2 1, or Linf 0.1) and is rounded to 8 bits; the papers state one for their coverage "
    "figure only, and without one every method reaches any count. DeepXplore, DLFuzz and DeepHunter have the papers' settings "
    "and own limits instead of the ball (but in the coverage figure); DeepXplore pushes the network under test. Seeds have "
    "odd numbers, settings were chosen on even ones. Noise of equal norm, PGD and a swarm on the margin stand beside; average "
    "categories are per seed. Swarms count excitable neurons by mask gradients of every position; Shapley values are sampled for "
    "figures 1 and 7. LeNet-1 and ResNet-20 stand in for VGG16 and ResNet-50; the quick scale retrains ResNet-20 from its sound "
    "weights on a part of the images. Retraining, CLEVER, speaker recognition and ImageNet are not part of it: the last table of "
    "its result says why.",
)
class DeepSensorStudy(Study):
    """Whether swarms led by hidden neurons find more than noise of equal norm, and what of the papers' tables comes out again."""

    subjects = Subjects(("mnist-lenet1", MAIN, DEEP), ("mnist-lenet1", "mnist-lenet4", MAIN, DEEP))
    absent = published.PAPER["absent"]

    def each_cell(self, scale: str) -> Iterator[Cell]:
        size = SIZES[scale]
        for name in dict.fromkeys(name for name, _ in self._networks(scale) if "+" in name):
            yield cell(f"training/{name}", cells.training, name, scale)
        for draw in range(SETS):
            yield cell(f"reach/{draw}", cells.reach, MAIN, scale, draw, size["reach"], "linf", 0.1, METHODS)
        for draw in range(SETS):
            seeds, most = size["deep"]
            yield cell(f"deep/{draw}", cells.reach, DEEP, scale, draw, seeds, "linf", NARROW, METHODS, most)
        for norm, radius in BALLS:
            yield cell(f"ball/{norm}-{radius}", cells.reach, MAIN, scale, 7, size["balls"], norm, radius, FEW)
        for name in self.subjects.here(scale):
            seeds, particles = size["deep errors" if name == DEEP else "errors"]
            for draw in range(SETS):
                for method in GENERATORS:
                    key = f"errors/{name}/{draw}/{method}"
                    yield cell(key, cells.errors, name, scale, draw, seeds, method, particles)
        for fault in ("", *CLOSER[scale]):
            for draw in range(SETS):
                yield cell(f"polluted/{MAIN}{fault}/{draw}", cells.polluted, MAIN + fault, scale, draw, size["polluted"])
        yield from self._faulty(scale)
        yield from self._figures(scale)

    def _networks(self, scale: str) -> Iterator[tuple[str, tuple[int, int]]]:
        """Those of tables III, 4 and IV, 5, with seeds and particles; the slowest first."""
        for name in sorted(self.subjects.here(scale), key=lambda name: name != DEEP):
            for fault in ("", *FAULTS[scale], *(("+polluted10-specific",) if name == MAIN else ())):
                yield name + fault, SIZES[scale]["deep faulty" if name == DEEP else "faulty"]

    def _faulty(self, scale: str) -> Iterator[Cell]:
        """Tables III, 4 and IV, 5."""
        for name, (seeds, particles) in self._networks(scale):
            for method in FAULTY_METHODS:
                yield cell(f"faulty/{name}/{method}", cells.faulty, name, scale, 0, seeds, method, particles)

    def _figures(self, scale: str) -> Iterator[Cell]:
        size = SIZES[scale]
        for figure in (figures.excited, figures.course, figures.overlap):
            yield cell(f"{figure.__name__}/{MAIN}", figure, MAIN, scale, 0, size[figure.__name__])
        for fault in SWEPT:
            for preset in PAPERS:
                place, few = f"{MAIN}{fault}/{preset}", size["particles"]
                yield cell(f"sweep/{place}", figures.sweep, MAIN + fault, scale, 0, size["sweep"], preset, few)
                for draw in range(SETS):
                    yield cell(f"start/{place}/{draw}", figures.start, MAIN + fault, scale, draw, size["start"], preset, few)
        for name, seeds in ((MAIN, size["map"]), (DEEP, size["deep map"])):
            if name in self.subjects.here(scale):
                yield cell(f"among/{name}", examples.among, name, scale, 0, seeds, size["particles"])

    def results(self, scale: str, done: dict[str, Any]) -> Results:
        reach, polluted = tables.reach(below(done, "reach/")), tables.polluted(below(done, "polluted/"))
        names = dict.fromkeys(self.subjects.here(scale), GENERATORS)
        course, faulty, among = below(done, "course/"), below(done, "faulty/"), below(done, "among/")
        errors = grouped(done, "errors/{s}/{}/{m}", SETS, names)
        return {
            "what fails in Linf 0.1": reach,
            "what fails on ResNet-20 in Linf 2/255": tables.reach(below(done, "deep/")),
            "balls": tables.balls(below(done, "ball/")),
            "II, 3: adversarial inputs": tables.errors(errors),
            "III, 4: polluted": tables.faulty(faulty, ("well trained", "polluted"), "towards", published.polluted),
            "IV, 5: incompletely trained": tables.faulty(faulty, ("well", "underfit", "overfit"), "errors", published.incomplete),
            "polluted, LeNet-5 in Linf 0.1": polluted,
            "networks trained wrongly": tables.training(below(done, "training/")),
            "neurons that carry the patch": tables.carriers(below(done, "polluted/")),
            "figure 1: excitable neurons": excited_rows(below(done, "excited/")),
            "figure 3: fitness per iteration": course_rows(course),
            "figure 3: coverage gained, points": tables.gains(errors),
            "figures 5, 10: lambda and epsilon": tables.sweep(below(done, "sweep/")),
            "figures 6, 11: start": tables.start(below(done, "start/")),
            "figure 7: overlap of the ten most excitable": tables.overlap(below(done, "overlap/")),
            "figures 7, 8: t-SNE": tables.points(among),
            "figures 7, 8: nearest to their own class": tables.among(among),
            "figures 8, 9: seed, change, result": tables.strips(among),
            "VI: seconds per 100 examples": tables.seconds(course, errors),
            "published": published.rows(),
            "budgets": budgets(scale),
        }, tables.checks(reach, polluted)

    def left_out(self, scale: str, done: dict[str, Any]) -> Iterator[Reason]:
        file = material.checkpoint(BORROWED)
        if file is not None and below(done, f"errors/{DEEP}/"):
            yield "a second network of ours for DeepXplore on CIFAR-10", f"somebody else's weights are used: {file.name}"
        if scale == "quick":
            yield "polluted by 20 and 30 %", "not part of the quick scale"
            yield "figure 6 on a second network", "the papers' is ResNet-50, of a GPU's size"


def budgets(scale: str) -> list[Row]:
    """What every table is made of, besides its own columns."""
    limits = {"sets of seeds": SETS, **SIZES[scale]}
    if scale == "quick":
        limits |= {f"training, {net}, {kind}": few for net, kinds in QUICK.items() for kind, few in kinds.items()}
    return [{"what": what, "limit": ", ".join(map(str, n)) if isinstance(n, tuple) else str(n)} for what, n in limits.items()]
