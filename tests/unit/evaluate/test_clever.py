"""CLEVER and the smallest change found: by hand on linear networks, against a plain loop, and as properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import nn
from torch.nn import functional

from neurotest.evaluate.clever import Clever
from neurotest.evaluate.leads import DUAL, Leads, draw, nearest, sizes
from neurotest.evaluate.robustness import robustness
from neurotest.stats.weibull import end_point
from neurotest.target import Target
from neurotest.target.speed import channels_last

pytestmark = pytest.mark.by_hand

WEIGHTS = torch.tensor([[3.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.0, 0.0], [0.0, 0.0, 0.0, 4.0]])
NORMS = ("l1", "l2", "linf")
# Of w_0 - w_1 = (3, -1, -2, 0) and w_0 - w_2 = (3, 0, 0, -4), in the dual norms.
SLOPES = {"l1": (3.0, 4.0), "l2": (math.sqrt(14), 5.0), "linf": (6.0, 7.0)}


class Linear(nn.Module):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(scale * WEIGHTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) @ self.weight.T


class Small(nn.Module):
    """Batch norm in eval mode, functional activations, pooling."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.head = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(functional.avg_pool2d(functional.silu(self.norm(self.conv(x))), 2).flatten(1))


def linear(scale: float = 1.0) -> Target:
    return Target(Linear(scale).eval(), shape=(1, 2, 2))


def small() -> Target:
    return Target(Small().eval(), shape=(1, 6, 6))


POINT = torch.tensor([[[0.8, 0.5], [0.4, 0.1]]])  # logits 2.4, 1.3, 0.4


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("options", [{}, {"fresh": True}, {"vmap": True}])
def test_by_hand_a_linear_network(norm: str, options: dict[str, bool]) -> None:
    """Every gradient is the same: the distance is the lead over the dual norm of the difference of weights."""
    method = Clever(norm=norm, batches=10, samples=4, pool=2, screen=0, **options)
    one = method.estimate(Leads(linear()), POINT, 0)
    expected = [1.1 / SLOPES[norm][0], 2.0 / SLOPES[norm][1]]
    assert one.rivals.tolist() == [1, 2]
    assert one.scores.tolist() == pytest.approx([min(value, method.reach) for value in expected], rel=1e-5)
    assert one.score == pytest.approx(min(*expected, method.reach), rel=1e-5)
    assert all(end.by == "constant" for end in one.ends)
    assert method.estimate(Leads(linear()), POINT, 0, towards=2).scores.tolist() == pytest.approx(
        [min(expected[1], method.reach)], rel=1e-5
    )


@pytest.mark.parametrize("norm", NORMS)
def test_the_smallest_change_of_a_linear_network(norm: str) -> None:
    """Where the input range is not in the way, the smallest change found is the distance itself."""
    leads, u = Leads(linear()), POINT[None]
    found = nearest(leads, u, torch.tensor([0]), norm, positions=[0])
    expected = min(1.1 / SLOPES[norm][0], 2.0 / SLOPES[norm][1])
    assert found.distance[0] == pytest.approx(expected, rel=0.03)
    assert found.distance[0] >= expected * (1 - 1e-4)
    assert int(leads.logits(found.x).argmax()) != 0
    only = nearest(leads, u, torch.tensor([0]), norm, positions=[0], towards=2)
    assert int(leads.logits(only.x).argmax()) == 2
    assert only.distance[0] >= found.distance[0] - 1e-6


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("fresh", [False, True])
def test_against_a_plain_loop(norm: str, fresh: bool) -> None:
    """One gradient at a time, one batch at a time; the points and the resamples are those of the method's streams."""
    from neurotest import rng

    target = small()
    u = torch.rand(1, 6, 6, generator=torch.Generator().manual_seed(3))
    own = int(target.logits(u[None]).argmax())
    method = Clever(norm=norm, radius=0.5, batches=12, samples=6, pool=3, fresh=fresh, screen=0)
    ours = method.estimate(Leads(target), u, own, position=7, seed=5)
    points = []
    for block in range(12 if fresh else 3):
        moved = u + 0.5 * draw(6, (1, 6, 6), norm, rng.torch_stream("clever.points", 5, 7, block))
        points += list(moved.clamp(0, 1))
    for place, rival in enumerate(ours.rivals.tolist()):
        norms = []
        for point in points:
            x = point[None].clone().requires_grad_()
            out = target.module(x)[0]
            (out[own] - out[rival]).backward()
            norms.append(float(np.linalg.norm(x.grad.flatten().numpy(), DUAL[norm])))
        if fresh:
            maxima = [max(norms[i : i + 6]) for i in range(0, len(norms), 6)]
        else:
            maxima = [max(norms[i] for i in batch) for batch in rng.stream("clever.batches", 5, 7).integers(0, 18, (12, 6))]
        logits = target.logits(u[None])[0].detach()
        end = end_point(maxima, largest=max(norms))
        assert ours.ends[place].value == pytest.approx(end.value, rel=1e-3)
        assert ours.scores[place] == pytest.approx(min(float(logits[own] - logits[rival]) / end.value, 0.5), rel=1e-3)


def test_batched_gradients_are_the_same_by_vmap() -> None:
    target, u = small(), torch.rand(5, 1, 6, 6)
    own, rivals = torch.tensor([0, 1, 2, 3, 0]), torch.tensor([[1], [2]])
    (_, loop), (_, batched) = (Leads(target, vmap=vmap).slopes(u, own, rivals) for vmap in (False, True))
    assert torch.allclose(loop, batched, atol=1e-6)
    before = [weight.data.clone() for weight in target.module.parameters()]
    with channels_last(target):
        assert torch.allclose(Leads(target).slopes(u, own, rivals)[1], loop, atol=1e-5)
    assert all(torch.equal(a, b.data) and b.requires_grad for a, b in zip(before, target.module.parameters(), strict=True))


class NoVmap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return torch.from_numpy(2 * grad.numpy())  # nothing that vmap could follow


class Odd(Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return NoVmap.apply(super().forward(x))


def test_what_vmap_cannot_do_is_done_class_by_class() -> None:
    target = Target(Odd().eval(), shape=(1, 2, 2))
    leads = Leads(target, vmap=True)
    one = Clever(norm="l2", batches=10, samples=4, pool=2, screen=0).estimate(leads, POINT, 0)
    assert one.scores.tolist() == pytest.approx([2.2 / (2 * math.sqrt(14)), 4.0 / 10], rel=1e-5)
    assert not leads.vmap


@pytest.mark.parametrize("norm", NORMS)
def test_points_lie_evenly_in_the_ball(norm: str) -> None:
    points = draw(20_000, (2,), norm, torch.Generator().manual_seed(0))
    order = {"l1": 1, "l2": 2, "linf": math.inf}[norm]
    lengths = sizes(points, order)
    assert float(lengths.max()) <= 1 + 1e-6
    assert float((lengths < 0.5).double().mean()) == pytest.approx(0.25, abs=0.02)  # half the radius is a quarter of the area
    assert points.mean(0).abs().max() < 0.02


@given(st.floats(0.01, 50), st.integers(0, 5), st.sampled_from(NORMS))
@hypothesis_settings(max_examples=15)
def test_scaling_the_logits_changes_nothing(scale: float, seed: int, norm: str) -> None:
    method = Clever(norm=norm, batches=10, samples=4, pool=2)
    one, other = (method.estimate(Leads(linear(factor)), POINT, 0, seed=seed).score for factor in (1.0, scale))
    assert one == pytest.approx(other, rel=1e-4)


def test_a_class_that_cannot_be_nearest_is_not_followed() -> None:
    target, u = small(), torch.rand(1, 6, 6, generator=torch.Generator().manual_seed(3))
    own = int(target.logits(u[None]).argmax())
    every, some = (Clever(batches=10, samples=8, pool=4, screen=screen).estimate(Leads(target), u, own) for screen in (0, 2))
    assert some.score == every.score
    assert set(some.rivals.tolist()) <= set(every.rivals.tolist())
    assert len(every.rivals) == 3


def inputs(n: int = 6) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).random((n, 1, 6, 6)).astype(np.float32)
    return x, small().logits(torch.from_numpy(x)).argmax(1).numpy()


class Views(nn.Module):
    """Takes a view of its feature maps, as many tutorials do, or reshapes them; weights that lie channels last allow no view."""

    def __init__(self, views: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.views, self.one, self.two, self.out = views, nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3), nn.Linear(5 * 2 * 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = self.two(torch.tanh(self.one(x)))
        return self.out(maps.view(len(x), -1) if self.views else maps.flatten(1))


def test_a_network_that_takes_views_scores_as_one_that_does_not() -> None:
    x = np.random.default_rng(0).random((3, 3, 6, 6)).astype(np.float32)
    targets = [Target(Views(views).eval(), shape=(3, 6, 6)) for views in (True, False)]
    y = targets[0].logits(torch.from_numpy(x)).argmax(1).numpy()
    options = {"norm": "l2", "samples": 8, "batches": 20, "attacks": False}
    with_views, without = (robustness(target, (x, y), out=False, **options) for target in targets)
    assert with_views.score == pytest.approx(without.score, rel=1e-3)


def test_a_function_of_the_seed_and_bounded_from_above(tmp_path) -> None:
    x, y = inputs()
    options = {"norm": "l2", "samples": 16, "batches": 20, "inputs": 4}
    one = robustness(small(), (x, y), out=False, seed=1, **options)
    again = robustness(small(), (x, y), out=tmp_path / "run", seed=1, batch=3, **options)
    other = robustness(small(), (x, y), out=False, seed=2, **options)
    assert np.array_equal(one.score, again.score)
    assert one.by == again.by
    assert len(one) == 4
    assert not np.array_equal(one.score, other.score)
    about = again.to_dict()
    assert about["reached"] == 4
    assert about["contradicted"] == 0
    assert about["score"] <= about["upper"]
    assert (tmp_path / "run" / "run.json").is_file()
    assert "not a certificate" in one.headline()
    assert about["rows"][0]["score"] == about["least"]


def test_refusals() -> None:
    x, y = inputs()
    probabilities = Target(nn.Sequential(Small(), nn.Softmax(1)).eval(), shape=(1, 6, 6), outputs="probs")
    with refused("unsuitable", "outputs"):
        robustness(probabilities, (x, y), out=False)
    for code, options in (
        ("out-of-range", {"norm": "l3"}), ("out-of-range", {"radius": -1}), ("out-of-range", {"inputs": 0}),
        ("unknown-name", {"towards": "cat"}), ("unknown-option", {"sample": 3}),
    ):  # fmt: skip
        with refused(code, next(iter(options))):
            robustness(small(), (x, y), out=False, **options)

    class Rounds(Small):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.round())

    with refused("no-gradient", "zero"):
        robustness(
            Target(Rounds().eval(), shape=(1, 6, 6)), (x, Rounds().eval()(torch.from_numpy(x)).argmax(1).numpy()), out=False
        )
