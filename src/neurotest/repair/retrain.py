"""Training on a plan's ingredients, and averaging the new weights with the old ones.

Statistics of batch normalisation belong to neither network after averaging, so they are measured anew.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.repair.lessons import Ingredients, Lessons, predictions
from neurotest.repair.plan import RepairPlan
from neurotest.target import Target
from neurotest.train import Checkpoint, Report, Training
from neurotest.zoo.recipes import Recipe


def normalised(module: nn.Module) -> list[_BatchNorm]:
    """The layers of a network that keep statistics."""
    return [layer for layer in module.modules() if isinstance(layer, _BatchNorm) and layer.running_mean is not None]


def settle(target: Target, module: nn.Module, batches: Sequence[Tensor]) -> None:
    """Give every such layer the means over these batches; nothing else of the network changes, and it is left in eval mode."""
    network, layers = target.holding(module.eval()), normalised(module)
    if not layers or not batches:
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a plain mean
        layer.train()
    with torch.no_grad():
        for batch in batches:
            network.logits(batch, parts=False)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    module.eval()


WEIGHTS = tuple(round(0.1 * i, 1) for i in range(11))
WORSE = 3  # weights in a row after which no better one is expected
CLOSE = 0.005  # scores of 1,000 inputs that differ by less are taken as equal
ALLOWED = 0.02  # accuracy on clean training inputs that may be lost: the old network has seen them, and does worse on others
MISSED = 1 / 16  # of mildly changed inputs, without training data: they are lost six times as often as inputs as they are
CAREFUL, VISIBLE = 0.7, 0.01  # without training data: the greatest weight where more than this share of them is lost
SETTLED = 512  # rows that statistics of averaged weights are taken from
DEAR, ALONE = 1.0, 10.0  # what every further point counts more, with training data and without


@dataclass(frozen=True, eq=False)
class Repaired:
    """A network with new weights, in eval mode, and what its training says of itself."""

    module: nn.Module
    about: dict[str, Any] = field(default_factory=dict)


def retrain(
    plan: RepairPlan,
    ingredients: Ingredients,
    recipe: Recipe,
    *,
    checkpoint: Checkpoint | None = None,
    report: Report | None = None,
) -> Repaired:
    """Train a copy of the old network; early stop and the averaging weight are decided on data that is not trained on."""
    if not len(ingredients):
        raise BadInput("empty", "train", "there is nothing to train on: give training data, or a run with faults.")
    module = copy.deepcopy(plan.target.module)
    if not any(weight.requires_grad for weight in module.parameters()):
        for weight in module.parameters():
            weight.requires_grad_(weight.is_floating_point())
    if not any(True for _ in module.parameters()):
        raise BadInput(
            "unsuitable",
            "weights",
            f"{plan.target.spec} has no weights that can be trained: rebuild it as a module with parameters.",
        )
    lessons = Lessons(plan.target, ingredients, recipe.seed)
    judge = None if recipe.patience is None else (lambda network: score(plan, network))
    training = Training(module, recipe, checkpoint=checkpoint, device=str(plan.target.device), judge=judge)
    module = training.fit(lessons, report)
    about: dict[str, Any] = {"recipe": recipe.describe(), "epochs": training.epoch, "rows": len(ingredients)}
    if ingredients.interpolate:
        batches = lessons.sample(module, recipe.epochs, SETTLED) if normalised(module) else []
        about["averaging_weight"] = share = _choose_weight(plan, module, batches)
        _move(plan, module, copy.deepcopy(module.state_dict()), share, batches)
    return Repaired(module, about)


def between(old: Mapping[str, Tensor], new: Mapping[str, Tensor], weight: float) -> dict[str, Tensor]:
    """Weights on the line from old (0) to new (1); what is no floating-point number is the new one's."""
    return {name: old[name].to(value).lerp(value, weight) if value.is_floating_point() else value for name, value in new.items()}


def _move(plan: RepairPlan, module: nn.Module, new: Mapping[str, Tensor], weight: float, batches: Sequence[Tensor]) -> None:
    """Give a network weights between the old ones and `new`, and statistics that fit them; 0 is the old network itself.

    It is left in eval mode.
    """
    module.eval().load_state_dict(between(plan.target.module.state_dict(), new, weight))
    if weight:
        settle(plan.target, module, batches)


def _choose_weight(plan: RepairPlan, module: nn.Module, batches: Sequence[Tensor] = ()) -> float:
    """The greatest averaging weight that is about as good as any on the data that decides. batches: for statistics."""
    trial, new = copy.deepcopy(module), module.state_dict()
    scores: dict[float, float] = {}
    for weight in reversed(WEIGHTS):
        _move(plan, trial, new, weight, batches)
        # How large a loss on other inputs is, a few originals of faults cannot say: one that is visible is too much.
        careful = weight > CAREFUL and plan.deciding_faults is not None
        if careful and kept_share(plan, plan.target.holding(trial)) < 1 - VISIBLE:
            continue
        scores[weight] = score(plan, trial)
        if all(value < max(scores.values()) - CLOSE for value in list(scores.values())[-WORSE:]):
            break  # accuracy along the line rises to one place and falls from there
    return max(weight for weight, value in scores.items() if value >= max(scores.values()) - CLOSE)


def score(plan: RepairPlan, module: nn.Module) -> float:
    """Accuracy on mutated inputs that decide, or on faults where the run alone decides; clean accuracy that is lost beyond
    what is allowed counts dearly."""
    target = plan.target.holding(module)
    if plan.deciding_faults is None:
        lost = accuracy_on(plan.target, plan.deciding) - accuracy_on(target, plan.deciding)
        return accuracy_on(target, plan.deciding_mutated) - DEAR * max(0.0, lost - ALLOWED)
    lost = 1 - kept_share(plan, target)
    return accuracy_on(target, plan.deciding_faults) - ALONE * max(0.0, lost - MISSED)


def kept_share(plan: RepairPlan, target: Target) -> float:
    """Of mildly changed inputs that nothing was trained on and the old network gets right, how many are still right."""
    right = predictions(plan.target, plan.deciding_mild) == plan.deciding_mild.labels
    return float((predictions(target, plan.deciding_mild) == plan.deciding_mild.labels)[right].mean()) if right.any() else 1.0


def accuracy_on(target: Target, source: Source) -> float:
    return float(np.mean(predictions(target, source) == source.labels))
