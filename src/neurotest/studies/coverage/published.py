"""Numbers printed in the coverage study (Harel-Canada et al., FSE 2020), as facts to compare with."""

from __future__ import annotations

MODELS = ("FCNet5", "FCNet10", "Conv1DNet", "Conv2DNet", "ResNet56", "DenseNet121", "Dave_orig", "Dave_norminit")
NATURAL = MODELS[4:]  # MNIST is left out of the study's judgement of naturalness
THRESHOLDS = (0.0, 0.2, 0.5, 0.75)
OURS = {
    "mnist-fcnet5": "FCNet5", "mnist-fcnet10": "FCNet10", "mnist-conv1d": "Conv1DNet", "mnist-conv2d": "Conv2DNet",
    "cifar10-resnet20": "ResNet56",
}  # fmt: skip
Row = tuple[float | None, ...]
NA: Row = (None,) * 4

# By model: CW at the four thresholds, then PGD.
ASR: dict[str, tuple[Row, Row]] = {
    "FCNet5": ((-0.20, -0.23, -0.18, 0.07), (-0.10, -0.52, -0.52, -0.32)),
    "FCNet10": ((-0.67, 0.76, 0.75, 0.04), (-0.18, -0.16, -0.10, 0.14)),
    "Conv1DNet": (NA, (0.58, -0.37, 0.10, 0.05)),
    "Conv2DNet": ((-0.16, -0.20, -0.29, -0.23), (0.08, -0.04, -0.16, -0.36)),
    "ResNet56": ((-0.46, 0.59, 0.58, 0.57), (-0.11, 0.52, 0.53, 0.21)),
    "DenseNet121": ((-0.83, -0.21, -0.06, 0.13), (0.19, 0.18, 0.20, 0.11)),
    "Dave_orig": ((0.02, -0.17, -0.27, -0.21), (0.30, -0.16, -0.45, -0.34)),
    "Dave_norminit": (NA, (0.00, -0.10, 0.00, -0.08)),
}
IS: dict[str, tuple[Row, Row]] = {
    "ResNet56": ((0.09, -0.87, -0.81, -0.59), (0.34, -0.38, -0.52, 0.06)),
    "DenseNet121": ((0.57, 0.73, 0.63, 0.46), (-0.15, 0.16, -0.08, 0.19)),
    "Dave_orig": ((-0.62, -0.32, 0.02, 0.21), (-0.55, -0.89, -0.53, -0.29)),
    "Dave_norminit": ((0.56, -0.48, -0.53, -0.50), (-0.94, -0.67, -0.28, -0.23)),
}
FID: dict[str, tuple[Row, Row]] = {
    "ResNet56": ((0.27, 0.76, 0.75, 0.59), (-0.03, 0.42, 0.46, -0.14)),
    "DenseNet121": ((-0.23, 0.13, 0.24, 0.35), (0.26, -0.06, 0.16, -0.12)),
    "Dave_orig": ((0.61, -0.22, -0.31, -0.18), (0.49, 0.97, 0.60, 0.29)),
    "Dave_norminit": ((0.88, 0.50, 0.41, 0.49), (0.96, 0.78, 0.38, 0.32)),
}
OI: dict[str, tuple[Row, Row]] = {
    "FCNet5": ((0.33, 0.43, 0.36, 0.11), (0.37, 0.74, 0.52, 0.26)),
    "FCNet10": ((0.77, -0.70, -0.76, -0.02), (0.42, 0.34, 0.25, 0.02)),
    "Conv1DNet": ((0.39, 0.08, 0.10, 0.15), (-0.57, 0.18, -0.28, -0.15)),
    "Conv2DNet": ((-0.22, -0.02, 0.29, 0.34), (0.34, 0.11, -0.04, -0.08)),
    "ResNet56": ((-0.27, 0.45, 0.43, 0.43), (-0.02, 0.07, 0.09, 0.08)),
    "DenseNet121": ((0.79, 0.11, -0.04, -0.18), (-0.09, -0.18, -0.06, 0.08)),
    "Dave_orig": (NA, (-0.36, 0.13, 0.41, 0.34)),
    "Dave_norminit": ((0.66, 0.01, -0.04, 0.00), (-0.05, 0.19, 0.26, 0.22)),
}
# What is correlated with coverage: table, published numbers, the hoped direction.
METRICS: dict[str, tuple[str, dict[str, tuple[Row, Row]], int]] = {
    "asr": ("4: coverage and defects", ASR, 1),
    "is": ("5: coverage and naturalness", IS, 1),
    "fid": ("5: coverage and naturalness", FID, -1),
    "oi": ("6: coverage and impartiality", OI, 1),
}
# Table 2: coverage of the originals, its mean and its greatest increase in per cent, at each threshold.
GAINS: dict[str, tuple[tuple[float, float, float], ...]] = {
    "FCNet5": ((96.09, 0.56, 0.66), (61.21, 22.59, 61.72), (15.01, 45.75, 173.98), (4.33, 38.72, 171.88)),
    "FCNet10": ((78.52, 7.65, 18.63), (16.79, 54.68, 98.90), (3.70, 38.27, 71.63), (0.89, 63.77, 123.91)),
    "Conv1DNet": ((68.08, 4.82, 14.50), (12.67, 8.77, 45.33), (1.26, 12.85, 139.58), (0.48, 15.16, 63.38)),
    "Conv2DNet": ((94.96, 1.77, 4.18), (23.89, 9.11, 36.47), (6.66, 25.48, 55.69), (1.23, 67.88, 122.04)),
    "ResNet56": ((95.07, 0.22, 0.40), (26.87, 4.31, 11.77), (5.42, 6.17, 21.76), (1.29, 6.20, 15.71)),
}
# Table 7: mean rank of each MNIST class by the coverage of its own inputs, on Conv2DNet.
RANKS = {0: 4.1, 1: 8.2, 2: 3.1, 3: 6.2, 4: 7.0, 5: 2.9, 6: 8.6, 7: 5.0, 8: 2.1, 9: 7.4}


def published(metric: str, model: str, attack: str, column: int) -> float | None:
    """One printed cell of tables 4 to 6; None where the study prints NA or has no such row."""
    row = METRICS[metric][1].get(model)
    return None if row is None else row[("cw", "pgd").index(attack)][column]


def printed(metric: str, model: str) -> bool:
    """Whether the study prints a row for the model."""
    return model in METRICS[metric][1]
