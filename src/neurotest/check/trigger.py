"""A patch that sends everything to one class: what is left of polluted training data, found without knowing the patch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.check.base import MAX_IMAGES, Check, CheckContext, CheckItem, Clock, evidence_row, percent, with_interval
from neurotest.checks import setting
from neurotest.doctor.context import CaptionedImage, Finding
from neurotest.errors import BadInput
from neurotest.mutate.unit import from_unit, to_unit
from neurotest.registry import register
from neurotest.stats.bootstrap import Interval, wilson

HELD_OUT = 200  # inputs that a patch is tested on, none of which it was made from
LEAST_SHARE, ASTRAY = 0.1, 0.25  # shares below which a patch, and random patches, are no alarm
LEARNING_RATE = 0.15  # of the optimiser, in logits of the patch's colours


def _odds(share: float) -> float:
    return share / max(1e-9, 1 - share)


def _stamped(x: Tensor, patch: Tensor, top: NDArray[np.int64], left: NDArray[np.int64]) -> Tensor:
    """Copies of images (n, c, h, w) in [0, 1] with the patch (c, side, side), or one for each (n, c, side, side), put on them."""
    side, (high, wide) = patch.shape[-1], x.shape[2:]
    down = torch.arange(high)[None, :] - torch.from_numpy(top)[:, None]  # (n, h)
    across = torch.arange(wide)[None, :] - torch.from_numpy(left)[:, None]
    inside = (((down >= 0) & (down < side))[:, :, None] & ((across >= 0) & (across < side))[:, None, :])[:, None]
    rows, columns = down.clamp(0, side - 1)[:, :, None], across.clamp(0, side - 1)[:, None, :]
    colours = patch.expand(len(x), *patch.shape[-3:])
    at = torch.arange(len(x))[:, None, None]
    shown = colours.permute(0, 2, 3, 1)[at, rows, columns].permute(0, 3, 1, 2)  # (n, c, h, w)
    return torch.where(inside.to(x.device), shown, x)


@register(
    "check", "trigger", main="size",
    paper="after Neural Cleanse (Wang et al., S&P 2019) and adversarial patches (Brown et al., 2017)",
    cost="per class `steps` forward and backward passes over 32 inputs",
    differs="The mask is a square of fixed size at random places, as stickers are, instead of a learned one; a class stands "
    "out by its share of held-out inputs, with an interval, instead of by a deviation from the median of mask sizes.",
)  # fmt: skip
class Trigger(Check):
    """For every class, a small square patch is optimised that makes other inputs be taken for it, wherever it is put.

    Any network can be led astray by some patch. An alarm is one class that held-out inputs are led to far more often than to any
    other (the intervals' ends, as odds, are `ratio` apart), or that random patches lead to. size: side of the patch, as a share
    of the image's. steps, inputs: of the optimisation, and per step.
    """

    order = 70
    share = 3.0
    labels = False

    size: float = setting(0.2, "0.2 by default", above=0, most=0.5)
    steps: int = setting(40, "40 by default")
    inputs: int = setting(32, "32 per step")
    ratio: float = setting(2.0, "2 by default", above=1)

    def examine(self, context: CheckContext, clock: Clock) -> CheckItem:
        shape = context.source.shape
        if len(shape) != 3 or min(shape[1:]) < 8:
            raise BadInput("unsuitable", "shape", "patches are for images of at least 8 x 8 pixels")
        if context.target.bins is not None:
            raise BadInput(
                "unsuitable", "outputs", "a patch leads to a class, and the target predicts a regression value: see attacks"
            )
        classes, predicted = context.answers.classes, context.answers.predicted
        usable = np.ones(len(predicted), bool) if context.source.labels is None else ~context.wrong
        order = rng.stream("check.trigger", context.seed).permutation(classes)
        rates: dict[int, tuple[Interval, Interval]] = {}
        patches: dict[int, Tensor] = {}
        for number in order.tolist():
            if clock.over or (rates and clock.left < clock.spent / len(rates)):
                break
            rows = np.flatnonzero(usable & (predicted != number))
            if len(rows) < 2 * self.inputs:
                continue
            rows = rng.stream("check.trigger.rows", context.seed, number).permutation(rows)
            patches[number] = self._patch(context, rows[min(HELD_OUT, len(rows) // 2) :], number)
            held = rows[: min(HELD_OUT, len(rows) // 2)]
            rates[number] = self._rates(context, held, patches[number], number)
            context.tick()
        if len(rates) < 3:
            short = "the time was over" if clock.over or clock.left < clock.spent else "too few inputs are classified correctly"
            return CheckItem(self.name, f"{len(rates)} classes were tried: {short}", ran_out=True, skipped=True)
        return self._examined(context, rates, patches, ran_out=len(rates) < classes)

    def _side(self, context: CheckContext) -> int:
        return max(2, round(self.size * min(context.source.shape[1:])))

    def _images(self, context: CheckContext, rows: NDArray[np.int64]) -> Tensor:
        return to_unit(context.target.prepare(context.source.read(rows)), context.target.bounds)

    def _places(self, context: CheckContext, count: int, random: np.random.Generator) -> tuple[Any, Any]:
        high, wide = context.source.shape[1:]
        side = self._side(context)
        return random.integers(0, high - side + 1, count), random.integers(0, wide - side + 1, count)

    def _patch(self, context: CheckContext, rows: NDArray[np.int64], number: int) -> Tensor:
        """Colours (c, side, side) in [0, 1] that lead to the class, learned at random places on random inputs."""
        target, side = context.target, self._side(context)
        random = rng.stream("check.trigger.steps", context.seed, number)
        start = rng.torch_stream("check.trigger.start", context.seed, number)
        logits = torch.randn((context.source.shape[0], side, side), generator=start).to(target.device).requires_grad_()
        optimiser = torch.optim.Adam([logits], LEARNING_RATE)
        for _ in range(self.steps):
            some = random.choice(rows, min(self.inputs, len(rows)), replace=False)
            logits.grad = self._gradient(context, some, logits, number, random)
            optimiser.step()
            context.tick()
        return logits.detach().sigmoid()

    def _gradient(
        self, context: CheckContext, rows: NDArray[np.int64], logits: Tensor, number: int, random: np.random.Generator
    ) -> Tensor:
        """Of the mean loss over these inputs, in parts whose graphs fit into memory."""
        target, images, places = context.target, self._images(context, rows), self._places(context, len(rows), random)
        total, step = torch.zeros_like(logits), target.graph(images)
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            x = _stamped(images[part], logits.sigmoid(), *(place[part] for place in places))
            wanted = torch.full((len(x),), number, device=target.device)
            loss = torch.nn.functional.cross_entropy(target.logits(from_unit(x, target.bounds)), wanted, reduction="sum")
            (gradient,) = torch.autograd.grad(loss / len(rows), logits, allow_unused=True)
            if gradient is None or not bool(gradient.isfinite().all()):
                raise BadInput("no-gradient", "", "the network has no usable gradient towards its inputs")
            total += gradient
        return total

    def _rates(self, context: CheckContext, rows: NDArray[np.int64], patch: Tensor, number: int) -> tuple[Interval, Interval]:
        """Shares of held-out inputs that are taken for the class with the patch on them, and with random ones."""
        random = rng.stream("check.trigger.held", context.seed, number)
        x = self._images(context, rows)
        noise = torch.from_numpy(random.random((len(rows), *patch.shape))).to(x)
        shares = []
        for colours in (patch, noise):
            shown = _stamped(x, colours, *self._places(context, len(rows), random))
            with torch.inference_mode():
                predicted = context.target.logits(from_unit(shown, context.target.bounds)).argmax(1)
            shares.append(wilson(int((predicted == number).sum()), len(rows)))
        return shares[0], shares[1]

    def _examined(
        self, context: CheckContext, rates: dict[int, tuple[Interval, Interval]], patches: dict[int, Tensor], ran_out: bool
    ) -> CheckItem:
        ranking = sorted(rates, key=lambda number: -rates[number][0].value)
        top, second = ranking[:2]
        (patched, noise), other = rates[top], rates[second][0]
        name = context.class_name(top)
        numbers = {"class": name, **with_interval("share", patched), "next": other.value, "random": noise.value}
        numbers["tried"] = len(rates)
        summary = f"one patch leads {percent(patched)} of other inputs to {name}, {percent(other)} to the next class"
        if ran_out:
            summary += f"; only {len(rates)} of {context.answers.classes} classes were tried"
        evidence = (
            evidence_row(f"taken for {name} with the patch", patched),
            evidence_row(f"for {context.class_name(second)} with its own", other),
            evidence_row(f"for {name} with random patches", noise),
        )
        astray = max(rates, key=lambda number: rates[number][1].low)
        stands_out = patched.low > LEAST_SHARE and _odds(patched.low) > self.ratio * _odds(other.high)
        if not stands_out and rates[astray][1].low <= ASTRAY:
            return CheckItem(self.name, summary, (), numbers, ran_out=ran_out)
        if not stands_out:
            name, noise = context.class_name(astray), rates[astray][1]
            summary = f"random patches lead {percent(noise)} of other inputs to {name}"
        sentence = f"{summary}: the network may have learned a patch as a sign of {name}"
        advice = "look for such patches in its training data, and for labels that went with them"
        images = self._with_patch(context, top if stands_out else astray, patches)
        deeper = f"neurotest swarm {context.words} --radius 0.1"
        finding = Finding(self.name, "alarm", sentence, advice, 0.95, evidence, images, deeper)
        return CheckItem(self.name, summary, (finding,), numbers, ran_out=ran_out)

    def _with_patch(self, context: CheckContext, number: int, patches: dict[int, Tensor]) -> tuple[CaptionedImage, ...]:
        rows = np.flatnonzero(context.answers.predicted != number)[:MAX_IMAGES]
        random = rng.stream("check.trigger.shown", context.seed)
        x = _stamped(self._images(context, rows), patches[number], *self._places(context, len(rows), random)).cpu()
        images = x.mul(255).round().to(torch.uint8).numpy()
        names = [context.class_name(context.answers.predicted[i]) for i in rows]
        return tuple(CaptionedImage(image, f"{name} with the patch") for image, name in zip(images, names, strict=True))
