"""DeepXplore and CLEVER with the settings that the papers quote, against plain loops from their algorithms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from neurotest import registry, rng
from neurotest.data.source import ArraySource
from neurotest.evaluate.clever import Clever
from neurotest.evaluate.leads import Leads, draw
from neurotest.generate.differential import diff
from neurotest.generate.differential.deepxplore import DeepXplore
from neurotest.stats.weibull import end_point
from neurotest.target import Target


def test_deepxplore_has_the_settings_quoted_for_mnist() -> None:
    method = registry.build("differential", "deepxplore:preset=mnist-paper")
    assert isinstance(method, DeepXplore)
    assert (method.class_weight, method.neuron_weight, method.step, method.steps, method.threshold) == (1.0, 0.1, 10.0, 20, 0.0)


def test_deepxplore_climbs_as_its_algorithm_1_says() -> None:
    """Section 4.2 and algorithm 1 with the settings quoted for MNIST, light: the gradient of the joint objective, replaced by
    its mean over the image, times the step, until the networks differ; one image at a time. Which neuron is drawn is random, so
    the layer has a single one: the mean of its map."""
    preset = vars(registry.build("differential", "deepxplore:preset=mnist-paper"))
    method = DeepXplore(**{**preset, "constraint": "light", "push": 0})
    targets = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).eval()
        targets.append(Target(module, shape=(1, 6, 6)))
    x = np.random.default_rng(0).integers(0, 256, (120, 1, 6, 6), dtype=np.uint8)
    result = diff(targets, ArraySource(x), method, layers="0", out=False)
    assert len(result.x) > 5
    assert result.faults
    for i in range(len(result.x)):
        u = torch.from_numpy(result.seeds[i : i + 1].astype(np.float32) / 255)
        y = int(result.expected[i])
        for _ in range(20):
            free = u.clone().requires_grad_()
            neurons = [target.module[0](free).mean() for target in targets]
            aim = targets[1].logits(free)[0, y] - 1.0 * targets[0].logits(free)[0, y] + 0.1 * sum(neurons)
            (slope,) = torch.autograd.grad(aim, free)
            slope = slope / (slope.square().mean().sqrt() + 1e-5)
            u = (u + 10.0 * slope.mean()).clamp(0, 1)
            saved = (u * 255).round() / 255
            if all(len({int(t.logits(image).argmax()) for t in targets}) > 1 for image in (saved, u)):
                break
        assert np.abs(result.x[i].astype(int) - (u[0] * 255).round().numpy().astype(int)).max() <= 1


def test_clever_is_section_iv_d_with_fresh_points_for_every_batch() -> None:
    """500 batches of 1,024 points; for every other class the lead over the end of the distribution of the batches' largest
    gradients. Here with fewer batches and points, which are drawn once for the method and once for the loop."""
    preset = registry.build("robustness", "clever:preset=paper")
    assert (preset.batches, preset.samples, preset.fresh) == (500, 1024, True)
    torch.manual_seed(0)
    target = Target(nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)).eval(), shape=(1, 4, 4))
    u = torch.rand(1, 4, 4, generator=torch.Generator().manual_seed(3))
    own = int(target.logits(u[None]).argmax())
    method = Clever(**{**vars(preset), "norm": "l2", "radius": 0.5, "batches": 10, "samples": 8, "screen": 0})
    ours = method.estimate(Leads(target), u, own, position=1, seed=2)
    logits = target.logits(u[None])[0].detach()
    for place, rival in enumerate(ours.rivals.tolist()):
        maxima = []
        for batch in range(10):
            norms = []
            for point in (u + 0.5 * draw(8, (1, 4, 4), "l2", rng.torch_stream("clever.points", 2, 1, batch))).clamp(0, 1):
                x = point[None].clone().requires_grad_()
                out = target.logits(x)[0]
                (slope,) = torch.autograd.grad(out[own] - out[rival], x)
                norms.append(math.sqrt(sum(float(v) ** 2 for v in slope.flatten())))
            maxima.append(max(norms))
        end = end_point(maxima, largest=max(maxima)).value
        assert ours.scores[place] == pytest.approx(min(float(logits[own] - logits[rival]) / end, 0.5), rel=1e-3)
