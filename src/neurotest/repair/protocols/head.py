"""Without training: a correction of the logits that is linear in the last hidden layer, folded into the last layer."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from neurotest.checks import setting
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.registry import register
from neurotest.repair.lessons import Ingredients
from neurotest.repair.plan import RepairPlan, joined
from neurotest.repair.protocol import Protocol
from neurotest.repair.retrain import CLOSE, WEIGHTS, Repaired, score
from neurotest.scan import batches
from neurotest.select.adaptive.learner import corrected_head
from neurotest.select.adaptive.outputs import Outputs
from neurotest.target import Probe, Target, Want
from neurotest.train import Checkpoint, Report
from neurotest.zoo.recipes import Recipe

WANT = Want(layers="last_hidden", neuron="unit", inputs=True)


@register(
    "repair",
    "head",
    paper="after the corrected head of adaptive selection",
    cost="one forward pass per input and a convex problem: seconds",
    differs="Only the last layer changes, so no fault is fixed that the layers before it do not tell apart.",
)
class Head(Protocol):
    """Multinomial regression on the faults and on what they were made from, starting from the old logits; `ridge` holds it to
    them. The whole correction, or the part of it that is best on inputs that decide, is added to the last dense layer."""

    needs_train = False
    ridge: float = setting(1.0, "1 by default", above=0)
    anchor: float = setting(1.0, "1: an input that is right counts as much as a fault", above=0)

    def recipe(self, plan: RepairPlan, seed: int) -> Recipe:
        return Recipe(epochs=1, seed=seed)

    def ingredients(self, plan: RepairPlan, seed: int) -> Ingredients:
        return Ingredients(base=plan.base, new=plan.learn.inputs)

    def repair(
        self, plan: RepairPlan, seed: int, *, checkpoint: Checkpoint | None = None, report: Report | None = None
    ) -> Repaired:
        own = self.ingredients(plan, seed)
        everything = joined(own.new, own.base)
        assert everything is not None
        assert everything.labels is not None
        hidden, logits = _hidden(plan.target, everything)
        outputs, faults = Outputs(logits), 0 if own.new is None else len(own.new)
        weights = torch.full((len(hidden),), self.anchor, dtype=torch.float64)
        weights[:faults] = 1.0
        scale = hidden.std(dim=0, correction=0).mean().clamp_min(1e-6)
        constant = torch.full((len(hidden), 1), float(_last_layer(plan.target, plan.target.module).bias is not None))
        features = torch.cat([hidden / scale, constant.double()], dim=1)
        added = corrected_head(features, outputs, outputs.aims(torch.from_numpy(everything.labels)), weights, self.ridge)
        added = torch.cat([added[:-1] / scale, added[-1:]])
        weight, module = _best(plan, added)
        return Repaired(module, {"averaging_weight": weight, "rows": len(everything)})


def _hidden(target: Target, source: Source) -> tuple[Tensor, Tensor]:
    """The input of the last dense layer, and the logits, in double precision."""
    hidden, logits = [], []
    with Probe(target, WANT) as probe:
        for part in batches(target, source):
            trace = probe(part.x)
            (values,) = trace[WANT].values()
            hidden.append(values.cpu().double())
            logits.append(trace.logits.cpu().double())
    return torch.cat(hidden), torch.cat(logits)


def _best(plan: RepairPlan, added: Tensor) -> tuple[float, nn.Module]:
    """As much of the correction as is best on the inputs that decide."""
    modules = {weight: _folded(plan.target, weight * added) for weight in WEIGHTS}
    scores = {weight: score(plan, module) for weight, module in modules.items()}
    best = max(weight for weight in WEIGHTS if scores[weight] >= max(scores.values()) - CLOSE)
    return best, modules[best]


def _last_layer(target: Target, module: nn.Module) -> nn.Linear:
    """The dense layer of `module` that gives the logits; a network without one is refused."""
    (layer,) = target.survey().find("last_hidden")
    last = module.get_submodule(layer.module)
    if layer.function or not isinstance(last, nn.Linear) or target.outputs != "logits" or not _gives_logits(target, last):
        raise BadInput(
            "unsuitable",
            "head",
            f"head: {target.spec} does not end in a dense layer that gives one logit per class, so nothing can be folded into "
            "it: use the protocol interpolated.",
        )
    return last


def _gives_logits(target: Target, last: nn.Linear) -> bool:
    """Whether the layer's own answer to its input is the network's, on noise."""
    assert target.shape is not None
    low, high = target.bounds
    noise = torch.rand((4, *target.shape), generator=torch.Generator().manual_seed(0)) * (high - low) + low
    with Probe(target, WANT) as probe:
        trace = probe(noise.to(target.device))
    (hidden,) = trace[WANT].values()
    with torch.no_grad():
        own = last(hidden)
    return own.shape == trace.logits.shape and bool(torch.allclose(own, trace.logits, rtol=1e-3, atol=1e-4))


def _folded(target: Target, added: Tensor) -> nn.Module:
    """A copy of the network whose last dense layer gives what it gave and `added` (hidden + 1, classes), the last row a bias."""
    module = copy.deepcopy(target.module)
    last = _last_layer(target, module)
    with torch.no_grad():
        last.weight.add_(added[:-1].T.to(last.weight))
        if last.bias is not None:
            last.bias.add_(added[-1].to(last.bias))
    return module
