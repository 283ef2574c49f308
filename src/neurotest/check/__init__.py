"""One command that looks at everything: `neurotest.check(target, data)` gives findings, ranked, and a verdict."""

from neurotest.callable_module import callable_module
from neurotest.check.api import check
from neurotest.check.base import Check, CheckContext, CheckResult
from neurotest.doctor.context import CaptionedImage, Finding

Examination, Picture, Subject = Check, CaptionedImage, CheckContext  # their names in version 0.1

__all__ = ["CaptionedImage", "Check", "CheckContext", "CheckResult", "Examination", "Finding", "Picture", "Subject", "check"]

callable_module(__name__)
