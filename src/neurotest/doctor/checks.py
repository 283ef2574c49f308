"""`neurotest.doctor`: every check in turn, none of them able to hide the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from neurotest.data.objects import AnyData
from neurotest.doctor import behaviour, fit, structure
from neurotest.doctor.context import ORDER, Diagnosis, DoctorContext, Finding, first_line
from neurotest.errors import BadInput, Remark
from neurotest.public import public
from neurotest.scan import aligned, read, remarks
from neurotest.settings import declared
from neurotest.settings.analyse import DoctorSettings
from neurotest.target import Target
from neurotest.target.load import load

Progress = Callable[[int, int], None]
Check = Callable[[DoctorContext], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    behaviour.conversion, behaviour.determinism, behaviour.batches, behaviour.finite, behaviour.outputs, fit.bounds,
    fit.classes, fit.accuracy,
    structure.layers, structure.dead, behaviour.gradients, structure.memory, structure.speed,
)  # fmt: skip


@public(DoctorSettings, load)
def doctor(
    target: Target | nn.Module | str,
    data: AnyData | None = None,
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> Diagnosis:
    """Check a target, on `limit` inputs spread over `data` or, without data, on noise.

    What is wrong with the network becomes a finding; what cannot be loaded at all raises BadInput.
    """
    chosen = DoctorSettings.of(settings)
    findings: list[Finding] = []
    description = {name: value for name, value in settings.items() if name not in declared(DoctorSettings)}
    loaded = _load(target, description, findings)
    source = None if data is None else read(loaded, data)
    if source is not None:
        findings += [Finding("data", "note", remark) for remark in remarks(loaded, source)]
        try:
            source = aligned(loaded, source)
        except BadInput as error:
            findings.append(Finding("classes", "problem", first_line(error), "correct --classes"))
    with DoctorContext(loaded, source, chosen.limit, chosen.batch) as context:
        findings += behaviour.mode(context)
        refusal = _refusal(context)
        if refusal is not None:
            findings.append(refusal)
        else:
            for number, check in enumerate(CHECKS, start=1):
                findings += _safely(check, context)
                if progress is not None:
                    progress(number, len(CHECKS))
    findings.sort(key=lambda finding: ORDER.index(finding.level))
    return Diagnosis(loaded.spec, None if source is None else source.spec, tuple(findings), context.facts)


def _load(target: Target | nn.Module | str, description: dict[str, Any], findings: list[Finding]) -> Target:
    """The target; what other commands warn about when it is loaded (random weights) is a finding here."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = load(target, **description)
    for warning in caught:
        if issubclass(warning.category, Remark):
            text, _, advice = str(warning.message).partition(". ")
            findings.append(Finding("weights", "warning", text, advice))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return loaded


def _refusal(context: DoctorContext) -> Finding | None:
    """Whether the network takes its inputs at all and gives one row of numbers for each."""
    try:
        out = context.target.raw(context.x[:2])
    except Exception as error:  # a stranger's code may raise anything
        size = "x".join(map(str, context.x.shape[1:]))
        advice = "check --size (channels x height x width) and the data"
        return Finding("runs", "problem", f"inputs of size {size} fail: {first_line(error)}", advice)
    if isinstance(out, Tensor) and not out.is_floating_point():
        advice = "leave out its argmax or rounding: logits (n, classes) as floating-point numbers are needed"
        return Finding(
            "runs", "problem", f"the network returns {str(out.dtype).removeprefix('torch.')} values, not scores", advice
        )
    if isinstance(out, Tensor) and out.ndim <= 2 and len(out) == 2:
        return None
    returned = f"shape {tuple(out.shape)} for 2 inputs" if isinstance(out, Tensor) else f"a {type(out).__name__}"
    return Finding("runs", "problem", f"the network returns {returned}", "wrap it in a module that returns logits (n, classes)")


def _safely(check: Check, context: DoctorContext) -> Iterator[Finding]:
    """A check that the network makes impossible is itself a finding."""
    try:
        yield from check(context)
    except Exception as error:  # a stranger's code may raise anything, and the other checks are still to be made
        failed = f"not checked, because the network failed: {first_line(error)}"
        yield Finding(check.__name__, "problem", failed, "see the other findings first")
