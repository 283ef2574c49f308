"""Changing inputs: batched operators with one parameter set per item, every draw recorded so that it can be replayed."""
