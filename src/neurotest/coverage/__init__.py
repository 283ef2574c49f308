"""Coverage: how much of a network a set of inputs exercises."""
