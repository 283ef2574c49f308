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
from neurotest.jobs.forecast import MOST_MEASURED, Forecast, ForecastPart, footprint, opening, slope
from neurotest.jobs.opening import AnyTarget, open_counted, open_target
from neurotest.measure.context import Context
from neurotest.public import public
from neurotest.settings.generate import FuzzSettings
from neurotest.target import Target, Want

FORWARDS = 2  # times the inputs of a piece: a campaign of so few passes is one batch
SEEDS = 64
PIECE = ("limit", "out", "resume")  # settings of the campaign that its pieces do not take


@public(FuzzSettings)
def forecast_fuzz(target: AnyTarget, seeds: AnyData, guide: Any = "goals", **settings: Any) -> Forecast:
    """Passes, memory and time of `fuzz` with the same arguments: a campaign of a few passes, and one of thrice as many."""
    target = open_target(target)
    chosen = FuzzSettings.of(settings)
    budget, batch = FuzzSettings.of_part("budget", settings), chosen.batch
    options = {name: value for name, value in settings.items() if name not in {*budget, *PIECE}}
    began = time.perf_counter()
    source, _ = open_counted(target, seeds, limit=chosen.limit)
    train = None if chosen.train is None else open_counted(target, chosen.train)[0]
    opened = opening(began)
    few = source.take(np.arange(min(len(source), SEEDS)))
    options["train"] = train  # opened once for all pieces
    built = read_guide(guide, layers=chosen.layers, neuron=chosen.neuron)
    beside = chosen.control and not isinstance(built, RandomGuide)

    def piece(count: int) -> None:
        piece_settings = {"batch": count, "control": False, "out": False, "keep_wrong": True, "islands": 1}
        fuzz(target, few, guide, forwards=FORWARDS * count, **{**options, **piece_settings})

    seconds, run = slope(piece, batch)
    each = seconds / FORWARDS
    answering, answered = slope(lambda count: _answers(target, source, count), min(MOST_MEASURED, len(source)))
    parts = [opened, ForecastPart("choosing seeds", len(source), answering)]
    forwards, notes = _forwards(budget, each)
    if forwards is not None:
        parts.append(ForecastPart("mutants", forwards, each))
        parts += [ForecastPart("control (random)", forwards, each)] if beside else []
    wants, states = _recorded(target, few, train, built, forwards or len(source))
    memory = footprint(target, source, wants, batch, states, inputs=max(batch, len(source)))
    memory["seeds"] = float(len(source) * np.prod(source.shape) * 4)
    return Forecast(tuple(parts), memory, FORWARDS * run + answered, notes)


def _recorded(target: Target, seeds: Source, train: Source | None, guide: Guide, passes: int) -> tuple[tuple[Want, ...], float]:
    """What the guide records of every mutant, and the bytes of its state."""
    context = Context(
        target=target, train=None if train is None else train.take(np.arange(min(MOST_MEASURED, len(train)))), cache=False
    )
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
