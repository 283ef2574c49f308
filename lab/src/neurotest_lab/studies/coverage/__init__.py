"""The study of neuron coverage and what it goes with."""
