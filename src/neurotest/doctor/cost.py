"""What the network costs: memory and speed."""

from __future__ import annotations

import math
import statistics
import sys
import timeit
from collections.abc import Iterator

import torch

from neurotest.doctor.diagnosis import Finding
from neurotest.doctor.examined import Examined

ROUNDS = 5
MANY = 10_000


def memory(examined: Examined) -> Iterator[Finding]:
    """Weights, what one input leaves behind in the layers, and the process at its largest."""
    module = examined.target.module
    tensors = [*module.parameters(), *module.buffers()]
    weights = sum(t.numel() * t.element_size() for t in tensors) / 1e6
    parameters = sum(p.numel() for p in module.parameters())
    per_input = 4 * sum(math.prod(layer.shape) for layer in examined.survey.layers) / 1e6
    facts = {"parameters": parameters, "weights_mb": round(weights, 3), "layers_mb_per_input": round(per_input, 4)}
    examined.facts["memory"] = facts
    size = f"{parameters:,} parameters ({weights:.1f} MB); all layers of one input are {per_input:.2f} MB"
    if (peak := _peak()) is not None:
        facts["peak_mb"] = round(peak, 1)
        size += f"; the process took {peak:,.0f} MB at most"
    whole = per_input * examined.batch
    if whole > 2000:
        smaller = max(1, int(examined.batch * 1000 / whole))
        text = f"{size}; a batch of {examined.batch} as units would be {whole:,.0f} MB"
        yield Finding("memory", "warning", text, f"use --batch {smaller} or fewer layers")
    else:
        yield Finding("memory", "ok", size)


def _peak() -> float | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (1e6 if sys.platform == "darwin" else 1e3)


def speed(examined: Examined) -> Iterator[Finding]:
    """Time per input, alone and in batches."""
    many = examined.x[torch.arange(examined.batch, device=examined.x.device) % len(examined.x)]
    batched = _seconds(examined, many) / len(many)
    examined.facts["speed"] = facts = {"batch": len(many), "ms_per_input": round(1000 * batched, 4)}
    total = batched * MANY
    span = f"{total:.0f} seconds" if total < 120 else f"{total / 60:.0f} minutes" if total < 7200 else f"{total / 3600:.1f} hours"
    times = f"{1000 * batched:.2f} ms per input in batches of {len(many)}"
    try:
        single = _seconds(examined, many[:1])
        facts["ms_single"] = round(1000 * single, 4)
        times = f"{1000 * single:.2f} ms for one input, {times}"
    except Exception:  # a network that takes no single inputs: `batches` says so
        pass
    yield Finding("speed", "ok", f"{times}: about {span} for {MANY:,} inputs (threads: {torch.get_num_threads()})")


def _seconds(examined: Examined, x: torch.Tensor) -> float:
    examined.raw(x)
    return statistics.median(timeit.repeat(lambda: examined.raw(x), repeat=ROUNDS, number=1))
