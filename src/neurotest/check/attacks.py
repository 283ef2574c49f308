"""How much of the accuracy is left within a radius: an attack curve, beside noise of the same size."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from neurotest.check.examination import Examination
from neurotest.check.finding import Examined, Finding, Picture, percent, share
from neurotest.check.subject import Clock, Subject
from neurotest.checks import setting
from neurotest.errors import BadInput
from neurotest.generate.gradient import AttackResult, attack
from neurotest.registry import register
from neurotest.stats.bootstrap import Interval, wilson

SHOWN = 8
RADII = (1, 2, 4, 8, 16, 32)  # in steps of 8-bit pixels


@register(
    "examination", "attacks", paper="PGD: Madry et al., ICLR 2018", main="inputs",
    cost="for each of six radii ten forward and backward passes over the inputs",
)  # fmt: skip
class Attacks(Examination):
    """Accuracy under PGD of growing radius, and under noise of the same size.

    An alarm only where noise that can hardly be seen (up to 8/255) breaks more than one input in ten: no network withstands
    attacks unless it was trained to. inputs: that are attacked. steps: of the attack.
    """

    name: ClassVar[str] = "attacks"
    order: ClassVar[int] = 80
    share: ClassVar[float] = 3.0
    labels: ClassVar[bool] = False

    inputs: int = setting(100, "100 give intervals of ten points")
    steps: int = setting(10, "10 in papers")

    def examine(self, subject: Subject, clock: Clock) -> Examined:
        part = subject.source.take(subject.some("attacks", self.inputs))
        curve: list[tuple[int, Interval, Interval, AttackResult]] = []
        for radius in RADII:
            if clock.over or (curve and clock.left < clock.spent / len(curve)):
                break
            result = self._attacked(subject, part, radius / 255)
            right, of = len(result), len(result) + result.set_aside
            kept, noise = (wilson(right - int(bad.sum()), of) for bad in (result.fault, result.control.fault))
            curve.append((radius, kept, noise, result))
            if result.faults == right:  # nothing is left to lose at a larger radius
                break
        if not curve:
            return Examined(self.name, "the time was over before the first radius", ran_out=True, skipped=True)
        return self._examined(subject, curve, ran_out=curve[-1][0] != RADII[-1] and curve[-1][3].faults < len(curve[-1][3]))

    def _attacked(self, subject: Subject, part: Any, eps: float) -> AttackResult:
        result: AttackResult = attack(
            subject.target, part, "pgd", eps=eps, step=eps / 4, steps=self.steps, seed=subject.seed, out=False,
            progress=lambda done, total: subject.tick(),
        )  # fmt: skip
        if not len(result):
            raise BadInput("no input is classified correctly")
        return result

    def _examined(self, subject: Subject, curve: list[Any], ran_out: bool) -> Examined:
        clean = wilson(len(curve[0][3]), len(curve[0][3]) + curve[0][3].set_aside)
        numbers: dict[str, Any] = {
            "accuracy": clean.value,
            "radii": [{"radius": r / 255, "attacked": kept.value, "noise": noise.value} for r, kept, noise, _ in curve],
        }
        rows = [share("not attacked", clean)]
        for radius, kept, noise, _ in curve:
            rows += [share(f"PGD, radius {radius}/255", kept), share(f"noise, radius {radius}/255", noise)]
        half = next((radius for radius, kept, *_ in curve if kept.value < clean.value / 2), None)
        lost = "it keeps more than half of its accuracy" if half is None else f"an attack of {half}/255 halves its accuracy"
        last = curve[-1]
        summary = f"{lost}; at {last[0]}/255 {percent(last[1])} are left, under noise {percent(last[2])}"
        deeper = f"neurotest attack {subject.words} --attack pgd --eps {(half or last[0]) / 255:.4f}"
        findings = [Finding(self.name, "note", 0.15, summary, tuple(rows), self._pictures(subject, curve, half), deeper)]
        for radius, _, noise, _ in curve:
            if radius <= 8 and noise.high < 0.9 * clean.value:
                sentence = (
                    f"noise of {radius}/255, which can hardly be seen, leaves {percent(noise)} of {100 * clean.value:.1f} %"
                )
                findings.append(Finding(self.name, "alarm", 0.7, sentence, tuple(rows), (), deeper, "train with noise"))
                break
        return Examined(self.name, summary, tuple(findings), numbers, ran_out=ran_out)

    def _pictures(self, subject: Subject, curve: list[Any], half: int | None) -> tuple[Picture, ...]:
        result: AttackResult = next((one for radius, _, _, one in curve if radius == half), curve[-1][3])
        return tuple(
            Picture(
                np.asarray(result.x[i]),
                f"{subject.class_name(result.expected[i])}, taken for {subject.class_name(result.predicted[i])}",
            )
            for i in np.flatnonzero(result.fault)[:SHOWN].tolist()
        )
