"""Budgets, and what selection refuses with one clear sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import Tensor, nn

from neurotest.data.source import ArraySource, Source
from neurotest.select import compare, select
from neurotest.target import Target

from .subjects import N, Net, exact_pool, images, labels, same_order, target

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("budget", [0, "0%", -1, N + 1, "101%", "abc", "", 2.5, "nan"])
def test_bad_budgets(budget: object) -> None:
    with refused(("syntax", "wrong-type", "out-of-range", "too-large"), "budget"):
        select(target(), exact_pool(), "deepgini", budget)


@pytest.mark.parametrize(("budget", "picked"), [("5%", 2), (0.05, 2), (7, 7), ("100%", N), (N, N), ("0.1%", 1)])
def test_budgets(budget: object, picked: int) -> None:
    assert select(target(), exact_pool(), "deepgini", budget).picked == picked


@pytest.mark.parametrize(
    ("method", "refusal"),
    [
        ("deepgin", ("unknown-name", "selector")),
        ("deepgini:3", ("unknown-option", "deepgini")),
        ("nss:layer=conf", ("unknown-name", "layers")),
        ("nss k=1", ("syntax", "method")),
    ],
)
def test_bad_methods(method: str, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        select(target(), exact_pool(), method, 5)


def test_no_method_at_all() -> None:
    with refused("missing", "methods"):
        compare(target(), exact_pool(), [])


def test_layers_from_the_command_line() -> None:
    selection = select(target(), exact_pool(), "nss", 5, layers="conv", neuron="channel")
    assert same_order(selection, select(target(), exact_pool(), "nss:layer=conv,neuron=channel", 5))
    with refused("conflict", "layers"):
        select(target(), exact_pool(), "deepgini", 5, layers="conv")
    with refused("conflict", "neuron"):
        select(target(), exact_pool(), "nss", 5, neuron="channel")


class Fragile(Net):
    """Divides zero by zero when the first pixel is white, in its answer or beside it."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where, self.beside = where, nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        bad = torch.where(x[:, :1, 0, 0] == 1, torch.nan, 0.0)  # (n, 1)
        self.beside(bad)
        return super().forward(x) + (bad if self.where == "answer" else 0)


def fragile_pool() -> Source:
    x = images()
    x[:, 0, 0, 0] = 0.5
    x[33, 0, 0, 0] = 1
    return ArraySource(x, originals=ArraySource(x))


def test_nan_outputs_are_refused_and_the_input_is_named() -> None:
    network = Target(Fragile("answer").eval(), shape=(1, 6, 6))
    with refused("not-finite", "outputs"):
        select(network, fragile_pool(), "deepgini", 5, batch=10)


def test_nan_activations_are_refused() -> None:
    network = Target(Fragile("beside").eval(), shape=(1, 6, 6))
    assert select(network, fragile_pool(), "deepgini", 5).picked == 5
    with refused("not-finite", "scores"):
        select(network, fragile_pool(), "nss:layer=beside", 5)


def test_labels_beyond_the_classes_are_refused() -> None:
    """Labels counted from 1 are the usual cause."""
    with refused("out-of-range", "labels"):
        select(target(), ArraySource(images(), labels() + 1), "deepgini", 5)


def test_a_pool_of_another_shape_is_refused() -> None:
    with refused("wrong-shape", "size"):
        select(target(), ArraySource(np.zeros((5, 1, 8, 8), np.uint8)), "deepgini", 2)


def test_a_network_in_training_mode_is_refused() -> None:
    with refused("unsuitable", "training"):
        select(Target(Net(), shape=(1, 6, 6)), exact_pool(), "deepgini", 2)


def test_vectors_cannot_be_mutated() -> None:
    network = Target(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).eval(), shape=(4,))
    pool = ArraySource(np.random.default_rng(0).random((9, 4), dtype=np.float32))
    assert select(network, pool, "entropy", 3).picked == 3
    with refused("unsuitable", "shape"):
        select(network, pool, "nss", 3)
