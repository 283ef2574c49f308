"""Means of widening layers are taken from their inputs, and are those of their outputs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from neurotest.target import Probe, Target, Want
from neurotest.target.layers import mean_from_input

pytestmark = pytest.mark.by_hand

SHAPE = (2, 6, 6)


class Tokens(nn.Module):
    """Places as tokens, through a dense layer that widens."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.end = nn.Linear(2, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.end(self.wide(x.flatten(2).transpose(1, 2)).relu().mean(1))
        return y


def convolutions(layer: nn.Module) -> nn.Module:
    return nn.Sequential(layer, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(3))


class Doubled(nn.Conv2d):
    """A convolution that does something else."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def hooked() -> nn.Module:
    layer = nn.Conv2d(2, 7, 1)
    layer.register_forward_hook(lambda module, args, output: output + 1)
    return layer


def replaced() -> nn.Module:
    layer = nn.Conv2d(2, 7, 1)
    usual = layer.forward
    layer.forward = lambda x: usual(x).abs()  # type: ignore[method-assign]
    return layer


def opened(module: nn.Module) -> Target:
    module.eval()(torch.zeros(2, *SHAPE))
    return Target(module, shape=SHAPE)


SKIPPED: dict[str, Callable[[], nn.Module]] = {
    "kernel": lambda: nn.Conv2d(2, 7, 3, padding=1),
    "stride": lambda: nn.Conv2d(2, 28, 1, stride=2),
    "padding": lambda: nn.Conv2d(2, 7, 1, padding=1),
    "groups": lambda: nn.Conv2d(2, 8, 1, groups=2),
    "narrow": lambda: nn.Conv2d(2, 1, 1),
    "own forward": lambda: Doubled(2, 7, 1),
    "hook": hooked,
    "forward replaced": replaced,
    "parametrised": lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 7, 1)),
}


def test_by_hand() -> None:
    layer = nn.Conv2d(1, 2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([2.0, -1.0]).view(2, 1, 1, 1))
        assert layer.bias is not None
        layer.bias.copy_(torch.tensor([0.5, 0.0]))
    target = Target(nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval(), shape=(1, 2, 2))
    x = torch.tensor([[[[0.0, 0.25], [0.5, 0.25]]]])  # mean 0.25
    with Probe(target, Want(layers="0")) as probe:
        torch.testing.assert_close(probe(x).values["0"], torch.tensor([[1.0, -0.25]]))


@pytest.mark.parametrize("module", [lambda: convolutions(nn.Conv2d(2, 7, 1)), Tokens], ids=["convolution", "tokens"])
def test_the_input_is_read_and_gives_the_means_of_the_output(module: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    target = opened(module())
    layer = target.survey().find("pre_activation")[0]
    assert mean_from_input(target.module.get_submodule(layer.module), layer) is not None
    x = torch.rand(5, *SHAPE)
    with Probe(target, Want(), Want(keep="map")) as both, Probe(target, Want()) as alone:
        trace, single = both(x), alone(x)
    maps = trace[Want(keep="map")][layer.name]
    places = tuple(axis for axis in (1, 2, 3)[: maps.ndim - 1] if axis != layer.axis)
    torch.testing.assert_close(trace[Want()][layer.name], maps.double().mean(places).float())
    assert torch.equal(single.values[layer.name], trace[Want()][layer.name])  # whatever else is recorded


@pytest.mark.parametrize("name", SKIPPED)
def test_other_layers_are_read_themselves(name: str) -> None:
    torch.manual_seed(0)
    target = opened(convolutions(SKIPPED[name]()))
    layer = next(one for one in target.survey().everything if one.module == "0")
    assert mean_from_input(target.module.get_submodule("0"), layer) is None
    x = torch.rand(3, *SHAPE)
    with Probe(target, Want(layers="0")) as probe:
        recorded = probe(x).values["0"]
    with torch.inference_mode():
        whole = target.module.get_submodule("0")(x)
    torch.testing.assert_close(recorded, whole.mean((2, 3)))


def test_hooks_of_all_modules_are_minded() -> None:
    target, x = opened(convolutions(nn.Conv2d(2, 7, 1))), torch.rand(2, *SHAPE)
    hook = nn.modules.module.register_module_forward_hook(lambda m, _, out: out + 100 if isinstance(m, nn.Conv2d) else None)
    try:
        with Probe(target, Want(layers="0")) as probe:
            assert (probe(x).values["0"] > 50).all()
    finally:
        hook.remove()


def test_edited_outputs_are_recorded_as_edited() -> None:
    target = opened(convolutions(nn.Conv2d(2, 7, 1)))
    with Probe(target, Want(layers="0"), edit=lambda layer, tensor: torch.ones_like(tensor)) as probe:
        assert torch.equal(probe(torch.rand(2, *SHAPE)).values["0"], torch.ones(2, 7))


def test_another_weight_is_noticed() -> None:
    module = convolutions(nn.Conv2d(2, 7, 1, bias=False))
    target, x = opened(module), torch.rand(2, *SHAPE)
    with Probe(target, Want(layers="0")) as probe:
        before = probe(x).values["0"]
        module[0].weight.data.mul_(2)  # type: ignore[index]
        torch.testing.assert_close(probe(x).values["0"], 2 * before)


@given(st.integers(1, 6), st.integers(2, 9), st.booleans(), st.integers(1, 5), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_any_widening_layer(inputs: int, more: int, bias: bool, side: int, seed: int) -> None:
    torch.manual_seed(seed)
    shape = (inputs, side, side)
    module = nn.Sequential(nn.Conv2d(inputs, inputs + more, 1, bias=bias), nn.Flatten(), nn.LazyLinear(3)).eval()
    module(torch.zeros(1, *shape))
    target, x = Target(module, shape=shape), torch.rand(3, *shape)
    with Probe(target, Want(layers="0")) as probe:
        recorded = probe(x).values["0"]
    with torch.inference_mode():
        expected = module[0].double()(x.double()).mean((2, 3))
    torch.testing.assert_close(recorded.double(), expected, rtol=1e-5, atol=1e-5)
