"""Selection: which unlabelled inputs to label first."""

from neurotest.callable_module import callable_module
from neurotest.select.api import compare, select
from neurotest.select.selection import Selection

__all__ = ["Selection", "compare", "select"]

callable_module(__name__)
