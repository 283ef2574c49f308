"""What the two DeepSensor papers print, and what of it is no target: tables 3 to 5 of the second repeat II to IV of the first."""

from __future__ import annotations

from typing import Any

METHODS = ("deepxplore", "dlfuzz", "deephunter", "deepsensor")
# Subject: (test errors, error categories) by method, of 20,000 opportunities (1,000 seeds, 20 iterations).
ERRORS: dict[str, tuple[tuple[int, int], ...]] = {
    "mnist-lenet1": ((17528, 2667), (17490, 1682), (18124, 2682), (18747, 3168)),
    "mnist-lenet4": ((18474, 2379), (16809, 1473), (18420, 2489), (18771, 2868)),
    "mnist-lenet5": ((18076, 2224), (16914, 1509), (18323, 2469), (18349, 2906)),
    "cifar10-resnet20": ((16723, 1162), (15989, 1336), (17384, 1549), (18025, 2024)),
}
POLLUTED = {"10%": (74, 204, 192, 757), "20%": (79, 164, 181, 723), "30%": (72, 172, 185, 784)}  # LeNet-5, of 1,000
INCOMPLETE = {"underfit": (880, 814, 891, 981), "well trained": (894, 845, 906, 937), "overfit": (837, 826, 898, 979)}
TIME = {"deepxplore": 222.88, "dlfuzz": 178.61, "deephunter": 102.20, "sensitivity": 101.41, "excitability": 259.7}


def average(subject: str, method: str) -> float | None:
    """Printed error categories per seed."""
    column = {name: i for i, name in enumerate(METHODS)} | {"sensitivity-paper": 3, "excitability-paper": 3}
    return ERRORS[subject][column[method]][1] / 1000 if subject in ERRORS and method in column else None


def rows() -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = [
        {"table": "II, 3", "subject": subject, "method": method, "errors": errors, "categories": kinds, "average": kinds / 1000}
        for subject, numbers in ERRORS.items()
        for method, (errors, kinds) in zip(METHODS, numbers, strict=True)
    ]
    return table + [
        {"table": name, "subject": f"LeNet-5 {kind}{setting}", "method": method, "errors": errors, "categories": None,
         "average": None}
        for name, kind, values in (("III, 4", "polluted ", POLLUTED), ("IV, 5", "", INCOMPLETE))
        for setting, counts in values.items()
        for method, errors in zip(METHODS, counts, strict=True)
    ]  # fmt: skip


ABSENT = (
    ("VGG16, MobileNet, ResNet-50, ImageNet", "networks of a GPU's size, and ImageNet is not available here"),
    ("VCTK, speaker recognition (tables 6, 7)", "the data is not available here; the tests have swarms on vectors"),
    ("retraining, ASR and CLEVER (figures 4 to 6)", "belongs to repair and robustness, not to generation"),
    ("t-SNE and galleries (figures 7 to 9)", "no numbers; `neurotest swarm` stores every fault as an image"),
    ("JSMA and DeepFool (figure 7)", "an optional package's; PGD, the margin swarm and noise stand in"),
    ("the papers' counts as targets", "tables 3, 4, 5 equal II, III, IV digit for digit although the method changed; 37 % "
     "excitable neurons (figure 3) cannot be under the definition: values sum to the loss change"),
)  # fmt: skip
