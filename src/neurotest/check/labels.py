"""Labels that look wrong."""

from __future__ import annotations

from typing import ClassVar

from neurotest.check.examination import Check
from neurotest.check.finding import CheckItem, Finding, percent, share
from neurotest.check.subject import CheckContext, Clock
from neurotest.checks import setting
from neurotest.registry import register
from neurotest.select.suspects import of_answers

SHOWN = 8


@register(
    "examination", "labels", paper="neurotest's suspects; beside confident learning (Northcutt et al., JAIR 2021)",
    cost="the pass that accuracy makes; neighbours of doubtful inputs in the last hidden layer", main="alarm",
)  # fmt: skip
class WrongLabels(Check):
    """Labels that the network and the nearest inputs speak against, and the share of wrong ones, as `neurotest suspects` does it.

    alarm: the share of wrong labels, with its interval above which there is one.
    """

    name: ClassVar[str] = "labels"
    order: ClassVar[int] = 20
    share: ClassVar[float] = 1.0

    alarm: float = setting(0.01, "0.01 by default", least=0, below=1)

    def examine(self, subject: CheckContext, clock: Clock) -> CheckItem:
        result = of_answers(subject.target, subject.source, subject.said)
        evidence = (
            share(
                f"labels other than predicted among the {result.surest:,} surest inputs, beyond what is foretold", result.share
            ),
            ("wrong labels to be expected", result.share.value * len(result.order), None),
        )
        findings = []
        sentence = f"about {percent(result.share)} of the labels look wrong"
        deeper = f"neurotest suspects {subject.words}"
        first = result.rows(result.order[:SHOWN])
        captions = [f"{subject.name(r['index'])}: labelled {r['label']}, looks like {r['suggested']}" for r in first]
        if result.share.low > self.alarm:
            advice = "look at the first ones; accuracy measured on wrong labels is too low"
            strength = min(1.0, 0.6 + 4 * result.share.value)
            pictures = subject.pictures(result.order[:SHOWN], captions)
            findings.append(Finding(self.name, "alarm", strength, sentence, evidence, pictures, deeper, advice))
        elif result.count:
            shown = min(SHOWN, result.count)
            pictures = subject.pictures(result.order[:shown], captions[:shown])
            strength = min(0.5, 10 * result.share.value)
            findings.append(Finding(self.name, "note", strength, sentence, evidence, pictures, deeper))
        numbers = {
            "wrong_share": result.share.value, "wrong_share_interval": [result.share.low, result.share.high],
            "suspects": subject.index[result.indices].tolist(),
        }  # fmt: skip
        return CheckItem(self.name, f"{sentence}; {result.count} to look at", tuple(findings), numbers)
