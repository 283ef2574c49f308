"""Which layers a survey finds, their properties, and how they are chosen."""

from __future__ import annotations

import pytest
import torch
from tests.refusals import refused
from torch import Tensor, nn
from torch.nn import functional as F

from neurotest.target import Layer, Survey, Target
from neurotest.target.survey import last_operator

pytestmark = pytest.mark.by_hand


def survey(module: nn.Module, *shape: int) -> Survey:
    return Target(module.eval(), shape=shape).survey()


def names(survey: Survey, layers: str) -> list[str]:
    return [layer.name for layer in survey.find(layers)]


def one(survey: Survey, name: str) -> Layer:
    (layer,) = survey.find(name)
    return layer


class Small(nn.Module):
    """conv - relu - pool - flatten - fc1 - relu (the same module) - fc2"""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.act = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(12, 5)
        self.fc2 = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.act(self.conv(x)))
        return self.fc2(self.act(self.fc1(x.flatten(1))))


class Functional(Small):
    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def test_presets_of_a_small_network() -> None:
    surveyed = survey(Small(), 1, 4, 4)
    assert names(surveyed, "pre_activation") == ["conv", "fc1", "fc2"]
    assert names(surveyed, "post_activation") == ["act", "act#2"]
    assert names(surveyed, "features") == ["fc1"]


def test_a_module_called_twice_gives_two_layers_with_their_own_shapes() -> None:
    surveyed = survey(Small(), 1, 4, 4)
    assert (one(surveyed, "act").shape, one(surveyed, "act#2").shape) == ((3, 4, 4), (5,))
    assert surveyed.calls["act"] == 2


def test_the_number_of_neurons() -> None:
    surveyed = survey(Small(), 1, 4, 4)
    conv, fc1 = one(surveyed, "conv"), one(surveyed, "fc1")
    assert (conv.neurons("channel"), conv.neurons("unit"), fc1.neurons("channel"), fc1.neurons("unit")) == (3, 48, 5, 5)
    assert (conv.neurons("unit", inputs=True), fc1.neurons("unit", inputs=True)) == (16, 12)


def test_functional_activations_are_layers() -> None:
    network = survey(Functional(), 1, 4, 4)
    assert names(network, "post_activation") == ["relu_1", "relu_2"]
    assert names(network, "*") == ["conv", "relu_1", "fc1", "relu_2", "fc2", ""]
    assert names(network, "*pool*") == ["max_pool2d_1"]
    assert [layer.module for layer in network.find("relu*")] == ["", ""]


def test_a_network_without_activations_says_which_preset_works() -> None:
    with refused("empty", "layers", match=r"no module or function of this network gives such .*; use --layers pre_activation"):
        survey(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), 1, 2, 2).find("post_activation")


def test_a_block_that_ends_in_a_functional_relu_is_an_activation() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 2, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.conv(x) + x)

    surveyed = survey(nn.Sequential(Block(), nn.Flatten(), nn.Linear(32, 3)), 2, 4, 4)
    assert names(surveyed, "post_activation") == ["0"]
    assert names(surveyed, "pre_activation") == ["0.conv", "2"]


def test_globs() -> None:
    surveyed = survey(Small(), 1, 4, 4)
    assert names(surveyed, "fc*") == ["fc1", "fc2"]
    assert names(surveyed, "fc2, conv") == ["conv", "fc2"]  # in the order in which they run
    assert names(surveyed, "act*") == ["act", "act#2"]


def test_a_glob_without_a_match_names_near_misses() -> None:
    surveyed = survey(Small(), 1, 4, 4)
    with refused("unknown-name", "layers"):
        surveyed.find("conv1")
    with refused("unknown-name", "layers"):
        surveyed.find("preactivation")
    with refused("unknown-name", "layers"):
        surveyed.find("fc1,fx*")


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*", ["0.conv", "0.relu_1", "0", "1", "2", ""]),
        ("0*", ["0.conv", "0.relu_1", "0"]),
        ("0.*", ["0.conv", "0.relu_1"]),
        ("0.*_1", ["0.relu_1"]),
        ("*add*", ["0.add_1"]),
        ("0.add_1", ["0.add_1"]),
        ("*pool*", ["0.avg_pool2d_1"]),
        ("0.*pool*,2", ["0.avg_pool2d_1", "2"]),
    ],
)
def test_additions_and_poolings_are_layers_where_a_glob_spells_them(glob: str, expected: list[str]) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 2, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return F.avg_pool2d(F.relu(self.conv(x)) + x, 2).mul(2).exp()

    assert names(survey(nn.Sequential(Block(), nn.Flatten(), nn.Linear(8, 3)), 2, 4, 4), glob) == expected


# -- where the channels lie


def test_channels_of_sequences_and_of_tokens() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(2, 5, 3, padding=1)  # (n, 5, 7)
            self.token = nn.Linear(5, 4)  # (n, 7, 4)
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.token(self.conv(x).transpose(1, 2)).mean(1))

    surveyed = survey(Both(), 2, 7)
    conv, token, head = (one(surveyed, name) for name in ("conv", "token", "head"))
    assert (conv.axis, conv.neurons()) == (1, 5)
    assert (token.axis, token.neurons(), token.input_axis, token.neurons(inputs=True)) == (2, 4, 2, 5)
    assert (head.axis, head.neurons()) == (1, 3)
    assert names(surveyed, "features") == ["head"]


def test_channels_last() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(1, 6, 1)
            self.mix = nn.Linear(6, 5)
            self.act = nn.GELU()
            self.head = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.act(self.mix(self.stem(x).permute(0, 2, 3, 1)))  # (n, h, w, 5)
            return self.head(x.mean((1, 2)))

    surveyed = survey(Last(), 1, 4, 4)
    assert [(one(surveyed, n).axis, one(surveyed, n).neurons()) for n in ("stem", "mix", "act", "head")] == [
        (1, 6),
        (3, 5),
        (3, 5),
        (1, 3),
    ]


# -- features


class Squeeze(nn.Module):
    """A convolution with a squeeze-and-excitation gate made of dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.down, self.up = nn.Linear(4, 2), nn.Linear(2, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        gate = self.up(F.relu(self.down(self.pool(x).flatten(1)))).sigmoid()
        return self.head(self.pool(x * gate[:, :, None, None]).flatten(1))


def test_features_are_behind_the_last_pooling_not_inside_a_gate() -> None:
    assert names(survey(Squeeze(), 1, 4, 4), "features") == ["head"]


def test_a_mean_over_channels_is_no_pooling() -> None:
    class Normed(Small):
        def forward(self, x: Tensor) -> Tensor:
            x = self.pool(self.act(self.conv(x))).flatten(1)
            x = self.act(self.fc1(x))[:, None, :]
            x = x - x.mean(-1, keepdim=True)  # a normalisation by hand, after the first dense layer
            return self.fc2(x[:, 0])

    assert names(survey(Normed(), 1, 4, 4), "features") == ["fc1"]


def test_features_of_a_network_without_convolutions_are_the_last_dense_input() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    assert names(survey(module, 1, 2, 2), "features") == ["3"]


def test_features_of_a_module_that_flattens_maps_are_the_inputs_of_its_function() -> None:
    class Flattening(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x.flatten(1), self.weight, self.bias)

    survey_ = survey(nn.Sequential(nn.Conv2d(1, 3, 2), nn.AdaptiveAvgPool2d(1), Flattening(3, 4)), 1, 4, 4)
    layer = survey_.find("features")[0]
    assert (layer.name, layer.neurons("unit", inputs=True)) == ("2.linear_1", 3)
    assert names(survey_, "last_hidden") == ["2.linear_1"]
    assert names(survey_, "pre_activation") == ["0", "2"]


def test_features_of_a_network_without_dense_layers() -> None:
    module = nn.Sequential(nn.Conv2d(1, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with refused("empty", "layers", match="--layers GLOB"):
        survey(module, 1, 4, 4).find("features")


# -- what cannot be a layer


def test_outputs_whose_rows_are_not_the_inputs_are_left_out() -> None:
    class Windows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.window, self.head = nn.Linear(4, 5), nn.Linear(20, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.window(x.reshape(-1, 4)).reshape(len(x), -1))  # window: (n * 4, 5)

    assert names(survey(Windows(), 1, 4, 4), "pre_activation") == ["head"]


# -- in-place


@pytest.mark.parametrize(("inplace", "expected"), [(True, True), (False, False)])
def test_in_place_operators_are_noticed(inplace: bool, expected: bool) -> None:
    surveyed = survey(nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(inplace=inplace), nn.Flatten(), nn.Linear(8, 3)), 1, 2, 2)
    assert one(surveyed, "0").overwritten is expected
    assert one(surveyed, "1").input_overwritten is expected
    assert not one(surveyed, "3").overwritten


def test_in_place_operators_on_a_view_are_noticed() -> None:
    class Viewed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = nn.Conv2d(1, 2, 1), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            x.view(len(x), -1).mul_(2)
            return self.fc(x.flatten(1))

    assert one(survey(Viewed(), 1, 2, 2), "conv").overwritten


# -- helpers


def test_the_last_operator_skips_views() -> None:
    x = torch.zeros(2, 1)
    assert last_operator(lambda: torch.sigmoid(x).squeeze(1).contiguous()) == "sigmoid"
    assert last_operator(lambda: x.clone().sigmoid_()) == "sigmoid"
    assert last_operator(lambda: torch.sigmoid(x) + 1) == "add"


def test_a_survey_leaves_no_hooks_and_happens_once() -> None:
    calls = []

    class Counted(Small):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(len(x))
            return super().forward(x)

    target = Target(Counted().eval(), shape=(1, 4, 4))
    first, before = target.survey(), len(calls)
    assert target.survey() is first
    assert len(calls) == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in target.module.modules())
