"""Repair: `neurotest.repair(target, run, train, holdout)` retrains on what a run showed, and proves that it helped."""

from neurotest.callable_module import callable_module
from neurotest.repair.api import repair
from neurotest.repair.work import RepairResult

__all__ = ["RepairResult", "repair"]

callable_module(__name__)
