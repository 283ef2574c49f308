"""Runs: a directory with `run.sqlite` and inputs people can open. Nothing is lost, nothing in it is executed."""

from __future__ import annotations

from neurotest.runs.store import Run

__all__ = ["Run"]
