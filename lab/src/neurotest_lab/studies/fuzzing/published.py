"""CIFAR-10 columns of NSGen's tables 3, 4 and 12, for the columns `paper` beside ours."""

from __future__ import annotations

from neurotest_lab.studies.frame import printed

PAPER = printed("fuzzing")
MODELS, TABLE_3, TABLE_4, TABLE_12 = (PAPER[name] for name in ("models", "table_3", "table_4", "table_12"))
CRITERIA = tuple(TABLE_3)


def counts(protocol: str, guide: str, column: int | None) -> dict[str, object]:
    """Printed counts for a row of ours; None where there are none."""
    row = None
    if column is not None and guide in CRITERIA:
        if protocol == "iterations":
            row = TABLE_3[guide][column]
        elif protocol == "outputs" and (twelfth := TABLE_12[guide][column]):
            row = twelfth[0], 1 if guide == "tknp" else 1000
    return {"paper faults": row and row[0], "paper outputs": row and row[1]}


def classes(guide: str, column: int | None) -> dict[str, object]:
    row = TABLE_4[guide][column] if column is not None and guide in CRITERIA else None
    return {"paper classes": row and row[0], "paper oi": row and row[1]}


def rows() -> list[dict[str, object]]:
    """All three side by side, as printed."""
    return [
        {
            "model": f"{model}/CIFAR-10", "guide": criterion, "faults": third and third[0], "outputs": third and third[1],
            "rft": round(third[0] / third[1], 4) if third else None, "classes": fourth and fourth[0], "oi": fourth and fourth[1],
            "faults of 1,000 outputs": twelfth and twelfth[0], "oi of 1,000 outputs": twelfth and twelfth[1],
        }
        for column, model in enumerate(MODELS)
        for criterion in CRITERIA
        for third, fourth, twelfth in [(TABLE_3[criterion][column], TABLE_4[criterion][column], TABLE_12[criterion][column])]
    ]  # fmt: skip
