"""Fitness: by hand, in plain loops, and the errors a target can bring."""

from __future__ import annotations

import pytest
import torch
from tests.refusals import refused
from torch import Tensor, nn

from neurotest import registry
from neurotest.attribute.shapley import mask_gradient
from neurotest.errors import BadInput
from neurotest.generate.swarm import Ball, Measure, Problem
from neurotest.target import Target

pytestmark = pytest.mark.by_hand

BALL = Ball("linf", 0.2, None)


def by_hand() -> Target:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
        module[2].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
    return Target(module.eval(), shape=(2,))


def conv() -> Target:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 3))
    return Target(module.eval(), shape=(1, 8, 8))


def begin(target: Target, fitness: str, x: Tensor, y: Tensor, **options: object) -> Measure:
    measure: Measure = registry.build("fitness", fitness).begin(Problem(target, x, y, BALL, **options))  # type: ignore[arg-type]
    return measure


def fitness_of(measure: Measure, u: Tensor, owner: Tensor) -> Tensor:
    with measure:
        return measure(u, owner)[0].clone()


def test_paper_sensitivity_by_hand() -> None:
    x, y = torch.tensor([[0.5, 0.5]]), torch.tensor([1])
    # the change (.3, .4) has length .5; the first layer's neurons change by .6 and .4, so 1.2 and .8 per length
    measure = begin(by_hand(), "sensitivity:scale=raw,signed=true,lam=1.0", x, y, layers="0")
    assert fitness_of(measure, torch.tensor([[0.8, 0.9]]), torch.tensor([0])).tolist() == [0.5]
    mean = begin(by_hand(), "sensitivity:scale=raw,signed=true,lam=1.0,value=mean", x, y, layers="0")
    assert fitness_of(mean, torch.tensor([[0.8, 0.9]]), torch.tensor([0])).tolist() == pytest.approx([1.0])
    assert fitness_of(measure, torch.tensor([[0.2, 0.1]]), torch.tensor([0])).tolist() == [0.0]  # falls do not count when signed
    free = begin(by_hand(), "sensitivity:scale=raw,lam=1.0,divide=none", x, y, layers="0")
    assert fitness_of(free, torch.tensor([[0.8, 0.9]]), torch.tensor([0])).tolist() == [0.0]


@pytest.mark.parametrize("scale", ["raw", "std", "minmax"])
@pytest.mark.parametrize("signed", [True, False])
def test_sensitivity_in_plain_loops(scale: str, signed: bool) -> None:
    target = conv()
    generator = torch.Generator().manual_seed(1)
    x, u, owner = (
        torch.rand((4, 1, 8, 8), generator=generator),
        torch.rand((6, 1, 8, 8), generator=generator),
        torch.tensor([0, 1, 2, 3, 0, 1]),
    )
    measure = begin(target, f"sensitivity:scale={scale},signed={signed},lam=0.1", x, torch.zeros(4, dtype=torch.long))
    values = fitness_of(measure, u, owner)
    layers = [target.module[0], target.module[2], target.module[5]]  # type: ignore[index]

    def outputs(images: Tensor) -> list[Tensor]:
        kept, now = [], images
        for module in target.module.children():
            now = module(now)
            if module in layers:
                kept.append(now)
        return kept

    with torch.no_grad():
        seeds, mutants = outputs(x), outputs(u)
        for i in range(6):
            count = total = 0
            length = float((u[i] - x[owner[i]]).norm())
            for one, other in zip(seeds, mutants, strict=True):
                away = other[i] - one[owner[i]]
                if scale == "minmax":
                    away = (away - away.min()) / (away.max() - away.min())
                for neuron in range(len(away)):
                    value = float(away[neuron].mean())
                    if scale == "std":
                        value /= float(one[:, neuron].flatten(1).mean(1).std() if one.ndim > 2 else one[:, neuron].std())
                    count += (value if signed else abs(value)) / length > 0.1
                    total += 1
            assert float(values[i]) == pytest.approx(count / total)


def test_lambda_from_noise_starts_at_its_share() -> None:
    target, x = conv(), torch.rand((8, 1, 8, 8), generator=torch.Generator().manual_seed(2))
    measure = begin(target, "sensitivity:lam=q0.8", x, torch.zeros(8, dtype=torch.long))
    noisy = [BALL.noise(x, torch.Generator().manual_seed(seed)) for seed in range(30)]
    mean = torch.stack([fitness_of(measure, u, torch.arange(8)).mean() for u in noisy]).mean()
    assert 0.1 < float(mean) < 0.3


def test_excitability_by_particle_is_the_mask_gradient() -> None:
    target, generator = conv(), torch.Generator().manual_seed(3)
    x, u, y = (
        torch.rand((3, 1, 8, 8), generator=generator),
        torch.rand((3, 1, 8, 8), generator=generator),
        torch.tensor([0, 1, 2]),
    )
    values = mask_gradient(target, x, u, y, efficient=False)
    for kind, expected in (
        ("sum", values.sum(1)),
        ("positive", values.clamp_min(0).sum(1)),
        ("count", (values > 0.01).double().mean(1)),
    ):
        measure = begin(target, f"excitability:particle,value={kind},lam=0.01", x, y)
        assert torch.allclose(fitness_of(measure, u, torch.arange(3)), expected, atol=1e-5)
    measure = begin(target, "excitability:preset=gradient", x, y)
    fitness_of(measure, u, torch.arange(3))
    assert (measure.forwards, measure.backwards) == (3 + 2 * 3, 3 + 3)


def test_excitability_by_weights_is_exact_where_the_network_is_linear() -> None:
    # all neurons stay active, and log-odds of two classes are linear: both layers' first order is the whole change
    target = by_hand()
    x, u, y = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.6, 0.9]]), torch.tensor([0])
    measure = begin(target, "excitability", x, y)
    # log-odds of class 1 over class 0: 3 x2 - 2 x1, which changes by 1.2 - .2; one hidden layer owes it once
    assert float(fitness_of(measure, u, torch.tensor([0]))[0]) == pytest.approx(1.0, abs=1e-6)
    with measure:
        assert measure.reweigh(u, torch.tensor([0])) == 3
        assert float(measure(u, torch.tensor([0]))[0][0]) == pytest.approx(0.0, abs=1e-6)


def test_no_gradient_reaches_the_input() -> None:
    target, x = conv(), torch.rand((2, 1, 8, 8))
    seen = []
    target.module[0].register_full_backward_hook(lambda *_: seen.append(1))  # type: ignore[index, operator]
    measure = begin(target, "excitability", x, torch.tensor([0, 1]))
    fitness_of(measure, torch.rand((2, 1, 8, 8)), torch.arange(2))
    assert not seen


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act, self.head = nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)
        nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.fc(x)))  # type: ignore[no-any-return]


class Around(nn.Module):
    """A network that is alive although the layers within it are not."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.own, self.act, self.head = inner, nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.head(self.act(self.own(x)))  # type: ignore[no-any-return]


def test_a_loss_that_does_not_change_and_dead_layers_are_said() -> None:
    x, y = torch.rand(3, 4), torch.zeros(3, dtype=torch.long)
    for fitness in ("excitability", "excitability:preset=gradient"):
        with refused("unsuitable", "constant"):
            begin(Target(Flat().eval(), shape=(4,)), fitness, x, y)
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        module[0].weight.zero_()
        module[0].bias.fill_(-1)
    with refused("unsuitable", "constant"):
        begin(Target(module.eval(), shape=(4,)), "sensitivity", x, y, layers="1")
    with refused("empty", "layers"):
        begin(Target(Around(module).eval(), shape=(4,)), "sensitivity", x, y, layers="inner.1")
    led = begin(Target(Around(module).eval(), shape=(4,)), "excitability", x, y)
    assert "dead layers (inner.1)" in led.notes[0]
    with refused("unknown-name", "layers"):
        begin(conv(), "sensitivity", torch.rand(2, 1, 8, 8), y[:2], layers="nothere")


@pytest.mark.parametrize(
    "text", ["sensitivity:lam=q2", "sensitivity:scale=max", "excitability:lam=half", "excitability:estimate=all"]
)
def test_bad_options_are_said(text: str) -> None:
    with pytest.raises(BadInput):
        registry.build("fitness", text)
