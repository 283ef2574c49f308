"""Data: where inputs come from (`neurotest.data("npz:pool.npz#x,y")`), and what they look like to everything else."""

from neurotest.callable_module import callable_module
from neurotest.data.source import ArraySource, Skipped, Source, check_shape
from neurotest.data.spec import data

__all__ = ["ArraySource", "Skipped", "Source", "check_shape", "data"]

callable_module(__name__)
