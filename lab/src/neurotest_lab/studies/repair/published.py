"""Numbers printed in the papers, for the columns beside ours."""

from __future__ import annotations

from neurotest_lab.studies.frame import printed

PAPER = printed("repair")
