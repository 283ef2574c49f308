"""How much of the accuracy is left within a radius: an attack curve, beside noise of the same size."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from neurotest.audio import is_audio
from neurotest.check.base import MAX_IMAGES, Check, CheckContext, CheckItem, Clock, evidence_row, percent
from neurotest.checks import setting
from neurotest.data.source import Source
from neurotest.doctor.context import CaptionedImage, Finding
from neurotest.errors import BadInput
from neurotest.generate.gradient import AttackResult, attack
from neurotest.levels import SIXTEEN
from neurotest.registry import register
from neurotest.stats.bootstrap import Interval, wilson

STEPS, FAINT_STEPS = (1, 2, 4, 8, 16, 32), 8  # radii in steps of 8-bit pixels, and those that can hardly be seen
DECIBELS, FAINT_DECIBELS = (60, 50, 40, 30, 20, 10), 40  # of sound: how far noise of that radius lies below it


class _Radius(NamedTuple):
    text: str
    eps: float  # a share of the input range
    faint: bool


class _CurvePoint(NamedTuple):
    """Of the curve: what is left under the attack, and under noise of the same size."""

    radius: _Radius
    kept: Interval
    noise: Interval
    result: AttackResult


def _radii(source: Source) -> list[_Radius]:
    """Smallest first. Of sound they go by its own loudness: the same step is nothing beside a shout, and drowns a whisper."""
    if not is_audio(source.dtype, source.shape):
        return [_Radius(f"of {step}/255", step / 255, step <= FAINT_STEPS) for step in STEPS]
    x = source.read(np.arange(len(source))).astype(np.float64) / SIXTEEN.steps
    loud = float(np.median(np.sqrt(np.square(x.reshape(len(x), -1)).mean(axis=1))))
    # The root mean square of even noise between -eps and eps is eps / sqrt(3).
    sizes = ((below, loud * np.sqrt(3) * 10 ** (-below / 20)) for below in DECIBELS)
    return [_Radius(f"{below} dB below the sound", min(1.0, float(eps)), below >= FAINT_DECIBELS) for below, eps in sizes]


@register(
    "check", "attacks", paper="PGD: Madry et al., ICLR 2018", main="inputs",
    cost="for each of six radii ten forward and backward passes over the inputs",
)  # fmt: skip
class Attacks(Check):
    """Accuracy under PGD of growing radius, and under noise of the same size.

    An alarm only where noise that can hardly be perceived (up to 8/255; of sound, 40 dB below it) breaks more than one input
    in ten: no network withstands attacks unless it was trained to. inputs: that are attacked. steps: of the attack.
    """

    order = 80
    share = 3.0
    labels = False

    inputs: int = setting(100, "100 give intervals of ten points")
    steps: int = setting(10, "10 in papers")

    def examine(self, context: CheckContext, clock: Clock) -> CheckItem:
        part = context.source.take(context.some("attacks", self.inputs))
        curve: list[_CurvePoint] = []
        every = _radii(part)
        for radius in every:
            if clock.over or (curve and clock.left < clock.spent / len(curve)):
                break
            result = self._attacked(context, part, radius.eps)
            right, of = len(result), len(result) + result.set_aside
            kept, noise = (wilson(right - int(bad.sum()), of) for bad in (result.fault, result.control.fault))
            curve.append(_CurvePoint(radius, kept, noise, result))
            if result.faults == right:  # nothing is left to lose at a larger radius
                break
        if not curve:
            return CheckItem(self.name, "the time was over before the first radius", ran_out=True, skipped=True)
        last = curve[-1]
        return self._examined(context, curve, ran_out=last.radius != every[-1] and last.result.faults < len(last.result))

    def _attacked(self, context: CheckContext, part: Any, eps: float) -> AttackResult:
        result: AttackResult = attack(
            context.target, part, "pgd", eps=eps, step=eps / 4, steps=self.steps, seed=context.seed, out=False,
            progress=lambda done, total: context.tick(),
        )  # fmt: skip
        if not len(result):
            raise BadInput("empty", "correct", "no input is classified correctly")
        return result

    def _examined(self, context: CheckContext, curve: list[_CurvePoint], ran_out: bool) -> CheckItem:
        clean = wilson(len(curve[0].result), len(curve[0].result) + curve[0].result.set_aside)
        numbers: dict[str, Any] = {
            "accuracy": clean.value,
            "radii": [{"radius": one.radius.eps, "attacked": one.kept.value, "noise": one.noise.value} for one in curve],
        }
        rows = [evidence_row("not attacked", clean)]
        for one in curve:
            rows += [evidence_row(f"{what} {one.radius.text}", left) for what, left in (("PGD", one.kept), ("noise", one.noise))]
        half = next((one for one in curve if one.kept.value < clean.value / 2), None)
        lost = "it keeps more than half of its accuracy" if half is None else f"an attack {half.radius.text} halves its accuracy"
        last = curve[-1]
        summary = f"{lost}; one {last.radius.text} leaves {percent(last.kept)}, noise {percent(last.noise)}"
        deeper = f"neurotest attack {context.words} --attack pgd --eps {(half or last).radius.eps:.4g}"
        more: dict[str, Any] = {"evidence": tuple(rows), "deeper": deeper}
        findings = [Finding(self.name, "note", summary, strength=0.15, images=self._images(context, half or last), **more)]
        for one in curve:
            if one.radius.faint and one.noise.high < 0.9 * clean.value:
                left = f"leaves {percent(one.noise)} of {100 * clean.value:.1f} %"
                sentence = f"noise {one.radius.text}, which can hardly be perceived, {left}"
                findings.append(Finding(self.name, "alarm", sentence, "train with noise", 0.7, **more))
                break
        return CheckItem(self.name, summary, tuple(findings), numbers, ran_out=ran_out)

    def _images(self, context: CheckContext, point: _CurvePoint) -> tuple[CaptionedImage, ...]:
        result = point.result
        return tuple(
            CaptionedImage(
                np.asarray(result.x[i]),
                f"{context.class_name(result.expected[i])}, taken for {context.class_name(result.predicted[i])}",
            )
            for i in np.flatnonzero(result.fault)[:MAX_IMAGES].tolist()
        )
