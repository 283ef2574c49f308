"""One command that looks at everything: `neurotest.check(target, data)` gives findings, ranked, and a verdict."""

from neurotest.callable_module import callable_module
from neurotest.check.api import check
from neurotest.check.examination import Examination
from neurotest.check.finding import Finding, Picture
from neurotest.check.result import CheckResult
from neurotest.check.subject import Subject

__all__ = ["CheckResult", "Examination", "Finding", "Picture", "Subject", "check"]

callable_module(__name__)
