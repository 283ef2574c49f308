"""How much of the network the data exercise."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurotest.check.base import Check, CheckContext, CheckItem, Clock
from neurotest.checks import setting
from neurotest.coverage import cover
from neurotest.doctor.context import Finding
from neurotest.registry import register


@register("check", "coverage", paper="the criteria's own", cost="one or two passes over some inputs", main="inputs")
class CoverageOfData(Check):
    """Share of the neurons that the data drive (nc) and, with training data, of what training reached (kmnc, nbc).

    Coverage says how much of the network the inputs exercise, not how good they are as tests. inputs: how many of each.
    """

    order = 60
    labels = False

    inputs: int = setting(2000, "2000 by default")

    def examine(self, context: CheckContext, clock: Clock) -> CheckItem:
        part = context.source.take(context.some("coverage", self.inputs))
        train = context.train
        if train is not None:
            spread = np.linspace(0, len(train) - 1, min(len(train), self.inputs)).astype(np.int64)
            train = train.take(np.unique(spread))
        names = ["nc"] if train is None else ["nc", "kmnc:100", "nbc"]
        result = cover(context.target, part, names, train=train, batch=context.batch, progress=lambda done, total: context.tick())
        rows: dict[str, Any] = {name: one.value.whole for name, one in result.criteria.items()}
        numbers = {name.partition(":")[0]: float(whole.value) for name, whole in rows.items()}
        summary = ", ".join(f"{name} {value:.1%}" for name, value in numbers.items()) + f" by {len(part):,} inputs"
        findings = []
        dead = int(rows["nc"].dead) if "nc" in rows else 0
        criteria = " ".join(f"--criteria {name}" for name in names)
        if train is not None and numbers.get("nbc", 0) > 0.25:
            sentence = f"the data drive {numbers['nbc']:.1%} of the ends of the neurons' ranges beyond what training reached"
            advice = "the data differ from the training data: is that meant?"
            evidence, deeper = (("nbc", numbers["nbc"], None),), f"neurotest cover {context.words} {criteria}"
            findings.append(Finding(self.name, "note", sentence, advice, 0.5, evidence, deeper=deeper))
        return CheckItem(self.name, summary, tuple(findings), {**numbers, "dead": dead})
