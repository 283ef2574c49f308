"""Checks of what the network does: mode, randomness, batches, outputs, gradients."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from neurotest.devices import exact
from neurotest.doctor.context import ROUNDING, DoctorContext, Finding, distance, first_line
from neurotest.errors import BadInput
from neurotest.target.survey import last_operator

SMALL = 8  # inputs per behavioural check
OUTSIDE = 0.05  # share of answers beyond the span
VISIBLE = 1e-2  # a relative difference that is no rounding


def mode(context: DoctorContext) -> Iterator[Finding]:
    """Training flags; the next two checks find what flags do not show."""
    if not context.training:
        yield Finding("mode", "ok", "every module is in eval mode")
        return
    names = {id(module): name or "the network itself" for name, module in context.target.module.named_modules()}
    shown = ", ".join(names[id(module)] for module in context.training[:3])
    text = f"{len(context.training)} modules are in training mode ({shown}{', ...' if len(context.training) > 3 else ''})"
    exported = context.target.spec.startswith("pt2:")
    advice = "call model.eval() before testing; the checks below were made in eval mode"
    yield Finding("mode", "problem", text, "export it again after model.eval()" if exported else advice)


def determinism(context: DoctorContext) -> Iterator[Finding]:
    """Two passes over the same inputs: dropout that is left on, wherever it is, makes them differ."""
    x = context.x[:SMALL]
    passes = [context.raw(x) for _ in range(3)]
    largest = max(distance(passes[0], other) for other in passes[1:])
    if largest == 0:
        yield Finding("determinism", "ok", "three passes over the same inputs agree to the bit")
    elif largest <= ROUNDING:
        text = f"passes over the same inputs differ by rounding ({largest:.1e} of the largest output)"
        yield Finding("determinism", "note", text)
    else:
        where = context.first_layer(context.layers(x), context.layers(x))
        text = f"passes over the same inputs differ by {largest:.2g} of the largest output: something draws at random; {where}"
        advice = "dropout left on? F.dropout needs training=self.training; a .pt2 has to be exported after model.eval()"
        yield Finding("determinism", "problem", text, advice)


def conversion(context: DoctorContext) -> Iterator[Finding]:
    """A converted network must answer like the one in the file."""
    target = context.target
    if target.reference is None:
        return
    try:
        target.check_reference(context.x[:SMALL])
    except BadInput as error:
        yield Finding("conversion", "problem", first_line(error), "what is measured here would not be true of the file")
    else:
        yield Finding("conversion", "ok", f"answers like the network in the file (difference {target.deviation:.1e})")


def batches(context: DoctorContext) -> Iterator[Finding]:
    """A batch of n must equal n singles: batch statistics and mixed-up axes make an input's answer depend on its neighbours."""
    x = context.x[:SMALL]
    together = context.raw(x)
    if distance(context.raw(x), together) > ROUNDING:
        yield Finding("batches", "note", "not checked: the network draws at random (see determinism)")
        return
    try:
        alone = torch.cat([context.raw(x[i : i + 1]) for i in range(len(x))])
    except Exception as error:  # a stranger's code may raise anything
        advice = "batch statistics in use? Call model.eval() first"
        yield Finding("batches", "problem", f"one input alone fails: {first_line(error)}", advice)
        return
    largest = distance(alone, together)
    flips = int((alone.flatten(1).argmax(1) != together.flatten(1).argmax(1)).sum())
    if largest <= ROUNDING:
        yield Finding("batches", "ok", f"a batch of {len(x)} answers like {len(x)} single inputs (difference {largest:.1e})")
    elif largest <= VISIBLE:
        text = f"single inputs differ from batches by {largest:.1e} of the largest output, {flips} predictions flip"
        yield Finding("batches", "note", text)
    else:
        lone = [context.layers(x[i : i + 1]) for i in range(len(x))]
        joined = {name: torch.cat([part[name] for part in lone]) for name in lone[0]}
        where = context.first_layer(joined, {name: value for name, value in context.layers(x).items() if name in joined})
        size = f"difference {largest:.2g}, {flips} of {len(x)} predictions flip"
        advice = "batch normalisation without running statistics, or an operation over the batch axis? Repair it or use --batch 1"
        yield Finding("batches", "problem", f"an input's output depends on the others in its batch ({size}); {where}", advice)


def finite(context: DoctorContext) -> Iterator[Finding]:
    """Non-finite outputs on the inputs, on the lowest and the highest values, and on noise."""
    for what, x in (("the inputs", context.x), ("all values lowest, all highest, or noise", context.extremes)):
        out = context.answers if x is context.x else context.raw(x)
        broken = ~torch.isfinite(out).flatten(1).all(1)
        if bool(broken.any()):
            where = context.first_layer(context.layers(x[broken][:1]))
            text = f"{int(broken.sum())} of {len(x)} outputs on {what} are NaN or infinite; {where}"
            advice = "look for a division, a logarithm or an overflow there; check --bounds, --mean and --std"
            yield Finding("finite", "problem", text, advice)
            return
    yield Finding("finite", "ok", "all outputs are finite, also with all values lowest, with all highest and on noise")


def outputs(context: DoctorContext) -> Iterator[Finding]:
    """Logits, log-probabilities or probabilities: by values and by the operator that ran last."""
    raw = torch.cat([context.answers, context.raw(context.extremes)])
    raw = raw[torch.isfinite(raw).flatten(1).all(1)]
    if not len(raw):
        yield Finding("outputs", "note", "not checked: no output is finite (see finite)")
        return
    described = context.target.outputs
    if context.target.bins is not None:
        yield from _quantity(context, raw)
        return
    kind, text = _kind_of(raw, last_operator(lambda: context.target.raw(context.x[:2])))
    context.facts["outputs"] = kind
    context.target.outputs = "sigmoid" if kind == "sigmoid" else "probs" if kind == "probs" else "logits"
    if kind == "sigmoids":
        yield Finding("outputs", "problem", text, "multi-label networks are not supported: test one label at a time")
    elif kind == described or (kind == "log-probabilities" and described == "logits"):
        yield Finding("outputs", "ok", f"{text}, as described")
    else:
        advice = f"pass --outputs {'logits' if kind == 'log-probabilities' else kind}"
        if kind == "probs":
            advice += ", or better return what comes before the softmax: confident inputs tie at 1 in float32"
        yield Finding("outputs", "problem", f"{text}, but the target is described as {described}", advice)
    if kind == "probs" and (tied := int((raw.amax(1) == 1).sum())):
        yield Finding("outputs", "note", f"{tied} of {len(raw)} inputs have a probability of exactly 1: scores tie there", "")


def _quantity(context: DoctorContext, raw: Tensor) -> Iterator[Finding]:
    """One number per input, and where it lies in the range that was described."""
    bins, values = context.target.bins, exact(raw).flatten(1)
    assert bins is not None
    context.facts["outputs"] = "regression"
    if values.shape[1] != 1:
        text = f"the network returns {values.shape[1]} values per input, a regression target one"
        yield Finding("outputs", "problem", text, "test one quantity at a time, wrapped in a module that returns (n, 1)")
        return
    low, high = (float(end) for end in torch.aminmax(values[: len(context.x)]))
    outside = float(((values < bins.low) | (values > bins.high)).double().mean())
    context.facts["quantity"] = {"low": low, "high": high, "outside": outside}
    text = f"the output is one quantity per input, {low:.4g} .. {high:.4g} here; the span is {bins.low:g} .. {bins.high:g}"
    if outside > OUTSIDE:
        yield Finding("outputs", "warning", f"{text}: {outside:.0%} of the answers lie outside", "widen --span LOW HIGH")
    else:
        yield Finding("outputs", "ok", text)


def _kind_of(raw: Tensor, last: str) -> tuple[str, str]:
    """What raw outputs (n, k) are, in a word and in a clause."""
    values = exact(raw).flatten(1)
    in_unit = bool(((values >= 0) & (values <= 1)).all())
    if values.shape[1] == 1:
        if in_unit and (last == "sigmoid" or bool((values > 0.01).any() and (values < 0.99).any())):
            return "sigmoid", "the output is one probability per input (a sigmoid at the end)"
        return "logits", "the output is one logit per input"
    if in_unit and bool(((values.sum(1) - 1).abs() < 1e-3).all()):
        return "probs", "outputs are probabilities (a softmax at the end: rows sum to 1)"
    if in_unit and last == "sigmoid":
        return "sigmoids", f"outputs are {values.shape[1]} separate probabilities (sigmoids at the end)"
    if bool(((values.exp().sum(1) - 1).abs() < 1e-3).all()):
        return "log-probabilities", "outputs are log-probabilities (a log-softmax at the end), which serve as logits"
    return "logits", f"outputs are logits ({float(values.min()):.3g} .. {float(values.max()):.3g})"


def gradients(context: DoctorContext) -> Iterator[Finding]:
    """Attacks, attribution and gradient-guided generation need d output / d input."""
    x = context.x[:2].clone().requires_grad_()
    try:
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(context.target.logits(x).amax(1).sum(), x)
    except (RuntimeError, BadInput) as error:
        advice = "attacks and attribution will not work; selection and coverage do"
        yield Finding("gradients", "warning", f"no gradient reaches the input: {first_line(error)}", advice)
        return
    if not torch.isfinite(gradient).all():
        advice = "attacks and attribution will not work there"
        yield Finding("gradients", "warning", "the gradient at the input is not finite", advice)
    elif (gradient == 0).all():
        advice = "a rounding, an argmax or detach() on the way? Attacks will not move"
        yield Finding("gradients", "warning", "the gradient at the input is zero everywhere", advice)
    else:
        yield Finding("gradients", "ok", "gradients reach the input")
