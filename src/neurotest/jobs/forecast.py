"""What a command will take, from a small piece of its own work: forward passes, memory and minutes, before the work begins."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from neurotest.data.source import Source
from neurotest.memory import free_memory, peak, size
from neurotest.target import Target, Want, chunks

SMALL, LARGE = 8, 24  # inputs, or passes, of the first two pieces that are timed
ENOUGH = 0.5  # seconds of a piece that tell enough
MOST_MEASURED = 500  # inputs of a piece
COPIES = 2  # of what is recorded: once by layer, once joined
KEPT = 3  # a network's parts of a batch: the C library keeps pieces of several sizes


@dataclass(frozen=True)
class ForecastPart:
    """Forward passes over one kind of inputs, the seconds of one, and those that are spent once."""

    what: str
    passes: int
    seconds_each: float = 0.0
    once: float = 0.0

    @property
    def seconds(self) -> float:
        return self.once + self.passes * self.seconds_each


@dataclass(frozen=True)
class Forecast:
    """parts: the passes, in order. memory: bytes by what needs them. notes: what it cannot say."""

    parts: tuple[ForecastPart, ...]
    memory: dict[str, float]
    measured: int  # passes that were timed
    notes: tuple[str, ...] = ()

    @property
    def passes(self) -> int:
        return sum(part.passes for part in self.parts)

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)

    @property
    def bytes(self) -> float:
        return sum(self.memory.values())

    def to_dict(self) -> dict[str, Any]:
        parts = [{"what": part.what, "passes": part.passes, "seconds": part.seconds} for part in self.parts]
        return {
            "plan": {
                "passes": self.passes, "seconds": self.seconds, "minutes": self.seconds / 60, "memory": self.bytes,
                "free": free_memory(), "parts": parts, "memory_by": self.memory, "measured_passes": self.measured,
            },
            "notes": list(self.notes),
        }  # fmt: skip

    def rows(self) -> list[list[str]]:
        """For people: what, passes, time."""
        lines = [[part.what, f"{part.passes:,}", span(part.seconds)] for part in self.parts]
        return [*lines, ["all", f"{self.passes:,}", span(self.seconds)]]

    def sentence(self) -> str:
        each = ", ".join(f"{what} {size(need)}" for what, need in self.memory.items() if need >= 1e6)
        return f"memory: about {size(self.bytes)} ({each}); {size(free_memory())} are free"


def span(seconds: float) -> str:
    """
    >>> span(12.3), span(600), span(9000)
    ('12 s', '10.0 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def slope(work: Callable[[int], Any], most: int) -> tuple[float, int]:
    """Seconds that one more input costs, without what is done once, and how many inputs were run to learn that.

    Work of two sizes is timed, after one that warms up; of a quick network larger ones, up to `most` inputs, because what is done
    once per batch would count too much.
    """
    small, large, run = min(SMALL, most), min(LARGE, most), SMALL
    work(small)
    while True:
        seconds = [_timed(work, count) for count in (small, large)]
        run += small + large
        if seconds[1] >= ENOUGH or large >= most or large <= small:
            break
        small, large = large, min(most, 4 * large)
    more = seconds[1] - seconds[0]  # not above 0 where other work on the machine outweighs it
    return (more / (large - small) if more > 0 and large > small else seconds[1] / large), run


def opening(began: float) -> ForecastPart:
    """What opening the data took since then: the command opens them in the same way, and pictures are decoded meanwhile."""
    return ForecastPart("opening the data", 0, once=time.perf_counter() - began)


def _timed(work: Callable[[int], Any], count: int) -> float:
    began = time.perf_counter()
    work(count)
    return time.perf_counter() - began


def footprint(
    target: Target, source: Source, wants: Iterable[Want], batch: int, states: float = 0.0, *, inputs: int | None = None
) -> dict[str, float]:
    """Bytes that a pass over the source needs: all of it is bounded, however many inputs there are.

    inputs: how many are run, where that is not the number in the source.
    """
    shape, survey = source.shape, target.survey(source.shape)
    batch = min(batch, len(source) if inputs is None else inputs)
    recorded = 0
    for want in wants:
        neuron = "unit" if want.keep == "map" else want.neuron
        recorded += sum(layer.neurons(neuron, inputs=want.inputs) for layer in survey.find(want.layers))
    whole = batch * math.prod(shape) > chunks.LARGE_BATCH
    together = min(batch, chunks.chunk(survey.everything)) if whole else batch
    widest = max((math.prod(layer.shape) + math.prod(layer.input_shape) for layer in survey.everything), default=0)
    pixels = math.prod(shape) * source.dtype.itemsize
    return {
        "the process so far": float(peak()), "inputs of a batch": float(batch * (pixels + 4 * math.prod(shape))),
        "the network": float(KEPT * 4 * chunks.COPIES * together * widest),
        "recorded layers": float(COPIES * 4 * batch * recorded), "states": float(states),
    }  # fmt: skip
