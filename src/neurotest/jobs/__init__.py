"""The work around every method: opening targets and data, trusting stored ones, methods as text, the life of a run."""
