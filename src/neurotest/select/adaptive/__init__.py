"""Adaptive selection: people label in rounds, and each round learns from the labels before it."""

from neurotest.select.adaptive.learning import Loop
from neurotest.select.adaptive.selector import Adaptive, loop

__all__ = ["Adaptive", "Loop", "loop"]
