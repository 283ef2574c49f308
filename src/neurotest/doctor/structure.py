"""Checks of what the network is made of: layers, neurons, activations, dead neurons."""

from __future__ import annotations

from collections.abc import Iterator

from neurotest.doctor.diagnosis import Finding, Level
from neurotest.doctor.examined import Examined
from neurotest.errors import BadInput
from neurotest.target import Probe, Profile, Survey, Want

PRESETS = ("pre_activation", "post_activation")
MANY_DEAD = 0.1


def layers(examined: Examined) -> Iterator[Finding]:
    """Which layers each preset finds, with how many neurons."""
    survey = examined.survey
    counts = examined.facts["layers"] = {}
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
    yield from _features(examined)
    yield from _activations(survey)
    yield from _repeated(survey)


def _features(examined: Examined) -> Iterator[Finding]:
    try:
        (layer,) = examined.survey.find("features")
    except BadInput as error:
        yield Finding("layers", "warning", str(error).partition("; ")[0], "give nss and surprise a layer with --layers GLOB")
        return
    examined.facts["features"] = layer.name
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


def dead(examined: Examined) -> Iterator[Finding]:
    """Channels with one and the same value on every input: they can never be covered and show nothing."""
    preset = next((p for p in reversed(PRESETS) if p in examined.facts.get("layers", {})), None)
    if preset is None:
        return
    want = Want(layers=preset)
    profile = Profile.empty(examined.target, want)
    with Probe(examined.target, want) as probe:
        for part in examined.x.split(examined.batch):
            profile.update(probe(part))
    constant = {name: int((m.low == m.high).sum()) for name, m in profile.layers.items()}
    total, neurons = sum(constant.values()), sum(m.neurons for m in profile.layers.values())
    examined.facts["dead"] = {"neurons": total, "of": neurons, "preset": preset, "inputs": len(examined.x)}
    what = "noise images" if examined.source is None else "inputs"
    counts = f"{total} of {neurons} channels ({preset}) never change over {len(examined.x)} {what}"
    if not total:
        yield Finding("dead", "ok", counts)
        return
    worst = max(constant, key=lambda name: constant[name])
    where = f"most in {worst!r}: {constant[worst]} of {profile.layers[worst].neurons}"
    level: Level = "warning" if total > MANY_DEAD * neurons else "note"
    advice = "coverage counts them as dead; many may mean a too high learning rate or wrong --bounds"
    if examined.source is None:
        advice = "give the doctor data to be sure"
    yield Finding("dead", level, f"{counts}; {where}", advice)
