"""Which inputs to label first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from neurotest.check.examination import Examination
from neurotest.check.finding import Examined, Finding, percent, share
from neurotest.check.subject import Clock, Subject
from neurotest.checks import setting
from neurotest.registry import register
from neurotest.stats.bootstrap import fdr_interval, random_fdr

SHOWN = 8


@register(
    "examination", "first", paper="DeepGini: Feng et al., ISSTA 2020", cost="the pass that accuracy makes", main="budget",
    differs="The adaptive method finds more, but needs labels in rounds: the command that goes deeper starts it.",
)  # fmt: skip
class First(Examination):
    """The inputs the network is least sure about: label (or look at) these first. With labels, what that finds beside random.

    budget: share of the inputs.
    """

    name: ClassVar[str] = "first"
    order: ClassVar[int] = 30
    share: ClassVar[float] = 0.2
    labels: ClassVar[bool] = False

    budget: float = setting(0.05, "0.05 by default", above=0, most=1)

    def examine(self, subject: Subject, clock: Clock) -> Examined:
        said = subject.said
        gini = 1 - np.exp(2 * said.log_probs).sum(axis=1)
        order = np.argsort(-gini, kind="stable")
        picked = max(1, round(self.budget * len(order)))
        numbers: dict[str, object] = {"indices": subject.index[order[:picked]].tolist(), "budget": picked}
        shown = order[:SHOWN]
        deeper = f"neurotest select {subject.words} --method adaptive --budget {picked}"
        if subject.source.labels is None:
            captions = [f"{subject.name(i)}: taken for {subject.class_name(said.predicted[i])}" for i in shown.tolist()]
            sentence = f"label these {picked:,} of {len(order):,} inputs first: the network is least sure about them"
            finding = Finding(self.name, "note", 0.2, sentence, (), subject.pictures(shown, captions), deeper)
            return Examined(self.name, sentence, (finding,), numbers)
        wrong = subject.wrong
        found = fdr_interval(wrong[order], picked, seed=subject.seed)
        chance = random_fdr(len(order), int(wrong.sum()), picked)
        sentence = (
            f"of the {picked:,} inputs it is least sure about, {percent(found)} are mistaken; "
            f"of as many at random {percent(chance)}"
        )
        evidence = (share("mistakes among the first", found), share("at random", chance))
        finding = Finding(self.name, "note", 0.1, sentence, evidence, subject.predicted_as(shown), deeper)
        numbers |= {"fdr": found.value, "fdr_interval": [found.low, found.high], "random_fdr": chance.value}
        return Examined(self.name, sentence, (finding,), numbers)
