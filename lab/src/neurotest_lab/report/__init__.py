"""Sections and charts of a study's page; importing this registers them."""

from neurotest_lab.report import coverage, deepsensor, nsgen, study

__all__ = ["coverage", "deepsensor", "nsgen", "study"]
