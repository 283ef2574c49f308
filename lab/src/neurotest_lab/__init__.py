"""The laboratory of neurotest: studies, benchmarks, and the networks and data they use."""
