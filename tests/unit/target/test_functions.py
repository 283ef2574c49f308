"""Functions of torch called in forward are layers: every switch of the probe gives what the same network of modules gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from tests.unit.target.by_hand import ACT, ACT2, FIRST, SECOND, ByHand, X, hooks, noise, record
from tests.unit.target.twins import Attention, Function, Random, Residual, Small, assert_equal_layers, target_of
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import _get_current_function_mode_stack

from neurotest.target import Probe, Target, Want, load

pytestmark = pytest.mark.by_hand


def overwrite(x: Tensor) -> Tensor:
    x.relu_()  # the result is not looked at: the network goes on with x
    return x


# -- the same network with functions and with modules


@pytest.mark.parametrize(
    ("act", "module", "name"),
    [
        (F.relu, nn.ReLU, "relu"),
        (torch.relu, nn.ReLU, "relu"),
        (Tensor.relu, nn.ReLU, "relu"),
        (lambda x: F.relu(x, inplace=True), lambda: nn.ReLU(inplace=True), "relu"),
        (Tensor.relu_, lambda: nn.ReLU(inplace=True), "relu"),
        (overwrite, lambda: nn.ReLU(inplace=True), "relu"),
        (lambda x: torch.relu_(input=x), lambda: nn.ReLU(inplace=True), "relu"),
        (F.gelu, nn.GELU, "gelu"),
        (F.silu, nn.SiLU, "silu"),
        (torch.sigmoid, nn.Sigmoid, "sigmoid"),
        (Tensor.tanh_, nn.Tanh, "tanh"),
        (F.logsigmoid, nn.LogSigmoid, "log_sigmoid"),
        (lambda x: x.clamp(min=0), nn.ReLU, "clamp"),
    ],
)
def test_activations(act: Function, module: Callable[[], nn.Module], name: str) -> None:
    functional, modular = (target_of(network, 1, 4, 4) for network in (Small(act), Small(None, module)))
    assert [layer.name for layer in functional.survey().find("post_activation")] == [f"{name}_1", f"{name}_2"]
    assert functional.survey().functional == 2
    assert functional.survey().hidden == 0
    names = {f"{name}_1": "act1", f"{name}_2": "act2"}
    assert_equal_layers(functional, modular, names, noise(3, 1, 4, 4) - 0.5)
    assert_equal_layers(functional, modular, {"conv": "conv", **names, "fc2": "fc2"}, noise(3, 1, 4, 4) - 0.5)


@pytest.mark.parametrize("inplace", [False, True])
def test_a_residual_addition_and_the_relu_behind_it(inplace: bool) -> None:
    functional, modular = (target_of(Residual(kind, inplace), 2, 4, 4) for kind in (True, False))
    assert [layer.name for layer in functional.survey().find("post_activation")] == ["relu_1", "relu_2"]
    names = {"relu_1": "act1", "add_1": "sum", "relu_2": "act2"}
    assert_equal_layers(functional, modular, names, noise(3, 2, 4, 4) - 0.5)
    assert [layer.name for layer in functional.survey().find("*add*")] == ["add_1"]
    assert "add_1" not in [layer.name for layer in functional.survey().find("*")]


@pytest.mark.parametrize(("fused", "layer", "module"), [
    (True, "scaled_dot_product_attention_1", "attend"), (False, "softmax_1", "weights"),
])  # fmt: skip
def test_attention(fused: bool, layer: str, module: str) -> None:
    functional, modular = (target_of(Attention(kind, fused), 5, 4) for kind in (True, False))
    assert_equal_layers(functional, modular, {layer: module, "add_1": "sum"}, noise(2, 5, 4))
    assert [one.name for one in functional.survey().find("pre_activation")] == ["q", "k", "v", "head"]


def test_by_hand() -> None:
    class Functional(ByHand):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.second(self.first(x).relu_())) * 1

    target = Target(Functional().eval(), shape=(2,))
    trace = record(target, X.clone(), Want(layers="first,second,relu*"))
    assert {name: values.tolist() for name, values in trace.values.items()} == {
        "first": FIRST, "relu_1": ACT, "second": SECOND, "relu_2": ACT2,
    }  # fmt: skip
    inputs = record(target, X.clone(), Want(layers="relu*", inputs=True)).values
    assert {name: values.tolist() for name, values in inputs.items()} == {"relu_1": FIRST, "relu_2": SECOND}
    edited = record(target, X.clone(), Want(layers="relu_2"), edit=lambda _, tensor: tensor + 1)
    assert edited.logits.tolist() == [[1.0, 1.0], [3.0, 1.0]]


def test_functions_of_linear_algebra_are_layers_before_activations() -> None:
    class Weights(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.kernel, self.dense = nn.Parameter(torch.randn(2, 1, 3, 3)), nn.Parameter(torch.randn(5, 8))
            self.head = nn.Parameter(torch.randn(3, 5))

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(F.relu(F.linear(F.relu(F.conv2d(x, self.kernel)).flatten(1), self.dense)), self.head)

    target = target_of(Weights(), 1, 4, 4)
    survey = target.survey()
    assert [(one.name, one.made_by) for one in survey.find("pre_activation")] == [
        ("conv2d_1", "convolution"), ("linear_1", "dense"), ("", "dense"),
    ]  # fmt: skip
    assert [one.name for one in survey.find("features")] == ["linear_1"]
    x = noise(2, 1, 4, 4)
    with torch.no_grad():
        expected = F.conv2d(x, target.module.kernel)  # type: ignore[arg-type]
    assert torch.equal(record(target, x, Want(layers="conv2d_1", keep="map")).values["conv2d_1"], expected)
    assert torch.equal(record(target, x, Want(layers="features", inputs=True)).values["linear_1"], expected.relu().flatten(1))


# -- names


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.fc(x))
        return F.relu(self.fc(x)) - x


def test_names_say_module_call_and_function() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.relu_1, self.head = Block(), nn.ReLU(), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(F.relu(self.relu_1(self.block(self.block(x)))) * 2)

    survey = target_of(Shared(), 4).survey()
    assert [layer.name for layer in survey.find("post_activation")] == [
        "block.relu_1", "block.relu_2", "block#2.relu_1", "block#2.relu_2", "relu_1", "relu_1()",
    ]  # fmt: skip
    assert [layer.name for layer in survey.find("block#2.*")] == ["block#2.relu_1", "block#2.relu_2"]
    target = target_of(Shared(), 4)
    values = record(target, noise(2, 4), Want(layers="post_activation")).values
    assert torch.equal(values["relu_1()"], values["relu_1"])  # the relu of a relu


def test_a_module_stands_for_the_function_it_ends_in() -> None:
    class Ends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(F.relu(self.conv(x)) + x).flatten(1)

    survey = target_of(nn.Sequential(Ends(), nn.Linear(32, 3)), 1, 4, 4).survey()
    assert [layer.name for layer in survey.find("post_activation")] == ["0.relu_1", "0"]
    assert [layer.name for layer in survey.find("*")] == ["0.conv", "0.relu_1", "0", "1", ""]
    with refused("unknown-name", "layers"):
        survey.find("0.relu_2")


def test_guards_against_small_numbers_are_no_activations() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.fc(x))
            return self.head(F.normalize(x) / x.abs().sum(1, keepdim=True).clamp(min=1e-6))

    survey = target_of(Normed(), 4).survey()
    assert [layer.name for layer in survey.find("post_activation")] == ["relu_1"]
    assert survey.hidden == 0


def test_the_tokens_of_a_transformer_layer() -> None:
    class Encodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.head = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.layer(x).mean(1))

    target, x = target_of(Encodes(), 5, 4), noise(2, 5, 4)
    assert [layer.name for layer in target.survey().find("post_activation")] == ["layer.relu_1"]
    assert [layer.name for layer in target.survey().find("*.add*")] == ["layer.add_1", "layer.add_2"]
    want, before = Want(layers="layer.relu_1", keep="map"), Want(layers="layer.linear1", keep="map")
    trace = record(target, x, want, before)
    assert torch.equal(trace[want]["layer.relu_1"], trace[before]["layer.linear1"].relu())
    with torch.inference_mode():
        assert torch.allclose(trace.logits, target.module(x), atol=1e-6)


# -- what cannot be read


class Loop(nn.Module):
    """Runs its ReLU as often as its inputs are bright."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(1 + int(x.max() > 5)):
            x = F.relu(self.fc(x))
        return self.fc(x)


def test_functions_that_run_more_often_for_some_inputs_are_refused() -> None:
    target = Target(Loop().eval(), shape=(2,), bounds=(0, 10))
    target._surveys[2,] = Target(target.module, shape=(2,)).survey()
    with Probe(target, Want(layers="relu_1")) as probe:
        assert probe(torch.ones(3, 2)).values["relu_1"].shape == (3, 2)
        with refused("changed", "layer"):
            probe(torch.full((3, 2), 9.0))
        assert probe(torch.ones(3, 2)).values["relu_1"].shape == (3, 2)
    with Probe(target, Want(layers="fc")) as probe:
        probe(torch.full((3, 2), 9.0))  # modules are followed all the same


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_activations_in_scripted_code_are_counted_and_the_error_says_what_works() -> None:
    @torch.jit.script
    def scripted(x: Tensor) -> Tensor:
        return torch.relu(x)

    target = target_of(Small(scripted), 1, 4, 4)
    assert target.survey().hidden == 2
    with refused("empty", "layers", match=r"\(2 run where they cannot be read.*use --layers pre_activation.*need no layers"):
        target.survey().find("post_activation")


def test_a_network_of_other_operations_names_a_layer_that_works() -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return ((x @ torch.eye(4)) + 1) * 2

    survey = target_of(Plain(), 4).survey()
    with refused("empty", "layers", match=r"layers='pre_activation'.*name layers with --layers GLOB, for example 'add_1'"):
        survey.find("pre_activation")
    assert [layer.name for layer in survey.find("add_1")] == ["add_1"]


# -- only where it is needed


class Watches(Small):
    """Notes how many function modes are active while it runs."""

    def forward(self, x: Tensor) -> Tensor:
        self.modes = len(_get_current_function_mode_stack())
        return super().forward(x)


@pytest.mark.parametrize(("layers", "modes"), [("conv,fc1", 0), ("pre_activation", 0), ("relu_2", 1), ("conv,relu_1", 1)])
def test_the_mode_is_active_only_for_functions(layers: str, modes: int) -> None:
    network = Watches(F.relu)
    target = target_of(network, 1, 4, 4)
    with Probe(target, Want(layers=layers)) as probe:
        probe(noise(2, 1, 4, 4))
        assert network.modes == modes
        target.module(noise(2, 1, 4, 4))
        assert network.modes == 0
    assert hooks(target) == 0


def test_what_an_edit_computes_is_no_layer() -> None:
    target = target_of(Small(F.relu), 1, 4, 4)
    x = noise(2, 1, 4, 4)
    trace = record(target, x, Want(layers="conv,relu_1,relu_2"), edit=lambda _, tensor: F.relu(tensor))
    assert torch.equal(trace.logits, record(target, x).logits)


# -- a property, and exported networks


STEPS = st.lists(
    st.tuples(st.sampled_from(["relu", "gelu", "silu"]), st.booleans(), st.booleans()).map(
        lambda step: (step[0], step[1] and step[0] != "gelu", step[2])  # there is no gelu in place
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 99), n=st.integers(1, 3))
def test_any_chain_gives_what_its_modules_give(steps: list[tuple[str, bool, bool]], seed: int, n: int) -> None:
    functional, modular = (Random(steps, kind, seed) for kind in (True, False))
    assert_equal_layers(target_of(functional, 3), target_of(modular, 3), functional.names(), noise(n, 3) - 0.5)


def test_exported_functions_carry_the_same_names_and_values(tmp_path: Path) -> None:
    module = Residual(True, False).eval()
    file = tmp_path / "residual.pt2"
    sizes = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(module, (torch.rand(4, 2, 4, 4),), dynamic_shapes=sizes), file)
    exported = load(f"pt2:{file}")
    x = noise(3, 2, 4, 4)
    names = {name: name for name in ("conv1", "relu_1", "conv2", "add_1", "relu_2", "fc")}
    assert_equal_layers(exported, Target(module, shape=(2, 4, 4)), names, x)
    assert [layer.name for layer in exported.survey().find("post_activation")] == ["relu_1", "relu_2"]
