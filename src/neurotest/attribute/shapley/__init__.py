"""Shapley values of neurons: how much of the loss that a change of the input brings is caused by each of them."""

from neurotest.attribute.shapley.estimate import Certified, Estimate, certify, kernel, permutation
from neurotest.attribute.shapley.game import Game, MaskGradient, Players, exact, hidden_layers, mask_gradient

__all__ = [
    "Certified", "Estimate", "Game", "MaskGradient", "Players", "certify", "exact", "hidden_layers", "kernel", "mask_gradient",
    "permutation",
]  # fmt: skip
