"""Benchmarks: each is a pair of jobs timed alternately in one process, so that a noisy machine disturbs both alike."""

from neurotest_lab.bench.ratio import Ratio, machine, ratio
from neurotest_lab.bench.works import run

__all__ = ["Ratio", "machine", "ratio", "run"]
