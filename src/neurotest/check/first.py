"""Which inputs to label first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from neurotest.check.examination import Examination
from neurotest.check.finding import Examined, Finding, percent, share
from neurotest.check.subject import Clock, Subject
from neurotest.checks import setting
from neurotest.errors import BadInput
from neurotest.measure.answers import Answers
from neurotest.registry import register
from neurotest.select.api import select
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
        said, quantity = subject.said, subject.target.bins is not None
        picked = max(1, round(self.budget * len(said)))
        order = _by_neighbours(subject, picked) if quantity else _by_doubt(said)
        why = "that training data speak against" if quantity else "it is least sure about"
        numbers: dict[str, object] = {"indices": subject.index[order[:picked]].tolist(), "budget": picked}
        shown = order[:SHOWN]
        method = "disagreement" if quantity else "adaptive"
        deeper = f"neurotest select {subject.words} --method {method} --budget {picked}"
        if subject.source.labels is None:
            captions = [f"{subject.name(i)}: taken for {subject.class_name(said.predicted[i])}" for i in shown.tolist()]
            sentence = f"label these {picked:,} of {len(order):,} inputs first: those {why}"
            finding = Finding(self.name, "note", 0.2, sentence, (), subject.pictures(shown, captions), deeper)
            return Examined(self.name, sentence, (finding,), numbers)
        wrong = subject.wrong
        found = fdr_interval(wrong[order], picked, seed=subject.seed)
        chance = random_fdr(len(order), int(wrong.sum()), picked)
        sentence = f"of the {picked:,} inputs {why}, {percent(found)} are mistaken; of as many at random {percent(chance)}"
        evidence = (share("mistakes among the first", found), share("at random", chance))
        finding = Finding(self.name, "note", 0.1, sentence, evidence, subject.predicted_as(shown), deeper)
        numbers |= {"fdr": found.value, "fdr_interval": [found.low, found.high], "random_fdr": chance.value}
        return Examined(self.name, sentence, (finding,), numbers)


def _by_doubt(said: Answers) -> NDArray[np.int64]:
    """Positions, the least sure first (DeepGini)."""
    gini = 1 - np.exp(2 * said.log_probs).sum(axis=1)
    return np.argsort(-gini, kind="stable")


def _by_neighbours(subject: Subject, picked: int) -> NDArray[np.int64]:
    """Of a quantity, which has no probabilities: the farthest from the truth of similar training inputs first."""
    if subject.train is None:
        raise BadInput(
            "missing", "train", "a quantity has no probabilities to be unsure about: give --train DATA to compare with"
        )
    chosen = select(subject.target, subject.source, "disagreement", picked, train=subject.train, seed=subject.seed)
    return np.asarray(chosen.order, dtype=np.int64)
