"""Numbers printed in the NSS paper, in percent, for the column `paper` beside ours."""

from __future__ import annotations

from neurotest_lab.studies.frame import printed

PAPER = printed("nss")
METHODS, BUDGETS, SHARES, LAYERS = (PAPER[name] for name in ("methods", "budgets", "shares", "layers"))
FDR, FIXED, BY_SHARE, BY_LAYER = (PAPER[name] for name in ("fdr", "fixed", "by_share", "by_layer"))
AREA: dict[str, dict[str, float]] = {s: dict(zip(METHODS, row, strict=True)) for s, row in PAPER["area"].items()}


def rate(subject: str, method: str, column: int) -> float | None:
    """One printed cell of table V."""
    return FDR[subject][column][METHODS.index(method)] if subject in FDR and method in METHODS else None
