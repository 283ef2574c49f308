"""Numbers printed in the NSS paper, in percent, for the column `paper` beside ours."""

from __future__ import annotations

METHODS = ("nss", "nac", "kmnc", "npc", "dsa", "deepgini", "ats", "random")
BUDGETS = (5, 10, 15, 20)

# Table V: fault detection rate; per subject and budget in the order of METHODS.
FDR: dict[str, tuple[tuple[float, ...], ...]] = {
    "mnist-lenet1": (
        (81.8, 22.6, 42.2, 20.2, 22.2, 61.8, 58.7, 21.3),
        (70.6, 20.8, 38.7, 20.2, 22.5, 55.7, 54.3, 21.3),
        (58.3, 21.6, 35.3, 20.6, 23.6, 50.1, 47.6, 21.3),
        (53.3, 22.0, 35.7, 20.9, 23.5, 45.4, 41.5, 21.3),
    ),
    "mnist-lenet5": (
        (81.8, 18.4, 25.8, 21.6, 22.6, 58.2, 60.2, 18.8),
        (67.7, 18.1, 20.8, 20.0, 21.3, 50.5, 52.3, 18.8),
        (56.7, 18.5, 19.3, 19.3, 21.0, 46.2, 40.2, 18.7),
        (50.8, 18.4, 19.4, 19.1, 20.8, 42.3, 37.1, 18.7),
    ),
    "fashion-lenet1": (
        (70.2, 32.7, 35.9, 31.0, 31.1, 57.8, 53.3, 31.2),
        (65.0, 30.9, 35.9, 31.0, 31.0, 48.2, 48.7, 31.0),
        (59.6, 30.5, 34.2, 31.0, 31.0, 44.4, 45.1, 31.21),
        (57.3, 30.3, 34.6, 31.1, 31.0, 39.4, 40.1, 31.3),
    ),
    "fashion-resnet20": (
        (89.4, 21.1, 23.7, 30.5, 24.1, 55.0, 40.3, 26.3),
        (80.7, 20.5, 22.0, 28.4, 27.1, 48.7, 35.2, 26.2),
        (70.5, 21.1, 22.2, 27.3, 27.8, 47.2, 30.3, 26.2),
        (62.0, 21.4, 22.8, 26.7, 27.6, 42.7, 28.5, 26.2),
    ),
    "cifar10-resnet20": (
        (71.4, 28.2, 24.6, 26.0, 27.4, 50.4, 50.2, 28.8),
        (62.8, 25.8, 21.8, 28.7, 27.4, 45.0, 47.1, 28.9),
        (56.7, 25.6, 21.5, 28.8, 27.2, 40.6, 42.7, 28.9),
        (54.1, 26.4, 20.7, 28.5, 26.4, 35.4, 36.9, 28.9),
    ),
}


def rate(subject: str, method: str, column: int) -> float | None:
    """One printed cell of table V."""
    return FDR[subject][column][METHODS.index(method)] if subject in FDR and method in METHODS else None


# Table VI: one mutation for all inputs, CIFAR-10 with ResNet-20; at 5, 10, 15, 20 % and for random.
FIXED: dict[str, tuple[float, ...]] = {
    "shift": (52.0, 47.8, 44.9, 41.6, 14.8),
    "rotation": (44.8, 40.1, 39.1, 37.2, 29.4),
    "scale": (64.4, 57.8, 54.1, 50.2, 21.7),
    "shear": (51.2, 49.8, 46.2, 43.4, 35.4),
    "contrast": (48.4, 41.2, 38.5, 35.2, 17.1),
    "brightness": (65.2, 56.1, 51.7, 48.6, 26.7),
    "blur": (81.4, 80.6, 78.9, 77.0, 66.3),
}

# Table VII: area under the fault-type curve up to 20 %; the printed table calls the row of NSS "SCC".
AREA: dict[str, dict[str, float]] = {
    "mnist-lenet1": dict(zip(METHODS, (88.99, 57.36, 81.48, 50.68, 59.77, 85.00, 84.48, 74.01), strict=True)),
    "mnist-lenet5": dict(zip(METHODS, (91.55, 55.49, 55.86, 61.29, 56.46, 85.33, 83.98, 65.37), strict=True)),
    "fashion-lenet1": dict(zip(METHODS, (85.11, 54.12, 81.57, 52.78, 60.72, 82.96, 81.57, 70.04), strict=True)),
    "fashion-resnet20": dict(zip(METHODS, (72.06, 46.71, 52.63, 63.15, 70.45, 62.28, 62.28, 71.59), strict=True)),
    "cifar10-resnet20": dict(zip(METHODS, (86.11, 65.53, 64.71, 65.07, 68.27, 78.53, 75.42, 72.66), strict=True)),
}

# Table IX: fault detection rate at 20 % by share of sensitive neurons, 1, 5, 10, 20, 100 %.
SHARES = (0.01, 0.05, 0.1, 0.2, 1.0)
BY_SHARE: dict[str, tuple[float, ...]] = {
    "mnist-lenet1": (48.9, 51.4, 53.3, 56.7, 59.3),
    "mnist-lenet5": (44.8, 50.0, 50.9, 51.8, 54.3),
    "fashion-lenet1": (54.4, 57.0, 57.4, 61.2, 58.3),
    "fashion-resnet20": (54.5, 60.3, 62.0, 63.9, 66.0),
    "cifar10-resnet20": (52.9, 53.9, 54.1, 54.9, 55.1),
}

# Table X: fault detection rate at 20 % by layer, from the first to the last of the encoder, 20 % of the neurons.
LAYERS = ("Layer1", "Layer2", "Layer-2", "Layer-1")
BY_LAYER: dict[str, tuple[float, ...]] = {
    "mnist-lenet1": (56.65, 56.50, 56.70, 60.05),
    "mnist-lenet5": (51.65, 51.50, 51.80, 53.55),
    "fashion-lenet1": (57.15, 57.00, 61.20, 60.40),
    "fashion-resnet20": (44.25, 46.30, 60.65, 63.90),
    "cifar10-resnet20": (30.25, 33.60, 40.00, 54.85),
}

# What of the paper cannot be rerun here, and why.
ABSENT: tuple[tuple[str, str], ...] = (
    ("tables V, VII, IX, X and figures 3 (d), 4 (g, h): SVHN with LeNet-5 and VGG-16", "the data may be used for "
     "non-commercial work only and no package registry carries them"),
    ("tables V, VII, IX, X and figures 3 (c), 4 (f): CIFAR-10 with VGG-16", "33 million parameters: training takes days on the "
     "two cores everything here is trained on; `neurotest zoo train cifar10-vgg16bn` has the recipe"),
    ("table VIII: accuracy after retraining", "comes with repair"),
)  # fmt: skip
