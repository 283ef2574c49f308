"""What a campaign will take, from a few of its mutants."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from neurotest.campaign.api import fuzz
from neurotest.campaign.plan import read_guide
from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.generate.fuzz.guides import CoverageGuide, Guide, RandomGuide
from neurotest.jobs.forecast import MOST, Forecast, Part, footprint, opening, slope
from neurotest.jobs.opening import AnyTarget, open_counted, open_target
from neurotest.measure.context import Context
from neurotest.public import public
from neurotest.target import Target, Want

FORWARDS = 2  # times the inputs of a piece: a campaign of so few passes is one batch
SEEDS = 64


@public()
def forecast_fuzz(
    target: AnyTarget, seeds: AnyData, guide: Any = "goals", *, budget: dict[str, Any], control: bool = True,
    limit: int | None = None, batch: int = 256, **options: Any,
) -> Forecast:  # fmt: skip
    """Passes, memory and time of `fuzz` with the same arguments: a campaign of a few passes, and one of thrice as many."""
    target = open_target(target)
    began = time.perf_counter()
    source, _ = open_counted(target, seeds, limit=limit)
    train = None if options.get("train") is None else open_counted(target, options["train"])[0]
    opened = opening(began)
    few = source.take(np.arange(min(len(source), SEEDS)))
    options["train"] = train  # opened once for all pieces
    built = read_guide(guide, layers=options.get("layers"), neuron=options.get("neuron"))
    beside = control and not isinstance(built, RandomGuide)

    def piece(count: int) -> None:
        fuzz(
            target, few, guide, forwards=FORWARDS * count, batch=count, control=False, out=False, keep_wrong=True, islands=1,
            **{name: value for name, value in options.items() if value is not None and name != "keep_wrong"},
        )  # fmt: skip

    seconds, run = slope(piece, batch)
    each = seconds / FORWARDS
    answering, answered = slope(lambda count: _answers(target, source, count), min(MOST, len(source)))
    parts = [opened, Part("choosing seeds", len(source), answering)]
    forwards, notes = _forwards(budget, each)
    if forwards is not None:
        parts.append(Part("mutants", forwards, each))
        parts += [Part("control (random)", forwards, each)] if beside else []
    wants, states = _recorded(target, few, train, built, forwards or len(source))
    memory = footprint(target, source, wants, batch, states, inputs=max(batch, len(source)))
    memory["seeds"] = float(len(source) * np.prod(source.shape) * 4)
    return Forecast(tuple(parts), memory, FORWARDS * run + answered, notes)


def _recorded(target: Target, seeds: Source, train: Source | None, guide: Guide, passes: int) -> tuple[tuple[Want, ...], float]:
    """What the guide records of every mutant, and the bytes of its state."""
    context = Context(target=target, train=None if train is None else train.take(np.arange(min(MOST, len(train)))), cache=False)
    state = guide.start(context, seeds)
    if isinstance(guide, CoverageGuide):
        need = guide.criterion.memory(context.layout(guide.criterion.want), passes, 0 if train is None else len(train))
        return state.wants, 2.0 * need  # it keeps an empty one to compare with
    kept = state.arrays() if state.planner is None else {}  # a planner's begins with the campaign, and is small
    return state.wants, float(sum(array.nbytes for array in kept.values()))


def _forwards(budget: dict[str, Any], each: float) -> tuple[int | None, tuple[str, ...]]:
    """How many passes the budget allows, and what cannot be said of it."""
    passes = [budget["forwards"]] if budget.get("forwards") is not None else []
    if budget.get("seconds") is not None:
        passes.append(budget["seconds"] / max(each, 1e-9))
    others = [name for name, value in budget.items() if value is not None and name not in ("forwards", "seconds")]
    if passes:
        return int(min(passes)), (f"it may end earlier, by {' or '.join(others)}.",) if others else ()
    what = " or ".join(others) or "nothing"
    return None, (f"the budget limits {what}: how many passes that takes only the campaign can tell; one takes {each:.3g} s.",)


def _answers(target: Target, source: Any, count: int) -> None:
    with torch.inference_mode():
        target.logits(target.prepare(source.read(np.arange(min(count, len(source))))))
