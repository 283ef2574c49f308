"""Each attack: closed forms, the ball and the bounds, inputs that do not touch each other."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from neurotest import registry
from neurotest.errors import BadInput
from neurotest.generate.gradient import BIM, CW, FGSM, PGD, Diversity
from neurotest.generate.gradient.engine import Engine
from neurotest.target import Target


def linear(bounds: tuple[float, float] = (0.0, 1.0)) -> Target:
    module = nn.Linear(4, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, -2.0, 0.5, 0.0], [-1.0, 1.0, 0.5, 3.0]]))
        module.bias.copy_(torch.tensor([0.3, -0.2]))
    return Target(module.eval(), shape=(4,), bounds=bounds)


def network() -> Target:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))
    return Target(module.eval(), shape=(1, 6, 6))


def images(n: int, seed: int = 0) -> Tensor:
    drawn = torch.rand(n, 1, 6, 6, generator=torch.Generator().manual_seed(seed))
    return (drawn * 255).round() / 255


def moved(attack: FGSM | BIM | CW, target: Target, x: Tensor, y: Tensor, d: Diversity | None = None, *, first: int = 0) -> Tensor:
    with Engine(target, d) as engine:
        return attack.run(engine, x, y, positions=range(first, first + len(x)), random=0)


def test_fgsm_on_a_linear_network_is_a_step_along_the_difference_of_weights() -> None:
    x, y = torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.05, 0.95, 0.5, 0.2]]), torch.tensor([0, 1])
    x_adv = moved(FGSM(eps=0.1), linear(), x, y)
    # Towards class 1 the weights differ by (-2, 3, 0, 3): a weight of 0 moves nothing; from class 1 the signs turn round.
    assert torch.allclose(x_adv, torch.tensor([[0.4, 0.6, 0.5, 0.6], [0.15, 0.85, 0.5, 0.1]]))


def test_eps_is_a_share_of_the_range() -> None:
    target = linear((0.0, 255.0))
    x, y = torch.tensor([[0.5, 0.5, 0.5, 0.5]]), torch.tensor([0])
    assert torch.allclose(moved(FGSM(eps="8/255"), target, x, y)[0] - 0.5, torch.tensor([-8, 8, 0, 8]) / 255)


def test_pgd_is_brought_back_into_the_ball() -> None:
    x, y = torch.tensor([[0.5, 0.5, 0.5, 0.95]]), torch.tensor([0])
    for attack in (BIM(eps=0.1, step=0.03, steps=9), PGD(eps=0.1, step=0.03, steps=9)):
        x_adv = moved(attack, linear(), x, y)
        assert x_adv[0, [0, 1, 3]].tolist() == pytest.approx([0.4, 0.6, 1.0])


@settings(max_examples=10, deadline=None)
@given(eps=st.floats(0, 0.5), step=st.floats(0, 1), which=st.sampled_from([BIM, PGD]), weight=st.sampled_from([0.0, 1.0, 1e4]))
def test_results_stay_in_the_ball_and_the_bounds(eps: float, step: float, which: type[BIM], weight: float) -> None:
    x, y = images(3), torch.tensor([0, 1, 2])
    target = network()
    attack = which(eps=eps, step=step, steps=3)
    with Engine(target, Diversity(weight=weight)) as engine:
        x_adv = attack.run(engine, x, y, positions=[0, 1, 2], random=1)
        saved = engine.quantise(x_adv, x, eps)
    for result in (x_adv, saved):
        assert float((result - x).abs().max()) <= eps + 1e-6
        assert float(result.min()) >= 0
        assert float(result.max()) <= 1
    assert torch.equal((saved * 255).round() / 255, saved)


def test_no_room_changes_nothing() -> None:
    x, y = images(2), torch.tensor([0, 1])
    for attack in (FGSM(eps=0), BIM(eps=0, steps=2), PGD(eps=0, steps=2)):
        assert torch.equal(moved(attack, network(), x, y), x)


@pytest.mark.parametrize(
    "attack", [FGSM(), BIM(steps=4), PGD(steps=4), CW(steps=8, searches=2, weight=1.0)], ids=lambda a: a.name
)
@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_a_batch_is_its_inputs_one_by_one(attack: FGSM | BIM | CW, weight: float) -> None:
    x, y, target = images(5), torch.tensor([0, 1, 2, 0, 1]), network()
    whole = moved(attack, target, x, y, Diversity(weight=weight, reduce="instance"))
    single = [
        moved(attack, target, x[i : i + 1], y[i : i + 1], Diversity(weight=weight, reduce="instance"), first=i) for i in range(5)
    ]
    assert torch.allclose(whole, torch.cat(single), atol=2e-3)
    assert ((whole - torch.cat(single)).abs() < 1e-6).float().mean() > 0.98  # a sign may turn where a gradient is next to 0


def test_a_batch_that_is_coupled_is_not() -> None:
    x, y, target = images(4), torch.tensor([0, 1, 2, 0]), network()
    together = Diversity(weight=50.0, reduce="batch", layers="0")
    whole = moved(BIM(steps=3), target, x, y, together)
    assert not torch.allclose(whole[:1], moved(BIM(steps=3), target, x[:1], y[:1], together))


def test_cw_finds_the_least_change_of_a_linear_network() -> None:
    target = linear()
    x = torch.tensor([[0.8, 0.2, 0.5, 0.2]])
    # z0 - z1 = 2 x0 - 3 x1 - 3 x3 + 0.5 = 0.9; all three move by d: 0.9 = 8 d.
    with Engine(target, levels=None) as engine:
        x_adv = CW(steps=100, searches=7, rate=0.01).run(engine, x, torch.tensor([0]), positions=[0], random=0)
    assert int(target.logits(x_adv).argmax()) == 1
    assert float((x_adv - x).abs().max()) == pytest.approx(0.9 / 8, abs=0.01)


def test_cw_keeps_its_margin_and_never_calls_the_seed_a_success() -> None:
    target, x = linear(), torch.tensor([[0.8, 0.2, 0.5, 0.2]])
    y = torch.tensor([0])
    with Engine(target, levels=None) as engine:
        x_adv = CW(kappa=1.0, steps=60, searches=5).run(engine, x, y, positions=[0], random=0)
        lead = target.logits(x_adv)[0].detach()
        assert float(lead[1] - lead[0]) >= 1
        beyond = CW(kappa=1000.0, steps=5, searches=1)
        assert torch.equal(beyond.run(engine, x, y, positions=[0], random=0), x)
        last = CW(kappa=1000.0, steps=5, searches=1, on_failure="last")
        assert not torch.equal(last.run(engine, x, y, positions=[0], random=0), x)
        # A seed that is wrong from the start: unchanged it is no success, changed it may be one.
        wrong = CW(steps=1, searches=1).run(engine, x, torch.tensor([1]), positions=[0], random=0)
        assert torch.equal(wrong, x)


def test_cw_successes_hold_on_the_8_bit_grid() -> None:
    target, x = network(), images(6)
    y = target.logits(x).argmax(1)
    with Engine(target) as engine:
        x_adv = CW(steps=40, searches=4, weight=0.1).run(engine, x, y, positions=range(6), random=0)
    assert torch.equal((x_adv * 255).round() / 255, x_adv)
    changed = (x_adv - x).flatten(1).abs().amax(1) > 0
    assert bool(changed.any())
    assert bool((target.logits(x_adv).argmax(1) != y)[changed].all())


class Rounded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.round())


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([(x * 0).sum(1).sqrt(), x.sum(1)], 1)  # the slope of a root is infinite at 0


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.fc(x)


@pytest.mark.parametrize("attack", [PGD(steps=3), CW(steps=2, searches=1)], ids=lambda a: a.name)
def test_gradients_that_lead_nowhere_are_refused(attack: BIM | CW) -> None:
    x, y = torch.full((2, 4), 0.3), torch.tensor([0, 1])
    for module, message in ((Rounded(), "zero"), (Detached(), "zero"), (Broken(), "not finite")):
        with Engine(Target(module.eval(), shape=(4,))) as engine, pytest.raises(BadInput, match=message):
            refused(attack, engine, x, y)


def refused(attack: BIM | CW, engine: Engine, x: Tensor, y: Tensor) -> None:
    attack.run(engine, x, y, positions=[0, 1], random=0)
    engine.refuse_flat(last=False)  # two inputs are too few to tell
    engine.refuse_flat()


@pytest.mark.parametrize(
    "text",
    ["pgd:eps=1.5", "pgd:eps=-0.1", "pgd:eps=wide", "pgd:eps=8/0", "pgd:steps=0", "pgd:steps=2.5", "pgd:step=nan", "cw:kappa=-1",
     "cw:rate=0", "cw:on_failure=guess", "cw:searches=0", "fgsm:steps=3", "pgd:preset=imagenet", "gpd"],
)  # fmt: skip
def test_bad_settings(text: str) -> None:
    with pytest.raises(BadInput):
        registry.build("attack", text)


def test_written_as_text() -> None:
    assert registry.build("attack", "pgd:8/255") == PGD(eps=8 / 255)
    assert registry.build("attack", "pgd:preset=mnist-code,eps=0.3") == PGD(eps=0.3, step=0.01, steps=10)
    assert registry.build("attack", "cw:20") == CW(kappa=20)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    kappa=st.sampled_from([0.0, 1.0, 50.0]),
    wrong=st.booleans(),
    weight=st.sampled_from([0.0, 1.0]),
    steps=st.integers(1, 12),
)
def test_cw_never_gives_a_clean_image_as_a_success(seed: int, kappa: float, wrong: bool, weight: float, steps: int) -> None:
    """Whatever it returns either is the seed, and then no success, or is changed, wrong and ahead by kappa."""
    target, x = network(), images(4, seed)
    y = target.logits(x).argmax(1)
    y = (y + 1) % 3 if wrong else y
    with Engine(target, Diversity(weight=weight)) as engine:
        x_adv = CW(kappa=kappa, steps=steps, searches=2, weight=1.0).run(engine, x, y, positions=range(4), random=0)
    logits = target.logits(x_adv).detach()
    changed = (x_adv - x).flatten(1).abs().amax(1) > 1e-6
    ahead = logits.scatter(1, y[:, None], -torch.inf).amax(1) - logits.gather(1, y[:, None])[:, 0]
    assert bool((ahead[changed] >= kappa - 1e-4).all())
    assert bool((logits.argmax(1) != y)[changed].all())
    assert torch.equal(x_adv[~changed], x[~changed])
