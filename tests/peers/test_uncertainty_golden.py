"""Uncertainty scores against uncertainty-wizard's quantifiers and the order of DeepGini's authors, on a fixed subject."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.golden import arrays

from neurotest import registry
from neurotest.select.api import rank
from neurotest.target.probe import Trace

pytestmark = pytest.mark.by_hand

# Ours is higher for what should be labelled earlier; a confidence of theirs is turned round.
THEIRS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "deepgini": ("uwiz|DeepGini", lambda theirs: theirs),
    "maxp": ("uwiz|MaxSoftmax(confidence)", lambda theirs: 1 - theirs),
    "margin": ("uwiz|PCS(confidence)", lambda theirs: -theirs),
    "entropy": ("uwiz|SoftmaxEntropy(bits)", lambda theirs: theirs),
}


def ours(method: str, source: str) -> np.ndarray:
    outputs = arrays("outputs")
    if source == "softmax":
        probs = torch.from_numpy(outputs["softmax_test"]).double()
    else:
        probs = Trace(torch.from_numpy(outputs["logits_test"])).probs
    return registry.build("selector", method).score(probs).numpy()


@pytest.mark.parametrize("method", THEIRS)
def test_scores_on_the_same_probabilities(method: str) -> None:
    key, turned = THEIRS[method]
    assert np.abs(ours(method, "softmax") - turned(arrays("selection")[key])).max() < 1e-6


@pytest.mark.parametrize("method", THEIRS)
def test_scores_from_the_logits(method: str) -> None:
    """Through our own softmax in double precision; theirs was in single."""
    key, turned = THEIRS[method]
    assert np.abs(ours(method, "logits") - turned(arrays("selection")[key])).max() < 5e-6


@pytest.mark.parametrize("method", THEIRS)
def test_orders(method: str) -> None:
    """All 300 golden scores differ, so the order along which ours falls must make theirs fall, up to rounding."""
    key, turned = THEIRS[method]
    along = turned(arrays("selection")[key])[rank(ours(method, "softmax"))]
    assert np.diff(along).max() < 1e-6


def test_the_order_of_the_authors_of_deepgini() -> None:
    theirs, scores = arrays("selection")["deepgini_repo|order"], ours("deepgini", "softmax")
    assert np.diff(scores[theirs]).max() < 1e-6
    assert np.mean(rank(scores) == theirs) > 0.95
