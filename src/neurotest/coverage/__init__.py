"""Coverage: how much of a network a set of inputs exercises. It says nothing about how good the inputs are as tests."""

from neurotest.coverage.adequacy import DSA, LSA, MDSA, MLSA, MMDSA
from neurotest.coverage.api import cover
from neurotest.coverage.criterion import Criterion, State, Value
from neurotest.coverage.result import Coverage
from neurotest.measure.context import Context, Traces

__all__ = ["DSA", "LSA", "MDSA", "MLSA", "MMDSA", "Context", "Coverage", "Criterion", "State", "Traces", "Value", "cover"]
