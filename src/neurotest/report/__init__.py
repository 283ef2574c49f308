"""Reports: one self-contained HTML file made from a run, nothing else."""

from neurotest.report.page import write_report

__all__ = ["write_report"]
