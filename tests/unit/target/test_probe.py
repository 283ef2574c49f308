"""The probe: what it records is what the network did, and nothing of it stays behind."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from neurotest.errors import BadInput
from neurotest.target import Probe, Target, Trace, Want


def hooks(target: Target) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in target.module.modules())


def record(target: Target, x: Tensor, *wants: Want, **switches: object) -> Trace:
    with Probe(target, *wants, **switches) as probe:
        return probe(x)


def noise(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(7))


# -- by hand


class ByHand(nn.Module):
    """Numbers small enough to compute with a pencil: y = W2 relu(W1 x), the same ReLU applied to both."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.act = nn.ReLU(inplace=inplace)
        with torch.no_grad():
            self.first.weight.copy_(torch.tensor([[1.0, -1.0], [2.0, 0.0]]))
            self.first.bias.copy_(torch.tensor([0.0, -1.0]))
            self.second.weight.copy_(torch.tensor([[1.0, 1.0], [-1.0, 0.5]]))
            self.second.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.second(self.act(self.first(x))))


X = torch.tensor([[0.25, 0.5], [1.0, 0.0]])
FIRST = [[-0.25, -0.5], [1.0, 1.0]]
ACT = [[0.0, 0.0], [1.0, 1.0]]
SECOND = [[0.0, 0.0], [2.0, -0.5]]
ACT2 = [[0.0, 0.0], [2.0, 0.0]]


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
            with pytest.raises(RuntimeError):
                probe(torch.zeros(2, 3))


def test_captum_sees_the_same_values() -> None:
    captum = pytest.importorskip("captum.attr", reason="captum is not installed")
    network = Random(3, 4, 1, False, 0).eval()
    target, x = Target(network, shape=(1, 4, 4)), noise(3, 1, 4, 4)
    got = record(target, x, Want(layers="conv,fc,head", keep="map")).values
    for name in got:
        assert torch.equal(got[name], captum.LayerActivation(network, network.get_submodule(name)).attribute(x)), name


# -- switches


def test_edit_changes_what_the_network_goes_on_with() -> None:
    target = Target(ByHand().eval(), shape=(2,))
    seen = []

    def ablate(layer: str, tensor: Tensor) -> Tensor:
        seen.append(layer)
        return torch.cat([tensor[:, :1] * 0, tensor[:, 1:]], dim=1)

    trace = record(target, X, Want(layers="first"), edit=ablate)
    assert seen == ["first"]
    assert trace.values["first"].tolist() == [[0.0, -0.5], [0.0, 1.0]]  # what went on, not what was
    assert trace.logits.tolist() == [[0.0, 0.0], [1.0, 0.5]]
    assert record(target, X, Want(layers="first")).logits.tolist() == ACT2  # and nothing of it stays


def test_edit_can_choose_one_of_two_calls() -> None:
    target = Target(ByHand().eval(), shape=(2,))
    trace = record(target, X, Want(layers="act#2"), edit=lambda layer, tensor: tensor + 1)
    assert trace.logits.tolist() == [[1.0, 1.0], [3.0, 1.0]]


def test_edit_runs_once_however_many_want_the_layer() -> None:
    target = Target(ByHand().eval(), shape=(2,))
    wants = Want(layers="first"), Want(layers="first", neuron="unit"), Want(layers="second", inputs=True)
    trace = record(target, X, *wants, edit=lambda layer, tensor: tensor + 1)
    assert trace[wants[0]]["first"].tolist() == [[0.75, 0.5], [2.0, 2.0]]
    assert trace[wants[2]]["second"].tolist() == [[0.75, 0.5], [2.0, 2.0]]


def test_edit_keeps_the_other_outputs_of_a_module() -> None:
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            out, weights = self.attention(x, x, x)
            return out.mean(1) + weights.sum()

    target = Target(Attends().eval(), shape=(5, 4))
    x = noise(2, 5, 4)
    got = record(target, x, Want(layers="attention"), edit=lambda layer, tensor: tensor * 0)
    assert torch.allclose(got.logits, torch.full((2, 4), 10.0))  # the weights of 2 x 5 rows sum to 10


@pytest.mark.parametrize("wants", [(), (Want(layers="first", inputs=True),)])
def test_an_edit_that_could_change_nothing_is_refused(wants: tuple[Want, ...]) -> None:
    with pytest.raises(BadInput, match="edit"):
        Probe(Target(ByHand().eval(), shape=(2,)), *wants, edit=lambda layer, tensor: tensor)


@pytest.mark.parametrize("inplace", [False, True])
def test_grad_lets_gradients_flow_from_neurons_to_the_input(inplace: bool) -> None:
    target = Target(ByHand(inplace).eval(), shape=(2,))
    x = X.clone().requires_grad_()
    trace = record(target, x, Want(layers="first,second"), grad=True)
    (slope,) = torch.autograd.grad(trace.values["first"][:, 0].sum(), x, retain_graph=True)
    assert slope.tolist() == [[1.0, -1.0], [1.0, -1.0]]
    (slope,) = torch.autograd.grad(trace.values["second"][:, 0].sum(), x, retain_graph=True)
    assert slope.tolist() == [[0.0, 0.0], [3.0, -1.0]]  # the first input's ReLUs are shut
    (slope,) = torch.autograd.grad(trace.logits.sum(), x)
    assert slope.tolist() == [[0.0, 0.0], [3.0, -1.0]]


def test_grad_and_edit_give_the_slope_of_an_answer_by_a_layer() -> None:
    target = Target(ByHand().eval(), shape=(2,))
    held = {}

    def hold(layer: str, tensor: Tensor) -> Tensor:
        held[layer] = tensor.detach().requires_grad_()
        return held[layer]

    trace = record(target, X, Want(layers="act"), grad=True, edit=hold)
    (slope,) = torch.autograd.grad(trace.logits[1, 0], held["act"])
    assert slope.tolist() == [[0.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize("inplace", [False, True])
def test_grad_gives_the_slope_of_an_answer_by_a_recorded_map(inplace: bool) -> None:
    """Recorded maps are the graph's own tensors, also where the network overwrites them right afterwards."""
    target = Target(ByHand(inplace).eval(), shape=(2,))
    trace = record(target, X.clone().requires_grad_(), Want(layers="first", keep="map"), grad=True)
    assert trace.values["first"].tolist() == FIRST
    (slope,) = torch.autograd.grad(trace.logits.sum(), trace.values["first"])
    assert slope.tolist() == [[0.0, 0.0], [1.0, 1.0]]  # second input: first row of W2 alone, its second answer is shut


def test_a_trace_stays_what_it_is_when_somebody_else_runs_the_network() -> None:
    target = Target(ByHand().eval(), shape=(2,))
    with Probe(target, Want(layers="first")) as probe:
        trace = probe(X)
        target.module(10 * X)
        assert trace.values["first"].tolist() == FIRST
        assert probe(X).values["first"].tolist() == FIRST


def test_without_grad_no_graph_is_kept() -> None:
    trace = record(Target(ByHand().eval(), shape=(2,)), X.clone().requires_grad_(), Want(layers="first"))
    assert not trace.logits.requires_grad
    assert not trace.values["first"].requires_grad


# -- hooks


def test_hooks_are_there_inside_and_gone_afterwards() -> None:
    target = Target(ByHand().eval(), shape=(2,))
    with Probe(target, Want(layers="first"), Want(layers="act*", inputs=True)):
        assert hooks(target) == 2
    assert hooks(target) == 0


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_hooks_are_gone_after_an_exception_in_the_middle_of_a_forward_pass(error: type[BaseException]) -> None:
    class Fails(ByHand):
        armed = False

        def forward(self, x: Tensor) -> Tensor:
            x = self.act(self.first(x))
            if self.armed:
                raise error("in the middle")
            return self.second(x)

    target = Target(Fails().eval(), shape=(2,))
    target.survey()
    Fails.armed = True
    with pytest.raises(error, match="in the middle"), Probe(target, Want(layers="*")) as probe:
        probe(X)
    assert hooks(target) == 0


def test_hooks_are_gone_after_an_exception_in_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(ByHand().eval(), shape=(2,))
    with pytest.raises(BadInput, match="matches no layer"), Probe(target, Want(layers="first"), Want(layers="thrid")):
        pass
    assert hooks(target) == 0
    probe = Probe(target, Want(layers="first,second"))
    attach = probe._attach

    def fails_on_the_second(module: str, jobs: object) -> None:
        if module == "second":
            raise RuntimeError("no room")
        attach(module, jobs)

    monkeypatch.setattr(probe, "_attach", fails_on_the_second)
    with pytest.raises(RuntimeError, match="no room"), probe:
        pass
    assert hooks(target) == 0


def test_hooks_are_gone_after_an_edit_that_fails() -> None:
    target = Target(ByHand().eval(), shape=(2,))

    def fails(layer: str, tensor: Tensor) -> Tensor:
        raise ValueError("cannot edit")

    with pytest.raises(ValueError, match="cannot edit"), Probe(target, Want(layers="first"), edit=fails) as probe:
        probe(X)
    assert hooks(target) == 0


def test_hooks_of_others_stay() -> None:
    target = Target(ByHand().eval(), shape=(2,))
    mine = target.module.first.register_forward_hook(lambda *_: None)
    record(target, X, Want(layers="*"))
    assert hooks(target) == 1
    mine.remove()


def test_training_mode_is_refused() -> None:
    target = Target(ByHand().eval(), shape=(2,))
    target.survey()
    target.module.second.train()
    with pytest.raises(BadInput, match="'second'"), Probe(target, Want(layers="first")):
        pass


@pytest.mark.parametrize("setting", [{"neuron": "cell"}, {"keep": "all"}])
def test_bad_wants(setting: dict[str, str]) -> None:
    with pytest.raises(BadInput, match=next(iter(setting.values()))):
        Want(**setting)
