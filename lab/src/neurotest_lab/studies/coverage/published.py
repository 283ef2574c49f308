"""Numbers printed in the coverage study (Harel-Canada et al., FSE 2020), as facts to compare with."""

from __future__ import annotations

from neurotest_lab.studies.frame import printed as read

PAPER = read("coverage")
THRESHOLDS: tuple[float, ...] = PAPER["thresholds"]
MODELS = tuple(PAPER["asr"])
OURS = {
    "mnist-fcnet5": "FCNet5", "mnist-fcnet10": "FCNet10", "mnist-conv1d": "Conv1DNet", "mnist-conv2d": "Conv2DNet",
    "cifar10-resnet20": "ResNet56", "cifar10-resnet56": "ResNet56", "driving-dave2": "Dave_orig",
    "driving-dave2n": "Dave_norminit",
}  # fmt: skip
Row = tuple[float | None, ...]
# What is correlated with coverage: table, published numbers, the hoped direction.
METRICS: dict[str, tuple[str, dict[str, tuple[Row, Row]], int]] = {
    "asr": ("4: coverage and defects", PAPER["asr"], 1),
    "is": ("5: coverage and naturalness", PAPER["is"], 1),
    "fid": ("5: coverage and naturalness", PAPER["fid"], -1),
    "oi": ("6: coverage and impartiality", PAPER["oi"], 1),
}
GAINS: dict[str, tuple[tuple[float, float, float], ...]] = PAPER["gains"]
RANKS: dict[int, float] = {int(number): rank for number, rank in PAPER["ranks"].items()}


def published(metric: str, model: str, attack: str, column: int) -> float | None:
    """One printed cell of tables 4 to 6; None where the study prints NA or has no such row."""
    row = METRICS[metric][1].get(model)
    return None if row is None else row[("cw", "pgd").index(attack)][column]


def printed(metric: str, model: str) -> bool:
    """Whether the study prints a row for the model."""
    return model in METRICS[metric][1]
