"""The probe's switches: edit what the network goes on with, keep the graph, record something else."""

from __future__ import annotations

import pytest
import torch
from tests.refusals import refused
from tests.unit.target.by_hand import ACT2, FIRST, ByHand, X, noise, record
from torch import Tensor, nn

from neurotest.target import Probe, Target, Want

pytestmark = pytest.mark.by_hand


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


@pytest.mark.parametrize("inplace", [False, True])
def test_something_else_is_recorded_and_the_network_goes_on(inplace: bool) -> None:
    target = Target(ByHand(inplace).eval(), shape=(2,))
    plain = record(target, X, Want(layers="first", keep="map"), grad=True)
    seen = []

    def total(layer: str, tensor: Tensor) -> Tensor:
        seen.append(layer)
        return tensor.sum(1)

    trace = record(target, X, Want(layers="first", keep="map"), grad=True, record=total)
    assert seen == ["first"]
    assert torch.equal(trace.values["first"], plain.values["first"].sum(1))
    assert torch.equal(trace.logits, plain.logits)


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
    with refused("missing", "edit"):
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
    kept = {}

    def hold(layer: str, tensor: Tensor) -> Tensor:
        kept[layer] = tensor.detach().requires_grad_()
        return kept[layer]

    trace = record(target, X, Want(layers="act"), grad=True, edit=hold)
    (slope,) = torch.autograd.grad(trace.logits[1, 0], kept["act"])
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
