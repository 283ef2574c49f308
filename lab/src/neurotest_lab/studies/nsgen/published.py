"""CIFAR-10 columns of NSGen's tables 5, 8, 9 and 11 (tables 3, 4 and 12 stand with the study fuzzing)."""

from __future__ import annotations

from typing import Any

from neurotest_lab.studies.frame import printed

PAPER = printed("nsgen")


def rows() -> list[dict[str, Any]]:
    """Everything above as one table."""
    five = [
        ("5", model, name, *numbers)
        for name, columns in PAPER["table_5"].items()
        for model, numbers in zip(("ResNet50", "VGG16_BN", "MobileNet_v2"), columns, strict=True)
    ]
    eight = [("8", "MobileNet_v2", f"top-{k} labels", *counts, None) for k, counts in PAPER["table_8"].items()]
    nine = [("9", "", f"tau from {share} %", None, None, tau) for share, tau in PAPER["table_9"].items()]
    eleven = [("11", "VGG16_BN", name, *counts, None) for name, counts in PAPER["table_11"].items()]
    columns = ("table", "model", "what", "faults", "outputs", "value")
    return [dict(zip(columns, row, strict=True)) for row in (*five, *eight, *nine, *eleven)]
