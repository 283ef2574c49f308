"""Differential testing along the gradient: targets that are driven apart, and a single one driven out of its class."""

from __future__ import annotations

from neurotest.generate.differential.adapt import Adapt as Adapt
from neurotest.generate.differential.api import deepxplore_suite as deepxplore_suite
from neurotest.generate.differential.api import diff as diff
from neurotest.generate.differential.deepxplore import DeepXplore as DeepXplore
from neurotest.generate.differential.dlfuzz import DLFuzz as DLFuzz
from neurotest.generate.differential.result import DiffResult as DiffResult
