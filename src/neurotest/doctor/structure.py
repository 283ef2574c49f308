"""Checks of what the network is made of: layers, neurons, activations, dead neurons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neurotest.doctor.diagnosis import Finding, Level
from neurotest.doctor.patient import Patient
from neurotest.errors import BadInput
from neurotest.target import Probe, Profile, Survey, Want

PRESETS = ("pre_activation", "post_activation")
MANY_DEAD = 0.1


def layers(patient: Patient, facts: dict[str, Any]) -> Iterator[Finding]:
    """Which layers each preset finds, with how many neurons."""
    survey = patient.survey
    facts["layers"] = {}
    for preset in PRESETS:
        try:
            found = survey.find(preset)
        except BadInput as error:
            yield Finding(
                "layers", "warning", str(error).partition("; ")[0], "name layers with --layers GLOB, or use the other preset"
            )
            continue
        channels, units = (sum(layer.neurons(neuron) for layer in found) for neuron in ("channel", "unit"))
        facts["layers"][preset] = {"layers": len(found), "channel": channels, "unit": units}
        yield Finding("layers", "ok", f"{preset}: {len(found)} layers, {channels:,} channels, {units:,} units")
    yield from _features(survey, facts)
    yield from _repeated(survey)


def _features(survey: Survey, facts: dict[str, Any]) -> Iterator[Finding]:
    try:
        (layer,) = survey.find("features")
    except BadInput as error:
        yield Finding("layers", "warning", str(error).partition("; ")[0], "give nss and surprise a layer with --layers GLOB")
        return
    facts["features"] = layer.name
    yield Finding("layers", "ok", f"features: the input of {layer.name!r}, {layer.neurons('unit', inputs=True):,} units")


def _repeated(survey: Survey) -> Iterator[Finding]:
    if survey.functional:
        number = f"{survey.functional} activation{'s are' if survey.functional > 1 else ' is'}"
        yield Finding(
            "activations",
            "warning",
            f"{number} called as a function and no module's output: post_activation does not see them",
            "use --layers pre_activation, or make each one a module of its own (self.relu1 = nn.ReLU())",
        )
    else:
        yield Finding("activations", "ok", "every activation is a module's output")
    twice = {name: calls for name, calls in survey.calls.items() if calls > 1}
    if twice:
        shown = ", ".join(f"{name!r} ({calls} times)" for name, calls in list(twice.items())[:3])
        first = next(iter(twice))
        yield Finding(
            "reuse",
            "note",
            f"modules that run more than once per pass: {shown}{' ...' if len(twice) > 3 else ''}",
            f"each call counts as its own layer ({first}, {first}#2, ...); with globs write '{first}*' to mean all of them",
        )


def dead(patient: Patient, facts: dict[str, Any]) -> Iterator[Finding]:
    """Channels with one and the same value on every input: they can never be covered and never tell anything."""
    preset = next((p for p in reversed(PRESETS) if p in facts.get("layers", {})), None)
    if preset is None:
        return
    want = Want(layers=preset)
    profile = Profile.empty(patient.target, want)
    with Probe(patient.target, want) as probe:
        for part in patient.x.split(patient.batch):
            profile.update(probe(part))
    constant = {name: int((m.low == m.high).sum()) for name, m in profile.layers.items()}
    total, neurons = sum(constant.values()), sum(m.neurons for m in profile.layers.values())
    facts["dead"] = {"neurons": total, "of": neurons, "preset": preset, "inputs": len(patient.x)}
    what = "noise images" if patient.source is None else "inputs"
    told = f"{total} of {neurons} channels ({preset}) never change over {len(patient.x)} {what}"
    if not total:
        yield Finding("dead", "ok", told)
        return
    worst = max(constant, key=lambda name: constant[name])
    where = f"most in {worst!r}: {constant[worst]} of {profile.layers[worst].neurons}"
    level: Level = "warning" if total > MANY_DEAD * neurons else "note"
    hint = (
        "give the doctor data to be sure"
        if patient.source is None
        else "coverage counts them as dead; many may mean a too high learning rate or wrong --bounds"
    )
    yield Finding("dead", level, f"{told}; {where}", hint)
