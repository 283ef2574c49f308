"""A short campaign with the best guide: which changed inputs break the network."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurotest import interrupts
from neurotest.campaign import fuzz
from neurotest.check.base import MAX_IMAGES, Check, CheckContext, CheckItem, Clock, evidence_row, percent
from neurotest.checks import setting
from neurotest.doctor.context import CaptionedImage, Finding
from neurotest.generate.fuzz.mutants import Mutant
from neurotest.registry import register
from neurotest.stats.bootstrap import Interval

LEAST_SECONDS = 5.0  # seconds below which a campaign is not worth starting


@register(
    "check", "campaign", paper="neurotest's guide goals; faults as in DeepHunter (Xie et al., ISSTA 2019)", main="seeds",
    cost="its share of the time, half of it for the random control",
)  # fmt: skip
class Campaign(Check):
    """Mutate some inputs under the guide `goals` and count what breaks, beside random mutation of as many forward passes.

    Any network breaks under some change, so this is never an alarm: the families and their pictures are what to look at.
    seeds: inputs to start from.
    """

    order = 90
    share = 6.0
    labels = False
    fills = True

    seeds: int = setting(500, "500 by default")

    def examine(self, context: CheckContext, clock: Clock) -> CheckItem:
        if clock.left < LEAST_SECONDS:
            return CheckItem(
                self.name, f"{clock.left:.0f} s are too little for a campaign; more with --time", ran_out=True, skipped=True
            )
        part = context.source.take(context.some("campaign", self.seeds))
        oracle = "label" if part.labels is not None else "metamorphic"
        first: list[Mutant] = []

        def watch(fuzzer: Any, outputs: list[Mutant], new: list[Mutant]) -> None:
            first.extend(new)
            context.tick()

        result = fuzz(
            context.target, part, seconds=0.9 * clock.left, oracle=oracle, seed=context.seed, out=False, watch=watch,
            stop=interrupts.requested, islands=1,
        ).to_dict()  # fmt: skip
        numbers = {name: result[name] for name in ("faults", "families", "forwards", "roots", "seeds")}
        control = result["random"] or {}
        numbers |= {"random_faults": control.get("faults"), "random_families": control.get("families")}
        summary = f"{result['faults']:,} faults in {result['families']} families from {result['forwards']:,} forward passes"
        valid = result["believed_valid"]
        believed = Interval(valid["share"], *valid["interval"]) if valid and valid["share"] is not None else None
        if first:
            numbers |= {"believed_valid": believed and believed.value, "believed_valid_interval": believed and list(believed[1:])}
            summary += f", {percent(believed)} believed valid" if believed else "; how many are valid cannot be told"
        if not first:
            return CheckItem(self.name, summary, (), numbers)
        limits = result["faults_per_1000_forwards_interval"]
        broken = result["roots"] / max(1, result["seeds"])
        evidence = (
            ("faults per 1,000 forward passes", float(result["faults_per_1000_forwards"]), limits and tuple(limits)),
            ("families", float(result["families"]), None),
            ("random's families", float(control.get("families", 0)), None),
            ("seeds broken", broken, None),
            *((evidence_row("faults believed valid", believed),) if believed else ()),
        )
        first.sort(key=lambda mutant: mutant.distance[1])
        images = tuple(self._image(context, mutant) for mutant in first[:MAX_IMAGES])
        untried = ", too few to try them all" if result["forwards"] < result["seeds"] else ""
        sentence = (
            f"changed inputs break it: {result['roots']:,} of {result['seeds']:,} inputs can be changed so that it gets them "
            f"wrong ({summary}){untried}"
        )
        strength = 0.3 + 0.4 * broken * (believed.low if believed else 0.0)  # changes that nobody would accept are no weakness
        deeper = f"neurotest fuzz {context.words} --forwards {max(20_000, 2 * result['forwards'])}"
        finding = Finding(self.name, "note", sentence, "", strength, evidence, images, deeper)
        return CheckItem(self.name, summary, (finding,), numbers)

    def _image(self, context: CheckContext, mutant: Mutant) -> CaptionedImage:
        true, predicted = context.class_name(mutant.expected), context.class_name(mutant.predicted)
        return CaptionedImage(np.asarray(mutant.x), f"{true}, taken for {predicted} after {mutant.operator}")
