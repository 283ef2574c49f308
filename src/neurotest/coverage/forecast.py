"""What measuring coverage will take, from a few of the inputs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from neurotest.coverage.api import _criteria, _recorded, cover
from neurotest.data.objects import AnyData
from neurotest.errors import BadInput
from neurotest.jobs.forecast import LARGE, MOST_MEASURED, Forecast, ForecastPart, footprint, opening, slope
from neurotest.jobs.opening import AnyTarget, open_counted, open_target
from neurotest.measure.context import Context
from neurotest.public import public
from neurotest.settings.analyse import CoverSettings


@public(CoverSettings)
def forecast_cover(target: AnyTarget, data: AnyData, criteria: Any, **settings: Any) -> Forecast:
    """Passes, memory and time of `cover` with the same arguments: it is run on a few inputs, and on thrice as many."""
    options = CoverSettings.of(settings)
    train = None if options.profile is not None else options.train
    target = open_target(target)
    began = time.perf_counter()
    source, width = open_counted(target, data, limit=options.limit)
    trained = None if train is None else open_counted(target, train)[0]
    opened = opening(began)
    if len(source) < LARGE or (trained is not None and len(trained) < LARGE):
        raise BadInput("too-few", "plan", f"--plan times {LARGE} inputs, and there are not as many: run it without.")
    chosen = {}
    for name, criterion in _criteria(criteria).items():
        changes = {key: value for key in ("layers", "neuron") if (value := getattr(options, key)) is not None}
        chosen[name] = type(criterion)(**{**vars(criterion), **changes})
    context = Context(target=target, train=trained)
    copies = 1 + (len(target.classes or source.classes or range(width)) if options.by else 0)
    learned = any(criterion.needs for criterion in chosen.values()) and trained is not None
    states = sum(
        criterion.memory(context.layout(_recorded(criterion)), len(source), 0 if trained is None else len(trained)) * copies
        for criterion in chosen.values()
    )

    def piece(count: int) -> None:
        few = np.arange(count)
        same = {name: getattr(options, name) for name in ("by", "memory", "batch", "seed")}
        some = trained.take(few) if learned and trained is not None else None
        cover(target, source.take(few), list(chosen.values()), train=some, **same, cache=False)

    sources = [source, *([trained] if learned and trained is not None else [])]
    seconds, run = slope(piece, min(MOST_MEASURED, *map(len, [*sources, source])))
    each = seconds / len(sources)
    parts = [opened, *([ForecastPart("training data", len(trained), each)] if learned and trained is not None else [])]
    parts.append(ForecastPart("data", len(source), each))
    wants = {_recorded(criterion) for criterion in chosen.values()}
    return Forecast(tuple(parts), footprint(target, source, wants, options.batch, states), run * len(sources))
