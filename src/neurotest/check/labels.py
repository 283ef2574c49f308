"""Labels that look wrong."""

from __future__ import annotations

from neurotest.check.base import MAX_IMAGES, Check, CheckContext, CheckItem, Clock, evidence_row, percent, with_interval
from neurotest.checks import setting
from neurotest.doctor.context import Finding
from neurotest.registry import register
from neurotest.select.suspects import of_answers


@register(
    "check", "labels", paper="neurotest's suspects; beside confident learning (Northcutt et al., JAIR 2021)",
    cost="the pass that accuracy makes; neighbours of doubtful inputs in the last hidden layer", main="alarm",
)  # fmt: skip
class WrongLabels(Check):
    """Labels that the network and the nearest inputs speak against, and the share of wrong ones, as `neurotest suspects` does it.

    alarm: the share of wrong labels, with its interval above which there is one.
    """

    order = 20

    alarm: float = setting(0.01, "0.01 by default", least=0, below=1)

    def examine(self, context: CheckContext, clock: Clock) -> CheckItem:
        result = of_answers(context.target, context.source, context.answers)
        surest = f"labels other than predicted among the {result.surest:,} surest inputs, beyond what confidence forecasts"
        expected = ("wrong labels to be expected", result.share.value * len(result.order), None)
        evidence = (evidence_row(surest, result.share), expected)
        findings = []
        sentence = f"about {percent(result.share)} of the labels look wrong"
        deeper = f"neurotest suspects {context.words}"
        first = result.rows(result.order[:MAX_IMAGES])
        captions = [f"{context.name(r['index'])}: labelled {r['label']}, looks like {r['suggested']}" for r in first]
        if result.share.low > self.alarm:
            advice = "look at the first ones; accuracy measured on wrong labels is too low"
            strength = min(1.0, 0.6 + 4 * result.share.value)
            images = context.pictures(result.order[:MAX_IMAGES], captions)
            findings.append(Finding(self.name, "alarm", sentence, advice, strength, evidence, images, deeper))
        elif result.count:
            shown = min(MAX_IMAGES, result.count)
            images = context.pictures(result.order[:shown], captions[:shown])
            strength = min(0.5, 10 * result.share.value)
            findings.append(Finding(self.name, "note", sentence, "", strength, evidence, images, deeper))
        numbers = {**with_interval("wrong_share", result.share), "suspects": context.index[result.indices].tolist()}
        return CheckItem(self.name, f"{sentence}; {result.count} to look at", tuple(findings), numbers)
