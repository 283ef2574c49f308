"""A health check of a network under test: `neurotest.doctor(target, data)`."""

from neurotest.callable_module import callable_module
from neurotest.doctor.checks import doctor
from neurotest.doctor.context import Diagnosis, Finding

__all__ = ["Diagnosis", "Finding", "doctor"]

callable_module(__name__)
