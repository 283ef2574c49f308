"""The probe: what it records is what the network did."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from tests.unit.target.by_hand import ACT, ACT2, FIRST, SECOND, ByHand, X, noise, record
from torch import Tensor, nn
from torch.nn import functional as F

from neurotest.target import Probe, Target, Want

pytestmark = pytest.mark.by_hand


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("neuron", ["channel", "unit"])
def test_a_network_computed_by_hand(inplace: bool, neuron: str) -> None:
    """In place, the second activation overwrites what `second` gave: the recorded values must not change with it."""
    target = Target(ByHand(inplace).eval(), shape=(2,))
    trace = record(target, X.clone(), Want(layers="first,second,act*", neuron=neuron))
    got = {name: values.tolist() for name, values in trace.values.items()}
    assert got == {"first": FIRST, "act": ACT, "second": SECOND, "act#2": ACT2}
    assert trace.logits.tolist() == ACT2
    assert trace.predictions.tolist() == [0, 0]


@pytest.mark.parametrize("inplace", [False, True])
def test_recorded_inputs_are_those_before_the_module_ran(inplace: bool) -> None:
    target = Target(ByHand(inplace).eval(), shape=(2,))
    got = record(target, X.clone(), Want(layers="*", inputs=True, neuron="unit")).values
    assert {name: got[name].tolist() for name in ("first", "act", "second", "act#2")} == {
        "first": X.tolist(), "act": FIRST, "second": ACT, "act#2": SECOND,
    }  # fmt: skip


@pytest.mark.parametrize("keep", ["reduced", "map"])
def test_an_in_place_relu_on_the_input_itself_is_noticed(keep: str) -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift, self.act, self.fc = nn.Identity(), nn.ReLU(inplace=True), nn.Flatten()

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.act(self.shift(x - 0.5)))

    target = Target(Head().eval(), shape=(1, 1, 2))
    x = torch.tensor([[[[0.0, 1.0]]]])
    got = record(
        target, x, Want(layers="shift", neuron="unit", keep=keep), Want(layers="act", inputs=True, neuron="unit", keep=keep)
    )
    for values in got.recorded.values():
        assert next(iter(values.values())).flatten().tolist() == [-0.5, 0.5]


def test_channels_are_means_over_places() -> None:
    conv = nn.Conv2d(1, 2, 1)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([1.0, -2.0]).view(2, 1, 1, 1))
        conv.bias.copy_(torch.tensor([0.0, 1.0]))
    target = Target(nn.Sequential(conv, nn.Flatten(), nn.Linear(8, 2)).eval(), shape=(1, 2, 2))
    x = torch.tensor([0.0, 0.25, 0.5, 1.0]).view(1, 1, 2, 2)
    want, maps = Want(layers="0"), Want(layers="0", keep="map")
    trace = record(target, x, want, maps, Want(layers="0", neuron="unit"))
    assert trace[want]["0"].tolist() == [[0.4375, 0.125]]
    assert torch.equal(trace[maps]["0"], torch.stack([x[0, 0], 1 - 2 * x[0, 0]])[None])
    assert trace[Want(layers="0", neuron="unit")]["0"].tolist() == [[0.0, 0.25, 0.5, 1.0, 1.0, 0.5, 0.0, -1.0]]


def test_tokens_are_reduced_over_their_places() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.head = nn.Linear(2, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.token(x).mean(1))

    torch.manual_seed(0)
    target = Target(Tokens().eval(), shape=(4, 2))
    x = noise(3, 4, 2)
    got = record(target, x, Want(layers="token")).values["token"]
    assert torch.allclose(got, torch.stack([torch.stack([target.module.token(t) for t in item]).mean(0) for item in x]))


def test_sequences_are_reduced_over_time_and_channels_last_over_places() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(1, 4, 3)
            self.mix = nn.Linear(4, 4)  # as many channels as places: only the axis tells them apart

        def forward(self, x: Tensor) -> Tensor:
            return self.mix(self.conv(x).transpose(1, 2)).mean(1)

    torch.manual_seed(0)
    target = Target(Both().eval(), shape=(1, 6))
    x = noise(3, 1, 6)
    got = record(target, x, Want(layers="conv,mix")).values
    conv = target.module.conv(x)  # (n, 4 channels, 4 places)
    assert torch.allclose(got["conv"], conv.mean(2))
    assert torch.allclose(got["mix"], target.module.mix(conv.transpose(1, 2)).mean(1))


def test_a_layer_with_one_number_per_input_is_one_neuron() -> None:
    target = Target(nn.Sequential(nn.Flatten(), nn.Linear(4, 1), nn.Flatten(0)).eval(), shape=(1, 2, 2))
    x = noise(3, 1, 2, 2)
    for neuron in ("channel", "unit"):
        assert record(target, x, Want(layers="2", neuron=neuron)).values["2"].shape == (3, 1)


def test_attention_gives_its_first_output() -> None:
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.attention(x, x, x)[0].mean(1))

    torch.manual_seed(0)
    target = Target(Attends().eval(), shape=(5, 4))
    x = noise(2, 5, 4)
    got = record(target, x, Want(layers="attention")).values["attention"]
    with torch.no_grad():
        assert torch.allclose(got, target.module.attention(x, x, x)[0].mean(1), atol=1e-6)


def test_a_transformer_layer_is_seen_inside_although_torch_has_a_shortcut_for_it() -> None:
    class Encodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.layer(x).mean(1))

    torch.manual_seed(0)
    target = Target(Encodes().eval(), shape=(5, 4))
    x = noise(2, 5, 4)
    trace = record(target, x, Want(layers="layer.linear1"))
    assert trace.values["layer.linear1"].shape == (2, 8)
    with torch.inference_mode():
        assert torch.allclose(trace.logits, target.module(x), atol=1e-6)


def test_softmax_is_in_double_precision() -> None:
    target = Target(nn.Identity().eval(), shape=(3,), bounds=(-100, 100))
    trace = record(target, torch.tensor([[30.0, 0.0, -5.0]]))
    assert trace.probs.dtype == torch.float64
    assert 0 < float(trace.probs[0, 2]) < float(trace.probs[0, 1]) < 1e-12
    assert trace.logits.softmax(1)[0, 0] == 1 > trace.probs[0, 0]  # single precision would have made a tie


# -- several wants


LAYERS = st.sampled_from(["pre_activation", "post_activation", "features", "*", "conv", "act*"])
WANTS = st.builds(
    Want,
    layers=LAYERS,
    neuron=st.sampled_from(["channel", "unit"]),
    keep=st.sampled_from(["reduced", "map"]),
    inputs=st.booleans(),
)


class Random(nn.Module):
    """A small network of random widths whose activation module runs `depth + 1` times, in place or not."""

    def __init__(self, channels: int, hidden: int, depth: int, inplace: bool, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(1, channels, 3, padding=1)
        self.act = nn.ReLU(inplace=inplace)
        self.fc = nn.Linear(channels * 16, hidden)
        self.deep = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(depth))
        self.head = nn.Linear(hidden, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.conv(x)).flatten(1)
        x = self.fc(x)
        for layer in self.deep:
            x = layer(self.act(x))
        return self.head(x)


NETWORKS = st.builds(
    Random,
    channels=st.integers(1, 3),
    hidden=st.integers(1, 4),
    depth=st.integers(0, 2),
    inplace=st.booleans(),
    seed=st.integers(0, 99),
)


@settings(max_examples=40, deadline=None)
@given(network=NETWORKS, wants=st.lists(WANTS, min_size=1, max_size=4), n=st.integers(1, 3))
def test_one_pass_for_several_wants_equals_separate_passes(network: Random, wants: list[Want], n: int) -> None:
    target, x = Target(network.eval(), shape=(1, 4, 4)), noise(n, 1, 4, 4)
    together = record(target, x, *wants)
    bare = record(target, x)
    assert torch.equal(together.logits, bare.logits)
    for want in wants:
        alone = record(target, x, want).values
        assert list(together[want]) == list(alone)
        for name, values in alone.items():
            assert torch.equal(together[want][name], values), (want, name)
            assert want.keep == "map" or values.ndim == 2


@settings(max_examples=40, deadline=None)
@given(network=NETWORKS, n=st.integers(1, 3))
def test_values_equal_a_forward_pass_written_out(network: Random, n: int) -> None:
    target, x = Target(network.eval(), shape=(1, 4, 4)), noise(n, 1, 4, 4)
    with torch.no_grad():
        expected = {"conv": network.conv(x)}
        expected["act"] = F.relu(expected["conv"])
        value = expected["fc"] = network.fc(expected["act"].flatten(1))
        for number, layer in enumerate(network.deep):
            value = F.relu(value)
            expected[f"act#{number + 2}"] = value
            value = expected[f"deep.{number}"] = layer(value)
        expected["head"] = network.head(value)
    got = record(target, x, Want(layers="*", keep="map")).values
    got = {name: values for name, values in got.items() if name}  # without the network itself
    assert set(got) == set(expected)
    for name in expected:
        assert torch.allclose(got[name], expected[name], atol=1e-6), name
    means = record(target, x, Want(layers="conv,act")).values
    for name in ("conv", "act"):
        assert torch.allclose(means[name], expected[name].mean((2, 3)), atol=1e-6)


def test_values_of_an_earlier_batch_stay_as_they_were() -> None:
    target = Target(ByHand(inplace=True).eval(), shape=(2,))
    with Probe(target, Want(layers="first,second")) as probe:
        kept = probe(X.clone()).values
        probe(X * 0)
    assert kept["first"].tolist() == FIRST
    assert kept["second"].tolist() == SECOND


def test_calls_are_counted_anew_for_each_batch_also_after_one_that_failed() -> None:
    target = Target(ByHand().eval(), shape=(2,))
    with Probe(target, Want(layers="act*"), Want(layers="act#2", inputs=True)) as probe:
        for _ in range(2):
            trace = probe(X)
            assert trace[Want(layers="act*")]["act#2"].tolist() == ACT2
            assert trace[Want(layers="act#2", inputs=True)]["act#2"].tolist() == SECOND
            with refused("failed", "network"):
                probe(torch.zeros(2, 3))


@pytest.mark.peer("captum")
def test_captum_sees_the_same_values() -> None:
    captum = pytest.importorskip("captum.attr", reason="captum is not installed")
    network = Random(3, 4, 1, False, 0).eval()
    target, x = Target(network, shape=(1, 4, 4)), noise(3, 1, 4, 4)
    got = record(target, x, Want(layers="conv,fc,head", keep="map")).values
    for name in got:
        assert torch.equal(got[name], captum.LayerActivation(network, network.get_submodule(name)).attribute(x)), name
