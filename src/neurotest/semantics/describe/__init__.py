"""Describers: what a neuron means, in words. `neurotest.semantics.descriptions.describe` is the way in."""
