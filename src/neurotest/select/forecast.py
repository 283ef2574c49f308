"""What a selection will take, from a few of the candidates."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from neurotest.data.objects import AnyData
from neurotest.errors import BadInput
from neurotest.jobs.forecast import LARGE, MOST_MEASURED, Forecast, ForecastPart, footprint, opening, slope
from neurotest.jobs.opening import AnyTarget, known_training, open_counted, open_target
from neurotest.public import public
from neurotest.select.api import build, compare
from neurotest.settings.select import Selecting, SelectSettings


@public(SelectSettings)
def forecast_select(target: AnyTarget, pool: AnyData, methods: Sequence[str], **settings: Any) -> Forecast:
    """Passes, memory and time of `compare` with the same arguments: it is run on a few candidates, and on thrice as many."""
    options = Selecting.of(settings)
    train = options.train
    target = open_target(target)
    began = time.perf_counter()
    source, _ = open_counted(target, pool, limit=options.limit)
    trained = known_training(target) if train is None else open_counted(target, train)[0]
    opened = opening(began)
    scorers = [build(method) for method in methods]
    learns = any(getattr(scorer, "learns", None) is not None for scorer in scorers) and trained is not None
    if len(source) < LARGE or (trained is not None and len(trained) < LARGE):
        raise BadInput("too-few", "plan", f"--plan times {LARGE} inputs, and there are not as many: run it without.")

    def piece(count: int) -> None:
        few = np.arange(count)
        same = {name: getattr(options, name) for name in ("layers", "neuron", "batch", "seed")}
        compare(target, source.take(few), methods, 1, train=None if trained is None else trained.take(few), **same)

    sources = [source, *([trained] if learns and trained is not None else [])]
    seconds, run = slope(piece, min(MOST_MEASURED, *map(len, [*sources, source])))
    each = seconds / len(sources)
    parts = [opened, *([ForecastPart("training data", len(trained), each)] if learns and trained is not None else [])]
    parts.append(ForecastPart("pool, with what each candidate is compared with", len(source), each))
    wants = {scorer.want for scorer in scorers if getattr(scorer, "want", None) is not None}
    notes = tuple(
        f"{method} does work of its own after the passes, which grows with the labels: it is not in this." for method, scorer
        in zip(methods, scorers, strict=True) if not getattr(scorer, "pointwise", True)
    )  # fmt: skip
    memory = footprint(target, source, wants, options.batch, 8.0 * len(source) * len(methods))
    return Forecast(tuple(parts), memory, run * len(sources), notes)
