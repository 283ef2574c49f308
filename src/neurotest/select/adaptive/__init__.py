"""Adaptive selection: people label in rounds, and each round learns from the labels before it."""
