"""Checks of what the network is made of and what it costs: layers, neurons, activations, dead neurons, memory, speed."""

from __future__ import annotations

import math
import statistics
import timeit
from collections.abc import Iterator

import torch

from neurotest.doctor.context import DoctorContext, Finding, Level
from neurotest.errors import BadInput
from neurotest.memory import peak
from neurotest.target import Probe, Profile, Survey, Want

PRESETS = ("pre_activation", "post_activation")
MANY_DEAD = 0.1


def layers(context: DoctorContext) -> Iterator[Finding]:
    """Which layers each preset finds, with how many neurons."""
    survey = context.survey
    counts = context.facts["layers"] = {}
    for preset in PRESETS:
        try:
            chosen = survey.find(preset)
        except BadInput as error:
            text, _, advice = str(error).partition("; ")
            yield Finding("layers", "warning", text, advice)
            continue
        channels, units = (sum(layer.neurons(neuron) for layer in chosen) for neuron in ("channel", "unit"))
        counts[preset] = {"layers": len(chosen), "channel": channels, "unit": units}
        yield Finding("layers", "ok", f"{preset}: {len(chosen)} layers, {channels:,} channels, {units:,} units")
    yield from _features(context)
    yield from _activations(survey)
    yield from _repeated(survey)


def _features(context: DoctorContext) -> Iterator[Finding]:
    try:
        (layer,) = context.survey.find("features")
    except BadInput as error:
        yield Finding("layers", "warning", str(error).partition("; ")[0], "give nss and surprise a layer with --layers GLOB")
        return
    context.facts["features"] = layer.name
    yield Finding("layers", "ok", f"features: the input of {layer.name!r}, {layer.neurons('unit', inputs=True):,} units")


def _activations(survey: Survey) -> Iterator[Finding]:
    if survey.hidden:
        text = f"{survey.hidden} activations run where they cannot be read: in scripted or custom code, or not one row per input"
        advice = "post_activation leaves them out; call each one from Python, as a module or as a function of torch"
        yield Finding("activations", "warning", text, advice)
        return
    names = [layer.name for layer in survey.layers if layer.function and layer.made_by == "activation"]
    shown = f"; {len(names)} are functions: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}" if names else ""
    yield Finding("activations", "ok", f"every activation is a layer{shown}")


def _repeated(survey: Survey) -> Iterator[Finding]:
    twice = {name: calls for name, calls in survey.calls.items() if calls > 1}
    if twice:
        shown = ", ".join(f"{name!r} ({calls} times)" for name, calls in list(twice.items())[:3])
        first = next(iter(twice))
        text = f"modules that run more than once per pass: {shown}{' ...' if len(twice) > 3 else ''}"
        advice = f"each call counts as its own layer ({first}, {first}#2, ...); with globs write '{first}*' to mean all of them"
        yield Finding("reuse", "note", text, advice)


def dead(context: DoctorContext) -> Iterator[Finding]:
    """Channels with one and the same value on every input: they can never be covered and show nothing."""
    preset = next((p for p in reversed(PRESETS) if p in context.facts.get("layers", {})), None)
    if preset is None:
        return
    want = Want(layers=preset)
    profile = Profile.empty(context.target, want)
    with Probe(context.target, want) as probe:
        for part in context.x.split(context.batch):
            profile.update(probe(part))
    constant = {name: int((m.low == m.high).sum()) for name, m in profile.layers.items()}
    total, neurons = sum(constant.values()), sum(m.neurons for m in profile.layers.values())
    context.facts["dead"] = {"neurons": total, "of": neurons, "preset": preset, "inputs": len(context.x)}
    what = "noise images" if context.source is None else "inputs"
    counts = f"{total} of {neurons} channels ({preset}) never change over {len(context.x)} {what}"
    if not total:
        yield Finding("dead", "ok", counts)
        return
    worst = max(constant, key=lambda name: constant[name])
    where = f"most in {worst!r}: {constant[worst]} of {profile.layers[worst].neurons}"
    level: Level = "warning" if total > MANY_DEAD * neurons else "note"
    advice = "coverage counts them as dead; many may mean a too high learning rate or wrong --bounds"
    if context.source is None:
        advice = "give the doctor data to be sure"
    yield Finding("dead", level, f"{counts}; {where}", advice)


ROUNDS, LONGEST = 5, 5.0  # how often speed is measured, and seconds after which that is enough
MANY = 10_000


def memory(context: DoctorContext) -> Iterator[Finding]:
    """Weights, what one input leaves behind in the layers, and the process at its largest."""
    module = context.target.module
    tensors = [*module.parameters(), *module.buffers()]
    weights = sum(t.numel() * t.element_size() for t in tensors) / 1e6
    parameters = sum(p.numel() for p in module.parameters())
    per_input = 4 * sum(math.prod(layer.shape) for layer in context.survey.layers) / 1e6
    facts = {"parameters": parameters, "weights_mb": round(weights, 3), "layers_mb_per_input": round(per_input, 4)}
    context.facts["memory"] = facts
    size = f"{parameters:,} parameters ({weights:.1f} MB); all layers of one input are {per_input:.2f} MB"
    if largest := peak() / 1e6:
        facts["peak_mb"] = round(largest, 1)
        size += f"; the process took {largest:,.0f} MB at most"
    whole = per_input * context.batch
    if whole > 2000:
        smaller = max(1, int(context.batch * 1000 / whole))
        text = f"{size}; a batch of {context.batch} as units would be {whole:,.0f} MB"
        yield Finding("memory", "warning", text, f"use --batch {smaller} or fewer layers")
    else:
        yield Finding("memory", "ok", size)


def speed(context: DoctorContext) -> Iterator[Finding]:
    """Time per input, alone and in batches."""
    many = context.x[torch.arange(context.batch, device=context.x.device) % len(context.x)]
    batched = _seconds(context, many) / len(many)
    context.facts["speed"] = facts = {"batch": len(many), "ms_per_input": round(1000 * batched, 4)}
    total = batched * MANY
    span = f"{total:.0f} seconds" if total < 120 else f"{total / 60:.0f} minutes" if total < 7200 else f"{total / 3600:.1f} hours"
    times = f"{1000 * batched:.2f} ms per input in batches of {len(many)}"
    try:
        single = _seconds(context, many[:1])
        facts["ms_single"] = round(1000 * single, 4)
        times = f"{1000 * single:.2f} ms for one input, {times}"
    except Exception:  # a network that takes no single inputs: `batches` says so
        pass
    yield Finding("speed", "ok", f"{times}: about {span} for {MANY:,} inputs (threads: {torch.get_num_threads()})")


def _seconds(context: DoctorContext, x: torch.Tensor) -> float:
    """The median of some rounds, of fewer where a round takes long."""
    warm = timeit.timeit(lambda: context.raw(x), number=1)
    rounds = max(1, min(ROUNDS, int(LONGEST / max(warm, 1e-9))))
    return statistics.median(timeit.repeat(lambda: context.raw(x), repeat=rounds, number=1))
