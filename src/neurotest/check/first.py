"""Which inputs to label first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neurotest.check.base import MAX_IMAGES, Check, CheckContext, CheckItem, Clock, evidence_row, percent, with_interval
from neurotest.checks import setting
from neurotest.doctor.context import Finding
from neurotest.errors import BadInput
from neurotest.measure.answers import Answers
from neurotest.registry import register
from neurotest.select.api import select
from neurotest.stats.bootstrap import fdr_interval, random_fdr


@register(
    "check", "first", paper="DeepGini: Feng et al., ISSTA 2020", cost="the pass that accuracy makes", main="budget",
    differs="The adaptive method finds more, but needs labels in rounds: the command that goes deeper starts it.",
)  # fmt: skip
class First(Check):
    """The inputs the network is least sure about: label (or look at) these first. With labels, what that finds beside random.

    budget: share of the inputs.
    """

    order = 30
    share = 0.2
    labels = False

    budget: float = setting(0.05, "0.05 by default", above=0, most=1)

    def examine(self, context: CheckContext, clock: Clock) -> CheckItem:
        answers, quantity = context.answers, context.target.bins is not None
        picked = max(1, round(self.budget * len(answers)))
        order = _by_neighbours(context, picked) if quantity else _by_doubt(answers)
        why = "that training data speak against" if quantity else "it is least sure about"
        numbers: dict[str, object] = {"indices": context.index[order[:picked]].tolist(), "budget": picked}
        shown = order[:MAX_IMAGES]
        method = "disagreement" if quantity else "adaptive"
        deeper = f"neurotest select {context.words} --method {method} --budget {picked}"
        if context.source.labels is None:
            captions = [f"{context.name(i)}: taken for {context.class_name(answers.predicted[i])}" for i in shown.tolist()]
            sentence = f"label these {picked:,} of {len(order):,} inputs first: those {why}"
            images = context.pictures(shown, captions)
            finding = Finding(self.name, "note", sentence, strength=0.2, images=images, deeper=deeper)
            return CheckItem(self.name, sentence, (finding,), numbers)
        wrong = context.wrong
        first = fdr_interval(wrong[order], picked, seed=context.seed)
        chance = random_fdr(len(order), int(wrong.sum()), picked)
        sentence = f"of the {picked:,} inputs {why}, {percent(first)} are mistaken; of as many at random {percent(chance)}"
        evidence = (evidence_row("mistakes among the first", first), evidence_row("at random", chance))
        finding = Finding(self.name, "note", sentence, "", 0.1, evidence, context.predicted_as(shown), deeper)
        numbers |= {**with_interval("fdr", first), "random_fdr": chance.value}
        return CheckItem(self.name, sentence, (finding,), numbers)


def _by_doubt(answers: Answers) -> NDArray[np.int64]:
    """Positions, the least sure first (DeepGini)."""
    gini = 1 - np.exp(2 * answers.log_probs).sum(axis=1)
    return np.argsort(-gini, kind="stable")


def _by_neighbours(context: CheckContext, picked: int) -> NDArray[np.int64]:
    """Of a quantity, which has no probabilities: the farthest from the truth of similar training inputs first."""
    if context.train is None:
        raise BadInput("missing", "train", "a regression target has no class probabilities: give --train DATA to compare with")
    chosen = select(context.target, context.source, "disagreement", picked, train=context.train, seed=context.seed)
    return np.asarray(chosen.order, dtype=np.int64)
