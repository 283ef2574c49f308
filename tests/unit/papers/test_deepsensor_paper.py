"""DeepSensor's presets called `paper` against plain loops written from both papers; each test names the equation."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from neurotest import registry
from neurotest.generate.swarm import Ball, Problem
from neurotest.generate.swarm.excitability import Excitability, _ByShapley
from neurotest.generate.swarm.settings import PRESETS
from neurotest.target import Target
from neurotest.target.load import load


@pytest.mark.parametrize(("name", "neurons"), [("mnist-lenet1", 52), ("mnist-lenet4", 148), ("mnist-lenet5", 268)])
def test_sensitivity_counts_the_neurons_of_table_1_by_equations_1_and_2(name: str, neurons: int) -> None:
    target = load(f"zoo:{name}")
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(1, 1, 28, 28, generator=generator) * 255).round() / 255
    moved = torch.rand(4, 1, 28, 28, generator=generator)
    problem = Problem(target, x, torch.tensor([0]), Ball("l2", 1.0, None))
    measure: Any = registry.build("fitness", str(PRESETS["sensitivity-paper"]["fitness"])).begin(problem)
    outputs: list[Tensor] = []
    module: Any = target.module

    def run(image: Tensor) -> list[float]:
        """phi of every neuron: channel means of maps, values of dense layers, logits, class probabilities."""
        outputs.clear()
        hooks = [part.register_forward_hook(lambda _m, _i, out: outputs.append(out)) for n, part in module.named_children()
                 if n.startswith(("relu", "pool")) or n == list(dict(module.named_children()))[-1]]  # fmt: skip
        with torch.no_grad():
            logits = module(image[None])
        for hook in hooks:
            hook.remove()
        values: list[float] = []
        for out in [*outputs, logits.softmax(1)]:
            for channel in out[0]:
                values.append(float(channel.double().mean()))
        return values

    before = run(x[0])
    assert len(before) == neurons
    with measure:
        fitness, _ = measure(moved, torch.zeros(4, dtype=torch.long))
    for i in range(4):
        length = float((moved[i] - x[0]).norm())
        sensitivity = [(b - a) / length for a, b in zip(before, run(moved[i]), strict=True)]
        assert all(abs(s - 0.5) > 1e-5 for s in sensitivity)
        assert float(fitness[i]) == pytest.approx(sum(s > 0.5 for s in sensitivity) / neurons, abs=1e-6)


def test_swarms_have_the_papers_numbers() -> None:
    """Section IV-B of the first paper, 5.5 of the second."""
    for name in ("sensitivity-paper", "excitability-paper"):
        preset = PRESETS[name]
        assert (preset["particles"], preset["iterations"], preset["inertia"], preset["enough"]) == (100, 10, (0.4, 0.9), 1.0)
        assert (preset.get("own", 2.0), preset.get("shared", 2.0), preset.get("start", "random")) == (2.0, 2.0, "random")


def test_swarms_on_sound_have_the_papers_twenty_iterations() -> None:
    """Section 6.4 of the second paper, on speaker recognition; everything else as in its section 5.5."""
    pictures, sound = PRESETS["excitability-paper"], PRESETS["excitability-sound-paper"]
    assert sound["iterations"] == 20
    assert (sound["norm"], sound["radius"]) == ("snr", 30.0)  # ours: the paper states no bound
    same = set(pictures) - {"iterations", "norm", "radius"}
    assert {key: sound[key] for key in same} == {key: pictures[key] for key in same}


def test_excitability_is_equations_3_to_6() -> None:
    """Shapley values by enumeration of every set: marginal contributions with the printed weights; then the share above .5."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 3))
    with torch.no_grad():
        for weight in (module[0].weight, module[2].weight, module[4].weight):
            weight.mul_(4)
        for bias in (module[0].bias, module[2].bias):
            bias.abs_()
    target = Target(module.eval(), shape=(3,))
    x, moved = torch.rand(1, 3), torch.rand(3, 3)
    y = torch.tensor([0])

    def loss(image: Tensor, playing: set[int]) -> float:
        """Cross-entropy while neurons that do not play are set to zero."""
        with torch.no_grad():
            first = module[1](module[0](image)) * torch.tensor([float(n in playing) for n in (0, 1)])
            second = module[3](module[2](first)) * torch.tensor([float(n in playing) for n in (2, 3)])
            return float(torch.nn.functional.cross_entropy(module[4](second)[None].double(), y))

    def values(image: Tensor) -> list[float]:
        def worth(playing: set[int]) -> float:
            return loss(image, playing) - loss(x[0], playing)  # equation 3, first line

        every = []
        for n in range(4):
            total = 0.0
            for size in range(1, 5):
                weight = math.factorial(size - 1) * math.factorial(4 - size) / math.factorial(4)
                for s in itertools.combinations(range(4), size):
                    if n in s:
                        total += weight * (worth(set(s)) - worth(set(s) - {n}))  # equations 4 and 5
            every.append(total)
        return every

    problem = Problem(target, x, y, Ball("l2", 1.0, None))
    preset = registry.build("fitness", str(PRESETS["excitability-paper"]["fitness"]))
    assert (preset.estimate, preset.value, preset.lam, preset.layers) == ("shapley", "count", 0.5, "every")
    measure = Excitability(**{**vars(preset), "orders": 400}).begin(problem)
    assert isinstance(measure, _ByShapley)
    assert len(measure.players) == 4
    with measure:
        fitness, _ = measure(moved, torch.zeros(3, dtype=torch.long))
    shares = set()
    for i in range(3):
        exact = values(moved[i])
        assert sum(exact) == pytest.approx(loss(moved[i], {0, 1, 2, 3}) - loss(x[0], {0, 1, 2, 3}), abs=1e-9)
        if all(abs(v - 0.5) > 0.1 for v in exact):
            assert float(fitness[i]) == sum(v > 0.5 for v in exact) / 4  # equation 6
            shares.add(float(fitness[i]))
    assert len(shares) > 1
    assert measure.cost == 1 + 2 * 4 * 400
