"""Conductance against captum at equal steps, where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.peers.packages import package

from neurotest import zoo
from neurotest.attribute.conductance import Conductance
from neurotest.data.spec import data
from neurotest.target.load import load

captum = package("captum.attr")
pytestmark = pytest.mark.peer("captum")

LAYERS = {"cifar10-resnet20": ("relu", "stage1", "stage2", "stage3"), "fashion-lenet5": ("relu1", "relu2", "relu3", "relu4")}


@pytest.mark.parametrize("subject", list(LAYERS))
@pytest.mark.parametrize(("grid", "method"), [("captum", "gausslegendre"), ("uniform", "riemann_trapezoid")])
def test_all_layers_of_one_pass_agree_with_captum_layer_by_layer(subject: str, grid: str, method: str) -> None:
    if not zoo.find(subject).embedded:
        pytest.skip("the embedded networks were removed")
    target = load(f"zoo:{subject}")
    x = target.prepare(data(f"zoo:{zoo.find(subject).dataset}/test[:3]").read(np.arange(3)))
    classes = target.logits(x).argmax(1).detach()
    layers = LAYERS[subject]
    plan = Conductance(layers=",".join(layers), steps=8, grid=grid, rule="left", baseline="black").plan(target)  # type: ignore[arg-type]
    ours = plan(x, classes)
    for name in layers:
        theirs = captum.LayerConductance(target.module, target.module.get_submodule(name)).attribute(
            x, baselines=plan.empty.expand_as(x).clone(), target=classes, n_steps=8, method=method
        )
        summed = theirs.detach().flatten(2).sum(2) if theirs.ndim > 2 else theirs.detach()
        assert (ours.scores[name] - summed).abs().max() <= 1e-4 * max(1.0, float(summed.abs().max()))
        assert torch.equal(ours.scores[name].argmax(1), summed.argmax(1))
