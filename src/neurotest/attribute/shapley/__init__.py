"""Shapley values of neurons: how much of the loss that a change of the input brings is caused by each of them."""

from neurotest.attribute.shapley.game import Game, Players, exact, hidden_layers
from neurotest.attribute.shapley.gradient import MaskGradient, mask_gradient
from neurotest.attribute.shapley.kernel import Estimate, kernel
from neurotest.attribute.shapley.permutation import Certified, certify, permutation

__all__ = [
    "Certified", "Estimate", "Game", "MaskGradient", "Players", "certify", "exact", "hidden_layers", "kernel", "mask_gradient",
    "permutation",
]  # fmt: skip
