"""`neurotest study speaker`: tables 6, 7 and figures of the excitability paper on sound, with controls that it does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neurotest.data import speakers
from neurotest.registry import register
from neurotest_lab.studies.excitable import course_rows, excited_rows
from neurotest_lab.studies.frame import Cell, Reason, Results, Row, Study, Subjects, below, cell
from neurotest_lab.studies.speaker import cells, published, tables
from neurotest_lab.studies.speaker.cells import METHODS
from neurotest_lab.studies.suites import GENERATORS

SMALL, LARGE = "spoken-melnet", ("speakers-deepspeaker", "speakers-resnet")
WRONG = ("", "+underfit", "+overfit")
# Seeds of a set and sets at 30 dB; seeds and particles of tables 6 and 7, and of the figures.
LONG: Row = {"reach": 100, "sets": 3, "errors": (100, 100)}
SIZES: dict[str, dict[str, Row]] = {
    "quick": {
        "spoken-melnet": {"reach": 20, "sets": 2, "errors": (20, 10), "faulty": (20, 5), "figures": (20, 10)},
        "speakers-deepspeaker": {"reach": 8, "sets": 10, "errors": (8, 5), "faulty": (8, 5)},
        "speakers-resnet": {"reach": 8, "sets": 5, "errors": (6, 5)},
    },
    "full": {
        "spoken-melnet": {**LONG, "faulty": (200, 100), "figures": (100, 100)},
        "speakers-deepspeaker": {**LONG, "faulty": (100, 100), "figures": (50, 100)},
        "speakers-resnet": LONG,
    },
}
SAMPLED = {"quick": 3, "full": 30}  # pairs whose Shapley values are sampled: some seconds each
FEW = ("swarm", "noise", "pgd")  # on networks that cost ten times as much


@register(
    "study",
    "speaker",
    paper="DeepSensor, excitability (tables 6, 7; figures 1, 3, 10, 11 on sound)",
    cost="quick: spoken digits and, where the recordings are, two networks for sixty speakers, half an hour of processor time",
    differs="The paper changes the features a network is fed with, within no stated bound. Here waveforms are changed, 30 dB "
    "below each seed, and rounded to 16 bits; DeepXplore, DLFuzz and DeepHunter have no bound, so the tables also count what is "
    "left when their inputs are brought into that ball.",
)
class SpeakerStudy(Study):
    """Which tests break networks on sound at 30 dB, beside noise of equal norm, and whether another network still understands."""

    subjects = Subjects((SMALL, *LARGE), (SMALL, *LARGE))
    absent = published.ABSENT

    def each_cell(self, scale: str) -> Iterator[Cell]:
        names = [name for name in self.subjects.here(scale) if name == SMALL or speakers.present()]
        for name in names:
            yield cell(f"network/{name}", cells.quality, name)
        for name in names:
            size = SIZES[scale][name]
            for draw in range(size.get("sets", 0)):
                methods = METHODS if name == SMALL or scale == "full" else FEW
                yield cell(f"reach/{name}/{draw}", cells.reach, name, draw, size["reach"], methods)
            if "reach" in size:
                yield cell(f"examples/{name}", cells.examples, name, 7, 8)
        for name in names:
            seeds, particles = SIZES[scale][name].get("errors", (0, 0))
            for method in GENERATORS if seeds else ():
                yield cell(f"errors/{name}/{method}", cells.errors, name, 0, seeds, method, particles)
        for name in names:
            seeds, particles = SIZES[scale][name].get("faulty", (0, 0))
            for wrong in WRONG if seeds else ():
                for method in GENERATORS:
                    yield cell(f"faulty/{name}{wrong}/{method}", cells.faulty, name + wrong, 0, seeds, method, particles)

        for name in names:
            if "figures" in SIZES[scale][name]:
                seeds, particles = SIZES[scale][name]["figures"]
                yield cell(f"excited/{name}", cells.excited, name, 0, seeds, SAMPLED[scale])
                yield cell(f"course/{name}", cells.course, name, 0, seeds, particles)
                yield cell(f"sweep/{name}", cells.sweep, name, 0, seeds, particles)

    def results(self, scale: str, done: dict[str, Any]) -> Results:
        reach = tables.reach(below(done, "reach/"))
        return {
            "networks": tables.networks(below(done, "network/")),
            "what fails at 30 dB": reach,
            "6: adversarial inputs": tables.errors(below(done, "errors/")),
            "7: incompletely trained": tables.faulty(below(done, "faulty/")),
            "figure 1: excitable neurons": excited_rows(below(done, "excited/")),
            "figure 3: fitness per iteration": course_rows(below(done, "course/")),
            "figures 10, 11: lambda and start": tables.sweep(below(done, "sweep/")),
            "examples at 30 dB": tables.examples(below(done, "examples/")),
            "published": published.rows(),
            "budgets": [{"what": f"{family}, {what}", "limit": str(n)} for family, sizes in SIZES[scale].items()
                        for what, n in sizes.items()],
        }, tables.checks(reach)  # fmt: skip

    def left_out(self, scale: str, done: dict[str, Any]) -> Iterator[Reason]:
        if not speakers.present():
            yield "networks for speakers", "AudioMNIST is not here: `neurotest data get speakers --from DIR`"
        if scale == "quick":
            yield "figures on networks for speakers", "not part of the quick scale; spoken digits are"
