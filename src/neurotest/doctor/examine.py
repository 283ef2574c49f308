"""The examination: every check in turn, none of them able to hide the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from neurotest.data.source import Source
from neurotest.data.spec import data as open_data
from neurotest.doctor import behaviour, cost, fit, structure
from neurotest.doctor.diagnosis import ORDER, Diagnosis, Finding
from neurotest.doctor.patient import Patient
from neurotest.errors import BadInput
from neurotest.target import Target
from neurotest.target.load import load

Progress = Callable[[int, int], None]


def doctor(
    target: Target | nn.Module | str,
    data: Source | str | None = None,
    *,
    limit: int = 512,
    batch: int = 100,
    progress: Progress | None = None,
    **description: Any,
) -> Diagnosis:
    """Examine a target, on `limit` inputs spread over `data` or, without data, on noise.

    What is wrong with the network is told in findings; what cannot be loaded at all raises BadInput.
    """
    if limit < 1 or batch < 1:
        raise BadInput(f"limit={limit}, batch={batch}: expected integers >= 1.")
    found = load(target, **description)
    source = None if data is None else open_data(data, shape=found.shape)
    facts: dict[str, Any] = {}
    findings: list[Finding] = []
    with Patient(found, source, limit, batch) as patient:
        findings += behaviour.mode(patient)
        refusal = _refusal(patient)
        if refusal is not None:
            findings.append(refusal)
        else:
            checks = _checks(patient, facts)
            for number, (name, check) in enumerate(checks.items(), start=1):
                findings += _safely(name, check)
                if progress is not None:
                    progress(number, len(checks))
    findings.sort(key=lambda finding: ORDER.index(finding.level))
    return Diagnosis(found.spec, None if source is None else source.spec, tuple(findings), facts)


def _refusal(patient: Patient) -> Finding | None:
    """Whether the network takes its inputs at all and gives one row of numbers for each."""
    try:
        out = patient.target.raw(patient.x[:2])
    except Exception as error:  # a stranger's code may raise anything
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        size = "x".join(map(str, patient.x.shape[1:]))
        return Finding(
            "runs", "problem", f"inputs of size {size} fail: {first}", "check --size (channels x height x width) and the data"
        )
    if not isinstance(out, Tensor):
        return Finding(
            "runs",
            "problem",
            f"the network returns a {type(out).__name__}",
            "wrap it in a module that returns logits (n, classes)",
        )
    if out.ndim > 2 or len(out) != 2:
        shape = tuple(out.shape)
        return Finding(
            "runs",
            "problem",
            f"the network returns shape {shape} for 2 inputs",
            "wrap it in a module that returns logits (n, classes)",
        )
    return None


def _checks(patient: Patient, facts: dict[str, Any]) -> dict[str, Callable[[], Iterator[Finding]]]:
    """In an order in which later checks can rely on the facts of earlier ones."""
    return {
        "determinism": lambda: behaviour.determinism(patient),
        "batches": lambda: behaviour.batches(patient),
        "finite": lambda: behaviour.finite(patient),
        "outputs": lambda: behaviour.outputs(patient, facts),
        "bounds": lambda: fit.bounds(patient, facts),
        "classes": lambda: fit.classes(patient, facts),
        "accuracy": lambda: fit.accuracy(patient, facts),
        "layers": lambda: structure.layers(patient, facts),
        "dead": lambda: structure.dead(patient, facts),
        "gradients": lambda: behaviour.gradients(patient),
        "memory": lambda: cost.memory(patient, facts),
        "speed": lambda: cost.speed(patient, facts),
    }


def _safely(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """A check that an ill network makes impossible is itself a finding."""
    try:
        yield from check()
    except Exception as error:  # a stranger's code may raise anything, and the other checks still want to be made
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        yield Finding(name, "problem", f"not checked, because the network failed: {first}", "see the other findings first")
